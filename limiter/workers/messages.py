"""What a worker and the quota server of its limits tell each other: see `quota_client.py` and `quota_server.py`.

    worker ──Opened, QueuedEntry, PassedByLease, Spent …──▶ quota server
           ◀──Wired, Lent, Recalled, Released, Rejected, Granted──

Each way they arrive in the order in which they were sent. Numbers of streams are the worker's, of limiters the
quota server's. As arrays they are short, and cost little to read.
"""

import msgspec


class Message(msgspec.Struct, array_like=True, tag=True):
    """Any of them."""


class Opened(Message, tag=1):
    """A producer or consumer begins; `whose` says of whose connection, in the words of the process."""

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
    """An entry waits for its turn, since that moment of the monotonic clock that both sides read.

    `must_wait`: no limit may refuse it, whatever its mode.
    """

    stream: int
    messages: int
    size: int
    since: int
    must_wait: bool = False


class Withdrawn(Message, tag=4):
    """What waits of a stream is dropped; of a consumer whose client counts on it, `asked` messages are asked again."""

    stream: int
    asked: int


class Discarded(Message, tag=5):
    """So many entries arrived, and were dropped before the quota server was told that they wait."""

    stream: int
    entries: int
    messages: int
    size: int


class PassedByLease(Message, tag=6):
    """So much passed by what was lent, or without any limit; and the largest entry's messages and bytes.

    `limiters`: those that it knew the stream to be within, and took tokens of.
    """

    stream: int
    entries: int
    messages: int
    size: int
    largest_messages: int
    largest_size: int
    limiters: list[int]


class Spent(Message, tag=7):
    """Of what was lent of a limit, so many messages and bytes were used, and so many are given back.

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
    """A stream is over."""

    stream: int


class Confirmed(Message, tag=11):
    """All that the quota server released up to and with this batch has gone on, or never will."""

    batch: int


class Behind(Message, tag=12):
    """So many entries, messages and bytes are held of a stream behind those that are queued."""

    stream: int
    entries: int
    messages: int
    size: int


class Question(Message, tag=13):
    """What has become of the queued entries so far?"""

    number: int


class Overdrawn(Message, tag=14):
    """For a delivery the broker took so many more permits of a consumer than limits count of it."""

    stream: int
    permits: int


class Rewound(Message, tag=15):
    """The broker was asked to deliver to a consumer again what it had delivered."""

    stream: int


class Wired(Message, tag=21):
    """A stream is within these limits from now on.

    `by_queue`: each of its entries is to be judged alone. `is_metered`: its permits are. `is_rejected`: some limit
    refuses what is over it; all entries are to be judged at once, and what of them goes is to be remembered.
    """

    stream: int
    limiters: list[int]
    by_queue: bool
    is_metered: bool
    is_rejected: bool = False


class Lent(Message, tag=22):
    """So many messages and bytes more may pass this limit; None is what it does not limit."""

    limiter: int
    messages: int | None
    size: int | None


class Recalled(Message, tag=23):
    """What is left of a loan is wanted back."""

    limiter: int


class Released(Message, tag=24):
    """All queued entries of a stream up to this one, counted from its first, may go."""

    stream: int
    queued: int


class Granted(Message, tag=25):
    """Permits of a consumer go on to the broker."""

    stream: int
    permits: int


class Batch(Message, tag=26):
    """What follows is to be confirmed by this number when it is done."""

    number: int


class Answer(Message, tag=27):
    """To a `Question`: of the queued entries before it, all that may go at once were released before this."""

    number: int


class Rejected(Message, tag=28):
    """All unsettled queued entries of a stream up to this one are refused; the client is to be told why."""

    stream: int
    queued: int
    reason: str


Report = (
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
"""What a worker says."""
Verdict = Wired | Lent | Recalled | Released | Granted | Batch | Answer | Rejected
"""What the quota server says."""
