"""What leaves by an outlet, part by part."""

from proxy.sessions.sender import Bytes, Sender
from proxy.sessions.turn_end import TurnEnd


class Written(Sender):
    """Keeps what it is given, in order, in place of sending it."""

    def __init__(self) -> None:
        super().__init__(TurnEnd(), None)
        self.parts: list[bytes] = []

    def write(self, part: Bytes) -> None:
        self.parts.append(bytes(part))

    def write_soon(self, part: bytes) -> None:
        self.write(part)
