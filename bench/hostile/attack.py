"""Drives the connections of one kind, in a process of its own: `python -m bench.hostile.attack KIND HOST:PORT S`.

At the end a line of JSON says how many connections were opened, were refused or ended by the other side, and how many
bytes were sent and read. Without arguments it attacks once for each line of its input, which holds all three between
tabs: one process for many kinds.
"""

import errno
import heapq
import json
import selectors
import socket
import sys
import time
from contextlib import closing, suppress
from itertools import count

from bench.hostile.kinds import KINDS, HostileKind
from protocol.endpoint import EndpointForm

_SLUICE = EndpointForm(("pulsar",), "127.0.0.1:6650")

_MOST_PENDING = 500
"""Connections that are being opened at once: fewer than the listener's backlog."""
_READ = 64 * 1024
_LOOK_S = 0.05


class _Hostile:
    """One connection.

    Args:
        kind: Its kind.
        number: Its number among those of the kind.
        port: The port of Sluice.
    """

    def __init__(self, kind: HostileKind, number: int, address: tuple[str, int]) -> None:
        self.script = kind.says(number)
        self.unsent = memoryview(b"")
        self.is_open = False
        self.events = selectors.EVENT_WRITE
        self.may_read = 0.0
        self.socket = socket.socket()
        self.socket.setblocking(False)
        if kind.window:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, kind.window)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT: the port is chosen by the target
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.bind((kind.address, 0))
        self.socket.connect_ex(address)


class Attack:
    """The connections of one kind.

    Args:
        kind: Their kind.
        address: The address of Sluice.
    """

    def __init__(self, kind: HostileKind, address: tuple[str, int]) -> None:
        self.counts = dict.fromkeys(("opened", "ended", "sent", "read"), 0)
        self._kind = kind
        self._address = address
        self._selector = selectors.DefaultSelector()
        self._numbers = count(1)
        self._there = 0
        self._pending = 0
        self._asleep: list[tuple[float, int, _Hostile]] = []

    def run(self, seconds: float) -> None:
        """Attack for `seconds`."""
        over = time.monotonic() + seconds
        while (now := time.monotonic()) < over:
            self._open_some()
            self._wake(now)
            for key, events in self._selector.select(_LOOK_S):
                self._step(key.data, events)
            self._give_reading_time(now)

    def close(self) -> None:
        """End all connections."""
        for key in list(self._selector.get_map().values()):
            key.data.socket.close()
        for _, _, hostile in self._asleep:
            hostile.socket.close()
        self._selector.close()

    def _open_some(self) -> None:
        kind = self._kind
        while self._there < kind.connections and self._pending < _MOST_PENDING:
            if self.counts["opened"] >= kind.connections and not kind.returns:
                return
            try:
                hostile = _Hostile(kind, next(self._numbers), self._address)
            except OSError:  # no port is free any more
                return
            self._there += 1
            self._pending += 1
            self._selector.register(hostile.socket, hostile.events, hostile)
            self.counts["opened"] += 1

    def _step(self, hostile: _Hostile, events: int) -> None:
        if not hostile.is_open:
            hostile.is_open = True
            self._pending -= 1
        try:
            if events & selectors.EVENT_READ:
                self._read(hostile)
            if events & selectors.EVENT_WRITE:
                self._write(hostile)
        except BlockingIOError:
            pass
        except OSError:
            self.counts["ended"] += 1
            self._drop(hostile)

    def _read(self, hostile: _Hostile) -> None:
        reads = self._kind.reads
        most = _READ if reads is True else min(int(hostile.may_read), _READ)
        if most == 0:
            self._listen(hostile, hostile.events & ~selectors.EVENT_READ)
            return
        data = hostile.socket.recv(most)
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "closed")
        hostile.may_read -= len(data)
        self.counts["read"] += len(data)

    def _write(self, hostile: _Hostile) -> None:
        if self._kind.reads and not hostile.events & selectors.EVENT_READ:
            self._listen(hostile, hostile.events | selectors.EVENT_READ)
        if not hostile.unsent:
            piece = next(hostile.script, None)
            if piece is None:
                self._end(hostile)
                return
            if isinstance(piece, float):
                self._listen(hostile, hostile.events & ~selectors.EVENT_WRITE)
                heapq.heappush(self._asleep, (time.monotonic() + piece, id(hostile), hostile))
                return
            hostile.unsent = memoryview(piece)
        sent = hostile.socket.send(hostile.unsent)
        self.counts["sent"] += sent
        hostile.unsent = hostile.unsent[sent:]

    def _end(self, hostile: _Hostile) -> None:
        if self._kind.returns:
            self._drop(hostile)
        else:
            self._listen(hostile, hostile.events & ~selectors.EVENT_WRITE)

    def _drop(self, hostile: _Hostile) -> None:
        self._there -= 1
        if hostile.events:
            self._selector.unregister(hostile.socket)
        hostile.events = 0
        hostile.socket.close()

    def _wake(self, now: float) -> None:
        while self._asleep and self._asleep[0][0] <= now:
            hostile = heapq.heappop(self._asleep)[2]
            if hostile.socket.fileno() >= 0:
                self._listen(hostile, hostile.events | selectors.EVENT_WRITE)

    def _give_reading_time(self, since: float) -> None:
        if isinstance(self._kind.reads, bool):
            return
        for key in list(self._selector.get_map().values()):
            key.data.may_read += self._kind.reads * (time.monotonic() - since)
            if key.data.may_read >= 1:
                self._listen(key.data, key.data.events | selectors.EVENT_READ)

    def _listen(self, hostile: _Hostile, events: int) -> None:
        if events == hostile.events:
            return
        if not hostile.events:
            self._selector.register(hostile.socket, events, hostile)
        elif not events:
            self._selector.unregister(hostile.socket)
        else:
            self._selector.modify(hostile.socket, events, hostile)
        hostile.events = events


def main() -> None:
    """Attack as the command line says."""
    orders = [sys.argv[1:]] if sys.argv[1:] else (line.rstrip("\n").split("\t") for line in sys.stdin)
    with suppress(KeyboardInterrupt):
        for name, address, seconds in orders:
            sluice = _SLUICE.parse(address)
            attack = Attack(next(kind for kind in KINDS if kind.name == name), (sluice.host, sluice.port))
            with closing(attack):
                attack.run(float(seconds))
            sys.stdout.write(json.dumps(attack.counts) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
