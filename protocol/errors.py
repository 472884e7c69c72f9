"""Protocol errors: each way in which a peer's bytes break Pulsar's binary protocol.

    ProtocolError
    ├── FrameTooLarge      a frame announces more bytes than the connection allows
    ├── TooManyMessages    a SEND says that it holds more messages than one may
    ├── MalformedFrame     sizes or fields that contradict each other
    ├── NotConnect         the first command is another one
    ├── ForeignProtocol    the peer does not speak Pulsar at all (TLS, HTTP, PROXY protocol)
    └── ProxyHeaderError   a PROXY protocol header that cannot be taken

Each error has a `cause`: a short, fixed word that is safe as a metric label.
"""


class ProtocolError(Exception):
    """The peer broke the protocol. Only its own connection is to be closed."""

    cause = "protocol"


class FrameTooLarge(ProtocolError):
    """A frame announces `size` bytes where `limit` are allowed."""

    cause = "too_large"

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a frame announces {size} bytes, this connection allows {limit}")
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


class ForeignProtocol(ProtocolError):
    """The first bytes are another protocol's greeting.

    Args:
        cause: The other protocol, as a metric label.
        remedy: What the operator of that peer should change.
    """

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(remedy)
        self.cause = cause


class ProxyHeaderError(ProtocolError):
    """A PROXY protocol header cannot be taken.

    Args:
        cause: Why, as a metric label: `malformed`, `unsupported`, `too_long`.
        problem: What is wrong with it.
    """

    def __init__(self, cause: str, problem: str) -> None:
        super().__init__(problem)
        self.cause = cause
