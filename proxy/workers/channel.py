"""The connection between a worker and its supervisor: messages, in order, many in one frame.

The messages about limits are those of `limiter/workers/messages.py`; the others are defined here.

    frame = size of the rest (4 bytes) · MessagePack: a list of messages

All of it is bounded. A frame has up to 500 messages, or a single large one. A turn of the loop deals with up to 1000:
clients have their turns in between. What waits for its turn waits as it came and is decoded frame by frame; while
much waits, no more is read. What one side may have to say is bounded by what it holds. A side that leaves more of it
unread than any working one would is given up. So is one whose messages cannot be read or taken: from there on the two
sides would hold different things for true, and only a new worker makes them agree.

A worker tells what its counters have grown by (`Growth`), and its supervisor adds that to its own (`Sums`).
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import fields
from struct import Struct
from typing import Any, Generic, TypeVar, cast

import msgspec
import structlog

from limiter.workers.messages import Message, QuotaVerdict, WorkerReport
from proxy.admission_control import AskedBound
from proxy.observe.counters import Counters

Whose = tuple[int, str, str, str, str, str, bool, bool]
"""A connection: number, address, version, client's role, role, broker, whether by TLS, whether the role is proved."""
Stretch = tuple[int, int, int]
"""A `Span`: wall clock from and until, and how long."""
BlockKey = tuple[str, str, str]
"""Kind, name, and within what."""


class Hello(Message, tag=40):
    """The first message: `config` is JSON; the worker's connections are numbered from `first_id` on, `step` apart."""

    config: str
    index: int
    first_id: int
    step: int


class Ready(Message, tag=41):
    """The worker listens."""


class BlockAdded(Message, tag=42):
    """A blocking rule is in force from now on."""

    key: BlockKey
    reason: str
    since_ns: int
    origin: str


class BlockRemoved(Message, tag=43):
    """A blocking rule is no longer in force."""

    key: BlockKey


class Tell(Message, tag=44):
    """The supervisor needs all counts now; the worker reports them, then sends `Told`."""


class Told(Message, tag=45):
    """The reply to `Tell`: all that there was to report stands before it."""


class Stop(Message, tag=46):
    """The worker is to end all sessions, report what is left, and exit."""


class Counted(Message, tag=47):
    """The growth of the worker's counters since its last report."""

    numbers: dict[str, int]
    by_word: dict[str, dict[str, int]]
    lateness: list[int]


class Ended(Message, tag=48):
    """A connection has ended."""

    whose: Whose
    span: Stretch
    end_cause: str
    detail: str
    bytes_from_client: int
    bytes_from_broker: int


class Resumed(Message, tag=49):
    """A pause of reading that was long enough for the access log has ended."""

    whose: Whose
    span: Stretch
    side: str
    cause: str


class Refused(Message, tag=50):
    """Requests of one connection were refused for one reason, `times` times."""

    whose: Whose
    reason: str
    topic: str
    detail: str
    times: int


class Hit(Message, tag=51):
    """A blocking rule refused or ended connections or streams, `times` times."""

    key: BlockKey
    times: int


class Knock(Message, tag=52):
    """The supervisor probes whether the worker still works; the worker answers `Here`."""


class Here(Message, tag=53):
    """The answer to a `Knock`."""


class Bounds(Message, tag=54):
    """The admission bounds in force from now on: the worker asks the supervisor about these, and no others."""

    in_force: list[str]


class Enter(Message, tag=55):
    """A session asks for admission by these bounds, each with the key by which it counts."""

    number: int
    asked: list[AskedBound]
    address: str
    source: str
    topic: str


class Admitted(Message, tag=56):
    """The answer to an `Enter` that is admitted; if it `has_places`, the worker sends `Left` once."""

    number: int
    has_places: bool


class NotAdmitted(Message, tag=57):
    """The answer to an `Enter` that a bound refuses."""

    number: int
    what: str
    said: str
    is_passing: bool = False


class Left(Message, tag=58):
    """The session of this `Enter` is gone, whatever the answer is or was."""

    number: int


