"""What a worker may pass of one limit without asking: it earns nothing, and is never in debt."""


class Purse:
    """Counts down what was lent, and adds up what was used of it.

    Args:
        number: The limit's, as its judge says it.

    Attributes:
        streams: How many of the worker's streams are within the limit.
        is_low: Whether half of the last loan has been used.
    """

    __slots__ = (
        "_is_open",
        "_low_messages",
        "_low_size",
        "counts",
        "is_low",
        "messages",
        "number",
        "size",
        "streams",
        "used_messages",
        "used_size",
        "weighs",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.streams = 0
        self.messages = 0
        self.size = 0
        self.counts = False
        self.weighs = False
        self.used_messages = 0
        self.used_size = 0
        self.is_low = False
        self._is_open = False
        self._low_messages = 0
        self._low_size = 0

    @property
    def is_open(self) -> bool:
        """Whether something was lent and not wanted back."""
        return self._is_open

    @property
    def is_used(self) -> bool:
        """Whether something was used since it was told last."""
        return self.used_messages > 0 or self.used_size > 0

    def fits(self, messages: int, size: int) -> bool:
        """Whether all of it may pass."""
        return (
            self._is_open and (not self.counts or messages <= self.messages) and (not self.weighs or size <= self.size)
        )

    def charge(self, messages: int, size: int) -> None:
        """It passes; what is not limited is not counted, as nothing of it was lent."""
        if self.counts:
            self.messages -= messages
            self.used_messages += messages
            self.is_low = self.is_low or self.messages < self._low_messages
        if self.weighs:
            self.size -= size
            self.used_size += size
            self.is_low = self.is_low or self.size < self._low_size

    def refund(self, messages: int, size: int) -> None:
        """Undo a charge of the same instant."""
        if self.counts:
            self.messages += messages
            self.used_messages -= messages
        if self.weighs:
            self.size += size
            self.used_size -= size

    def lend(self, messages: int | None, size: int | None) -> None:
        """So much more may pass; None is what is not limited."""
        self.counts, self.weighs = messages is not None, size is not None
        self.messages += messages or 0
        self.size += size or 0
        self._low_messages, self._low_size = self.messages // 2, self.size // 2
        self._is_open = True
        self.is_low = False

    def take_used(self) -> tuple[int, int]:
        """Messages and bytes that were used since the last time."""
        used = self.used_messages, self.used_size
        self.used_messages = self.used_size = 0
        self.is_low = False
        self._low_messages, self._low_size = self.messages // 2, self.size // 2
        return used

    def empty(self) -> tuple[int, int]:
        """Close it; what was not used."""
        left = self.messages, self.size
        self.messages = self.size = 0
        self._is_open = False
        self.is_low = False
        return left
