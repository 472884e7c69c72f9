"""What leaves by an outlet, part by part."""

from proxy.session.transport import Bytes, SocketWriter, WriteCoalescer


class Written(SocketWriter):
    """Keeps what it is given, in order, in place of sending it."""

    def __init__(self) -> None:
        super().__init__(WriteCoalescer(), None)
        self.parts: list[bytes] = []

    def write(self, part: Bytes) -> None:
        self.parts.append(bytes(part))

    def write_soon(self, part: bytes) -> None:
        self.write(part)
