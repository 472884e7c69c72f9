"""Streams and the limits that they are within: a limiter is found by its scope, never by connection."""

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from sys import getsizeof
from typing import Final, NamedTuple

from limiter.backlogs import Backlogs
from limiter.handing import HandedLimits, OtherProcess
from limiter.levels import ANYBODY, INDEXED, LEVEL_OF_WORD, Client, Part, StreamIdentity, Topic
from limiter.limiter import Entry, Limiter, LimitRates, Scope, Stream
from limiter.names import counted_as
from limiter.permits import RULES, CreditWindow, DispatchRules, Permits
from limiter.policies import Change, InForce, Policies
from limiter.relative_rates import RelativeLimits
from limiter.restart import FirstBalances
from limiter.scheduler import Scheduler
from limiter.shadow import ShadowLimiter
from limiter.sharing import SharedLimits
from limiter.token_bucket import Limit


class _TopicNamed(NamedTuple):
    """A topic within a limit, as far as the scope of the limit has its name; see `levels.Topic`."""

    full: str
    partitioned: str
    tenant: str
    namespace: str
    namespace_name: str
    is_system: bool = False


_NAME_THEIR_TOPICS: Final = {"proxy", "tenant", "namespace", "topic", "partitioned_topic"}
"""Levels whose scopes have all names that their values depend on."""


def _topic_within(scope: Scope) -> Topic | None:
    """Return a topic within a limit, as the scope names it; None if it does not, or the topic may be a partition."""
    if scope.level not in _NAME_THEIR_TOPICS or "-partition-" in scope.name:
        return None
    return _TopicNamed(scope.name, scope.name, scope.tenant, scope.namespace, f"{scope.tenant}/{scope.namespace}")


class StreamIndex:
    """The open streams, with the topic and the client of each.

    Finds those of a topic, a namespace or a tenant without a search through all.
    """

    def __init__(self) -> None:
        self._streams: dict[Stream, tuple[Topic, Client]] = {}
        self._by_part: dict[Part, dict[str, dict[Stream, None]]] = {part: {} for part in INDEXED}

    def __contains__(self, stream: Stream) -> bool:
        return stream in self._streams

    def __iter__(self) -> Iterator[Stream]:
        return iter(self._streams)

    def __getitem__(self, stream: Stream) -> tuple[Topic, Client]:
        return self._streams[stream]

    def get(self, stream: Stream) -> tuple[Topic, Client] | None:
        """Return the topic and client of a stream; None if the stream is not open."""
        return self._streams.get(stream)

    def put(self, stream: Stream, topic: Topic, client: Client) -> None:
        """Add a stream, or replace its topic and client."""
        self._streams[stream] = topic, client
        identity = StreamIdentity(topic, client, "")
        for part, table in self._by_part.items():
            table.setdefault(part.of(identity), {})[stream] = None

    def remove(self, stream: Stream) -> None:
        """Remove a stream that has ended."""
        if stream in self._streams:
            identity = StreamIdentity(*self._streams.pop(stream), "")
            for part, table in self._by_part.items():
                name = part.of(identity)
                del table[name][stream]
                if not table[name]:
                    del table[name]

    def concerned(self, change: Change) -> list[Stream]:
        """Return the streams that a change can concern, and perhaps others, as those of the other direction."""
        if change.about == "subscribe":
            return []
        indexed = change.setting.record.streams_of(change.name)
        if indexed is None:
            return list(self._streams)
        part, names = indexed
        return [stream for name in names for stream in self._by_part[part].get(name, ())]


KEPT = 1024
"""Full limiters without streams that are kept for streams that come again."""
LOOKED_AT = 16
"""Limiters without streams that are checked when a client needs room: a refused PRODUCER costs no more than that."""
LIMITER_MEMORY = 3_584
"""Bytes that a limiter takes without its name."""
FEW_DEBTS = 65_536
"""Bytes of debts that every address may have."""
MOST_DEBTS = 256 * 1024 * 1024
_COPIES = 4
"""Copies of a limiter's name: in its scope, in its lines of the access log, and in the keys of both."""

OnKept = Callable[[str, int], None]
"""Called with a client's address (see `limiter.names.counted_as`), and the bytes that are kept for it from now on."""


