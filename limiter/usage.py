"""What streams and limiters count: plain integers that only grow, read by the access log and the metrics.

Delays are counted in buckets that never change, so that those of any two spans can be added.
"""

from typing import Final

from mypy_extensions import i64

_QUARTER_MS: Final = 250_000
_LAST_BUCKET: Final = 65


class Delays:
    """Counts the messages that passed after having been held; costs nothing for those that were not."""

    __slots__ = ("_bucket", "_counts", "_messages", "_sum_ns")

    def __init__(self) -> None:
        self._sum_ns = 0
        self._bucket = 0
        self._messages = 0
        """Messages of this bucket that are not among the counts yet: one delay is mostly like the one before."""
        self._counts: list[int] = []

    def add(self, delay_ns: int, messages: int) -> None:
        """So many messages pass that were held for so long."""
        if not messages:
            return
        bucket = bucket_of(delay_ns)
        if bucket != self._bucket:
            self._enter()
            self._bucket = bucket
        self._messages += messages
        self._sum_ns += delay_ns if messages == 1 else delay_ns * messages  # products of large numbers are dear

    def __bool__(self) -> bool:
        """Whether there is anything to take."""
        return self._messages > 0 or bool(self._counts)

    def read(self) -> tuple[tuple[int, ...], int]:
        """The counts by bucket, the last of them above 0, and the sum of all delays (ns), since the last `take`."""
        self._enter()
        return tuple(self._counts), self._sum_ns

    def take(self) -> tuple[tuple[int, ...], int]:
        """The same; counting begins anew."""
        taken = self.read()
        self._counts, self._sum_ns = [], 0
        return taken

    def _enter(self) -> None:
        if self._messages:
            self._counts.extend([0] * (self._bucket + 1 - len(self._counts)))
            self._counts[self._bucket] += self._messages
            self._messages = 0


def bucket_of(delay_ns: int) -> int:
    """0 below 1 ms, then four to each doubling, up to 65 from 65.536 s on (`accesslog.record` has the bounds)."""
    quarters: i64 = i64(delay_ns) // _QUARTER_MS
    bucket: i64 = -3
    while quarters >= 8:  # the number's length, without a call of Python for it
        quarters >>= 1
        bucket += 4
    bucket += quarters
    if bucket < 0:
        return 0
    if bucket > _LAST_BUCKET:
        return _LAST_BUCKET
    return bucket


class Stopwatch:
    """How long something was so, in all; nanoseconds of the caller's clock."""

    __slots__ = ("_since", "_total")

    def __init__(self) -> None:
        self._total = 0
        self._since: int | None = None

    def start(self, now: int) -> None:
        """It is so from now on."""
        if self._since is None:
            self._since = now

    def stop(self, now: int) -> None:
        """It is so no longer."""
        if self._since is not None:
            self._total += now - self._since
            self._since = None

    @property
    def is_running(self) -> bool:
        """Whether it is so now."""
        return self._since is not None

    def read(self, now: int) -> int:
        """Nanoseconds so far, a running span included."""
        return self._total if self._since is None else self._total + now - self._since

    def running_ns(self, now: int) -> int:
        """Nanoseconds of the running span; 0 if none runs."""
        return 0 if self._since is None else now - self._since


Passed = tuple[int, int, int]
"""Entries, messages and bytes that were passed."""


class Spared:
    """What a stream passed while no limit was to hold for it, since somebody last asked.

    It is found from what the stream had passed in all at the begin and at the end, so that entries cost nothing.
    """

    __slots__ = ("_since", "_total")

    def __init__(self) -> None:
        self._total: Passed = (0, 0, 0)
        self._since: Passed | None = None

    def start(self, passed: Passed) -> None:
        """It is spared from now on, having passed so much in all."""
        if self._since is None:
            self._since = passed

    def stop(self, passed: Passed) -> None:
        """Its limits hold again."""
        self._count(passed)
        self._since = None

    def take(self, passed: Passed) -> Passed:
        """What it was since the last time."""
        self._count(passed)
        total, self._total = self._total, (0, 0, 0)
        return total

    def add(self, passed: Passed) -> None:
        """So much of what it passed while limits were to hold was not charged to them, either."""
        if self._since is None:
            total = self._total
            self._total = total[0] + passed[0], total[1] + passed[1], total[2] + passed[2]

    def _count(self, passed: Passed) -> None:
        if self._since is not None:
            total, since, self._since = self._total, self._since, passed
            self._total = (
                total[0] + passed[0] - since[0],
                total[1] + passed[1] - since[1],
                total[2] + passed[2] - since[2],
            )


