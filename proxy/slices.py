"""Slices of large work on the event loop, and the time that each kind of work takes.

A peer, a caller or a policy can cause work of any size: 20,000 streams that end, 3,000 lines, 100,000 policies. Such
work is an iterator of small units. Each turn of the loop does units until its budget is spent, and the rest waits for
the next turns:

    run(ENDINGS, units) ─▶ budget left? ─▶ units now, in the caller's turn ─▶ all done
                               └─▶ in line with its kind ─▶ next turn: kinds by turns, within a kind work by turns

So little work is done at once, and much work makes no turn longer than a slice. The budget counts units and asks no
clock. One kind that never ends leaves each other kind its part of every turn.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterator
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from limiter.activity import ignore_standstill
from proxy.counters import CONNECTIONS_WORK, SLOW_READS_WORK, UNNAMED_WORK, Counters
from proxy.timers import Heartbeat, Lateness, SlowReads

T = TypeVar("T")


class Work(StrEnum):
    """A kind of work on the loop; each is a label of `sluice_loop_work_seconds_total`."""

    __hash__ = str.__hash__  # an enumeration's own is a call of Python

    LINES = "lines"
    """Lines of the access log for the streams and limiters of an interval."""
    POLICIES = "policies"
    """Changed limits on live streams and limiters, and a fleet's policies that are compared with the store's."""
    ENDINGS = "endings"
    """Sessions that end, and their streams."""
    BLOCKS = "blocks"
    """New rules of the blocklist on the sessions that are connected, and other blocks of a file."""
    COMMANDS = "commands"
    """Commands of clients and brokers, except those that come with messages."""
    ENTRIES = "entries"
    """Entries of many streams in one read."""
    RELEASES = "releases"
    """Held entries whose limiter has tokens again."""
    REQUESTS = "requests"
    """Requests to the admin address."""
    SCRAPES = "scrapes"
    """The text of `/metrics`."""
    HANDSHAKES = "handshakes"
    """Steps of TLS handshakes, with clients and with brokers."""
    RECORDS = "records"
    """Many small records of TLS, which are opened."""
    CREDENTIALS = "credentials"
    """Credentials that are verified."""
    FLEET = "fleet"
    """Reports and grants of a fleet."""
    FILES = "files"
    """Files that are read again."""
    MEMORY = "memory"
    """Garbage collection, and memory that is given back to the system."""


AT_ONCE: Final = {
    Work.LINES: 25,  # the first of a stream in an interval takes 0.2 ms at ten levels with fifteen patterns each
    Work.POLICIES: 10,
    Work.ENDINGS: 25,
    Work.BLOCKS: 50,
    Work.COMMANDS: 30,  # to open a stream takes up to 0.1 ms; long commands are several units (`units_of_command`)
    Work.ENTRIES: 400,  # at ten levels, the first of a stream in an interval takes 15 µs
    Work.RELEASES: 100,
    Work.REQUESTS: 50,
    Work.SCRAPES: 50,
    Work.HANDSHAKES: 2,  # a step with a key of RSA 2048 takes 0.3 to 0.6 ms, of RSA 4096 3.4 ms
    Work.RECORDS: 30,  # a hundred records of one byte take 50 µs
    Work.CREDENTIALS: 3,  # a token that is tried with four keys of P-521 takes 2 ms
    Work.FLEET: 50,  # two units, to measure a demand or to put a share in force, take 20 to 40 µs
    Work.FILES: 50,
    Work.MEMORY: 5,
}
"""Units of each kind that fill a turn: 1 to 2 ms of work. Units of several kinds share the turn (`Slices.take_own`)."""
_UNIT_BYTES: Final = 2048
"""Bytes of a command that take as long as a unit: fields of two to six bytes each."""
_BUDGET: Final = 1_000_000
"""What the units of a turn may cost; a unit of a kind costs its part of `AT_ONCE`."""
_ROUNDS: Final = 4
"""A piece of work does a fourth of a turn's units before the next piece has its turn."""
_READ_NS: Final = 5_000
"""Nanoseconds that the shortest read of a connection takes, with the event loop's part of it."""
_FREED: Final = 100
"""Objects that are freed in one unit of work."""
_OVER: Final = object()


InTurn = Callable[[Callable[[], int | None], Hashable], None]
"""Makes a call in slices, by turns with calls of other keys, as `CallsInSlices.add` does."""


def _nothing() -> None:
    pass