class Kept(Message, tag=59):
    """The worker's part of the bytes that the supervisor's limiters keep for clients at an address.

    `owes`: clients there owe too much to open more streams.
    """

    address: str
    size: int
    owes: bool


class Accepted(Message, tag=60):
    """The broker has accepted the session of this `Enter`."""

    number: int


class CertificatesChanged(Message, tag=61):
    """The files of `tls`, `broker_tls` and `authentication` have changed: read them again, for new connections."""


Up = WorkerReport | Ready | Told | Counted | Ended | Resumed | Refused | Hit | Here | Enter | Accepted | Left
"""The messages of a worker."""
Down = (
    QuotaVerdict
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
"""The messages of the supervisor."""


_SIZE = Struct(">I")
MOST_FRAME = 64 * 1024**2
"""Bytes; a longer frame comes from no worker: a message has some names, each of which was in a client's frame."""
LARGE_FRAME = 1024**2
"""Bytes; a longer one has a single message."""
MOST_UNSENT = 256 * 1024**2
"""Bytes that the peer may leave in the buffer; queued entries of all that may be held take far less."""
MESSAGES = 500
"""Messages of one frame, at most."""
AT_ONCE = 1000
"""Messages that are dealt with in one go: a few milliseconds."""
MOST_UNHEARD = 4 * 1024**2
"""Bytes that may wait for their turn, behind the frame that has it, before more are read."""
In = TypeVar("In")


class Channel(asyncio.Protocol, Generic[In]):
    """One end of the connection: sends messages, and hands those that arrive to `heard`, one by one.

    Args:
        kinds: The messages that may arrive.
        heard: Takes each message.
        lost: Called once, when the other side is gone and all that it had said has been heard.
    """

    def __init__(self, kinds: Any, heard: Callable[[In], None], lost: Callable[[], None]) -> None:
        self._decoder: msgspec.msgpack.Decoder[list[In]] = msgspec.msgpack.Decoder(list[kinds])
        self._encoder = msgspec.msgpack.Encoder()
        self._heard = heard
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._inbox: deque[In] = deque()
        self._is_working = False
        self._is_over = False
        self._is_paused = False
        self._is_given_up = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        if self._is_given_up:
            return
        self._buffer += data
        if not self._is_working:
            self._work()
        if self._inbox and len(self._buffer) > MOST_UNHEARD and not self._is_paused and self._may_read():
            self._is_paused = True
            cast("asyncio.Transport", self._transport).pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - whatever it was
        """Called by the loop."""
        self._transport = None
        self._is_over = True
        if not self._is_working:
            self._work()

    def send(self, messages: Sequence[Message]) -> None:
        """Send them; a side that is gone hears nothing."""
        if self._transport is None:
            return
        for first in range(0, len(messages), MESSAGES):
            self._write(self._transport, messages[first : first + MESSAGES])
        if self._transport.get_write_buffer_size() > MOST_UNSENT:
            self.abort()

    def close(self) -> None:
        """Send what is written, and hear no more."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Give the other side up."""
        if self._transport is not None:
            self._transport.abort()

    def _may_read(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def _open_frame(self) -> bool:
        """Decode the next frame, if all of it is there. Whether there are messages now."""
        buffer = self._buffer
        while not self._inbox and len(buffer) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(buffer)
            end = _SIZE.size + size
            if size > MOST_FRAME:
                self._give_up(f"a frame of more than {MOST_FRAME} bytes", f"{size} bytes")
            elif end > len(buffer):
                break
            else:
                frame = bytes(buffer[_SIZE.size : end])
                del buffer[:end]
                self._decode(frame)
        return bool(self._inbox)

    def _decode(self, frame: bytes) -> None:
        try:
            self._inbox.extend(self._decoder.decode(frame))
        except msgspec.DecodeError as error:
            self._give_up("a frame without valid messages", repr(error))

    def _write(self, transport: asyncio.Transport, messages: Sequence[Message]) -> None:
        body = self._encoder.encode(messages)
        if len(body) > LARGE_FRAME and len(messages) > 1:
            half = len(messages) // 2
            self._write(transport, messages[:half])
            self._write(transport, messages[half:])
        else:
            transport.write(_SIZE.pack(len(body)) + body)

    def _work(self) -> None:
        self._is_working = False
        taken = 0
        while taken < AT_ONCE and (self._inbox or self._open_frame()):
            taken += 1
            self._take(self._inbox.popleft())
        if self._is_paused and len(self._buffer) <= MOST_UNHEARD // 2:
            self._is_paused = False
            if self._may_read():
                cast("asyncio.Transport", self._transport).resume_reading()
        if self._inbox or self._open_frame():
            self._is_working = True
            asyncio.get_running_loop().call_soon(self._work)
        elif self._is_over:
            self._is_over = False
            self._lost()

    def _take(self, message: In) -> None:
        if self._is_given_up:
            return
        try:
            self._heard(message)
        except Exception as error:  # noqa: BLE001 - whatever it is
            structlog.get_logger().exception("a message could not be taken", kind=type(message).__name__)
            self._give_up("a message that could not be taken", repr(error))

    def _give_up(self, what: str, detail: str) -> None:
        """Abort the channel, and ignore all that it still brings."""
        self._is_given_up = True
        self._buffer.clear()
        structlog.get_logger().error("connection between worker and supervisor given up", what=what, detail=detail)
        self.abort()


GAUGES = ("connections_open", "throttled")
"""Counters of what is there now, by word: what a worker counted in them ends with it."""
HIGHEST = "loop_lag_max_ns"
"""The counter that is the greatest value since it was last told."""


class Growth:
    """Computes the growth of a worker's counters.

    Args:
        counters: The worker's.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._told = Counters()

    def take(self, others: dict[str, int]) -> Counted | None:
        """Return what the counters have grown by since the last call; None if nothing has.

        Args:
            others: Growth of numbers that are counted elsewhere.
        """
        numbers, by_word = ({name: value for name, value in others.items() if value}, dict[str, dict[str, int]]())
        lateness: list[int] = []
        for field in fields(Counters):
            now, before = (getattr(self._counters, field.name), getattr(self._told, field.name))
            if now == before:
                continue
            if field.name == HIGHEST:
                numbers[HIGHEST] = now
                self._counters.loop_lag_max_ns = 0
            elif isinstance(now, int):
                numbers[field.name] = now - before
                setattr(self._told, field.name, now)
            elif isinstance(now, Counter):
                by_word[field.name] = {word: now[word] - before[word] for word in now if now[word] != before[word]}
                setattr(self._told, field.name, now.copy())
            else:
                lateness = [one - other for one, other in zip(now, before, strict=True)]
                setattr(self._told, field.name, list(now))
        return Counted(numbers, by_word, lateness) if numbers or by_word or lateness else None


class Sums:
    """Adds what one worker has counted to the supervisor's counters.

    Args:
        counters: The supervisor's: the sums over all workers.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._standing = {name: Counter[str]() for name in GAUGES}

    def add(self, counted: Counted) -> None:
        """Add what the worker has counted since it told last."""
        known = self._counters
        for name, more in counted.numbers.items():
            if name == HIGHEST:
                known.loop_lag_max_ns = max(known.loop_lag_max_ns, more)
            elif hasattr(known, name):
                setattr(known, name, getattr(known, name) + more)
        for name, words in counted.by_word.items():
            getattr(known, name).update(words)
            if name in self._standing:
                self._standing[name].update(words)
        for place, more in enumerate(counted.lateness):
            known.timers_by_lateness[place] += more

    @property
    def connections(self) -> int:
        """The connections that the worker has, as far as it has told."""
        return sum(self._standing["connections_open"].values())

    def lose(self) -> None:
        """Take what the worker counted in `GAUGES` off the sums: the worker has ended."""
        for name, standing in self._standing.items():
            getattr(self._counters, name).subtract(standing)
            standing.clear()
