"""A client that says what a test wants it to say, byte for byte."""

import select
import socket
import time
from typing import Any, Self
from urllib.parse import urlsplit

from protocol.frames import FrameCutter
from tests.proxy.session.ids import commands as c
from tests.proxy.session.ids.lightproto import command, read_command, taken_apart
from tests.proxy.wire import connect

_PING = command(c.PING, [])
_PATIENCE_S = 60.0
Heard = tuple[int, dict[str, Any]]
"""An answer's type and fields."""


class RawClient:
    """One connection, past the handshake.

    Args:
        url: pulsar://HOST:PORT.
        target: Where a proxy is to connect to, HOST:PORT; empty for a broker itself.
        header: Sent before everything else.

    Attributes:
        address: Its own, as the other side sees it.
        log: What it heard, for people; its owner may add what it said.
    """

    def __init__(self, url: str, target: str = "", header: bytes = b"") -> None:
        self.is_over = False
        self._socket = dialled(url)
        self.address = "{}:{}".format(*self._socket.getsockname())
        self.log: list[str] = []
        self._cutter = FrameCutter(2**31)
        self._heard: list[Heard] = []
        self.say(header + connect(target or None, auth_data=b""))
        assert self.hear(1), "no CONNECTED"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def say(self, data: bytes) -> None:
        """Send; whoever has ended the connection gets nothing."""
        try:
            self._socket.sendall(data)
        except OSError:
            self.is_over = True

    def hear(self, count: int, patience_s: float = _PATIENCE_S) -> list[Heard]:
        """So many frames, fewer if no more come in time."""
        deadline = time.monotonic() + patience_s
        while len(self._heard) < count and not self.is_over and (left := deadline - time.monotonic()) > 0:
            if select.select([self._socket], [], [], left)[0]:
                self._read()
        heard, self._heard = self._heard[:count], self._heard[count:]
        return heard

    def hear_all(self) -> list[Heard]:
        """Everything that was said before the answer to a PING."""
        self.say(_PING)
        heard: list[Heard] = []
        while answers := self.hear(1):
            if answers[0][0] == c.PONG:
                break
            heard += answers
        return heard

    def _read(self) -> None:
        try:
            data = self._socket.recv(65536)
        except OSError:
            data = b""
        self.is_over = not data
        for frame in self._cutter.feed(data):
            self._heard.append(_read(frame))
            self.log.append(f"heard {self._heard[-1]}")


def dialled(url: str) -> socket.socket:
    """A connection to pulsar://HOST:PORT, before the handshake."""
    where = urlsplit(url)
    connection = socket.create_connection((where.hostname, where.port), timeout=_PATIENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _read(frame: bytes) -> Heard:
    kind = frame[9]
    known = c.OTHERS | c.SCHEMAS
    return read_command(taken_apart(frame)[0], known) if kind in known else (kind, {})
