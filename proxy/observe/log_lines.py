"""The lines of the access log: number and encode them, and declare those that were lost.

A thousand active streams make a thousand lines at once, in which little is new. So the fields that are not counts (the
names, the limit) are encoded once, and kept for as long as they stay the same and their owner stays active.

Client addresses are shown as they are, or as a keyed hash: `k` with four digits of the key's own hash, a colon, and
sixteen digits of the address's hash. So addresses under two keys are never taken for the same client or for two. All
addresses can be tried out with the key, and not without it.
"""

import hashlib
import re
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from accesslog.record import SCHEMA_VERSION, AnyLine, IntervalLine, Kinds, LimitLine, LossLine, ShareLine
from limiter.levels import LEVELS
from limiter.limiter import Limiter, Scope, Stream
from limiter.token_bucket import NANOS_PER_SECOND, PUBLISH_WINDOW_NS, WHOLE, Limit, Rate
from protocol.topic_name import parse_topic
from proxy.files import MOST_SECRET, read_file, unread
from proxy.observe.connection import Connection
from proxy.observe.log_files import LogFiles

SHORTEST_KEY = 16
"""Least bytes of a key: fewer could be guessed."""

Moment = tuple[int, int]
"""Nanoseconds since 1970, and of the monotonic clock."""


def moment_now() -> Moment:
    """Return the present moment."""
    return time.time_ns(), time.monotonic_ns()


ShowAddress = Callable[[str], str]
"""Maps an address without a port to its form in the log."""


class AddressKeyError(Exception):
    """The key for addresses cannot be used; the text says which file and why."""


def as_they_are(address: str) -> str:
    """Return the address unchanged."""
    return address


def hashed(key: bytes) -> ShowAddress:
    """Return the function that hashes addresses under `key`."""
    secret = hashlib.blake2b(key, digest_size=32).digest()
    name = hashlib.blake2b(secret, digest_size=2, person=b"key").hexdigest()

    def shown(address: str) -> str:
        return f"k{name}:{hashlib.blake2b(address.encode(), digest_size=8, key=secret).hexdigest()}"

    return shown


def read_key(path: Path) -> bytes:
    """Return the key in a file, without spaces and newlines around it.

    Raises:
        AddressKeyError: If the file cannot be read or the key is too short.
    """
    try:
        key = read_file(path, MOST_SECRET).strip()
    except OSError as error:
        raise AddressKeyError(f"{path}: {unread(error)}") from None
    if len(key) < SHORTEST_KEY:
        raise AddressKeyError(
            f"{path}: holds {len(key)} bytes; a key has at least {SHORTEST_KEY}: openssl rand -hex 32"
        )
    return key


def reason(stream: Stream) -> Limiter | None:
    """Return the limiter that a stream waits on, or else the last that held or rejected its messages, if it exists."""
    if stream.waits_on is not None:
        return stream.waits_on
    return _of_level(stream, stream.last_reason)


def rejecting_last(stream: Stream) -> Limiter | None:
    """Return the limiter that rejected a stream's messages last, if any did, and it exists."""
    return _of_level(stream, stream.last_rejecting)


def _of_level(stream: Stream, level: str) -> Limiter | None:
    return next((limiter for limiter in stream.chain if limiter.scope.level == level), None)


def withholding(stream: Stream) -> Limiter | None:
    """Return the limiter with the least room that withholds permits from a consumer; None if none does."""
    if stream.permits is None or stream.permits.asked == 0:
        return None
    rooms = [
        (window.room() / window.horizon, number)
        for number, limiter in enumerate(stream.chain)
        for window in limiter.windows
    ]
    return stream.chain[min(rooms)[1]] if rooms else None


_FROM_LIMITS = {level.word: part.columns[0] for level in LEVELS for part in level.limited if part.is_from_limit}
"""The fields with the names of a stream's limits, by level: the stream itself does not have these names."""


def names_of_limits(stream: Stream) -> dict[str, str]:
    """Return the names of a stream's limits, be they only observed, in their fields: its resource group, for one."""
    observed = stream.observed.chain if stream.observed else ()
    scopes = [limiter.scope for limiter in (*stream.chain, *observed) if limiter.scope.level in _FROM_LIMITS]
    return {_FROM_LIMITS[scope.level]: in_log(scope.name) for scope in scopes}


