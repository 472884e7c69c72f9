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
        settled: How many of them, from the first, were released, refused or withdrawn.
        limiters: Those that the worker knows it to be within.
        rejected_from: Since when some of them refuses what is over it, as far as the worker knows; None if none does.
        is_followed: Whether the worker knows the last message under way, behind whose receipt an error has its place:
            it does if nothing has passed or been withdrawn yet, and else if what passed last was released while a limit
            refused.
    """

    __slots__ = ("is_followed", "limiters", "number", "rejected_from", "settled", "stream", "tickets")

    def __init__(self, number: int, stream: Stream) -> None:
        self.number = number
        self.stream = stream
        self.tickets = 0
        self.settled = 0
        self.limiters: tuple[Limiter, ...] = ()
        self.rejected_from: int | None = None
        self.is_followed = True

    def hold_behind(self, messages: int, size: int) -> None:
        """So much is held besides of which there are no tickets yet."""
        usage = self.stream.usage
        before = usage.behind
        usage.held_messages += messages - before[0]
        usage.held_size += size - before[1]
        usage.behind = messages, size

    def heed_modes(self, now: int) -> None:
        """Its limits may have other modes now; the worker is told them."""
        if not self.stream.is_rejected:
            self.rejected_from = None
        elif self.rejected_from is None:
            self.rejected_from = now

    def wiring(self, numbers: Mapping[Limiter, int]) -> Wired:
        """What the worker is to know of its limits, which it knows by these numbers."""
        stream, is_rejected = self.stream, self.rejected_from is not None
        by_ticket = is_rejected or (stream.observed is not None and bool(stream.observed.chain))
        is_metered = stream.permits is not None and stream.permits.is_metered
        limiters = [numbers[limiter] for limiter in self.limiters]
        return Wired(self.number, limiters, by_ticket, is_metered, is_rejected)
