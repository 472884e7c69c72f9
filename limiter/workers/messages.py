"""The messages between a worker (`quota_client.py`) and the quota server of its limits (`quota_server.py`).

    worker ──Opened, QueuedEntry, PassedByLease, Spent …──▶ quota server
           ◀──Wired, Lent, Recalled, Released, Rejected, Granted──

Each way they arrive in the order in which they were sent. Numbers of streams are the worker's, of limiters the
quota server's. As arrays they are short, and cost little to read.
"""

import msgspec


class Message(msgspec.Struct, array_like=True, tag=True):
    """The base of all messages."""


class Opened(Message, tag=1):
    """A producer or consumer opens; `whose` describes its connection, as the process defines it."""

    stream: int
    direction: str
    topic: str
    stream_id: int
    producer_name: str
    subscription: str
    consumer_name: str
    whose: tuple[int, str, str, str, bool]


class Named(Message, tag=2):
    """The broker accepted a producer, and perhaps named it."""

    stream: int
    producer_name: str


class QueuedEntry(Message, tag=3):
    """An entry waits for its turn; `since` is a moment of the monotonic clock that both sides read.

    `must_wait`: no limit may refuse it, whatever its mode.
    """

    stream: int
    messages: int
    size: int
    since: int
    must_wait: bool = False


class Withdrawn(Message, tag=4):
    """A stream's waiting entries are dropped; of a consumer, `asked` messages are to be asked for again."""

    stream: int
    asked: int


class Discarded(Message, tag=5):
    """Entries arrived and were dropped before they were queued at the quota server."""

    stream: int
    entries: int
    messages: int
    size: int


class PassedByLease(Message, tag=6):
    """Entries passed by leases, or without any limit; `largest_…` are of the largest entry.

    `limiters`: the limits whose leases were charged, as the worker knew them.
    """

    stream: int
    entries: int
    messages: int
    size: int
    largest_messages: int
    largest_size: int
    limiters: list[int]


class Spent(Message, tag=7):
    """Lent tokens of a limit were used; others, the unused ones, are given back.

    `wants_more`: it was used, and there will be need of it; else something is given back, and all that passed of it
    was told before. `is_answer`: to a `Recalled`; nothing is left.
    """

    limiter: int
    messages: int
    size: int
    unused_messages: int
    unused_size: int
    wants_more: bool = False
    is_answer: bool = False


class Asked(Message, tag=8):
    """A consumer asks for permits; `is_granted` if they have been passed on, as nothing limits it."""

    stream: int
    permits: int
    is_granted: bool


class Forgone(Message, tag=9):
    """A consumer wants no more permits."""

    stream: int


class Closed(Message, tag=10):
    """A stream has ended."""

    stream: int


class Confirmed(Message, tag=11):
    """The entries released up to and with this batch have gone on, or never will."""

    batch: int


class Behind(Message, tag=12):
    """Entries, messages and bytes of a stream wait in the worker behind those that are queued."""

    stream: int
    entries: int
    messages: int
    size: int


class Question(Message, tag=13):
    """The worker asks which of the entries queued so far may go."""

    number: int


class Overdrawn(Message, tag=14):
    """The broker took `permits` more of a consumer for a delivery than limits count for it."""

    stream: int
    permits: int


class Rewound(Message, tag=15):
    """The broker was asked to deliver messages to a consumer again."""

    stream: int


class Wired(Message, tag=21):
    """A stream is under these limits from now on.

    `by_queue`: the quota server decides on each entry. `is_metered`: it meters permits. `is_rejected`: some limit
    refuses what is over it; all entries are to be judged at once, and what of them goes is to be remembered.
    """

    stream: int
    limiters: list[int]
    by_queue: bool
    is_metered: bool
    is_rejected: bool = False


class Lent(Message, tag=22):
    """The worker may pass this many more messages and bytes of a limit; None where the limit has no such bound.

    `until`: all of the loan may be used before this moment of the monotonic clock that both sides read; 0: at any time.
    """

    limiter: int
    messages: int | None
    size: int | None
    until: int = 0


class Recalled(Message, tag=23):
    """The worker is to give back what is left of its loan."""

    limiter: int


class Released(Message, tag=24):
    """The queued entries of a stream up to number `queued`, counted from its first, may go."""

    stream: int
    queued: int


class Granted(Message, tag=25):
    """The permits of a consumer go on to the broker."""

    stream: int
    permits: int


class Batch(Message, tag=26):
    """The releases up to here are to be confirmed by this number once their entries have gone on."""

    number: int


class Answer(Message, tag=27):
    """The answer to a `Question`: the entries queued before it that may go at once were released before this."""

    number: int


class Rejected(Message, tag=28):
    """The unsettled queued entries of a stream up to number `queued` are refused; the client is told the reason."""

    stream: int
    queued: int
    reason: str


WorkerReport = (
    Opened
    | Named
    | QueuedEntry
    | Withdrawn
    | Discarded
    | PassedByLease
    | Spent
    | Asked
    | Forgone
    | Closed
    | Confirmed
    | Behind
    | Question
    | Overdrawn
    | Rewound
)
"""The messages of a worker."""
QuotaVerdict = Wired | Lent | Recalled | Released | Granted | Batch | Answer | Rejected
"""The messages of the quota server."""
