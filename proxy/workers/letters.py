"""What a worker and its supervisor tell each other beside what concerns limits (`limiter/workers/letters.py`)."""

from limiter.workers.letters import Letter, Report, Verdict

Whose = tuple[int, str, str, str, str, str]
"""A connection: number, address, version, client's role, role, broker."""
Stretch = tuple[int, int, int]
"""A `Span`: wall clock from and until, and how long."""
BlockKey = tuple[str, str, str]
"""Kind, name, and within what."""


class Hello(Letter, tag=40):
    """The first of all: `config` is JSON; connections are numbered from `first_id` on, `step` apart."""

    config: str
    index: int
    first_id: int
    step: int


class Ready(Letter, tag=41):
    """The worker listens."""


class Blocked(Letter, tag=42):
    """A rule holds from now on."""

    key: BlockKey
    reason: str
    since_ns: int
    origin: str


class Unblocked(Letter, tag=43):
    """A rule holds no longer."""

    key: BlockKey


class Tell(Letter, tag=44):
    """Somebody wants to see the counts: answer with all that there is, and `Told`."""


class Told(Letter, tag=45):
    """All that there was to tell when `Tell` arrived stands before this."""


class Stop(Letter, tag=46):
    """End all sessions, tell what is left, and exit."""


class Counted(Letter, tag=47):
    """What the counters have grown by since they were told last."""

    numbers: dict[str, int]
    by_word: dict[str, dict[str, int]]
    lateness: list[int]


class Ended(Letter, tag=48):
    """A connection is over."""

    whose: Whose
    span: Stretch
    end_cause: str
    detail: str
    bytes_from_client: int
    bytes_from_broker: int


class Resumed(Letter, tag=49):
    """A longer pause is over."""

    whose: Whose
    span: Stretch
    side: str
    cause: str


class Refused(Letter, tag=50):
    """A connection was refused something, so many times."""

    whose: Whose
    reason: str
    topic: str
    detail: str
    times: int


class Hit(Letter, tag=51):
    """A rule refused or ended something, so many times."""

    key: BlockKey
    times: int


class Knock(Letter, tag=52):
    """Somebody wants to know whether the worker still does anything: answer `Here`."""


class Here(Letter, tag=53):
    """To a `Knock`."""


Up = Report | Ready | Told | Counted | Ended | Resumed | Refused | Hit | Here
"""What a worker says."""
Down = Verdict | Hello | Blocked | Unblocked | Tell | Stop | Knock
"""What its supervisor says."""
