"""What an entry of one consumer holds, on the average of late."""

_KEPT = 0.9


class EntryMean:
    """Moving means of messages and bytes per entry: each new entry has a weight of a tenth, what came before the rest.

    Attributes:
        messages: Per entry, rounded, at least 1; 0 while nothing is known.
        size: Metered bytes per entry; likewise.

    Source: Pulsar's Consumer.avgMessagesPerEntry, which starts at the first value and keeps 0.9 of the old one; halves
    are rounded up, as Math.round does.
    """

    __slots__ = ("_messages", "_size", "messages", "size")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self._messages = 0.0
        self._size = 0.0

    def add(self, entries: int, messages: int, size: int) -> None:
        """So many entries came, with so much in them together."""
        if entries == 0:
            return
        kept = _KEPT**entries if self.messages else 0.0
        self._messages = kept * self._messages + (1 - kept) * messages / entries
        self._size = kept * self._size + (1 - kept) * size / entries
        self.messages = max(1, int(self._messages + 0.5))
        self.size = max(1, int(self._size + 0.5))