class LimiterCache:
    """The limiters at work, by scope.

    They are made when streams need them, get other values, and are forgotten when they are idle and full.

    A limiter that is not full stays after its last stream has left: so a client that connects again gains nothing, and
    a batch of 100,000 messages under 1/s is owed for a day. So the memory of each limiter is counted for the address of
    the stream that it was made for, or that used it again: as memory of that client while the limiter has streams,
    afterwards as the address' debt. An address that owes more than is still free for debts may open no more streams; an
    address that owes little always may. So clients that make ever new debts stop themselves, and no others. Only if
    many addresses together owe the whole bound, a debt is forgotten for the next one: the oldest of an address that
    owes much.

    Args:
        relative: The limits that are relative to publish rates.
        on_retune: Called with each limiter that is about to have another value, and the time.
        on_kept: Called for each limiter that streams begin to use or leave, and, with 0, when an address owes less.
        most_debts: Bytes that limiters without streams may take.
        shared: The limits that are shared with other processes; None: each is enforced whole here.
        first: The balances with which limiters begin; None: they begin full.

    Attributes:
        by_scope: The limiters.
        first: As given.
        handed: The shares of this process while another one takes over; None: there is no other one.
        tuned: Limiters that got another value while streams were within them: waiting streams must be woken.
        debts: Bytes that limiters without streams take.
        forgiven: The number of limiters that were forgotten before they were full.
    """

    def __init__(
        self,
        relative: RelativeLimits,
        on_retune: Callable[[Limiter, int], None],
        on_kept: OnKept,
        most_debts: int = MOST_DEBTS,
        shared: SharedLimits | None = None,
        first: FirstBalances | None = None,
    ) -> None:
        self.by_scope: dict[Scope, Limiter] = {}
        self.tuned: dict[Limiter, None] = {}
        self.debts = 0
        self.forgiven = 0
        self._most_debts = most_debts
        self._debts_of: dict[str, int] = {}
        self._on_kept = on_kept
        self._kept_for: dict[Scope, str] = {}
        self._relative = relative
        self._on_retune = on_retune
        self._shared = shared
        self.handed: HandedLimits | None = None
        self.first = FirstBalances() if first is None else first
        self._resting: OrderedDict[Scope, bool] = OrderedDict()
        """Limiters without streams, in the order of their last check, and whether their values may be outdated."""

    def put(self, entry: InForce, topic: str, address: str, now: int) -> Limiter:
        """Return the limiter of a limit that applies to a stream, with that value in force; it is made if needed."""
        limit = self._relative.in_force(entry.scope, entry.limit, topic, now)
        if entry.scope in self._resting:
            self._owe(entry.scope, -1)
            self._use(entry.scope, address)
            if self.handed is not None:
                self.handed.used(self.by_scope[entry.scope])
        limiter = self.by_scope.get(entry.scope)
        if limiter is None:
            limiter = self.by_scope[entry.scope] = self._made(entry.scope, limit, entry.source, now)
            if self.handed is None or not self.handed.made(limiter, now):
                self.first.begin(limiter, now)
            self._use(entry.scope, address)
        elif limiter.is_observed != (limit.mode == "observe"):
            self._on_retune(limiter, now)
            in_force = limiter.rates()
            limiter = self._replaced(limiter, limit, entry.source, now)
            self._report_retuned(limiter, in_force, now)
        elif self.renew(limiter, limit, entry.source, now) and limiter.streams:
            self.tuned[limiter] = None
        limiter.update_windows()
        return limiter

    def renew(self, limiter: Limiter, limit: Limit, source: str, now: int) -> bool:
        """Put another value of a limit in force; return whether it was another one."""
        if limiter.limit == limit and limiter.source == source:
            return False
        self._on_retune(limiter, now)
        in_force = limiter.rates()
        limiter.retune(limit, source, now)
        self._report_retuned(limiter, in_force, now)
        return True

    def retune(self, limits: dict[Scope, Limit], now: int) -> list[Limiter]:
        """Give limiters newly measured values."""
        changed = [self.by_scope[scope] for scope in limits]
        for limiter in changed:
            self._on_retune(limiter, now)
            limiter.retune(limits[limiter.scope], limiter.source, now)
            limiter.update_windows()
        return changed

    def outdate(self, kinds: Collection[tuple[str, str]], renewed: Callable[[Limiter], bool]) -> Iterator[None]:
        """Renew the values of limiters without streams that may be outdated, and end their shares, some in each step.

        Args:
            kinds: The directions and levels of values that have changed. Names are not compared: there may be many, and
                many such limiters.
            renewed: Puts the value in force that a limiter has now; returns False if it has none, or that is not known.
        """
        for number, scope in enumerate(list(self._resting) if kinds else (), 1):
            if (scope.direction, scope.level) in kinds and scope in self._resting:
                limiter = self.by_scope[scope]
                if limiter.lease is not None and self._shared is not None:
                    self._shared.outdated(limiter)
                self._resting[scope] = not renewed(limiter)
            if number % _LOOKED_AT == 0:
                yield

    def is_outdated(self, scope: Scope) -> bool:
        """Return whether a limiter without streams has a value that is in force no more, or perhaps is not.

        Values of its level have changed since it had streams, and its scope alone does not tell its value. That is put
        right when a stream comes.
        """
        return self._resting.get(scope, False)

    def _report_retuned(self, limiter: Limiter, in_force: LimitRates, now: int) -> None:
        if limiter.lease is not None and self._shared is not None:
            self._shared.retuned(limiter, in_force, now)

    def take_tuned(self) -> dict[Limiter, None]:
        """Return the limiters in `tuned`, and empty it."""
        tuned, self.tuned = self.tuned, {}
        return tuned

    def rest(self, left: Iterable[Limiter], now: int) -> list[Limiter]:
        """Note limiters that streams have left; forget full ones without streams.

        Two checks for each limiter that begins to rest are enough even for streams of ever new names.

        Returns:
            The limiters that are forgotten now.
        """
        resting, forgotten = self._resting, list[Limiter]()
        for limiter in left:
            if not limiter.streams and self.by_scope.get(limiter.scope) is limiter:
                if limiter.lease is not None and self._shared is not None:
                    self._shared.left(limiter)
                if limiter.scope not in resting:
                    forgotten += self._forgiven_for(limiter.scope)
                    self._owe(limiter.scope, 1)
                resting[limiter.scope] = False
                if self.handed is not None:
                    self.handed.rested(limiter, now)
                checked = [self._check_oldest(now, KEPT) for _ in range(2)]
                forgotten += [oldest for oldest in checked if oldest is not None]
        return forgotten

    def make_room(self, now: int) -> list[Limiter]:
        """Forget some limiters whose debts are paid, before a client is refused for debts; return them."""
        checked = [self._check_oldest(now, 0) for _ in range(min(LOOKED_AT, len(self._resting)))]
        return [limiter for limiter in checked if limiter is not None]

    def owes_too_much(self, address: str) -> bool:
        """Return whether clients at an address have left more debts than are still free for debts."""
        return self._debts_of.get(address, 0) > max(self._most_debts - self.debts, FEW_DEBTS)

    def _use(self, scope: Scope, address: str) -> None:
        """Count a limiter as memory of `address`, whose client has the first stream within it."""
        self._kept_for[scope] = address
        self._on_kept(address, memory_of(scope))

    def _owe(self, scope: Scope, times: int) -> None:
        """Add the debts of a limiter without streams (1), or subtract them if it has streams again (-1)."""
        size, address = memory_of(scope), self._kept_for[scope]
        self.debts += times * size
        owed = self._debts_of.get(address, 0) + times * size
        if owed:
            self._debts_of[address] = owed
        else:
            del self._debts_of[address]
        if times > 0:
            self._on_kept(address, -size)
        else:
            del self._kept_for[scope], self._resting[scope]
            self._on_kept(address, 0)

    def _forgiven_for(self, scope: Scope) -> list[Limiter]:
        """Make room for one more debt, if there is none; return the forgotten limiters."""
        forgiven = list[Limiter]()
        while self._resting and self.debts + memory_of(scope) > self._most_debts:
            oldest = islice(self._resting, LOOKED_AT)
            largest = max(oldest, key=lambda resting: self._debts_of[self._kept_for[resting]])
            forgiven.append(self._forget(largest))
            self.forgiven += 1
        return forgiven

    def _forget(self, scope: Scope) -> Limiter:
        self._owe(scope, -1)
        self._relative.forget(scope)
        limiter = self.by_scope.pop(scope)
        if limiter.lease is not None and self._shared is not None:
            self._shared.forgotten(limiter)
        return limiter

    def _check_oldest(self, now: int, most_full: int) -> Limiter | None:
        """Check the limiter at rest whose last check is the oldest; return it if it is forgotten now."""
        if len(self._resting) <= most_full:
            return None
        scope = next(iter(self._resting))
        oldest = self.by_scope[scope]
        if oldest.is_idle(now) and (self.handed is None or self.handed.may_be_forgotten(oldest)):
            return self._forget(scope)
        self._resting.move_to_end(scope)
        return None

    def _replaced(self, old: Limiter, limit: Limit, source: str, now: int) -> Limiter:
        """Replace a limiter that is only observed from now on, or no longer: the waiting streams must not mix."""
        limiter = self.by_scope[old.scope] = self._made(old.scope, limit, source, now)
        limiter.inherit(old, now)
        return limiter

    def _made(self, scope: Scope, limit: Limit, source: str, now: int) -> Limiter:
        if self._shared is None or not self._shared.is_shared(scope):
            return Limiter(scope, limit, source, now)
        limiter = Limiter(scope, limit, source, now, self._shared.lease, self._shared.on_activity)
        self._shared.made(limiter, now)
        return limiter


