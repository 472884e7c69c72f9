"""What a worker and its supervisor tell each other beside what concerns limits (`limiter/workers/letters.py`)."""

from limiter.workers.letters import Letter, Report, Verdict
from proxy.admission_control import Asked

Whose = tuple[int, str, str, str, str, str, bool, bool]
"""A connection: number, address, version, client's role, role, broker, whether by TLS, whether the role is proved."""
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


class BlockAdded(Letter, tag=42):
    """A rule holds from now on."""

    key: BlockKey
    reason: str
    since_ns: int
    origin: str


class BlockRemoved(Letter, tag=43):
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


class Bounds(Letter, tag=54):
    """These bounds are in force from now on, and no others: of them the supervisor is to be asked."""

    in_force: list[str]


class Enter(Letter, tag=55):
    """Whether somebody may come in whom these bounds concern, each with the key that counts there."""

    number: int
    asked: list[Asked]
    address: str
    source: str
    topic: str


class Admitted(Letter, tag=56):
    """To an `Enter`; if it `has_places`, `Left` is to be said once."""

    number: int
    has_places: bool


class NotAdmitted(Letter, tag=57):
    """The same: a bound refuses."""

    number: int
    what: str
    said: str
    is_passing: bool = False


class Left(Letter, tag=58):
    """He who asked by this number is gone, whatever the answer is or was."""

    number: int


class Kept(Letter, tag=59):
    """The worker's part of what the supervisor's limiters take for clients at an address, in bytes.

    And whether these owe too much to open more streams.
    """

    address: str
    size: int
    owes: bool


class Accepted(Letter, tag=60):
    """The broker has let in him who asked by this number."""

    number: int


class CertificatesChanged(Letter, tag=61):
    """The files of `tls`, `broker_tls` and `authentication` have changed: read them again, for new connections."""


Up = Report | Ready | Told | Counted | Ended | Resumed | Refused | Hit | Here | Enter | Accepted | Left
"""What a worker says."""
Down = (
    Verdict
    | Hello
    | BlockAdded
    | BlockRemoved
    | Tell
    | Stop
    | Knock
    | Bounds
    | Admitted
    | NotAdmitted
    | Kept
    | CertificatesChanged
)
"""What its supervisor says."""
