"""A worker's side of a consumer's permits: the judge meters them."""

from limiter.limiter import Stream
from limiter.permits import Permits
from limiter.workers.deputy import Deputy


class FarPermits(Permits):
    """A consumer's permits, which the judge meters.

    Args:
        stream: The consumer.
        deputy: Who passes on what it asks.
    """

    def __init__(self, stream: Stream, deputy: Deputy) -> None:
        super().__init__(stream.usage, _nothing_granted, _nothing)
        self._stream = stream
        self._deputy = deputy

    @property
    def is_metered(self) -> bool:
        """Whether FLOW must be held back; until the judge has said so, it is."""
        return self._deputy.is_metered(self._stream)

    def may_pass(self, permits: int) -> bool:  # noqa: ARG002 - as Permits; how much room there is, the judge knows
        """Whether a FLOW may pass as it came."""
        return not self.is_metered

    def ask(self, permits: int, *, as_it_came: bool = False) -> bool:
        """The client asks for more. Whether its FLOW is to go on as it is."""
        is_granted = as_it_came and self.may_pass(permits)
        self._deputy.ask(self._stream, permits, is_granted=is_granted)
        return is_granted

    def arrived(self, entries: int, messages: int, size: int) -> None:
        """Told with its ticket."""

    def crossed(self, entries: int, messages: int, size: int) -> None:
        """Told with what passed."""

    def passed(self, messages: int, size: int) -> None:
        """The judge knows."""

    def dropped(self, entries: int, messages: int, size: int, *, ask_again: bool) -> None:  # noqa: ARG002 - as Permits
        """The judge knows that they were; of what the client still counts on, it is told."""
        if ask_again and messages:
            self._deputy.ask_again(self._stream, messages)

    def overdraw(self, permits: int) -> None:
        """The broker took more than limits count."""
        self._deputy.overdraw(self._stream, permits)

    def rewound(self) -> None:
        """The broker was asked to deliver again what it had delivered."""
        self._deputy.rewound(self._stream)

    def forgo(self) -> None:
        """The consumer is about to end."""
        self._deputy.forgo(self._stream)


def _nothing() -> None:
    """What a worker does is told by its deputy."""


def _nothing_granted(permits: int) -> None:
    """Permits are granted by the judge."""