def in_force(limiter: Limiter) -> "Rates":
    """Return the rates of messages, peak messages, bytes and peak bytes in force: of a shared limit, the share here.

    A limit is shared in a fleet, and with the process that takes over from this one.

    Without a share they are a millionth of the limit: each line of a limit has rates above 0, and a millionth owes no
    stream anything.
    """
    if not is_shared(limiter):
        limit = limiter.limit
        return limit.messages, limit.peak_messages, limit.size, limit.peak_size
    messages, size = limiter.shares
    rates = limiter.rates()
    shares = (messages, messages, size, size)
    messages_rate, peak_messages, size_rate, peak_size = map(_shared_out, rates, shares)
    return messages_rate, peak_messages, size_rate, peak_size


def bursts_in_force(limiter: Limiter) -> tuple[float | None, ...]:
    """Return the bursts of the same buckets, in tokens: of a share its part, and room for a token at the least."""
    messages, size = limiter.shares
    parts = zip(limiter.rates(), (messages, messages, size, size), strict=True)
    return tuple(None if rate is None else max(1.0, rate.burst * ppm / WHOLE) for rate, ppm in parts)


def is_shared(limiter: Limiter) -> bool:
    """Return whether this process has a share of a limit."""
    return limiter.lease is not None or limiter.shares != (WHOLE, WHOLE)


