"""Restart in place: a new process takes over the listening sockets of the running one, which then drains.

    running process                                             new process (`sluice serve --takeover`)
    SERVING                                            ◀─ asks ─  connects to the socket in `drain.state`
    LENT     lends the policy store                    ─ offer ─▶ with the listening sockets; it starts, accepts nothing
    GIVEN    accepts no more, has half of each limit  ◀─ ready ─
                                                        ─── go ─▶ accepts, has the other half of each limit
    LEAVING  its clients leave, as in a drain        ◀─ serves ─
             its end                                    ─ end ──▶ has the whole of each limit

The sockets, and the clients in their queues, are always held by one of the two, so no connection is refused. A new
process that ends before it serves leaves the running one as it was. A running process that ends before `go` leaves the
sockets to the new one, which sees the end of the connection. A process lets the next one ask only when the one before
has ended: so at most two share a limit.

Source: unix(7), SCM_RIGHTS and SO_PEERCRED
"""

import asyncio
import os
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

import msgspec
import structlog

from proxy.runtime import Tasks
from proxy.server import Sockets

READY, GO, SERVES, ABORT, GONE = b"r", b"g", b"s", b"a", b""
"""The messages after the offer; GONE is the end of the other process, or of its connection."""
START_S: Final = 60.0
"""Seconds in which a new process must be ready, or it is given up."""
SERVE_S: Final = 10.0
"""Seconds for its first accept, after which it counts as serving: it has all that it needs."""
_RETRY_S: Final = 0.1
_VERSION: Final = 1
_MOST_ASKING: Final = 8
"""Most processes that wait for their turn to take over."""
_MOST_OFFER: Final = 65_536
_MOST_SOCKETS: Final = 253
"""Most descriptors of one message, SCM_MAX_FD."""
_CREDENTIALS: Final = struct.Struct("3i")


class TakeoverError(Exception):
    """A process cannot be taken over; the text says why."""


class Step(Enum):
    """A step of the running process."""

    SERVING = "serving"
    LENT = "lent"
    GIVEN = "given"
    LEAVING = "leaving"


class Link(Protocol):
    """The connection of the running process to the new one."""

    async def offer(self, sockets: Sockets) -> None:
        """Send the listening sockets."""

    async def send(self, message: bytes) -> None:
        """Send a message. Raises OSError if the new process has ended."""

    async def hear(self, patience_s: float) -> bytes:
        """Return the next message. Raises TimeoutError after `patience_s`."""


class Predecessor(Protocol):
    """The parts of the running process that the next one takes, or shares until this one has ended."""

    async def lend(self) -> Sockets:
        """Lend the policy store; return the listening sockets."""

    async def give(self) -> None:
        """Accept no more, and have half of each limit."""

    async def take_back(self) -> None:
        """Undo `lend`, and `give` if it was called, even in part."""

    def leave(self) -> None:
        """Listen no more, and have all clients leave."""

    def end(self) -> None:
        """End at once: the next process has ended, and the one after it must not share limits with this one."""


class Handover:
    """The course of one takeover in the running process.

    Args:
        predecessor: Its parts.
        link: The connection to the new process.

    Attributes:
        step: The present step.
    """

    def __init__(self, predecessor: Predecessor, link: Link) -> None:
        self.step = Step.SERVING
        self._predecessor = predecessor
        self._link = link

    async def run(self, on_taken: Callable[[], None]) -> bool:
        """Run to the end; return whether the new process serves, and call `on_taken` as soon as it does."""
        try:
            is_taken = await self._give()
        except (OSError, TakeoverError, TimeoutError) as error:
            structlog.get_logger().error("takeover failed: this process goes on", error=str(error) or "no answer")
            is_taken = False
        if not is_taken:
            with suppress(OSError):
                await self._link.send(ABORT)
            await self._predecessor.take_back()
            self.step = Step.SERVING
            return False
        self.step = Step.LEAVING
        on_taken()
        self._predecessor.leave()
        with suppress(OSError):
            while await self._link.hear(float("inf")) != GONE:
                pass
        self._predecessor.end()
        return True

    async def _give(self) -> bool:
        self.step = Step.LENT
        await self._link.offer(await self._predecessor.lend())
        if await self._link.hear(START_S) != READY:
            raise TakeoverError("the new process has ended before it was ready; its own lines say why")
        self.step = Step.GIVEN
        await self._predecessor.give()
        await self._link.send(GO)
        try:
            if await self._link.hear(SERVE_S) != SERVES:
                raise TakeoverError("the new process has ended before it served")
        except TimeoutError:
            structlog.get_logger().warning("takeover: the new process is slow to serve", after_s=SERVE_S)
        return True


