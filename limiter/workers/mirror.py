"""What stands, where the limits are, for one stream of a worker."""

from collections.abc import Mapping

from limiter.limiter import Limiter, Stream
from limiter.usage import Passed
from limiter.workers.letters import Wired


class Mirror:
    """One stream of the worker.

    Args:
        number: The worker's for it.
        stream: What stands for it.

    Attributes:
        tickets: Entries that waited so far.
        settled: How many of them, from the first, were released, refused or withdrawn.
        behind: Entries, messages and bytes behind these of which it was told so far, and which have not come up since.
        limiters: Those that the worker knows it to be within.
        rejected_from: Since when some of them refuses what is over it, as far as the worker knows; None if none does.
        is_followed: Whether the worker knows the last message under way, behind whose receipt an error has its place:
            it does if nothing has passed or been withdrawn yet, and else if what passed last was released while a limit
            refused.
    """

    __slots__ = ("behind", "is_followed", "limiters", "number", "rejected_from", "settled", "stream", "tickets")

    def __init__(self, number: int, stream: Stream) -> None:
        self.number = number
        self.stream = stream
        self.tickets = 0
        self.settled = 0
        self.limiters: tuple[Limiter, ...] = ()
        self.rejected_from: int | None = None
        self.is_followed = True
        self.behind: Passed = (0, 0, 0)

    def hold_behind(self, behind: Passed) -> None:
        """So many entries, messages and bytes are held besides of which there are no tickets yet; all were offered."""
        self._offer_behind(behind[0] - self.behind[0], behind[1] - self.behind[1], behind[2] - self.behind[2])

    def comes_up(self, entries: int, messages: int, size: int) -> None:
        """So much more was offered; but first of all that comes what was behind, which is counted already."""
        if entries >= self.behind[0]:
            entries, messages, size = self.behind
        self._offer_behind(-entries, -messages, -size)

    def _offer_behind(self, entries: int, messages: int, size: int) -> None:
        usage, behind = self.stream.usage, self.behind
        usage.add_offered(entries, messages, size)
        usage.held_messages += messages
        usage.held_size += size
        self.behind = behind[0] + entries, behind[1] + messages, behind[2] + size

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
