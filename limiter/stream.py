"""A stream: one producer's entries towards the broker, or one consumer's towards the client."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from limiter.rates import Direction
from limiter.usage import StreamUsage

if TYPE_CHECKING:
    from limiter.limiter import Limiter
    from limiter.observed import Observed
    from limiter.permits import Permits
    from limiter.wait_queue import Place


@dataclass(slots=True, eq=False)
class Entry:
    """One whole frame that is held.

    An entry without messages is a command that refers to its stream and must not overtake it; it passes for free.

    Args:
        parts: The frame's bytes.
        messages: Messages in it, as the broker counts.
        size: Metered bytes.
        memory: Bytes that it keeps in memory.
        since: When it was offered, monotonic nanoseconds.
        charged: Messages that it is to limits; below 0: all that are in it.
    """

    parts: list[bytes]
    messages: int
    size: int
    memory: int
    since: int
    charged: int = -1

    def __post_init__(self) -> None:
        if self.charged < 0:
            self.charged = self.messages

    @property
    def is_free(self) -> bool:
        """Whether it is such a command."""
        return self.messages == 0 and self.size == 0


@dataclass(frozen=True, slots=True)
class StreamName:
    """Who a stream is, for logs and people."""

    direction: Direction
    tenant: str
    namespace: str
    topic: str
    stream_id: int
    producer_name: str = ""
    subscription: str = ""
    consumer_name: str = ""


@dataclass(slots=True, eq=False)
class Stream:
    """One producer or consumer, its limits and what of it is held.

    Args:
        name: Who it is.
        chain: Its limiters, outermost first. Empty: unlimited.
        release: Called with each held entry that may pass, in order.
        connection: The caller's own; not looked at here.
        by_entry: To limits of messages an entry is one, whatever it holds (dispatchThrottlingOnBatchMessageEnabled).

    Attributes:
        is_accepted: Whether what comes is passed on: from a producer once the broker let it in, for a consumer from
            the start (brokers deliver only to who is let in) until it asks to be closed. What else comes is nobody's,
            and is charged to nobody.
    """

    name: StreamName
    chain: tuple["Limiter", ...]
    release: Callable[[Entry], None]
    connection: object = None
    by_entry: bool = False
    held: deque[Entry] = field(default_factory=deque)
    waits_on: "Limiter | None" = None
    places: dict["Limiter", "Place"] = field(default_factory=dict)
    is_passing: bool = False
    permits: "Permits | None" = None
    usage: StreamUsage = field(default_factory=StreamUsage)
    waits_since: int = 0
    last_reason: str = ""
    observed: "Observed | None" = None
    is_open: bool = True
    is_accepted: bool = False

    def charged(self, entries: int, messages: int) -> int:
        """Messages that so many entries with so many messages in them are to limits."""
        return entries if self.by_entry else messages

    @property
    def is_rejected(self) -> bool:
        """Whether some limit refuses what is over it, instead of holding it."""
        return any(limiter.is_rejecting for limiter in self.chain)

    @property
    def holds(self) -> bool:
        """Whether something is held, or would be by a limit that is only observed."""
        return bool(self.held) or (self.observed is not None and self.observed.is_holding)