def memory_of(scope: Scope) -> int:
    """Return the bytes that a limiter takes."""
    return LIMITER_MEMORY + _COPIES * getsizeof(scope.name)


SLICE = 100
"""Steps in which changes come into force at once: 1 to 5 ms. A step takes 20 µs, more where lines of a log end."""
TUNE_STEPS = 4
"""Steps of a limiter that gets another value."""
_FOLLOW_STEPS = 2
"""Steps of a stream whose limits are found again, beside one for each limit."""
_LOOKED_AT = 20
"""Streams or limiters that are checked in a step, whether a change concerns them."""
_SERVED = 3
"""Limiters whose waiting streams are served in the turn in which their value changes; others are woken. To serve one
takes up to 2 ms (`scheduler.MOST_TURNS`)."""
_OVER: Final = object()


def _ignore(address: str, more: int) -> None:
    """Do nothing: memory is not bounded here."""


class Registry:
    """Puts every stream within the limits that apply to it, when it opens and when policies change.

    Args:
        policies: The values in force; call `change` or `apply` after changing them.
        scheduler: The scheduler of the streams.
        shadow: Simulates the limits that are only observed.
        rules: The rules by which deliveries and permits are counted.
        clock: Monotonic nanoseconds, for withheld permits and for backlogs; needed if the rules spare subscriptions
            without one.
        on_kept: Called with the memory of limiters with streams, and the address that each is kept for.
        most_debts: Bytes that limiters without streams may take.
        on_relative: Called when the first limit that is relative to a publish rate appears.
        shared: The limits that are shared with other processes; None: each is enforced whole here.
        first: The balances with which limiters begin, after a restart; None: they begin full.

    Raises:
        ValueError: If the rules spare subscriptions without a backlog, and there is no clock.

    Attributes:
        revision: Changes whenever the result of `levels_of` may change for open streams.
        relative: The limits that are relative to publish rates. While there are any, the caller runs `measuring`
            once a second if a stream passes entries, or if they are moving.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - see Args
        self,
        policies: Policies,
        scheduler: Scheduler,
        shadow: ShadowLimiter,
        rules: DispatchRules = RULES,
        clock: Callable[[], int] | None = None,
        on_kept: OnKept = _ignore,
        most_debts: int = MOST_DEBTS,
        on_relative: Callable[[], None] = lambda: None,
        shared: SharedLimits | None = None,
        first: FirstBalances | None = None,
    ) -> None:
        self.policies = policies
        self.revision = 0
        self._is_settled = True
        self._scheduler = scheduler
        self._shadow = shadow
        self._live = StreamIndex()
        self._looking: deque[Iterator[None]] = deque()
        """For each change, the search for the streams and limiters that it concerns."""
        self._to_tune: dict[Limiter, None] = {}
        self._to_rewire: dict[Stream, None] = {}
        self._now = 0
        """The time of the present step of a change."""
        self._changed: set[tuple[str, str]] = set()
        """Directions and levels of the values that have changed since all changes were in force."""
        self._rules = rules
        self.relative = RelativeLimits(by_entry=rules.by_entry, on_first=on_relative)
        self._limiters = LimiterCache(self.relative, scheduler.journal.retuned, on_kept, most_debts, shared, first)
        if shared is not None:
            shared.attach(self._serve_shared, scheduler.journal.retuned)
        self._clock = clock or (lambda: 0)
        self._backlogs: Backlogs | None = None
        if rules.spares_caught_up:
            if clock is None:
                raise ValueError("backlogs are known only with a clock")
            self._backlogs = Backlogs(clock, lambda streams: self._rewire_all(streams, clock()))

    def open(self, stream: Stream, topic: Topic, now: int, client: Client = ANYBODY) -> None:
        """Open a stream of `topic`, under the limits that apply to it."""
        self._live.put(stream, topic, client)
        self.relative.opened(stream)
        chain, observed = self._chains(stream, now)
        stream.come_within(chain)
        self._scheduler.join(stream)
        self._observe(stream, observed, now)

    def meter(self, stream: Stream, grant: Callable[[int], None]) -> None:
        """Meter the permits of an open stream, which is a consumer; `grant` passes them on."""
        stream.permits = Permits(
            stream.usage, grant, partial(self._scheduler.journal.note, stream), self._rules, self._clock
        )
        stream.permits.rewire(windows_of(stream.chain))
        if self._backlogs is not None:
            self._backlogs.join(stream)

    def name(self, stream: Stream, producer_name: str, now: int) -> None:
        """Name a producer as the broker accepted it: limits by producer name hold from now on."""
        stream.name = replace(stream.name, producer_name=producer_name)
        topic_and_client = self._live.get(stream)
        if topic_and_client is not None and topic_and_client[1].producer_name != producer_name:
            topic, client = topic_and_client
            self._live.put(stream, topic, replace(client, producer_name=producer_name))
            self._rewire(stream, now)

    def close(self, stream: Stream, now: int) -> list[Entry]:
        """Close a stream; return the entries that it held."""
        if stream in self._live:
            self.relative.closed(stream)
        self._live.remove(stream)
        self._to_rewire.pop(stream, None)
        stream.is_open = False
        dropped = self._scheduler.leave(stream, now)
        if stream.observed is not None:
            stream.observed.leave(now)  # the shadow stays, as the log has yet to take its counts
        if stream.permits is not None:
            if self._backlogs is not None:
                self._backlogs.leave(stream)
            stream.permits.close()
        self._rest(_all_of(stream), now)
        self._scheduler.journal.ended(stream)
        return dropped

    @property
    def first(self) -> FirstBalances:
        """The balances with which limiters begin."""
        return self._limiters.first

    @property
    def limiters(self) -> dict[Scope, Limiter]:
        """The limiters at work, by scope."""
        return self._limiters.by_scope

    def is_outdated(self, scope: Scope) -> bool:
        """Return whether a limiter may have a value that is in force no more: see `LimiterCache.is_outdated`."""
        return self._limiters.is_outdated(scope)

    @property
    def debts(self) -> int:
        """Bytes that limiters without streams take."""
        return self._limiters.debts

    @property
    def forgiven(self) -> int:
        """The number of limiters that were forgotten before they were full; see `LimiterCache`."""
        return self._limiters.forgiven

    def owes_too_much(self, address: str, now: int) -> bool:
        """Return whether a client's address (`counted_as`) may open no more streams, as it left too many debts."""
        if not self._limiters.owes_too_much(address):
            return False
        self.make_room(now)
        return self._limiters.owes_too_much(address)

    def make_room(self, now: int) -> None:
        """Forget some limiters that are full by now, before a client is refused for its address' debts."""
        self._forget(self._limiters.make_room(now))

    @property
    def is_changing(self) -> bool:
        """True if changes of the policies are not yet in force on every live stream: call `go_on`."""
        return bool(self._looking or self._to_tune or self._to_rewire or self._limiters.tuned)

    def change(self, changes: Iterable[Change], now: int) -> None:
        """Put changed values in force on live streams, and wake the streams that may go.

        Limiters with another value get it first. Where limits are added or removed, streams follow one by one, each
        with the values in force at its turn. At most `SLICE` steps are done at once, and none while earlier changes
        are not in force everywhere.
        """
        has_turn = not self.is_changing
        self._begin_change()
        for change in changes:
            self._changed.add((change.about, change.setting.level.word))
            self._looking.append(self._looks(change))
        if has_turn:
            self.go_on(now)

    def go_on(self, now: int, most: int = SLICE, most_served: int = _SERVED) -> None:
        """Put changes in force where they are not yet.

        Args:
            now: The time.
            most: The number of steps; a stream with many limits may exceed it.
            most_served: Limiters whose waiting streams are served now; others are woken.
        """
        self._now = now
        for _ in range(most):
            if not self._looking:
                break
            if next(self._looking[0], _OVER) is _OVER:
                self._looking.popleft()
        left = 0 if self._looking else most
        while left > 0:
            if self._to_tune:
                left -= TUNE_STEPS
                self._tune(self._to_tune.popitem()[0], now)
            elif self._to_rewire:
                stream = self._to_rewire.popitem()[0]
                left -= _FOLLOW_STEPS + len(stream.chain)
                self._follow(stream, now)
            else:
                break
        self._serve(self._limiters.take_tuned(), now, most_served)
        if self.is_changing:
            return
        if self._changed:
            changed, self._changed = self._changed, set()
            self._looking.append(self._looks_at_resting(changed))
            self.go_on(now, left)
        else:
            self._end_change()

    def apply(self, now: int) -> None:
        """Put other policies in force on all live streams at once."""
        self._begin_change()
        self._changed.update((scope.direction, scope.level) for scope in self.limiters)
        self._to_rewire.update(dict.fromkeys(self._live))
        self.go_on(now)
        while self.is_changing:
            self.go_on(now)

    def published(self, active: Iterable[Stream], now: int) -> None:
        """Measure `active` streams later: the next `measuring` need not name them; see `RelativeLimits.wake`."""
        if not self.relative.is_empty:
            self.relative.wake(active, now)

    def measuring(self, active: Sequence[Stream], clock: Callable[[], int]) -> Iterator[None]:
        """Measure publish rates and put the limits in force that follow them; see `RelativeLimits.measuring`."""
        for limits in self.relative.measuring(active, clock):
            if limits:
                now = clock()
                self._serve(self._limiters.retune(limits, now), now)
            yield

    def levels_of(self, stream: Stream) -> list[str]:
        """Return the levels of the limits that hold for a stream by the policies, outermost first.

        For a stream that has ended, and while changes are not in force everywhere, the levels of its present limiters.
        """
        identity = self._live.get(stream)
        if identity is None or not self._is_settled or (self._backlogs is not None and self._backlogs.spares(stream)):
            return [limiter.scope.level for limiter in stream.chain]
        in_force = self.policies.in_force(stream.name.direction, *identity)
        return [entry.scope.level for entry in in_force if entry.limit.mode != "observe"]

    def live(self) -> list[Stream]:
        """Return the streams that are open."""
        return list(self._live)

    def identity_of(self, stream: Stream) -> StreamIdentity | None:
        """Return what limits of a stream depend on; None if the stream is not open."""
        identity = self._live.get(stream)
        return None if identity is None else StreamIdentity(*identity, self.policies.group_of(identity[0]))

    def _looks(self, change: Change) -> Iterator[None]:
        """Note the limiters and streams that a change concerns; each step checks some candidates."""
        candidates: Iterable[Limiter | Stream] = self._live.concerned(change)
        if change.only_tunes and change.setting.record.streams_of(change.name) is None:
            candidates = list(self.limiters.values())
        for number, candidate in enumerate(candidates, 1):
            self._note_concerned(change, candidate)
            if number % _LOOKED_AT == 0:
                yield

    def _note_concerned(self, change: Change, candidate: Limiter | Stream) -> None:
        if isinstance(candidate, Limiter):
            if change.may_tune(candidate.scope):
                self._to_tune[candidate] = None
        elif candidate in self._live and candidate.name.direction == change.about:
            if change.only_tunes:
                tuned = [limiter for limiter in _all_of(candidate) if change.may_tune(limiter.scope)]
                self._to_tune.update(dict.fromkeys(tuned))
            else:
                self._to_rewire[candidate] = None

    def _tune(self, limiter: Limiter, now: int) -> None:
        """Put a limiter's value in force; if the limiter has none any more, its streams leave it at their turn."""
        identity = self.identity_at(limiter)
        if identity is None:
            return
        topic, client = identity
        level, direction = LEVEL_OF_WORD[limiter.scope.level], limiter.scope.direction
        entry = self.policies.in_force_at(level, direction, topic, client)
        if entry is None or entry.scope != limiter.scope or (entry.limit.mode == "observe") != limiter.is_observed:
            return
        self._put(entry, topic.full, counted_as(client.address), now)

    def identity_at(self, limiter: Limiter) -> tuple[Topic, Client] | None:
        """Return topic and client of any stream of a limiter: the value depends only on the limiter's scope.

        None if no stream is within the limit.
        """
        stream = next(iter(limiter.streams), None)
        if stream is None:
            return None
        enforced = stream.connection if limiter.is_observed else stream
        return self._live.get(enforced) if isinstance(enforced, Stream) else None

    def _begin_change(self) -> None:
        self._is_settled = False
        self.revision += 1

    def _end_change(self) -> None:
        self._is_settled = True
        self.revision += 1

    def _looks_at_resting(self, changed: Collection[tuple[str, str]]) -> Iterator[None]:
        """Take from limiters without streams what depends on values that may have changed; each step looks at some.

        Args:
            changed: Directions and levels of these values.
        """
        yield from self._limiters.outdate(changed, self._renewed)
        for number, scope in enumerate(self.relative.scopes, 1):
            limiter = self.limiters.get(scope)
            if limiter is not None and not limiter.streams:
                self.relative.forget(scope)
            if number % _LOOKED_AT == 0:
                yield

    def _renewed(self, limiter: Limiter) -> bool:
        """Put the value in force that the scope of a limiter without streams has; False if that is not known."""
        scope, topic = limiter.scope, _topic_within(limiter.scope)
        if topic is None:
            return False
        entry = self.policies.in_force_at(LEVEL_OF_WORD[scope.level], scope.direction, topic, ANYBODY)
        if entry is None or entry.scope != scope or entry.limit.published is not None:
            return False
        if (entry.limit.mode == "observe") != limiter.is_observed:
            return False
        self._limiters.renew(limiter, entry.limit, entry.source, self._now)
        return True

    def _rest(self, left: Iterable[Limiter], now: int) -> None:
        """Note that a stream has left these limiters."""
        self._forget(self._limiters.rest(left, now))

    def _forget(self, limiters: list[Limiter]) -> None:
        for limiter in limiters:
            self._scheduler.journal.forgotten(limiter)

    def _serve(self, limiters: Iterable[Limiter], now: int, most_served: int = _SERVED) -> None:
        """Wake the streams of limiters that have another value: more may pass, and be asked of the broker."""
        limiters = list(limiters)
        self._wake(limiters, now, most_served)
        for window in [window for limiter in limiters for window in limiter.windows]:
            window.serve()

    def hand_over(self, other: OtherProcess, *, has_all: bool) -> HandedLimits:
        """Share all limits with another process from now on: `has_all` says that it takes over from this one."""
        limiters, changed = self._limiters, self._scheduler.journal.retuned
        handed = HandedLimits(limiters.by_scope, limiters.first, other, changed, self._serve_shared, has_all=has_all)
        limiters.handed = handed
        return handed

    def keep_all(self, clock: Callable[[], int], empty_since: int | None = None, *, is_orderly: bool) -> Iterator[None]:
        """Have all limits whole, as the other process has ended; see `HandedLimits.over`. A limiter in each step."""
        handed, self._limiters.handed = self._limiters.handed, None
        if handed is not None:
            yield from handed.over(clock, empty_since, is_orderly=is_orderly)

    def _serve_shared(self, limiters: list[Limiter], now: int) -> None:
        """Wake the streams of limiters that have another share, or may use theirs again."""
        for limiter in limiters:
            if limiter.windows:
                limiter.update_windows()
        self._serve(limiters, now)

    def _wake(self, limiters: Iterable[Limiter], now: int, most_served: int) -> None:
        waited_on = [limiter for limiter in limiters if limiter.waiters]
        for number, limiter in enumerate(waited_on):
            scheduler = self._shadow.scheduler if limiter.is_observed else self._scheduler
            if number < most_served:
                scheduler.serve(limiter, now)
            else:
                scheduler.wake(limiter, now)

    def _rewire_all(self, streams: Iterable[Stream], now: int) -> None:
        for stream in streams:
            if stream in self._live:  # entries that one stream passes may end another
                self._rewire(stream, now)

    def _follow(self, stream: Stream, now: int) -> None:
        """Put changed policies in force for a stream: its report ends here, as do those of limiters it leaves empty."""
        if self._stays(stream):
            return
        self._scheduler.journal.rewired(stream, now)
        left = self._wire(stream, now)
        for limiter in left:
            if not limiter.streams:
                self._scheduler.journal.left(limiter, now)
        self._rest(left, now)

    def _stays(self, stream: Stream) -> bool:
        """Return whether a stream is within the limiters that apply to it, with the values in force."""
        if self._backlogs is not None and self._backlogs.spares(stream):
            return False
        in_force, limiters = (self.policies.in_force(stream.name.direction, *self._live[stream]), _all_of(stream))
        if len(in_force) != len(limiters) or stream.permits is not None:
            return False
        applicable = [self.limiters.get(entry.scope) for entry in in_force]
        return {*applicable} == {*limiters} and all(
            limiter is not None and (limiter.limit, limiter.source) == (entry.limit, entry.source)
            for limiter, entry in zip(applicable, in_force, strict=True)
        )

    def _rewire(self, stream: Stream, now: int) -> None:
        self._rest(self._wire(stream, now), now)

    def _wire(self, stream: Stream, now: int) -> tuple[Limiter, ...]:
        """Put a stream within the limits that apply to it; return its previous limiters."""
        before = _all_of(stream)
        chain, observed = self._chains(stream, now)
        self._observe(stream, observed, now)  # first, so that entries that now pass count at a newly observed limit
        if chain != stream.chain:
            self._scheduler.rewire(stream, chain, now)
        if stream.permits is not None:
            stream.permits.rewire(windows_of(chain))
        return before

    def _observe(self, stream: Stream, chain: tuple[Limiter, ...], now: int) -> None:
        """Put a stream within observed limits. Its shadow stays even without limits: the log takes its counts later."""
        if stream.observed is None and chain:
            stream.observed = self._shadow.watch(stream)
        if stream.observed is not None and stream.observed.chain != chain:
            stream.observed.rewire(chain, now)

    def _chains(self, stream: Stream, now: int) -> tuple[tuple[Limiter, ...], tuple[Limiter, ...]]:
        """Return the limiters that a stream must pass, and those that only observe it."""
        if self._backlogs is not None and self._backlogs.spares(stream):
            return (), ()
        topic, client = self._live[stream]
        in_force = self.policies.in_force(stream.name.direction, topic, client)
        address = counted_as(client.address)
        limiters = [self._put(entry, topic.full, address, now) for entry in in_force]
        enforced = tuple([limiter for limiter in limiters if not limiter.is_observed])
        return enforced, tuple([limiter for limiter in limiters if limiter.is_observed])

    def _put(self, entry: InForce, topic: str, address: str, now: int) -> Limiter:
        """Return the limiter of a limit. If its credit windows change, all its consumers follow."""
        present = self.limiters.get(entry.scope)
        before = present.windows if present is not None else ()
        limiter = self._limiters.put(entry, topic, address, now)
        if limiter is present and limiter.windows != before:
            self._to_rewire.update(dict.fromkeys(limiter.streams))
        return limiter


def _all_of(stream: Stream) -> tuple[Limiter, ...]:
    return stream.chain if stream.observed is None else (*stream.chain, *stream.observed.chain)


def windows_of(chain: tuple[Limiter, ...]) -> tuple[CreditWindow, ...]:
    """Return the credit windows of a consumer's limiters."""
    return tuple(window for limiter in chain for window in limiter.windows)
