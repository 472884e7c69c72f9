"""`GET /sluice/streams?held=1&search=…&limit=…`: open streams, their counts, and the limits they wait on.

A rate is the difference of a count in two answers, over the difference of their `monotonic_ms`.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush, heappushpop
from itertools import count
from typing import TypedDict

from aiohttp import web

from limiter.levels import LEVEL_OF_WORD, Setting, StreamIdentity
from limiter.limiter import Limiter, Shadow, Stream
from limiter.policies import PolicyTarget
from limiter.token_bucket import DIRECTIONS, Direction, Mode, Rate
from protocol.topic_name import parse_topic
from proxy.admin.handlers import (
    ANY_TEXT,
    JSON,
    Either,
    Number,
    Query,
    Text,
    asked,
    caller_of,
    described,
    explaining,
    sent,
    units_of,
)
from proxy.admin.in_force import LimitsInForce, ShownDegraded, ShownInForce, ShownShares, shown_in_force
from proxy.admin.json_text import json_of
from proxy.observe.connection import Connection
from proxy.observe.log_lines import per_second, published_per_second, rejecting_last, withholding
from proxy.policies.keys import LONGEST, read_target
from proxy.session.engine import Engine
from proxy.slices import Work


class Totals(TypedDict):
    """Sums over streams."""

    streams: int
    held_streams: int
    held_messages: int
    held_bytes: int


class RejectingLimit(TypedDict):
    """The limit that rejected a producer's messages last (mode `reject`)."""

    level: str
    name: str
    source: str
    messages_per_s: float | None
    bytes_per_s: float | None
    published_messages_per_s: float | None
    published_bytes_per_s: float | None
    in_force: ShownInForce


class Obstacle(RejectingLimit):
    """The limit that a stream waits on, and for how long already."""

    for_ms: float


class ShownStreamLimit(TypedDict):
    """A limit in force; numbers that it does not limit are null."""

    level: str
    name: str
    source: str
    mode: Mode
    messages_per_s: float | None
    bytes_per_s: float | None
    burst_messages: int | None
    burst_bytes: int | None
    peak_messages_per_s: float | None
    peak_bytes_per_s: float | None
    relative_to_publish_rate: bool
    published_messages_per_s: float | None
    published_bytes_per_s: float | None
    in_force: ShownInForce


class ShownObserved(TypedDict):
    """The effect that limits in mode `observe` would have."""

    held_messages: int
    held_bytes: int
    held_for_ms: float | None
    throttled_ms: float
    exceeded_messages: int


class ShownStream(TypedDict):
    """A producer or consumer; counts are since it was opened."""

    direction: Direction
    topic: str
    connection_id: int
    client_address: str
    client_role: str
    client_tls: bool
    stream_id: int
    producer_name: str
    subscription: str
    consumer_name: str
    offered_messages: int
    offered_bytes: int
    passed_messages: int
    passed_bytes: int
    rejected_messages: int
    rejected_bytes: int
    rejected_by: RejectingLimit | None
    dropped_messages: int
    throttled_ms: float
    held_messages: int
    held_bytes: int
    held_for_ms: float | None
    oldest_held_ms: float | None
    permits_asked: int
    permits_granted: int
    permits_withheld: int
    permits_at_broker: int
    permits_wait_on: Obstacle | None
    waits_on: Obstacle | None
    limits: list[ShownStreamLimit]
    observed: ShownObserved | None


