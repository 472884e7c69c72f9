"""The connection between a worker and its supervisor: messages, in order, many in one frame.

The messages about limits are those of `limiter/workers/messages.py`; the others are defined here.

    frame = size of the rest (4 bytes) · MessagePack: a list of messages

Bounded: a frame holds a bounded number of messages, and of large ones one; a turn of the loop deals with a bounded
number of them, so that clients have their turns in between; what waits for that waits as it came, is decoded frame by
frame, and while it is much no more is read. What one side
may have to say is bounded by what it holds; a peer that takes nothing of it, although that is more than any working one
would leave, is given up. So is one whose messages cannot be read or taken: from there on the two sides would hold
different things for true, and only a new worker makes them agree.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Generic, TypeVar, cast

import msgspec
import structlog

from limiter.workers.messages import Message, Report, Verdict
from proxy.admission_control import Asked

Whose = tuple[int, str, str, str, str, str, bool, bool]
"""A connection: number, address, version, client's role, role, broker, whether by TLS, whether the role is proved."""
Stretch = tuple[int, int, int]
"""A `Span`: wall clock from and until, and how long."""
BlockKey = tuple[str, str, str]
"""Kind, name, and within what."""


class Hello(Message, tag=40):
    """The first of all: `config` is JSON; connections are numbered from `first_id` on, `step` apart."""

    config: str
    index: int
    first_id: int
    step: int


class Ready(Message, tag=41):
    """The worker listens."""


class BlockAdded(Message, tag=42):
    """A rule holds from now on."""

    key: BlockKey
    reason: str
    since_ns: int
    origin: str


class BlockRemoved(Message, tag=43):
    """A rule holds no longer."""

    key: BlockKey


class Tell(Message, tag=44):
    """Somebody wants to see the counts: answer with all that there is, and `Told`."""


class Told(Message, tag=45):
    """All that there was to tell when `Tell` arrived stands before this."""


class Stop(Message, tag=46):
    """End all sessions, tell what is left, and exit."""


class Counted(Message, tag=47):
    """What the counters have grown by since they were told last."""

    numbers: dict[str, int]
    by_word: dict[str, dict[str, int]]
    lateness: list[int]


class Ended(Message, tag=48):
    """A connection is over."""

    whose: Whose
    span: Stretch
    end_cause: str
    detail: str
    bytes_from_client: int
    bytes_from_broker: int


class Resumed(Message, tag=49):
    """A longer pause is over."""

    whose: Whose
    span: Stretch
    side: str
    cause: str


class Refused(Message, tag=50):
    """A connection was refused something, so many times."""

    whose: Whose
    reason: str
    topic: str
    detail: str
    times: int


class Hit(Message, tag=51):
    """A rule refused or ended something, so many times."""

    key: BlockKey
    times: int


class Knock(Message, tag=52):
    """Somebody wants to know whether the worker still does anything: answer `Here`."""


class Here(Message, tag=53):
    """To a `Knock`."""


class Bounds(Message, tag=54):
    """These bounds are in force from now on, and no others: of them the supervisor is to be asked."""

    in_force: list[str]


class Enter(Message, tag=55):
    """Whether somebody may come in whom these bounds concern, each with the key that counts there."""

    number: int
    asked: list[Asked]
    address: str
    source: str
    topic: str


class Admitted(Message, tag=56):
    """To an `Enter`; if it `has_places`, `Left` is to be said once."""

    number: int
    has_places: bool


class NotAdmitted(Message, tag=57):
    """The same: a bound refuses."""

    number: int
    what: str
    said: str
    is_passing: bool = False


class Left(Message, tag=58):
    """He who asked by this number is gone, whatever the answer is or was."""

    number: int


class Kept(Message, tag=59):
    """The worker's part of what the supervisor's limiters take for clients at an address, in bytes.

    And whether these owe too much to open more streams.
    """

    address: str
    size: int
    owes: bool


class Accepted(Message, tag=60):
    """The broker has let in him who asked by this number."""

    number: int


class CertificatesChanged(Message, tag=61):
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


_SIZE = Struct(">I")
MOST_FRAME = 64 * 1024**2
"""Bytes; a longer frame comes from no worker: a message has some names, each of which was in a client's frame."""
LARGE_FRAME = 1024**2
"""Bytes; a longer one has a single message."""
MOST_UNSENT = 256 * 1024**2
"""Bytes that the peer may leave in the buffer; queued entries of all that may be held take far less."""
MESSAGES = 500
"""Of one frame."""
AT_ONCE = 1000
"""Messages that are dealt with in one go: a few milliseconds."""
MOST_UNHEARD = 4 * 1024**2
"""Bytes that may wait for their turn, behind the frame that has it, before more are read."""
In = TypeVar("In")


class Channel(asyncio.Protocol, Generic[In]):
    """Sends messages, and gives those that come to `heard`, one by one.

    Args:
        kinds: What may come.
        heard: Takes each.
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
                self._give_up("a frame beyond all measure", f"{size} bytes")
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
            self._give_up("no messages", repr(error))

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
        """Nothing more of it is believed."""
        self._is_given_up = True
        self._buffer.clear()
        structlog.get_logger().error("connection between worker and supervisor given up", what=what, detail=detail)
        self.abort()