class LimiterUsage:
    """What one limiter passed, and for how long somebody waited on it.

    The two `largest_…` and `reported` belong to the access log, which sets them after each line. `idle_ns` and
    `reserved_ns` are parts of the time waited in which each bucket had a token: longer than a timer may be late, and
    for the sake of a stream that waited elsewhere. `left_…` is what passed of streams that were no longer within the
    limit when it was counted.
    """

    __slots__ = (
        "entries",
        "idle_ns",
        "largest_messages",
        "largest_size",
        "left_messages",
        "left_size",
        "messages",
        "rejected_messages",
        "rejected_size",
        "reported",
        "reserved_ns",
        "size",
        "throttled",
    )

    def __init__(self) -> None:
        self.entries = 0
        self.idle_ns = 0
        self.reserved_ns = 0
        self.messages = 0
        self.size = 0
        self.rejected_messages = 0
        self.rejected_size = 0
        self.left_messages = 0
        self.left_size = 0
        self.largest_messages = 0
        self.largest_size = 0
        self.reported: tuple[int, ...] = ()
        self.throttled = Stopwatch()

    def add_passed(self, entries: int, messages: int, size: int) -> None:
        """So many entries passed, with so many messages and bytes in all."""
        self.entries += entries
        self.messages += messages
        self.size += size

    def add_rejected(self, messages: int, size: int) -> None:
        """An entry of so many messages and bytes was refused."""
        self.rejected_messages += messages
        self.rejected_size += size

    def add_left(self, messages: int, size: int) -> None:
        """So much of what passed was of a stream that has left."""
        self.left_messages += messages
        self.left_size += size

    def met(self, messages: int, size: int) -> None:
        """One of them, perhaps the largest so far, had so many."""
        self.largest_messages = max(self.largest_messages, messages)
        self.largest_size = max(self.largest_size, size)


class StreamUsage:
    """What one stream offered, and what became of it: passed, held, dropped or rejected.

    `withheld` runs while permits are asked for that have not been passed on to the broker.
    `spared` is there once the stream was without a backlog where those that have none are to go unlimited.
    `delay_max_ns` and `reported` belong to the access log, which sets them after each line, and takes from `spared` and
    `delays`.
    """

    __slots__ = (
        "delay_max_ns",
        "delays",
        "dropped_messages",
        "dropped_size",
        "held_messages",
        "held_size",
        "offered_entries",
        "offered_messages",
        "offered_size",
        "passed_entries",
        "passed_messages",
        "passed_size",
        "permits_asked",
        "permits_granted",
        "rejected_messages",
        "rejected_size",
        "reported",
        "spared",
        "throttled",
        "withheld",
    )

    def __init__(self) -> None:
        self.offered_entries = 0
        self.offered_messages = 0
        self.offered_size = 0
        self.passed_entries = 0
        self.passed_messages = 0
        self.passed_size = 0
        self.held_messages = 0
        self.held_size = 0
        self.delay_max_ns = 0
        self.delays = Delays()  # up to here what each held entry touches: two lines of memory, compiled
        self.dropped_messages = 0
        self.dropped_size = 0
        self.rejected_messages = 0
        self.rejected_size = 0
        self.permits_asked = 0
        self.permits_granted = 0
        self.reported: tuple[int, ...] = ()
        self.throttled = Stopwatch()
        self.withheld = Stopwatch()
        self.spared: Spared | None = None

    def add_offered(self, entries: int, messages: int, size: int) -> None:
        """So many entries came, with so many messages and bytes in all."""
        self.offered_entries += entries
        self.offered_messages += messages
        self.offered_size += size

    def add_passed(self, entries: int, messages: int, size: int) -> None:
        """So many passed."""
        self.passed_entries += entries
        self.passed_messages += messages
        self.passed_size += size

    def add_rejected(self, messages: int, size: int) -> None:
        """An entry of so many messages and bytes was refused."""
        self.rejected_messages += messages
        self.rejected_size += size

    @property
    def passed(self) -> Passed:
        """What was passed in all."""
        return self.passed_entries, self.passed_messages, self.passed_size

    def add_spared(self, passed: Passed) -> None:
        """So much of what was passed was charged to no limit that is its own now."""
        if self.spared is None:
            self.spared = Spared()
        self.spared.add(passed)

    def spare(self) -> None:
        """What passes from now on is charged to no limit."""
        if self.spared is None:
            self.spared = Spared()
        self.spared.start(self.passed)

    def spare_no_longer(self) -> None:
        """What passes from now on is charged to its limits."""
        if self.spared is not None:
            self.spared.stop(self.passed)