@dataclass(frozen=True, slots=True)
class WantedStreams:
    """The choice of streams that a query makes.

    Args:
        held: Only streams that hold entries.
        topic: A topic's full name, of a partitioned one with or without partition; empty for all.
        tenant: A tenant; empty for all.
        most: Most streams to show.
        role: A client's role; empty for all.
        address: A client's address, without the port; empty for all.
        search: A part of the topic's or the client's names, as it is written; empty for all.
        under: Direction, level and name of a limiter that the streams are within, those that are empty for any.
        target: Direction, setting and name for whose value the streams are, if it is set or not; None for any.
        tenants: The tenants whose streams the caller may see; None: all.
    """

    held: bool
    topic: str
    tenant: str
    most: int
    role: str = ""
    address: str = ""
    search: str = ""
    under: tuple[str, str, str] = ("", "", "")
    target: PolicyTarget | None = None
    tenants: frozenset[str] | None = None

    def has(self, stream: Stream) -> bool:
        """Return whether `stream` is in the choice."""
        name = stream.name
        if self.held and not stream.held:
            return False
        if self.tenant and name.tenant != self.tenant:
            return False
        if self.tenants is not None and name.tenant not in self.tenants:
            return False
        if self.topic and name.topic != self.topic and not name.topic.startswith(f"{self.topic}-partition-"):
            return False
        is_narrower = self.role or self.address or self.search or any(self.under)
        return not is_narrower or self._has_client_and_limit(stream)

    def _has_client_and_limit(self, stream: Stream) -> bool:
        connection = stream.connection
        assert isinstance(connection, Connection), "streams of the proxy belong to its connections"
        if (self.role and connection.client_role != self.role) or (
            self.address and connection.client_host != self.address
        ):
            return False
        if self.search and not any(self.search in text for text in _names_of(stream, connection)):
            return False
        return not any(self.under) or self._is_under(stream)

    def _is_under(self, stream: Stream) -> bool:
        direction, level, name = self.under
        if direction and stream.name.direction != direction:
            return False
        chain = (*stream.chain, *(stream.observed.chain if stream.observed else ()))
        scopes = [limiter.scope for limiter in chain]
        return not (level or name) or any(level in {"", at.level} and name in {"", at.name} for at in scopes)


def is_for(target: PolicyTarget) -> Callable[[StreamIdentity], bool]:
    """Return a function that tells whether a value at a target would be for a stream."""
    _, setting, name = target
    record, level, named = setting.record, setting.level, setting.record.names()
    naming = next(naming for each, naming, _ in level.lookups if each is setting)
    named.put(name, True)

    def has(identity: StreamIdentity) -> bool:
        if level.is_of_system is not identity.topic.is_system or not level.exists(identity):
            return False
        return record.is_each(name) or any(named.matches(naming(identity)))

    return has


def _names_of(stream: Stream, connection: Connection) -> tuple[str, ...]:
    name = stream.name
    return (
        name.topic,
        name.producer_name,
        name.subscription,
        name.consumer_name,
        connection.client_role,
        connection.client_address,
    )


class Choice:
    """Picks the streams to show, some at a time: those that hold most come first, or would hold most, then the others.

    Consumers whose permits are withheld come between these, as they wait for a limit, too.

    Args:
        wanted: The filter.
    """

    def __init__(self, wanted: WantedStreams) -> None:
        self._wanted = wanted
        self._holding: list[tuple[int, int, int, Stream]] = []
        """A heap, the stream that holds least first."""
        self._others: list[Stream] = []
        self._numbers = count(0, -1)
        self.totals: Totals = {"streams": 0, "held_streams": 0, "held_messages": 0, "held_bytes": 0}
        """Sums over all streams that pass the filter, shown or not."""
        self.shown: list[Stream] = []
        """The streams to show of all that were looked at, after `ordering`."""

    def look_at(self, streams: Iterable[Stream]) -> None:
        """Take more streams into account."""
        for stream in filter(self._wanted.has, streams):
            self.totals["streams"] += 1
            if stream.holds or (stream.permits is not None and stream.permits.asked):
                self._count_held(stream)
            elif len(self._others) < self._wanted.most:
                self._others.append(stream)

    def ordering(self) -> Iterator[None]:
        """Put the streams to show in order, some in each step."""
        while self._holding:
            for _ in range(min(_ORDERED_AT_ONCE, len(self._holding))):
                self.shown.append(heappop(self._holding)[-1])
            yield
        self.shown.reverse()
        self.shown += self._others[: self._wanted.most - len(self.shown)]

    def _count_held(self, stream: Stream) -> None:
        messages = stream.usage.held_messages
        would = stream.observed.usage.held_messages if stream.observed else 0
        entry = messages, would, next(self._numbers), stream
        if len(self._holding) < self._wanted.most:
            heappush(self._holding, entry)
        else:
            heappushpop(self._holding, entry)
        if stream.held:
            self.totals["held_streams"] += 1
            self.totals["held_messages"] += messages
            self.totals["held_bytes"] += stream.usage.held_size


