"""The counters of streams and limiters: plain integers that only grow, read by the access log and the metrics.

Delays are counted in buckets that never change, so that the counts of any two spans can be added.
"""

from typing import Final

from mypy_extensions import i64

_QUARTER_MS: Final = 250_000
_LAST_BUCKET: Final = 65


class Delays:
    """Counts the delays of messages that were held before they passed; costs nothing for other messages."""

    __slots__ = ("_bucket", "_counts", "_messages", "_sum_ns")

    def __init__(self) -> None:
        self._sum_ns = 0
        self._bucket = 0
        self._messages = 0
        """Messages of `_bucket` that are not in the counts yet: most delays are in the bucket of the previous one."""
        self._counts: list[int] = []

    def add(self, delay_ns: int, messages: int) -> None:
        """Count `messages` messages that pass after `delay_ns` nanoseconds."""
        if not messages:
            return
        bucket = bucket_of(delay_ns)
        if bucket != self._bucket:
            self._enter()
            self._bucket = bucket
        self._messages += messages
        self._sum_ns += delay_ns if messages == 1 else delay_ns * messages  # products of large numbers are slow

    def __bool__(self) -> bool:
        """Return whether there are counts to take."""
        return self._messages > 0 or bool(self._counts)

    def read(self) -> tuple[tuple[int, ...], int]:
        """Return the counts by bucket, up to the last above 0, and the sum of delays (ns), since the last `take`."""
        self._enter()
        return tuple(self._counts), self._sum_ns

    def take(self) -> tuple[tuple[int, ...], int]:
        """Return the result of `read`, and reset the counts."""
        taken = self.read()
        self._counts, self._sum_ns = [], 0
        return taken

    def _enter(self) -> None:
        if self._messages:
            self._counts.extend([0] * (self._bucket + 1 - len(self._counts)))
            self._counts[self._bucket] += self._messages
            self._messages = 0


def bucket_of(delay_ns: int) -> int:
    """Return the bucket of a delay: 0 below 1 ms, then four to each doubling, up to 65 from 65.536 s on."""
    quarters: i64 = i64(delay_ns) // _QUARTER_MS
    bucket: i64 = -3
    while quarters >= 8:  # the number's length, without a call of Python
        quarters >>= 1
        bucket += 4
    bucket += quarters
    if bucket < 0:
        return 0
    if bucket > _LAST_BUCKET:
        return _LAST_BUCKET
    return bucket


class Stopwatch:
    """Measures the total time for which a condition has held, in nanoseconds of the caller's clock."""

    __slots__ = ("_since", "_total")

    def __init__(self) -> None:
        self._total = 0
        self._since: int | None = None

    def start(self, now: int) -> None:
        """Record that the condition holds from now on."""
        if self._since is None:
            self._since = now

    def stop(self, now: int) -> None:
        """Record that the condition holds no longer."""
        if self._since is not None:
            self._total += now - self._since
            self._since = None

    @property
    def is_running(self) -> bool:
        """True while the condition holds."""
        return self._since is not None

    def read(self, now: int) -> int:
        """Return the nanoseconds so far, a running span included."""
        return self._total if self._since is None else self._total + now - self._since

    def running_ns(self, now: int) -> int:
        """Return the nanoseconds of the running span; 0 if none runs."""
        return 0 if self._since is None else now - self._since


Passed = tuple[int, int, int]
"""Entries, messages and bytes that were passed."""


class Spared:
    """Counts the entries that a stream passed while no limit held for it, since the last `take`.

    The count is the difference of the stream's totals at the end and at the begin, so that entries cost nothing.
    """

    __slots__ = ("_since", "_total")

    def __init__(self) -> None:
        self._total: Passed = (0, 0, 0)
        self._since: Passed | None = None

    def start(self, passed: Passed) -> None:
        """Begin to spare the stream, which has passed `passed` in all."""
        if self._since is None:
            self._since = passed

    def stop(self, passed: Passed) -> None:
        """Stop sparing the stream: its limits hold again."""
        self._count(passed)
        self._since = None

    def take(self, passed: Passed) -> Passed:
        """Return the spared entries, messages and bytes since the last call."""
        self._count(passed)
        total, self._total = self._total, (0, 0, 0)
        return total

    def _count(self, passed: Passed) -> None:
        if self._since is not None:
            total, since, self._since = self._total, self._since, passed
            self._total = (
                total[0] + passed[0] - since[0],
                total[1] + passed[1] - since[1],
                total[2] + passed[2] - since[2],
            )


