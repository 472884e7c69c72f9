"""What all connections of a process have in common, as one loop serves them."""

from proxy.observe.counters import Counters
from proxy.runtime import Heap
from proxy.sessions.read_buffer import ReadBuffer
from proxy.sessions.read_scheduler import ReadScheduler
from proxy.sessions.reading_line import ReadingLine
from proxy.sessions.turn_end import TurnEnd
from proxy.sessions.unsent import Unsent


class Shared:
    """One of a process.

    Args:
        counters: What it counts into.

    Attributes:
        heap: Told when much comes free.
        line: Where they wait for their turn to be read.
        buffer: What they are read into.
        reads: Shares the turns of the loop among the addresses of clients.
        turn_end: When what they gather is sent.
        unsent: Looks whether clients take what is sent to them.
    """

    __slots__ = ("buffer", "heap", "line", "reads", "turn_end", "unsent")

    def __init__(self, counters: Counters) -> None:
        self.heap = Heap()
        self.line = ReadingLine()
        self.reads = ReadScheduler(counters)
        self.buffer = ReadBuffer()
        self.turn_end = TurnEnd()
        self.unsent = Unsent()