def view(stream: Stream, now: int) -> ShownStream:
    """Show one stream; counts are since it was opened."""
    name, usage, connection = stream.name, stream.usage, stream.connection
    assert isinstance(connection, Connection), "streams of the proxy belong to its connections"
    observed, permits, withheld_by = stream.observed, stream.permits, withholding(stream)
    rejected_by = rejecting_last(stream)
    return {
        "direction": name.direction,
        "topic": name.topic,
        "connection_id": connection.connection_id,
        "client_address": connection.client_address,
        "client_role": connection.client_role,
        "client_tls": connection.is_tls,
        "stream_id": name.stream_id,
        "producer_name": name.producer_name,
        "subscription": name.subscription,
        "consumer_name": name.consumer_name,
        "offered_messages": usage.offered_messages,
        "offered_bytes": usage.offered_size,
        "passed_messages": usage.passed_messages,
        "passed_bytes": usage.passed_size,
        "rejected_messages": usage.rejected_messages,
        "rejected_bytes": usage.rejected_size,
        "rejected_by": _limit_in_way(rejected_by) if rejected_by else None,
        "dropped_messages": usage.dropped_messages,
        "throttled_ms": usage.throttled.read(now) / 1e6,
        "held_messages": usage.held_messages,
        "held_bytes": usage.held_size,
        "held_for_ms": usage.throttled.running_ns(now) / 1e6 if stream.held else None,
        "oldest_held_ms": (now - stream.held[0].since) / 1e6 if stream.held else None,
        "permits_asked": usage.permits_asked,
        "permits_granted": usage.permits_granted,
        "permits_withheld": permits.asked if permits else 0,
        "permits_at_broker": permits.at_broker if permits else 0,
        "permits_wait_on": _obstacle(withheld_by, usage.withheld.running_ns(now)) if withheld_by else None,
        "waits_on": _obstacle(stream.waits_on, now - stream.waits_since) if stream.waits_on else None,
        "limits": [_limit(limiter) for limiter in (*stream.chain, *(observed.chain if observed else ()))],
        "observed": _observed(observed, now) if observed else None,
    }


def _obstacle(limiter: Limiter, wait_ns: int) -> Obstacle:
    return {**_limit_in_way(limiter), "for_ms": wait_ns / 1e6}


def _limit_in_way(limiter: Limiter) -> RejectingLimit:
    published_messages, published_bytes = published_per_second(limiter.limit)
    return {
        "level": limiter.scope.level,
        "name": limiter.scope.name,
        "source": limiter.source,
        "messages_per_s": per_second(limiter.limit.messages),
        "bytes_per_s": per_second(limiter.limit.size),
        "published_messages_per_s": published_messages,
        "published_bytes_per_s": published_bytes,
        "in_force": shown_in_force(limiter),
    }


def _observed(observed: Shadow, now: int) -> ShownObserved:
    usage = observed.usage
    return {
        "held_messages": usage.held_messages,
        "held_bytes": usage.held_size,
        "held_for_ms": usage.throttled.running_ns(now) / 1e6 if observed.is_holding else None,
        "throttled_ms": usage.throttled.read(now) / 1e6,
        "exceeded_messages": usage.dropped_messages,
    }