class _Offer(msgspec.Struct, frozen=True):
    """The first message; the sockets of each name come with it, in this order."""

    v: int
    names: list[tuple[str, int]]


class SocketLink:
    """A connection between the two processes.

    Args:
        connection: Its socket, not blocking.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    async def offer(self, sockets: Sockets) -> None:
        """Send the listening sockets."""
        descriptors = [each.fileno() for group in sockets.values() for each in group]
        if len(descriptors) > _MOST_SOCKETS:
            raise TakeoverError(f"it has {len(descriptors)} listening sockets, and {_MOST_SOCKETS} can be sent")
        offer = _Offer(_VERSION, [(name, len(group)) for name, group in sockets.items()])
        socket.send_fds(self._socket, [msgspec.json.encode(offer)], descriptors)

    async def send(self, message: bytes) -> None:
        """Send a message."""
        await asyncio.get_running_loop().sock_sendall(self._socket, message)

    async def hear(self, patience_s: float) -> bytes:
        """Return the next message."""
        async with asyncio.timeout(None if patience_s == float("inf") else patience_s):
            return await asyncio.get_running_loop().sock_recv(self._socket, 1)


@dataclass(frozen=True, slots=True)
class Door:
    """The socket by which the next process asks.

    Args:
        folder: Its folder, `drain.state`.
        proxy_id: The name of the proxy.
    """

    folder: Path
    proxy_id: str

    @property
    def path(self) -> Path:
        """The path of the socket."""
        return self.folder / f"{self.proxy_id}.takeover"

    def listen(self) -> socket.socket:
        """Listen there, in place of the process before.

        Raises:
            OSError: If the folder does not allow it.
        """
        made = self.path.with_name(f".{self.path.name}.new")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.unlink(missing_ok=True)
            _at(made, listening.bind)
            made.chmod(0o600)
            listening.listen(_MOST_ASKING)
            listening.setblocking(False)
            made.replace(self.path)
        except OSError:
            listening.close()
            raise
        return listening

    def connect(self, patience_s: float) -> socket.socket | None:
        """Connect to the running process; None if there is none."""
        asking = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        asking.settimeout(patience_s)
        try:
            _at(self.path, asking.connect)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            asking.close()
            return None
        except OSError:
            asking.close()
            raise
        return asking


def _at(path: Path, do: Callable[[str], None]) -> None:
    """Call a function with a short name of a path: the address of a socket has at most 107 bytes."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        do(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


