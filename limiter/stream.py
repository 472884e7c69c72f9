"""A stream: one producer's entries towards the broker, or one consumer's towards the client."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mypy_extensions import mypyc_attr

from limiter.rates import Direction
from limiter.usage import StreamUsage

if TYPE_CHECKING:
    from limiter.limiter import Limiter
    from limiter.observed import Observed
    from limiter.permits import Permits
    from limiter.wait_queue import Place


@mypyc_attr(acyclic=True)
class Entry:
    """One whole frame that is held.

    An entry without messages is a command that refers to its stream and must not overtake it; it passes for free.

    Tens of thousands of them are held at a time. Compiled, they are nothing that Python's search for garbage looks at:
    it took a tenth of the time, and stood still for it.

    Args:
        frame: Its bytes.
        messages: Messages in it, as the broker counts.
        size: Metered bytes.
        memory: Bytes that it keeps in memory.
        since: When it was offered, monotonic nanoseconds.
        charged: Messages that it is to limits; below 0: all that are in it.
        must_wait: No limit may refuse it, whatever its mode: its client could not give it up alone.
    """

    __slots__ = ("charged", "frame", "memory", "messages", "must_wait", "since", "size")

    def __init__(  # noqa: PLR0913 - a value
        self,
        frame: bytes,
        messages: int,
        size: int,
        memory: int,
        since: int,
        *,
        charged: int = -1,
        must_wait: bool = False,
    ) -> None:
        self.frame = frame
        self.messages = messages
        self.size = size
        self.memory = memory
        self.since = since
        self.charged = messages if charged < 0 else charged
        self.must_wait = must_wait

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


class Stream:
    """One producer or consumer, its limits and what of it is held.

    Args:
        name: Who it is.
        chain: Its limiters, outermost first. Empty: unlimited.
        release: Called with the stream and each held entry that may pass, in order.
        connection: The caller's own; of what is only played, the stream beside which it is (`observed.py`).
        by_entry: To limits of messages an entry is one, whatever it holds (dispatchThrottlingOnBatchMessageEnabled).

    Attributes:
        is_accepted: Whether what comes is passed on: from a producer once the broker let it in, for a consumer from
            the start (brokers deliver only to who is let in) until it asks to be closed. What else comes is nobody's,
            and is charged to nobody.
        is_noted: Whether it stands in the journal with all of its limiters, so that what it does needs no note. Who
            gives it other limiters, takes this back.
    """

    __slots__ = (
        "by_entry",
        "chain",
        "connection",
        "held",
        "is_accepted",
        "is_noted",
        "is_open",
        "is_passing",
        "last_reason",
        "name",
        "observed",
        "permits",
        "places",
        "release",
        "usage",
        "waits_on",
        "waits_since",
    )

    def __init__(  # noqa: PLR0913 - what its Args say
        self,
        name: StreamName,
        chain: tuple["Limiter", ...],
        release: Callable[["Stream", Entry], None],
        connection: object = None,
        *,
        by_entry: bool = False,
        is_accepted: bool = False,
    ) -> None:
        self.chain = chain
        self.held: deque[Entry] = deque()
        self.places: tuple[Place, ...] = ()
        self.waits_on: Limiter | None = None
        self.release = release
        self.usage = StreamUsage()
        self.permits: Permits | None = None
        self.observed: Observed | None = None
        self.by_entry = by_entry
        self.is_accepted = is_accepted
        self.is_noted = False
        self.is_open = True
        self.is_passing = False  # up to here what each held entry touches: two lines of memory, compiled
        self.name = name
        self.connection = connection
        self.waits_since = 0
        self.last_reason = ""

    def place_at(self, limiter: "Limiter") -> "Place":
        """Where it stands at a limiter of its chain; it must wait, there or at another."""
        for place in self.places:
            if place.limiter is limiter:
                return place
        raise AssertionError("who waits has a place at every limiter of its chain")

    def charged(self, entries: int, messages: int) -> int:
        """Messages that so many entries with so many messages in them are to limits."""
        return entries if self.by_entry else messages

    @property
    def is_rejected(self) -> bool:
        """Whether some limit refuses what is over it, instead of holding it."""
        for limiter in self.chain:  # noqa: SIM110 - asked for each entry; a generator costs more than the answer
            if limiter.is_rejecting:
                return True
        return False

    @property
    def holds(self) -> bool:
        """Whether something is held, or would be by a limit that is only observed."""
        return bool(self.held) or (self.observed is not None and self.observed.is_holding)


class Answering(Protocol):
    """Who answers the client of a producer, once the judge has said what becomes of its messages."""

    def may_refuse(self, entry: Entry) -> bool:
        """Whether its client would give up this message alone, if it is refused."""

    def accepted(self, stream: Stream, entry: Entry) -> None:
        """A message that a limit might have refused is about to go on."""

    def refused(self, stream: Stream, entry: Entry, reason: str) -> None:
        """A limit refuses this message."""
