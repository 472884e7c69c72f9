"""What leaves by an outlet, part by part."""

from proxy.sessions.outlet import Bytes


class Written(list[bytes]):
    """A writer that keeps what it is given, in order."""

    def write(self, part: Bytes) -> None:
        self.append(bytes(part))

    def write_soon(self, part: Bytes) -> None:
        self.write(part)