def units_of_command(size: int) -> int:
    """Return the units of `COMMANDS` that a command of so many bytes is."""
    return 1 + size // _UNIT_BYTES


class _Piece:
    """A piece of work: the units still to be done, the call after a unit that failed, and the call after the end."""

    __slots__ = ("failed", "then", "units")

    def __init__(self, units: Iterator[object], then: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        self.units = units
        self.then = then
        self.failed = failed


class Slices:
    """Does large work in slices, and measures how long each kind of work holds the loop.

    There is one in a process.

    Args:
        counters: Get the time of each kind of work, and the lateness of timers.
        clock: Monotonic nanoseconds.
        on_standstill: As for `Lateness`.

    Attributes:
        longest_ns: The longest time that each kind of work took in one turn; `_RecentPeaks` begins it again.
        lateness: Counts late timers, and names the kind of work to which each is due.
        heartbeat: Notes how late the loop is.
        slow_reads: The time of slow reads in this turn.
    """

    def __init__(
        self,
        counters: Counters,
        clock: Callable[[], int] = time.monotonic_ns,
        on_standstill: Callable[[int], None] = ignore_standstill,
    ) -> None:
        self.longest_ns: dict[Work, int] = {}
        self.slow_reads = SlowReads(clock)
        self.lateness = Lateness(counters, self._held_by, on_standstill)
        self.heartbeat = Heartbeat(self.lateness.beat_fired, clock)
        self._counters = counters
        self._clock = clock
        self._queues: dict[Work, deque[_Piece]] = {}
        """Pieces of work that are not over, by kind; the kind that is next comes first."""
        self._left = _BUDGET
        self._own: dict[Work, int] = {}
        """Units done in this turn, of the kinds that have budgets for themselves."""
        self._done = 0
        """Cost of the units that were done since the calls of `after_work`."""
        self._after_work: list[Callable[[], None]] = []
        self._is_armed = False
        self._now: Work | None = None
        """The kind of the work that runs."""
        self._since = 0
        self._spent: dict[Work, int] = {}
        """Nanoseconds in this turn, and in the one before, by kind."""
        self._spent_before: dict[Work, int] = {}

    def run(
        self, work: Work, units: Iterator[object], then: Callable[[], None] = _nothing, *, later: bool = False
    ) -> None:
        """Do the units of a piece of work: those for which this turn has budget at once, the rest in the next turns.

        Pieces of one kind that begin later may end earlier. A unit that fails ends its piece; the loop reports it.

        Args:
            work: The kind of work.
            units: Each step does one unit; the yielded values are ignored.
            then: Called after the last unit, or after the one that failed.
            later: The caller has done this turn's part: the units begin in the next turn.
        """
        self._add(work, _Piece(units, then, self._report), later=later)

    def take(self, work: Work, units: int = 1) -> bool:
        """Take units of this turn's budget for work that the caller does at once; return False if none is left."""
        if self._left <= 0:
            return False
        self._left -= units * (_BUDGET // AT_ONCE[work])
        self._arm()
        return True

    def take_own(self, work: Work, units: int) -> bool:
        """Take units of a budget that this kind of work has in each turn for itself; return False if it is spent now.

        So clients are read while other work fills each turn.
        """
        self.charge(work, units)
        return self._own[work] < AT_ONCE[work]

    def charge(self, work: Work, units: int) -> None:
        """Count units that the caller has done against the budget that this kind of work has for itself."""
        self._own[work] = self._own.get(work, 0) + units
        self._arm()

    def left_own(self, work: Work) -> int:
        """Return the units that are left of the budget that this kind of work has in each turn for itself."""
        return max(0, AT_ONCE[work] - self._own.get(work, 0))

    async def done(self, work: Work, units: Iterator[object]) -> None:
        """Do the units as `run` does, and return after the last one.

        Raises:
            Exception: What a unit raises, which ends the piece.
        """
        over = asyncio.get_running_loop().create_future()

        def end(error: Exception | None = None) -> None:
            if over.done():
                return
            if error is None:
                over.set_result(None)
            else:
                over.set_exception(error)

        self._add(work, _Piece(_until(over.done, units), end, end))
        await over

    def finish(self, *works: Work) -> None:
        """Do all units left in these kinds of work at once: the process ends."""
        for work in works:
            while self._queues.get(work):
                self._do(work, AT_ONCE[work])

    def after_work(self, call: Callable[[], None]) -> None:
        """Call this whenever as much work has been done as fills a turn: as many objects may have come and gone."""
        self._after_work.append(call)

    def measure(self, work: Work) -> "_Measured":
        """Measure what runs in the block as work of this kind; the block must not await.

        Work of another kind inside the block counts as that kind alone.
        """
        return _Measured(self, work)

    def measured(self, work: Work, awaited: Awaitable[T]) -> Awaitable[T]:
        """Return an awaitable of the same result whose steps are measured as work of this kind."""
        return _MeasuredSteps(self, work, awaited)

    def waiting(self, work: Work) -> int:
        """Return the number of pieces of work of this kind that are not over."""
        return len(self._queues.get(work, ()))

    def begin(self, work: Work | None) -> Work | None:
        """Measure another kind of work from now on, None for none that is named; return the kind before."""
        now = self._clock()
        before = self._now
        if before is not None:
            self._charge(before, now - self._since)
        self._now, self._since = work, now
        return before

    def _charge(self, work: Work, spent: int) -> None:
        in_turn = self._spent.get(work, 0) + spent
        self._spent[work] = in_turn
        self._counters.work_ns[work] += spent
        self.longest_ns[work] = max(self.longest_ns.get(work, 0), in_turn)
        self._arm()

    def _held_by(self, late_ns: int) -> str:
        """Return the kind of work that took at least half of the time for which a timer is late."""
        spent = self._spent_before | self._spent
        work = max(spent, key=lambda each: spent[each], default=None)
        if work is not None and 2 * spent[work] >= late_ns:
            return work
        if 2 * self.slow_reads.lately() >= late_ns:
            return SLOW_READS_WORK
        return CONNECTIONS_WORK if 2 * _READ_NS * self.heartbeat.reads() >= late_ns else UNNAMED_WORK

    def _add(self, work: Work, piece: _Piece, *, later: bool = False) -> None:
        queue = self._queues.setdefault(work, deque())
        queue.append(piece)
        self._arm()  # before the work, as in `_next_turn`
        if len(queue) == 1 and not later:
            while work in self._queues and self._left > 0:
                self._do(work, AT_ONCE[work])

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            self.heartbeat.note()
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_armed = False
        self._spent_before, self._spent = self._spent, {}
        own = sum(units * _BUDGET // AT_ONCE[work] for work, units in self._own.items())
        self._done += _BUDGET - self._left + own
        self._left = _BUDGET
        self._own.clear()
        if self._queues:
            self._arm()  # before the work: what it wakes up has its part of the next turn's budget, not of this one's
        if self._done >= _BUDGET:
            self._done = 0
            for call in self._after_work:
                call()
        while self._queues and self._left > 0:
            work, queue = next(iter(self._queues.items()))
            del self._queues[work]
            self._queues[work] = queue
            self._do(work, max(1, AT_ONCE[work] // _ROUNDS))

    def _do(self, work: Work, most: int) -> None:
        """Do up to `most` units of the first piece of a kind, which then goes to the end of its line."""
        queue, cost = self._queues[work], _BUDGET // AT_ONCE[work]
        piece = queue[0]
        before = self.begin(work)
        try:
            for _ in range(most):
                self._left -= cost
                if next(piece.units, _OVER) is _OVER:
                    self._end(queue, piece)
                    break
                if self._left <= 0:
                    queue.rotate(-1)
                    break
            else:
                queue.rotate(-1)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one piece, the others go on
            self._end(queue, piece, error)
        finally:
            if not queue and self._queues.get(work) is queue:  # a call at the end may have begun another
                del self._queues[work]
            self.begin(before)

    def _end(self, queue: deque[_Piece], piece: _Piece, error: Exception | None = None) -> None:
        """End a piece of work, after its last unit or the one that raised the error."""
        if queue and queue[0] is piece:
            queue.popleft()
        try:
            if error is not None:
                piece.failed(error)
            piece.then()
        except Exception as its_own:  # noqa: BLE001
            self._report(its_own)

    @staticmethod
    def _report(error: Exception) -> None:
        asyncio.get_running_loop().call_exception_handler({"message": "a unit of work failed", "exception": error})


class ByTurns(Generic[T]):
    """A queue in which keys have turns: an item of one key, then one of the next. Each operation takes constant time.

    A thousand items of one client address delay those of another address by one item.
    """

    def __init__(self) -> None:
        self._keys: deque[Hashable] = deque()
        """The keys that have items; the next one comes first."""
        self._of: dict[Hashable, tuple[deque[T], deque[T]]] = {}
        """Of each key the items that go before the others, and the others."""

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, key: Hashable, item: T, *, goes_first: bool = False) -> None:
        """Add an item after all of its key, or before those that were added without `goes_first`."""
        items = self._of.get(key)
        if items is None:
            items = self._of[key] = deque(), deque()
            self._keys.append(key)
        items[not goes_first].append(item)

    def pop(self) -> T:
        """Remove and return the first item of the key whose turn it is.

        Raises:
            IndexError: If the queue is empty.
        """
        key = self._keys.popleft()
        first, others = self._of[key]
        item = (first or others).popleft()
        if first or others:
            self._keys.append(key)
        else:
            del self._of[key]
        return item


class CallsInSlices:
    """Calls that may come by thousands in one turn, done in slices. To add one costs next to nothing.

    Calls of one key are made in their order, those of several keys by turns.

    Args:
        slices: Does them.
        work: Their kind.
    """

    def __init__(self, slices: Slices, work: Work) -> None:
        self._slices = slices
        self._work = work
        self._calls: ByTurns[Callable[[], int | None]] = ByTurns()
        self._is_running = False

    def add(self, call: Callable[[], int | None], key: Hashable = None) -> None:
        """Make a call, at once if this turn has budget left and no other call waits.

        The call returns the units of work that it was; None: one.
        """
        self._calls.add(key, call)
        if not self._is_running:
            self._run()

    def _run(self, *, later: bool = False) -> None:
        self._is_running = True
        self._slices.run(self._work, self._units(), later=later)

    def _units(self) -> Iterator[None]:
        try:
            while self._calls:
                for _ in range(self._calls.pop()() or 1):
                    yield
        finally:  # whatever is wrong with one, the others are made
            self._is_running = False
            if self._calls:
                self._run(later=True)


class OneInTurn:
    """A call that waits for its turn once, however often it is asked for.

    Args:
        in_turn: Makes the call.
        call: Returns the units of work that it was.
        key: Calls of other keys have turns between those of this one.
    """

    def __init__(self, in_turn: InTurn, call: Callable[[], int], key: str) -> None:
        self._in_turn = in_turn
        self._call = call
        self._key = key
        self._waits = False

    def ask(self) -> None:
        """Make the call when its turn comes, unless it waits already."""
        if not self._waits:
            self._waits = True
            self._in_turn(self._make, self._key)

    def _make(self) -> int:
        self._waits = False
        return self._call()


class _Measured:
    """The block of `Slices.measure`."""

    __slots__ = ("_before", "_slices", "_work")

    def __init__(self, slices: Slices, work: Work) -> None:
        self._slices = slices
        self._work = work
        self._before: Work | None = None

    def __enter__(self) -> None:
        self._before = self._slices.begin(self._work)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._slices.begin(self._before)


class _MeasuredSteps(Awaitable[T]):
    """The awaitable of `Slices.measured`."""

    def __init__(self, slices: Slices, work: Work, awaited: Awaitable[T]) -> None:
        self._slices = slices
        self._work = work
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, T]:
        steps, error = self._awaited.__await__(), None
        while True:
            before = self._slices.begin(self._work)
            try:
                waits_for = steps.send(None) if error is None else steps.throw(error)
            except StopIteration as over:
                return over.value  # type: ignore[no-any-return]
            finally:
                self._slices.begin(before)
            error = None
            try:
                yield waits_for
            except BaseException as raised:  # noqa: BLE001 - it is for the awaited, be it a cancellation
                error = raised


def letting_go(*forgotten: dict[Any, Any]) -> Iterator[None]:
    """Empty tables that nothing else refers to, some entries in each step: to free 20,000 streams takes 20 ms."""
    for table in forgotten:
        while table:
            for _ in range(min(_FREED, len(table))):
                table.popitem()
            yield


def noting_failure(units: Iterator[None], failures: list[Exception]) -> Iterator[None]:
    """Yield the units for one of many sessions; add what they raise to `failures`, if it is the first of all.

    So a defect that one session shows spares no other.
    """
    try:
        yield from units
    except Exception as error:  # noqa: BLE001
        failures += [error] * (not failures)


def _until(is_over: Callable[[], bool], units: Iterator[object]) -> Iterator[object]:
    """Yield the units, but no more when the caller has gone."""
    for unit in units:
        yield unit
        if is_over():
            return
