"""The frames of Pulsar's binary protocol: their head, their bounds, and the plain way to cut a byte stream into them.

Each way in which a peer's bytes break the protocol is an error. Its `cause` is a short, fixed word that is safe as a
metric label:

    ProtocolError
    ├── FrameTooLarge      a frame announces more bytes than the connection allows
    ├── TooManyMessages    a SEND says that it holds more messages than one may
    ├── MalformedFrame     sizes or fields that contradict each other
    ├── NotConnect         the first command is another one
    ├── ForeignProtocol    the peer does not speak Pulsar at all (TLS, HTTP, PROXY protocol)
    └── ProxyHeaderError   a PROXY protocol header that cannot be taken

`scanner` walks frames in place; `FrameCutter` is for low rates, and the reference model of `scanner`.

Sources: BaseCommand.Type of PulsarApi.proto; org.apache.pulsar.common.protocol.Commands (DEFAULT_MAX_MESSAGE_SIZE,
MESSAGE_SIZE_FRAME_PADDING).
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

MOST_COMMAND: Final = 1 << 20
"""Bytes of a command, at most, where it is a client's or is decoded. A broker takes as many as of a frame. Clients send
fewer: this many hold 70,000 ids. To gather and read a list of them takes 7 ms, small fields of a PRODUCER 25 ms."""


class ProtocolError(Exception):
    """The peer broke the protocol. Only its own connection must be closed."""

    cause = "protocol"


class FrameTooLarge(ProtocolError):
    """A frame announces `size` bytes where `limit` are allowed."""

    cause = "too_large"

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a frame announces {size} bytes, this connection allows {limit}")
        self.size = size
        self.limit = limit


class CommandTooLarge(ProtocolError):
    """A command announces `size` bytes where `limit` are allowed: it is decoded in one step."""

    cause = "too_large"

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a command announces {size} bytes, at most {limit} are taken")
        self.size = size
        self.limit = limit


class TooManyMessages(ProtocolError):
    """A SEND declares `messages` where `limit` are allowed: its limits would be in debt for as many."""

    cause = "too_many_messages"

    def __init__(self, messages: int, limit: int) -> None:
        super().__init__(f"a SEND says that it holds {messages} messages, publish.max_batch_messages allows {limit}")
        self.messages = messages
        self.limit = limit


class MalformedFrame(ProtocolError):
    """The sizes or fields inside a frame contradict each other."""

    cause = "malformed"


class NotConnect(ProtocolError):
    """The first command is not CONNECT."""

    cause = "no_connect"


class _ErrorOfCause(ProtocolError):
    """An error with one of several causes.

    Args:
        cause: The cause, as a metric label.
        text: The error in words.
    """

    def __init__(self, cause: str, text: str) -> None:
        super().__init__(text)
        self.cause = cause


class ForeignProtocol(_ErrorOfCause):
    """The first bytes are the greeting of another protocol, the `cause`; the text is the remedy for that peer."""


class ProxyHeaderError(_ErrorOfCause):
    """A PROXY protocol header cannot be taken; the `cause` is `malformed`, `unsupported` or `too_long`."""


HEAD: Final = 8
"""Bytes before the command: the size of the rest of the frame, and the size of the command."""
# Command types that are recognized by number alone.
SEND: Final = 6
SEND_RECEIPT: Final = 7
MESSAGE: Final = 9
ACK: Final = 10
ACK_RESPONSE: Final = 38

DEFAULT_MAX_MESSAGE_SIZE = 5 * 1024 * 1024
FRAME_PADDING = 10 * 1024
MOST_NAME_BYTES = 4096
"""Most UTF-8 bytes of a name that a client chooses: of a topic, producer, subscription or consumer."""

SIZE = Struct(">I")


def max_frame_size(max_message_size: int) -> int:
    """Return the most bytes that a whole frame may have, its own length field included."""
    return max_message_size + FRAME_PADDING


class FrameCutter:
    """Buffers received bytes and yields whole frames, each with its length field.

    Args:
        max_size: Most bytes that a whole frame may have.
    """

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield each frame that `chunk` completes.

        Raises:
            FrameTooLarge: If a frame announces more than `max_size`.
            MalformedFrame: If a frame is too short to hold a command.
        """
        self._buffer += chunk
        start = 0
        try:
            while len(self._buffer) - start >= SIZE.size:
                end = start + SIZE.size + self._announced(start)
                if end > len(self._buffer):
                    return
                frame = bytes(self._buffer[start:end])
                start = end
                yield frame
        finally:
            del self._buffer[:start]

    def _announced(self, start: int) -> int:
        (size,) = SIZE.unpack_from(self._buffer, start)
        if size + SIZE.size > self.max_size:
            raise FrameTooLarge(size + SIZE.size, self.max_size)
        if size < SIZE.size:
            raise MalformedFrame(f"a frame of {size} bytes cannot hold a command")
        return int(size)


_HTTP_VERBS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
_PROXY_V2 = b"\r\n\r\n"


def foreign_protocol(first_bytes: bytes) -> ForeignProtocol | None:
    """Return the error for the foreign protocol that `first_bytes` belong to; None if they match no known protocol.

    A Pulsar client never matches: each greeting below, read as a frame's length, is over 200 MB.
    """
    if first_bytes[:1] == b"\x16" and first_bytes[1:2] == b"\x03":
        return ForeignProtocol(
            "tls_hello", "a TLS client on a plain port: use pulsar://, not pulsar+ssl://, for this address"
        )
    if first_bytes[:4] in _HTTP_VERBS:
        return ForeignProtocol(
            "http_request", "an HTTP request on the Pulsar port: admin and metrics are on the admin address"
        )
    if first_bytes[:6] == b"PROXY " or first_bytes[:4] == _PROXY_V2:
        return ForeignProtocol(
            "proxy_protocol",
            "a PROXY protocol header: set mode and from of proxy_protocol, or switch it off at the load balancer",
        )
    return None