def _limit(limiter: Limiter) -> ShownStreamLimit:
    limit = limiter.limit
    published_messages, published_bytes = published_per_second(limit)
    return {
        "level": limiter.scope.level,
        "name": limiter.scope.name,
        "source": limiter.source,
        "mode": limit.mode,
        "messages_per_s": per_second(limit.messages),
        "bytes_per_s": per_second(limit.size),
        "burst_messages": _burst(limit.messages),
        "burst_bytes": _burst(limit.size),
        "peak_messages_per_s": per_second(limit.peak_messages),
        "peak_bytes_per_s": per_second(limit.peak_size),
        "relative_to_publish_rate": limit.published is not None,
        "published_messages_per_s": published_messages,
        "published_bytes_per_s": published_bytes,
        "in_force": shown_in_force(limiter),
    }


def _burst(rate: Rate | None) -> int | None:
    return None if rate is None else rate.burst


_LOOKED_AT_ONCE, _ORDERED_AT_ONCE, _MATCHED_AT_ONCE = 10, 10, 4
"""Streams in one unit of work; names of clients may have 4 KiB, and names are matched with a target's pattern."""
MOST_BYTES = 16 << 20
"""Bytes of an answer's streams. Six thousand ordinary ones have as many, or a few hundred with names of 4 KiB."""
_PIECE = 64 << 10
"""Bytes of an answer that are kept in one piece."""
_HELD = Either(name="held", meaning="1 shows only streams with held messages", words=("0", "1"))
_TOPIC = Text(
    name="topic",
    meaning="only its streams; of a partitioned one, those of all partitions",
    longest=LONGEST,
    pattern=ANY_TEXT,
)
_TENANT = Text(name="tenant", meaning="only streams of its topics")
LIMIT = Number(name="limit", meaning="how many to show", default=1000, most=10_000, least=0)
_ROLE = Text(name="role", meaning="only streams of clients with this role", pattern=ANY_TEXT)
_ADDRESS = Text(name="address", meaning="only streams of clients from this address, as 10.1.2.3", pattern=ANY_TEXT)
SEARCH = Text(
    name="search", meaning="only with this text in a name: topic, client, subscription", longest=200, pattern=ANY_TEXT
)
_UNDER = (
    Text(name="direction", meaning="only streams in this direction", words=DIRECTIONS),
    Text(name="level", meaning="only streams within a limit of this level", words=tuple(LEVEL_OF_WORD)),
    Text(
        name="name",
        meaning="only streams within a limit of this name; with `setting` the name there",
        longest=LONGEST,
        pattern=ANY_TEXT,
    ),
)
_SETTING = Text(
    name="setting",
    meaning="only streams that the value of this setting and `name` is for, if it is set or not",
    words=tuple(Setting),
)
_KEYS = (_HELD, _TOPIC, _TENANT, _ROLE, _ADDRESS, SEARCH, *_UNDER, _SETTING, LIMIT)


class StreamsPage(TypedDict):
    """Open streams, and sums over all that pass the filter, shown or not; the clock is that of the counts.

    `shares`: which shares of a fleet's limits are in force; null without a fleet. `left_out`: streams that pass the
    filter and are not shown, because of `limit` or because the answer is long enough.
    """

    monotonic_ms: float
    totals: Totals
    shares: ShownShares | None
    degraded: list[ShownDegraded]
    draining: str | None
    streams: list[ShownStream]
    left_out: int