class Successor:
    """The new process' side of a takeover.

    Args:
        connection: The connection to the running process.
        sockets: The listening sockets that came with its offer; addresses of the configuration take theirs away.
    """

    def __init__(self, connection: socket.socket, sockets: Sockets) -> None:
        self.sockets = sockets
        self.is_alone = False
        """Whether the process before has ended, as far as is known."""
        self._socket = connection
        self._link = SocketLink(connection)

    @classmethod
    def ask(cls, door: Door, patience_s: float) -> "Successor | None":
        """Wait for this process' turn, and for the offer; None if no process runs that could be taken over.

        Raises:
            TakeoverError: If the turn does not come in time, or the offer cannot be used.
        """
        until = time.monotonic() + patience_s
        while (left := until - time.monotonic()) > 0:
            try:
                asking = door.connect(left)
            except OSError as error:
                raise TakeoverError(f"{door.path}: {error.strerror or error}") from None
            if asking is None:
                return None
            content, received = b"", list[socket.socket]()
            with suppress(OSError):
                content, descriptors, _, _ = socket.recv_fds(asking, _MOST_OFFER, _MOST_SOCKETS)
                received = [socket.socket(fileno=each) for each in descriptors]
            if not content:  # the running process has ended, or another one has taken it over and is to be asked
                asking.close()
                time.sleep(_RETRY_S)
                continue
            try:
                offer = msgspec.json.decode(content, type=_Offer)
            except msgspec.DecodeError:
                offer = _Offer(0, [])
            if offer.v != _VERSION or sum(count for _, count in offer.names) != len(received):
                for each in (*received, asking):
                    each.close()
                raise TakeoverError("the running process is of a version that cannot be taken over: restart it")
            asking.setblocking(False)
            queue = iter(received)
            return cls(asking, {name: [next(queue) for _ in range(count)] for name, count in offer.names})
        raise TakeoverError(
            f"{door.path}: the running process has given no answer for {patience_s:g} s; perhaps it has taken over "
            "itself, and the process before it still drains"
        )

    async def ready(self) -> None:
        """Report that this process can serve, and wait until it may.

        Raises:
            TakeoverError: If the running process goes on without this one.
        """
        with suppress(BrokenPipeError, ConnectionResetError):
            await self._link.send(READY)
        answer = GONE
        with suppress(ConnectionResetError):
            answer = await self._link.hear(float("inf"))
        if answer == ABORT:
            raise TakeoverError("the running process has given this one up; it goes on")
        self.is_alone = answer == GONE
        for unused in (each for group in self.sockets.values() for each in group):
            unused.close()

    async def serves(self) -> None:
        """Report that this process serves, and return when the process before has ended."""
        with suppress(BrokenPipeError, ConnectionResetError):
            await self._link.send(SERVES)
            while await self._link.hear(float("inf")) != GONE:
                pass
        self.is_alone = True
        self._socket.close()


class Handovers:
    """Lets the next process ask this one for its sockets, one process at a time.

    Args:
        door: The socket by which it asks.
        predecessor: Returns the parts of this process, for a process with that id.

    Attributes:
        is_under_way: Whether another process has, or is about to have, the sockets and files of this one.
    """

    def __init__(self, door: Door, predecessor: Callable[[int], Predecessor]) -> None:
        self.is_under_way = False
        self._door = door
        self._predecessor = predecessor
        self._tasks = Tasks()
        self._listening: socket.socket | None = None

    def listen(self) -> None:
        """Let processes wait for their turn; a folder that does not allow it is reported."""
        try:
            self._listening = self._door.listen()
        except OSError as error:
            structlog.get_logger().warning(
                "this process cannot be taken over: it cannot listen in drain.state",
                socket=str(self._door.path),
                error=error.strerror or str(error),
            )

    def start(self) -> None:
        """Begin with the first process that asks."""
        if self._listening is not None:
            self._tasks.start(self._serve(self._listening), "takeover")

    def stop(self) -> None:
        """Do no more; the end of a connection shows the other process that this one has ended."""
        self._tasks.cancel()
        if self._listening is not None:
            self._listening.close()
            if not self.is_under_way:
                self._door.path.unlink(missing_ok=True)

    async def _serve(self, listening: socket.socket | None) -> None:
        log, loop = structlog.get_logger(), asyncio.get_running_loop()
        while listening is not None:
            connection, _ = await loop.sock_accept(listening)
            with connection:
                connection.setblocking(False)
                process, user, _ = _CREDENTIALS.unpack(
                    connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
                )
                if user not in {0, os.geteuid()}:
                    log.warning("takeover refused: its process is of another user", user=user)
                    continue
                self.is_under_way = True
                log.info("takeover begins", by_pid=process)
                handover = Handover(self._predecessor(process), SocketLink(connection))
                if await handover.run(listening.close):
                    return
                self.is_under_way = False
            listening.close()
            self.listen()  # the process that has ended may have put its own socket there
            listening = self._listening
