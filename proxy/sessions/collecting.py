"""An entry that has to wait, of which not all parts have come."""

from limiter.stream import Entry, Stream
from proxy.sessions.holdings import Holdings


class Collecting:
    """Keeps its parts, as one: a client may write two bytes at a time, and each kept by itself would take 60.

    They count as memory of the client, and stop nobody: who is not read could never end the entry.

    Args:
        stream: Whose it is.
        entry: With its first part.
        holdings: Where the parts count.
    """

    def __init__(self, stream: Stream, entry: Entry, holdings: Holdings) -> None:
        self.stream = stream
        self.entry = entry
        self._holdings = holdings
        self._kept = bytearray(entry.frame)  # a list of parts of a byte each would take sixty times as much as they
        holdings.keep_unfinished(len(self._kept))

    def add(self, part: bytes) -> None:
        """The next part came.

        Raises:
            TooMuchUnfinishedError: If no more may be kept for this client.
        """
        self._holdings.keep_unfinished(len(part))
        self._kept += part

    def end(self) -> Entry:
        """No more is collected; the entry with all that has come."""
        self._holdings.keep_unfinished(-len(self._kept))
        self.entry.frame = bytes(self._kept)
        return self.entry