class StreamRest:
    """Serves the view of the open streams. An answer is made whole, in slices, and has `MOST_BYTES` at most.

    Args:
        engine: The engine with the streams.
        in_force: The limits in force in this proxy.
    """

    def __init__(self, engine: Engine, in_force: LimitsInForce) -> None:
        self._engine = engine
        self._in_force = in_force
        self._patience_s = engine.config.admin_access.request_timeout

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for aiohttp."""
        return [web.get("/sluice/streams", explaining(self.get))]

    @described({200: StreamsPage}, query=_KEYS, is_large=True)
    async def get(self, request: web.Request) -> web.StreamResponse:
        """Return open streams, those that hold most first."""
        wanted = replace(read_wanted(asked(request, _KEYS)), tenants=caller_of(request).tenants)
        try:
            async with asyncio.timeout(self._patience_s):
                return await sent(request, await self._page(wanted), {"Content-Type": JSON})
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        return web.StreamResponse()

    async def _page(self, wanted: WantedStreams) -> list[bytes]:
        """Make the whole answer, so that a caller that takes it slowly keeps no other waiting."""
        choice, slices = Choice(wanted), self._engine.slices
        await slices.done(Work.REQUESTS, map(choice.look_at, self._parts(wanted.target)))
        await slices.done(Work.REQUESTS, choice.ordering())
        at, views = self._engine.clock(), _Views()
        await slices.done(Work.REQUESTS, self._showing(choice.shown, views))
        views.end_piece()
        sums = {
            "monotonic_ms": at / 1e6,
            "totals": choice.totals,
            "shares": self._in_force.shares(),
            "degraded": self._in_force.degraded(),
            "draining": self._in_force.draining(),
            "left_out": choice.totals["streams"] - views.count,
        }
        return [json_of(sums)[:-1] + b',"streams":[', *views.pieces, b"]}"]

    def _parts(self, target: PolicyTarget | None) -> Iterator[list[Stream]]:
        """Yield the open streams, of a target those that its value is for, some at a time."""
        registry, has = self._engine.registry, None if target is None else is_for(target)
        for part in _parts(registry.live(), _LOOKED_AT_ONCE if has is None else _MATCHED_AT_ONCE):
            if has is None:
                yield part
            else:
                identities = ((stream, registry.identity_of(stream)) for stream in part)
                yield [stream for stream, identity in identities if identity is not None and has(identity)]

    def _showing(self, streams: list[Stream], views: "_Views") -> Iterator[None]:
        for stream in streams:
            shown = json_of(view(stream, self._engine.clock()))
            if not views.add(shown):
                return
            yield from units_of(shown)


class _Views:
    """The JSON of streams, in pieces. There is room for `MOST_BYTES`."""

    def __init__(self) -> None:
        self.count = 0
        self.pieces: list[bytes] = []
        self._last: list[bytes] = []
        self._last_size = 0
        self._left = MOST_BYTES

    def add(self, view: bytes) -> bool:
        """Add a stream; return False if there is no room for it."""
        self._left -= len(view)
        if self._left < 0:
            return False
        self._last += (b",", view) if self.count else (view,)
        self._last_size += len(view)
        self.count += 1
        if self._last_size >= _PIECE:
            self.end_piece()
        return True

    def end_piece(self) -> None:
        """Join what was added since the last piece to one."""
        self.pieces.append(b"".join(self._last))
        self._last, self._last_size = [], 0


def _parts(streams: list[Stream], number: int) -> Iterator[list[Stream]]:
    return (streams[begin : begin + number] for begin in range(0, len(streams), number))


def read_wanted(query: Query) -> WantedStreams:
    """Read the choice of streams from a query.

    Raises:
        ValueError: With the mistake and the remedy.
    """
    topic = _topic(_TOPIC.read(query)) if _TOPIC.name in query else ""
    direction, level, name = (key.read(query) for key in _UNDER)
    target = None
    if _SETTING.name in query:
        if level or not direction:
            raise ValueError("setting: ask by direction, setting and name, without level")
        target = read_target(direction, _SETTING.read(query), name)
        name = ""
    return WantedStreams(
        held=_HELD.read(query) == "1",
        topic=topic,
        tenant=_TENANT.read(query),
        most=LIMIT.read(query),
        role=_ROLE.read(query),
        address=_ADDRESS.read(query),
        search=SEARCH.read(query),
        under=(direction, level, name),
        target=target,
    )


def _topic(name: str) -> str:
    try:
        return parse_topic(name).full
    except ValueError as error:
        raise ValueError(f"topic: {error}") from None