class LimiterUsage:
    """Counts the entries that one limiter passed, and the time for which streams waited on it.

    `reported` belongs to the access log, which sets it after each line. `idle_ns` and
    `reserved_ns` are parts of the time waited in which each bucket had a token: `idle_ns` beyond the lateness of a
    timer, `reserved_ns` for a stream that waited elsewhere. `recovered_ns` is the part of `idle_ns` after which some
    bucket still had room, so that no token was lost.
    """

    __slots__ = (
        "entries",
        "idle_ns",
        "largest_messages",
        "largest_size",
        "messages",
        "recovered_ns",
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
        self.recovered_ns = 0
        self.reserved_ns = 0
        self.messages = 0
        self.size = 0
        self.rejected_messages = 0
        self.rejected_size = 0
        self.largest_messages = 0
        self.largest_size = 0
        self.reported: tuple[int, ...] = ()
        self.throttled = Stopwatch()

    def add_passed(self, entries: int, messages: int, size: int) -> None:
        """Count `entries` entries as passed, with `messages` messages and `size` bytes in all."""
        self.entries += entries
        self.messages += messages
        self.size += size

    def add_rejected(self, messages: int, size: int) -> None:
        """Count an entry as refused."""
        self.rejected_messages += messages
        self.rejected_size += size

    def met(self, messages: int, size: int) -> None:
        """Note the messages and bytes of an entry, which may be the largest so far."""
        self.largest_messages = max(self.largest_messages, messages)
        self.largest_size = max(self.largest_size, size)

    def take_largest(self) -> tuple[int, int]:
        """Return the messages and bytes of the largest entries since the last call."""
        largest = self.largest_messages, self.largest_size
        self.largest_messages = self.largest_size = 0
        return largest


class StreamUsage:
    """Counts the entries that one stream offered, and those that were passed, held, dropped or rejected.

    `withheld` runs while permits that the client asked for have not been passed on to the broker. `spared` is set once
    entries of the stream may pass uncharged. `reported` belongs to the access log, which sets it after each line, and
    takes from `delay_max_ns`, `spared` and `delays`.
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
        self.delays = Delays()  # each held entry reads the attributes up to here: two cache lines, compiled
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
        """Count `entries` entries as offered, with `messages` messages and `size` bytes in all."""
        self.offered_entries += entries
        self.offered_messages += messages
        self.offered_size += size

    def add_passed(self, entries: int, messages: int, size: int) -> None:
        """Count `entries` entries as passed, with `messages` messages and `size` bytes in all."""
        self.passed_entries += entries
        self.passed_messages += messages
        self.passed_size += size

    def add_rejected(self, messages: int, size: int) -> None:
        """Count an entry as refused."""
        self.rejected_messages += messages
        self.rejected_size += size

    def add_held(self, messages: int, size: int) -> None:
        """Count an entry as held."""
        self.held_messages += messages
        self.held_size += size

    def add_released(self, messages: int, size: int, delay_ns: int) -> None:
        """Count an entry as held no longer, and as delayed."""
        self.held_messages -= messages
        self.held_size -= size
        self.delay_max_ns = max(self.delay_max_ns, delay_ns)
        self.delays.add(delay_ns, messages)

    def add_dropped(self, messages: int, size: int) -> None:
        """Count messages and bytes as dropped."""
        self.dropped_messages += messages
        self.dropped_size += size

    def take_delay_max(self) -> int:
        """Return the nanoseconds of the longest delay since the last call."""
        longest, self.delay_max_ns = self.delay_max_ns, 0
        return longest

    @property
    def passed(self) -> Passed:
        """Entries, messages and bytes passed in all."""
        return self.passed_entries, self.passed_messages, self.passed_size

    def spare(self) -> None:
        """Begin to spare the stream: from now on its entries are charged to no limit."""
        if self.spared is None:
            self.spared = Spared()
        self.spared.start(self.passed)

    def spare_no_longer(self) -> None:
        """Stop sparing the stream: from now on its entries are charged to its limits."""
        if self.spared is not None:
            self.spared.stop(self.passed)
