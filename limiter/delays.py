"""How long messages were held: counts in buckets that never change, so that those of any two spans can be added."""

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
    """0 below 1 ms, then four to each doubling, up to 65 from 65.536 s on (`accesslog.delays` has the bounds)."""
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
