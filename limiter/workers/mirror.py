"""What stands, where the limits are, for one stream of a worker."""

from collections.abc import Mapping

from limiter.limiter import Limiter
from limiter.stream import Stream
from limiter.workers.letters import Wired


class Mirror:
    """One stream of the worker.

    Args:
        number: The worker's for it.
        stream: What stands for it.

    Attributes:
        tickets: Entries that waited so far.
        settled: How many of them, from the first, were released or withdrawn.
        limiters: Those that the worker knows it to be within.
    """

    __slots__ = ("_behind", "limiters", "number", "settled", "stream", "tickets")

    def __init__(self, number: int, stream: Stream) -> None:
        self.number = number
        self.stream = stream
        self.tickets = 0
        self.settled = 0
        self.limiters: tuple[Limiter, ...] = ()
        self._behind = 0, 0

    def hold_behind(self, messages: int, size: int) -> None:
        """So much is held besides of which there are no tickets yet."""
        usage, before = self.stream.usage, self._behind
        usage.held_messages += messages - before[0]
        usage.held_size += size - before[1]
        self._behind = messages, size

    def wiring(self, numbers: Mapping[Limiter, int]) -> Wired:
        """What the worker is to know of its limits, which it knows by these numbers."""
        stream = self.stream
        by_ticket = stream.is_rejected or (stream.observed is not None and bool(stream.observed.chain))
        is_metered = stream.permits is not None and stream.permits.is_metered
        return Wired(self.number, [numbers[limiter] for limiter in self.limiters], by_ticket, is_metered)