def _shared_out(rate: Rate | None, ppm: int) -> Rate | None:
    if rate is None:
        return None
    return Rate(rate.tokens * max(1, ppm), rate.period_ns * WHOLE, max(1, -(-rate.burst * ppm // WHOLE)))


Rates = tuple[Rate | None, Rate | None, Rate | None, Rate | None]
"""The rates of messages, peak messages, bytes and peak bytes."""
_NONE: Mapping[Limiter, Rates] = {}


def narrowest(
    chain: tuple[Limiter, ...], before: Mapping[Limiter, Rates] = _NONE
) -> tuple[Limiter | None, float | None, float | None]:
    """Return the lowest messages and the lowest bytes per second of some limiters, and before them one limiter.

    The two rates may be of different limiters. The limiter returned is that of the messages, or else of the bytes. Of
    equal rates, that of the outermost limiter counts. Limiters in `before` count with the rates there.
    """
    messages = size = None
    of_messages: Limiter | None = None
    of_size: Limiter | None = None
    for limiter in chain:
        rates = before[limiter] if limiter in before else in_force(limiter)
        by_count, by_size = per_second(rates[0]), per_second(rates[2])
        if by_count is not None and (messages is None or by_count < messages):
            messages, of_messages = by_count, limiter
        if by_size is not None and (size is None or by_size < size):
            size, of_size = by_size, limiter
    return of_messages or of_size, messages, size


def per_second(rate: Rate | None) -> float | None:
    """Return the rate in tokens per second; None for no limit."""
    return None if rate is None else rate.per_second


def burst(rate: Rate | None) -> float | None:
    """Return the capacity of a rate's bucket in tokens; None for no limit."""
    return None if rate is None else float(rate.burst)


def published_per_second(limit: Limit) -> tuple[float | None, float | None]:
    """Return the topic's publish rate in a limit's messages and bytes per second; None where it has no part."""
    if limit.published is None:
        return None, None
    window_s = PUBLISH_WINDOW_NS / NANOS_PER_SECOND
    return (
        None if limit.messages is None else limit.published.messages / window_s,
        None if limit.size is None else limit.published.size / window_s,
    )


_OF_ADDRESSES = frozenset(level.word for level in LEVELS if level.is_of_addresses)
_DEFAULTS = {
    kind: {field.name: field.default for field in msgspec.structs.fields(kind) if not field.required}
    for kind in Kinds.BY_NAME.values()
}

MOST_NAME = 256
"""Most bytes of a name in a line."""
_BEGIN, _END = 100, 40
"""Most bytes of a shortened name before and after its digest."""
_JOINED = re.compile(r"@((?:non-)?persistent://)(?!.*@(?:non-)?persistent://)", re.DOTALL)
"""The begin of a topic's name that another name is joined to: `protocol.topic_name` has no topic with this in it."""
_PARTITION = re.compile(r"-partition-(?:0|[1-9][0-9]{0,9})\Z")
"""The partition suffix that the compliance job takes away."""
_SHORTER = re.compile(rf".{{0,{_BEGIN}}}…[0-9a-f]{{32}}….{{0,{_END}}}", re.DOTALL)
_JSON = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class LineSpan:
    """A span of time: wall clock for people, monotonic for order and rates; nanoseconds."""

    start_wall: int
    end_wall: int
    duration: int
    end_mono: int

    @classmethod
    def between(cls, began: Moment, ended: Moment) -> "LineSpan":
        """Return the span from one moment to another."""
        return cls(began[0], ended[0], ended[1] - began[1], ended[1])

    def fields(self) -> dict[str, Any]:
        """Return the span as fields of a line."""
        times = {"start": utc(self.start_wall), "end": utc(self.end_wall), "mono_us": self.end_mono // 1000}
        return times | {"duration_ms": self.duration / 1e6}

    def before_end(self, elapsed: int) -> datetime:
        """Return the wall clock's time `elapsed` nanoseconds before the end."""
        return utc(self.end_wall - elapsed)


@dataclass(frozen=True, slots=True)
class Writer:
    """The proxy and run that write the log, and the form of addresses.

    Args:
        proxy_id: The id of the proxy.
        boot_id: The id of its run.
        version: The version of Sluice.
        shown: Maps a client's address to its form in the log.
        fleet: The fleet that it is a member of; empty for none.
    """

    proxy_id: str
    boot_id: str
    version: str = ""
    shown: ShowAddress = as_they_are
    fleet: str = ""


def utc(wall_ns: int) -> datetime:
    """Return a time in nanoseconds since 1970 as lines have it."""
    return datetime.fromtimestamp(wall_ns // 1000 / 1e6, UTC)


def in_log(name: str) -> str:
    """Return a name as lines have it: shortened if it is odd, or if JSON would need more than `MOST_NAME` bytes for it.

    A shortened name has a digest of the whole name. So one name is always the same in the log, and no two are equal; a
    name that looks like a shortened one is shortened as well. A client sends a name once, and the log has it in each
    interval. A name is odd if it has characters that cannot be seen or that a terminal obeys; each becomes a `?`.

    Of a topic's name, the part before the suffix of a partition is shortened. Of a name joined to its topic's, each
    part is shortened: readers that join such names, or take a suffix away, get the name that another line has.
    """
    joined = _JOINED.search(name)
    if joined is not None:
        return f"{in_log(name[: joined.start()])}@{in_log(name[joined.end() - len(joined[1]) :])}"
    partition = _PARTITION.search(name)
    suffix = "" if partition is None else partition[0]
    own = name.removesuffix(suffix)
    if own.isprintable() and len(_JSON.encode(own)) - len('""') <= MOST_NAME and not _SHORTER.fullmatch(own):
        return name
    digest = blake2b(own.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    begin, end = _plain(own[:_BEGIN]).encode()[:_BEGIN], _plain(own[-_END:]).encode()[-_END:]
    return f"{begin.decode(errors='ignore')}…{digest}…{end.decode(errors='ignore')}{suffix}"


def _plain(text: str) -> str:
    """Return a text with `?` in place of characters that JSON escapes or a terminal obeys."""
    return "".join(character if character.isprintable() and character not in '"\\' else "?" for character in text)


AT_ONCE = 200
"""Lines that wait for each other. An interval may have 100,000 lines, of 5 KB each where clients choose long names."""


class LogLines:
    """The lines of one run, in their order: every line has its number, also those that are lost.

    Args:
        writer: The proxy and its run, as the lines name them.
        files: The files that get the lines; None to write none.

    Attributes:
        written: Number of lines so far, the lost ones included.
    """

    def __init__(self, writer: Writer, files: LogFiles | None) -> None:
        self.written = 0
        self._writer = writer
        self._files = files
        self._pending = bytearray()
        self._pending_lines = 0
        self._encoder = msgspec.json.Encoder()
        self._head_of: tuple[type[AnyLine], LineSpan] | None = None
        self._head = b""
        self._span: LineSpan | None = None
        self._span_fields: dict[str, Any] = {}

    @property
    def lost(self) -> int:
        """Number of lines that could not be written."""
        return self._files.losses.total if self._files else 0

    @property
    def is_kept(self) -> bool:
        """True if lines are written anywhere."""
        return self._files is not None

    def skip(self) -> None:
        """Count a line without making it."""
        self.written += 1

    def add(self, kind: type[AnyLine], span: LineSpan, **fields: Any) -> None:
        """Add a line."""
        if self._files is None:
            self.skip()
            return
        self._pending += self._encoded(kind, span, fields)
        self._pending_lines += 1

    def encoded_fields(self, kind: type[AnyLine], fields: dict[str, Any]) -> bytes:
        """Return some of a line's fields, encoded for `add_encoded`; those that have their default are left out."""
        left_out = _DEFAULTS[kind]
        kept = {name: value for name, value in fields.items() if name not in left_out or left_out[name] != value}
        return self._encoder.encode(kept)[1:-1] + b","

    def add_encoded(self, kind: type[AnyLine], span: LineSpan, encoded: bytes, fields: dict[str, Any]) -> None:
        """Add a line of the fields that `encoded_fields` encoded, and the rest of its fields.

        `AT_ONCE` lines are handed to the files together.
        """
        if self._head_of != (kind, span):
            self._head_of, self._head = (kind, span), self._head_bytes(kind, span)
        fields["seq"] = self.written
        self.written += 1
        self._pending += b"%b%b%b\n" % (self._head, encoded, self._encoder.encode(fields)[1:])
        self._pending_lines += 1
        if self._pending_lines >= AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Hand the added lines to the files."""
        if self._files is not None and self._pending:
            self._files.write(bytes(self._pending), self.written - self._pending_lines, self._pending_lines)
        self._pending.clear()
        self._pending_lines = 0

    def rest(self, seconds: float) -> None:
        """Note that no line is expected for this time."""
        if self._files is not None:
            self._files.rest(seconds)

    def declare(self, at: Moment) -> None:
        """Add a line for each loss, if the log can be written; a lost declaration is declared again."""
        if self._files is not None and self._files.is_writing:
            self._declare(self._files, at)

    def close(self, patience_s: float) -> bool:
        """Write everything and close; return False if the disk did not take it, or not in time."""
        self.flush()
        if self._files is None:
            return True
        if not self._files.drain(patience_s):
            return False
        self._declare(self._files, moment_now())  # whether it can be written or not: there is no later time
        return self._files.close(patience_s) and self._files.losses.are_declared

    def _declare(self, files: LogFiles, at: Moment) -> None:
        losses, moment = files.losses.take(), LineSpan.between(at, at)
        if losses:
            self.flush()
        for loss in losses:
            fields = {
                "of_boot": loss.of_boot,
                "cause": loss.cause,
                "detail": loss.detail,
                "lost_lines": loss.lost_lines,
                "first_seq": loss.first_seq,
                "last_seq": loss.last_seq,
                "lost_from": utc(loss.since),
                "lost_until": utc(loss.until),
            }
            line = self._encoded(LossLine, moment, fields)
            files.write(line, self.written - 1, 1, (loss,))

    def _head_bytes(self, kind: type[AnyLine], span: LineSpan) -> bytes:
        """Return the beginning of all lines of one kind and span."""
        writer, tag = self._writer, kind.__struct_config__.tag
        head = {"kind": tag, "v": SCHEMA_VERSION, "proxy_id": writer.proxy_id, "boot_id": writer.boot_id}
        return self._encoder.encode(head | span.fields())[:-1] + b","

    def _encoded(self, kind: type[AnyLine], span: LineSpan, fields: dict[str, Any]) -> bytes:
        if span is not self._span:  # thousands of lines of one interval have the same span
            self._span, self._span_fields = span, span.fields()
        writer = self._writer
        line = kind(proxy_id=writer.proxy_id, boot_id=writer.boot_id, seq=self.written, **self._span_fields, **fields)
        self.written += 1
        return self._encoder.encode(line) + b"\n"


Fields = dict[str, Any]
T = TypeVar("T", bound=Hashable)


class KnownLines(Generic[T]):
    """The last encoding for each owner; owners without a `get` between two calls of `turn` are forgotten."""

    def __init__(self) -> None:
        self._now: dict[T, tuple[Any, bytes]] = {}
        self._before: dict[T, tuple[Any, bytes]] = {}

    def get(self, owner: T, state: Any, encode: Callable[[], bytes]) -> bytes:
        """Return the owner's encoding: the last one if its state is the same, else that of `encode`."""
        kept = self._now.get(owner) or self._before.get(owner)
        if kept is None or kept[0] != state:
            kept = state, encode()
        self._now[owner] = kept
        return kept[1]

    def turn(self) -> dict[Any, Any]:
        """Begin another interval, and forget owners without a `get` in the last one.

        Returns:
            The forgotten owners. The caller frees them in slices: they may be the last references to many streams.
        """
        forgotten, self._before, self._now = self._before, self._now, {}
        return forgotten

    def __len__(self) -> int:
        return len(self._now | self._before)


class Levels(Protocol):
    """Returns the levels of a stream's limits; implemented by `Registry`."""

    revision: int
    """Another number whenever the levels may have changed."""

    def levels_of(self, stream: Stream) -> list[str]:
        """Return the levels of a stream's limits, outermost first."""


def address_of(connection: Connection, shown: ShowAddress) -> str:
    """Return a client's address and port, or, by `shown`, the hash of its address."""
    return connection.client_address if shown is as_they_are else shown(connection.client_host)


class PeriodicLines:
    """Makes the lines of streams and limiters.

    Args:
        lines: The lines that these are added to.
        shown: Maps a client's address to its form in the log.
        levels: The source of `limit_levels`, independent of the stream's own limiters.
    """

    def __init__(self, lines: LogLines, shown: ShowAddress, levels: Levels) -> None:
        self._lines = lines
        self._shown = shown
        self._levels = levels
        self._before: dict[Limiter, Rates] = {}
        """The rates of some limiters at the end of the interval whose lines are being made."""
        self._streams = KnownLines[Stream]()
        self._limiters = KnownLines[Limiter]()

    def encoded(self, subject: Stream | Limiter) -> bytes:
        """Return the fields of a line that are not counts, with the values of now."""
        if isinstance(subject, Stream):
            return self._encoded_stream(subject)
        value = subject.limit, subject.source, subject.shares, subject.quota
        return self._limiters.get(subject, value, lambda: self._of(subject))

    def _encoded_stream(self, stream: Stream) -> bytes:
        connection = stream.connection
        assert isinstance(connection, Connection), "streams of the proxy belong to its connections"
        narrow = narrowest(stream.chain, self._before)
        limiter = narrow[0]
        chains = stream.chain, stream.observed and stream.observed.chain
        value = limiter and (limiter.limit, limiter.source, limiter.shares, limiter.quota)
        state = (
            stream.name,
            connection.client_address,
            connection.client_version,
            connection.client_role,
            connection.role_is_proved,
            chains,
            value,
            *narrow,
            self._levels.revision,
        )
        if stream.is_open:
            return self._streams.get(stream, state, lambda: self._identity(stream, connection, narrow))
        return self._identity(stream, connection, narrow)

    def interval(self, span: LineSpan, stream: Stream, counted: Fields, encoded: bytes | None = None) -> None:
        """Add the line of a stream for `span`; `counted` becomes the line's, with all the other fields added.

        Args:
            span: The times.
            stream: The stream.
            counted: The counts.
            encoded: The fields that `encoded` returned before; None: those of now, and why the stream waits.
        """
        if not self._lines.is_kept:
            self._lines.skip()
            return
        if encoded is not None:
            self._lines.add_encoded(IntervalLine, span, encoded, _without_rejected(counted | {"reason": ""}))
            return
        encoded = self._encoded_stream(stream)
        if stream.permits and stream.permits.asked:
            counted["permits_withheld"] = stream.permits.asked
        if stream.held or counted["throttled_ms"] or counted["rejected_messages"]:
            counted |= self._why(stream)
        else:
            counted["reason"] = ""
        self._lines.add_encoded(IntervalLine, span, encoded, _without_rejected(counted))

    def limit(self, span: LineSpan, limiter: Limiter, counted: Fields, encoded: bytes | None = None) -> None:
        """Add the line of a limiter for `span`; the arguments are those of `interval`."""
        if not self._lines.is_kept:
            self._lines.skip()
            return
        fields = self.encoded(limiter) if encoded is None else encoded
        self._lines.add_encoded(LimitLine, span, fields, _without_rejected(counted))

    def keep_value(self, limiter: Limiter) -> None:
        """Have lines of streams that are still to be made name the value that a limiter has now."""
        self._before.setdefault(limiter, in_force(limiter))

    def forget_values(self) -> dict[Any, Any]:
        """Name the limiters' present values from now on, as no earlier line is left; return the forgotten values."""
        forgotten, self._before = self._before, {}
        return forgotten

    def turn(self) -> tuple[dict[Any, Any], ...]:
        """Begin another interval; return forgotten objects, which the caller frees in slices."""
        return self._streams.turn(), self._limiters.turn()

    def _network(self, connection: Connection) -> str:
        """Return the network by which limits count the client, or its hash; empty if that is the client's address."""
        network = connection.client_network
        return "" if network == connection.client_host else self._shown(network)

    def _identity(
        self, stream: Stream, connection: Connection, narrow: tuple[Limiter | None, float | None, float | None]
    ) -> bytes:
        name, (limiter, messages, size) = stream.name, narrow
        fields = {
            "direction": name.direction,
            "tenant": name.tenant,
            "namespace": name.namespace,
            "topic": in_log(name.topic),
            "connection_id": connection.connection_id,
            "client_address": address_of(connection, self._shown),
            "client_network": self._network(connection),
            "client_version": in_log(connection.client_version),
            "client_role": in_log(connection.client_role),
            "role_is_proved": connection.role_is_proved,
            **names_of_limits(stream),
            "exempt": parse_topic(name.topic).is_system,
            "limit_levels": " ".join(self._levels.levels_of(stream)),
            "stream_id": name.stream_id,
            "producer_name": in_log(name.producer_name),
            "subscription": in_log(name.subscription),
            "limit_level": "" if limiter is None else limiter.scope.level,
            "limit_messages": messages,
            "limit_bytes": size,
        }
        if limiter is not None:
            fields |= {"limit_source": limiter.source, "limit_mode": limiter.limit.mode}
        return self._lines.encoded_fields(IntervalLine, fields)

    def _of(self, limiter: Limiter) -> bytes:
        scope, limit = limiter.scope, limiter.limit
        published_messages, published_bytes = published_per_second(limit)
        messages, peak_messages, size, peak_size = map(per_second, in_force(limiter))
        burst_messages, peak_burst_messages, burst_bytes, peak_burst_bytes = bursts_in_force(limiter)
        fields = {
            "direction": scope.direction,
            "level": scope.level,
            "name": self._name(scope),
            "tenant": scope.tenant,
            "namespace": scope.namespace,
            "source": limiter.source,
            "mode": limit.mode,
            "limit_messages": messages,
            "limit_bytes": size,
            "burst_messages": burst_messages,
            "burst_bytes": burst_bytes,
            "peak_messages": peak_messages,
            "peak_bytes": peak_size,
            "peak_burst_messages": peak_burst_messages,
            "peak_burst_bytes": peak_burst_bytes,
            "published_messages": published_messages,
            "published_bytes": published_bytes,
        }
        if limiter.lease is not None:
            fields |= _of_fleet(limiter)
        return self._lines.encoded_fields(LimitLine, fields)

    def _name(self, scope: Scope) -> str:
        """Return the name of a limiter as the log shows it."""
        return self._shown(scope.name) if scope.level in _OF_ADDRESSES else in_log(scope.name)

    def _why(self, stream: Stream) -> Fields:
        """Return the fields of the limit that held or rejected a stream's messages."""
        limiter = reason(stream)
        if limiter is None:
            return {"reason": stream.last_reason}
        rates = self._before[limiter] if limiter in self._before else in_force(limiter)
        fields = {
            "reason_name": self._name(limiter.scope),
            "reason_messages": per_second(rates[0]),
            "reason_bytes": per_second(rates[2]),
        }
        return {"reason": limiter.scope.level} | {name: value for name, value in fields.items() if value}


MOST_SHARES = 100
"""Most lines of shares between two heartbeats; lines that the proxy is cut off or back come in any case."""
CUT_OFF = "isolated"
"""The cause of shares that are in force without a coordinator."""


@dataclass(frozen=True, slots=True)
class ShareChange:
    """A change of this proxy's share of one unit of a limit; fields as in `ShareLine`.

    Args:
        limiter: The limiter as processes call it: `direction level name`.
        before: Millionths of the limit.
        after: Millionths of the limit.
        ahead_ns: How far the coordinator's clock is ahead, and the possible error; None: not known.
    """

    fleet: str
    limiter: str
    unit: str
    before: int
    after: int
    epoch: int
    coordinator: str
    members: int
    cause: str
    ahead_ns: tuple[int, int] | None = None


class ShareLines:
    """Makes the lines of shares, not more than `MOST_SHARES` between two heartbeats.

    Args:
        lines: The lines that these are added to.
        shown: Maps a client's address to its form in the log.
    """

    def __init__(self, lines: LogLines, shown: ShowAddress) -> None:
        self._lines = lines
        self._shown = shown
        self._told = 0
        self._left_out = 0
        self._last: tuple[LineSpan, ShareChange] | None = None
        """The last change that has no line."""
        self._is_cut_off = False

    def add(self, moment: LineSpan, change: ShareChange) -> None:
        """Add the line of a change, or count the change as left out."""
        is_cut_off = change.cause == CUT_OFF
        if self._told >= MOST_SHARES and is_cut_off == self._is_cut_off:
            self._left_out += 1
            self._last = moment, change
            return
        self._told += 1
        self._is_cut_off = is_cut_off
        self._add(moment, change)

    def turn(self) -> None:
        """Add the line of the last change that was left out, and reset the count before a heartbeat."""
        if self._last is not None:
            self._left_out -= 1
            self._add(*self._last)
        self._told = 0

    def _add(self, moment: LineSpan, change: ShareChange) -> None:
        direction, level, name = change.limiter.split(" ", 2)
        ahead, within = (None, None) if change.ahead_ns is None else [ns / 1e6 for ns in change.ahead_ns]
        self._lines.add(
            ShareLine,
            moment,
            fleet=change.fleet,
            direction=direction,
            level=level,
            name=self._shown(name) if level in _OF_ADDRESSES else in_log(name),
            unit=change.unit,
            share_before=change.before / WHOLE,
            share_after=change.after / WHOLE,
            epoch=change.epoch,
            coordinator=in_log(change.coordinator),
            members=change.members,
            cause=change.cause,
            coordinator_ahead_ms=ahead,
            coordinator_ahead_within_ms=within,
            left_out=self._left_out,
        )
        self._left_out, self._last = 0, None


def _of_fleet(limiter: Limiter) -> Fields:
    """Return the fields of a shared limit: this proxy's shares, and the whole."""
    messages, _, size, _ = limiter.rates()
    return {
        "share_messages": None if messages is None else limiter.shares[0] / WHOLE,
        "share_bytes": None if size is None else limiter.shares[1] / WHOLE,
        "shared_messages": per_second(messages),
        "shared_bytes": per_second(size),
        "shared_burst_messages": burst(messages),
        "shared_burst_bytes": burst(size),
    }


def _without_rejected(counted: Fields) -> Fields:
    """Leave out rejected counts of 0, their default: hardly anything is ever rejected."""
    if not counted["rejected_messages"]:
        del counted["rejected_messages"], counted["rejected_bytes"]
    return counted
