"""Restart in place: a new process takes over the listening sockets of the running one, which then drains.

    running process                                             new process (`sluice serve --takeover`)
    SERVING                                            ◀─ asks ─  connects to the socket in `drain.state`
    LENT     lends the policy store                    ─ offer ─▶ with the listening sockets; it starts, accepts nothing
    GIVEN    accepts no more                          ◀─ ready ─
                                                        ─── go ─▶ accepts; from now on the two share each limit
    LEAVING  its clients leave, as in a drain        ◀─ serves ─  (limiter/handing.py: ask, hand)
             its end, with what is left of its limits  ─ left ──▶ has each limit whole

A policy that is set at the new process is in force in the other one as well, whose clients may be under it until they
have left.

Both have the sockets until the running process ends, so no connection is refused. An address that the new configuration
lacks is shut at `go`. A new process that is killed leaves
the running one as it was, whatever the step: it accepts clients again, and those stay that have not left. A new process
that is stopped while the running one drains says so (`ends`), and both end. A running process that ends before `go`
leaves the sockets to the new one, which sees the end of the connection. One that hangs while it drains is killed by the
new one, as its part of each limit would else be lost for as long. A process lets the next one ask only when the
one before has ended: so at most two share a limit.

Until `go` a message is a byte; then it is a line of JSON, of which unknown ones are ignored.

Source: unix(7), SCM_RIGHTS and SO_PEERCRED; pidfd_open(2); Linux, inet_shutdown of a socket that listens
"""

import asyncio
import itertools
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Final, Protocol, cast

import msgspec
import structlog

from limiter.handing import HandedLimits, HandedShare
from limiter.limiter import Scope
from limiter.token_bucket import WHOLE, Direction
from proxy import typed_json
from proxy.limit_state import Balance, read, written
from proxy.policies.keys import PolicyKey, PolicyKind, Principal
from proxy.policies.store import StoredChange
from proxy.runtime import Tasks
from proxy.server import Sockets

READY, GO, ABORT, SERVES, ENDS, BEAT, GONE = b"r", b"g", b"a", b"s", b"e", b"b", b""
"""The messages after the offer; GONE is the end of the other process, or of its connection."""
SILENT_S: Final = 10.0
"""Seconds without a sign of life (BEAT) after which the process before is killed: it has parts of limits, and serves
nobody. The work of one turn of its loop takes a thousandth of that."""
_LAST_LOOK_S: Final = 1.0
GO_S: Final = 10.0
"""Seconds in which the running process gives a new one that is ready its word, or the new one gives up."""
START_S: Final = 60.0
"""Seconds in which a new process must be ready, or it is given up."""
ABORT_S: Final = 10.0
"""Seconds in which a new process that is given up must end; then its files are tried all the same."""
SERVE_S: Final = 10.0
"""Seconds for its first accept, after which it is reported. It has the ports, but no client leaves until it serves."""
_RETRY_S: Final = 0.1
_VERSION: Final = 1
_MOST_ASKING: Final = 8
"""Most processes that wait for their turn to take over."""
_MOST_OFFER: Final = 65_536
_MOST_SOCKETS: Final = 253
"""Most descriptors of one message, SCM_MAX_FD."""
_LINES_AT_ONCE: Final = 100
"""Lines that are taken in one turn of the loop."""
_MOST_LINE: Final = 262_144
"""Bytes of a line at most: a change of a policy has two bodies of 16 KiB, and the values that were in force."""
_MOST_UNSENT: Final = 262_144
"""Bytes that wait for the other process, from which on questions are not asked, as they are repeated, nor changes of
policies told."""
_LEAVE_S: Final = 5.0
"""Seconds for all that a process leaves, until it ends without."""
_CREDENTIALS: Final = struct.Struct("3i")


class TakeoverError(Exception):
    """A process cannot be taken over; the text says why."""


class TakeoverStep(Enum):
    """A step of the running process."""

    SERVING = "serving"
    LENT = "lent"
    GIVEN = "given"
    LEAVING = "leaving"


class TakeoverLink(Protocol):
    """The connection of the running process to the new one."""

    async def offer(self, sockets: Sockets) -> None:
        """Send the listening sockets."""

    async def send(self, message: bytes) -> None:
        """Send a message. Raises OSError if the new process has ended."""

    async def hear(self, patience_s: float) -> bytes:
        """Return the next message. Raises TimeoutError after `patience_s`."""

    async def open(self) -> None:
        """Let both processes talk of limits from now on."""

    def beat(self) -> None:
        """Give the new process a sign of life."""


class Predecessor(Protocol):
    """The parts of the running process that the next one takes, or shares until this one has ended."""

    async def lend(self) -> Sockets:
        """Lend the policy store; return the listening sockets."""

    async def give(self) -> None:
        """Accept no more, and share all limits."""

    async def take_back(self) -> None:
        """Undo `lend`, `give` and `leave`, as far as they were called, even in part."""

    def leave(self) -> None:
        """Have all clients leave, and end then."""

    async def release(self) -> None:
        """Listen no more, and have each limit whole: the next process has ended in order."""


class Handover:
    """The course of one takeover in the running process.

    Args:
        predecessor: Its parts.
        link: The connection to the new process.

    Attributes:
        step: The present step.
    """

    def __init__(self, predecessor: Predecessor, link: TakeoverLink) -> None:
        self.step = TakeoverStep.SERVING
        self._predecessor = predecessor
        self._link = link

    async def run(self, on_taken: Callable[[], None]) -> bool:
        """Run to the end; return whether this process ends as well, and call `on_taken` when the new one serves."""
        is_taken = False
        try:
            is_taken = await self._give()
        except (OSError, TakeoverError, TimeoutError) as error:
            structlog.get_logger().error("takeover failed: this process goes on", error=str(error) or "no answer")
        except Exception:  # noqa: BLE001 - whatever is wrong, this process must serve again
            structlog.get_logger().exception("takeover failed: this process goes on")
        if not is_taken:
            with suppress(OSError, TimeoutError):
                await self._link.send(ABORT)
                # Until its end it has the policy store, and may change it; a word may be on its way.
                while await self._link.hear(ABORT_S) not in {GONE, ENDS}:
                    pass
        else:
            self.step = TakeoverStep.LEAVING
            on_taken()
            self._predecessor.leave()
            if await self._ends_in_order():
                await self._predecessor.release()
                return True
            structlog.get_logger().error("the process that has taken over was killed: this one serves again")
        await self._predecessor.take_back()
        self.step = TakeoverStep.SERVING
        return False

    async def _ends_in_order(self) -> bool:
        """Return at the end of the new process, whether it was stopped, not killed."""
        with suppress(OSError):
            while (message := await self._link.hear(float("inf"))) != GONE:
                if message == ENDS:
                    return True
        return False

    async def _give(self) -> bool:
        self.step = TakeoverStep.LENT
        await self._link.offer(await self._predecessor.lend())
        if await self._link.hear(START_S) != READY:
            raise TakeoverError("the new process has ended before it was ready; its own lines say why")
        self.step = TakeoverStep.GIVEN
        await self._predecessor.give()
        await self._link.send(GO)
        await self._link.open()
        self._link.beat()  # a process that hangs before its first one is taken for one of a version that gives none
        try:
            word = await self._link.hear(SERVE_S)
        except TimeoutError:
            structlog.get_logger().warning("takeover: the new process is slow to serve", after_s=SERVE_S)
            word = await self._link.hear(float("inf"))
        if word != SERVES:
            raise TakeoverError("the new process has ended before it served")
        return True


class _Offer(msgspec.Struct, frozen=True):
    """The first message; the sockets of each name come with it, in this order.

    Attributes:
        v: The version of the protocol.
        names: The names, each with its number of sockets.
        kept: The names of the sockets that the service manager keeps.
    """

    v: int
    names: list[tuple[str, int]]
    kept: list[str]


_ScopeFields = tuple[Direction, str, str, str, str]
_Ppm = Annotated[int, msgspec.Meta(ge=0, le=WHOLE)]
_Balances = tuple[Balance | None, Balance | None, Balance | None, Balance | None]


class _Ask(msgspec.Struct, frozen=True, tag="ask", array_like=True):
    """See `OtherProcess.ask`."""

    scope: _ScopeFields
    waiting: Annotated[int, msgspec.Meta(ge=1)]


class _Hand(msgspec.Struct, frozen=True, tag="hand", array_like=True):
    """A `HandedShare`; `is_left`: at the end of the process."""

    scope: _ScopeFields
    ppm: _Ppm
    balances: _Balances
    is_unmade: bool
    empty_since: int | None
    is_left: bool


class _Policy(msgspec.Struct, frozen=True, tag="policy", array_like=True):
    """A change of a policy that is in force in the process that has taken over, see `StoredChange` and `Principal`."""

    kind: str
    setting: str
    name: str
    before: str | None
    after: str | None
    held: str | None
    who: str
    address: str


class _Over(msgspec.Struct, frozen=True, tag="over", array_like=True):
    """All is left."""

    empty_since: int | None


class _Word(msgspec.Struct, frozen=True, tag="word", array_like=True):
    """SERVES, ENDS or BEAT."""

    word: str


_LINES: Final = msgspec.json.Decoder(_Ask | _Hand | _Policy | _Over | _Word)


class SocketLink:
    """A connection between the two processes.

    Args:
        connection: Its socket, not blocking.

    Attributes:
        over: The last message of the other process about its limits; None before its word that it ends.
        has_answered: Set when that word has come, or the connection has ended.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.over: _Over | None = None
        self._over: _Over | None = None
        self.has_answered = asyncio.Event()
        self._socket = connection
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._limits: HandedLimits | None = None
        self._follow: Callable[[StoredChange, Principal], None] | None = None

    async def offer(self, sockets: Sockets) -> None:
        """Send the listening sockets."""
        descriptors = [each.fileno() for group in sockets.by_name.values() for each in group]
        if len(descriptors) > _MOST_SOCKETS:
            raise TakeoverError(f"it has {len(descriptors)} listening sockets, and {_MOST_SOCKETS} can be sent")
        names = [(name, len(group)) for name, group in sockets.by_name.items()]
        offer = _Offer(_VERSION, names, sorted(sockets.kept))
        socket.send_fds(self._socket, [msgspec.json.encode(offer)], descriptors)

    async def send(self, message: bytes) -> None:
        """Send a message."""
        if self._writer is None:
            await asyncio.get_running_loop().sock_sendall(self._socket, message)
        else:
            self._write(_Word(message.decode()))

    async def hear(self, patience_s: float) -> bytes:
        """Return the next message; those about limits and policies are taken before."""
        async with asyncio.timeout(None if patience_s == float("inf") else patience_s):
            if self._reader is None:
                return await asyncio.get_running_loop().sock_recv(self._socket, 1)
            for number in itertools.count(1):
                try:
                    line = await self._reader.readline()
                except ValueError:  # longer than any that this version sends
                    continue
                except OSError:
                    self.has_answered.set()
                    raise
                if not line.endswith(b"\n"):
                    self.has_answered.set()
                    break
                if (word := self._take(line)) is not None:
                    return word
                if number % _LINES_AT_ONCE == 0:
                    await asyncio.sleep(0)
        return GONE

    async def open(self) -> None:
        """Let both processes talk of limits from now on."""
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self._socket.dup(), limit=_MOST_LINE)

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()
        self._socket.close()

    def share(self, limits: HandedLimits, follow: Callable[[StoredChange, Principal], None]) -> None:
        """Have these limits get the messages of the other process, and `follow` its changes of policies."""
        self._limits, self._follow = limits, follow

    def beat(self) -> None:
        """Give the other process a sign of life."""
        if self._has_room:
            self._write(_Word(BEAT.decode()))

    def ask(self, scope: Scope, waiting: int) -> None:
        """Ask the other process for a share of a limit."""
        if self._has_room:
            self._write(_Ask(scope, waiting))

    def change(self, change: StoredChange, author: Principal) -> bool:
        """Tell the other process of a change of a policy; return whether there was room for it."""
        key = change.key
        bodies = change.before, change.after, change.held
        line = _encoded(_Policy(key.kind, key.setting, key.name, *bodies, author.name, author.address))
        if not self._has_room or len(line) > _MOST_LINE:
            return False
        assert self._writer is not None, "it has room"
        self._writer.write(line)
        return True

    @property
    def _has_room(self) -> bool:
        if self._writer is None or self._writer.is_closing():
            return False
        return self._writer.transport.get_write_buffer_size() < _MOST_UNSENT

    def hand(self, handed: HandedShare) -> None:
        """Hand a share to the other process."""
        self._hand(handed, is_left=False)

    async def leave(self, shares: Iterator[HandedShare], empty_since: int | None) -> None:
        """Leave the other process all that this one has, within `_LEAVE_S`."""
        if self._writer is None or self._writer.is_closing():
            return
        self._writer.transport.set_write_buffer_limits(0)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                for number, share in enumerate(shares, 1):
                    self._hand(share, is_left=True)
                    if number % _LINES_AT_ONCE == 0:
                        await self._writer.drain()
                self._write(_Over(empty_since))
                self._write(_Word(ENDS.decode()))
                await self._writer.drain()

    def _hand(self, handed: HandedShare, *, is_left: bool) -> None:
        balances = cast("_Balances", tuple(map(written, handed.balances)))
        self._write(_Hand(handed.scope, handed.ppm, balances, handed.is_unmade, handed.empty_since, is_left))

    def _write(self, message: _Ask | _Hand | _Over | _Word) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(_encoded(message))

    def _take(self, line: bytes) -> bytes | None:
        """Take a line; return the message that it is, if it is not about limits or policies."""
        try:
            message = _LINES.decode(line)
        except msgspec.DecodeError:
            return None
        now = time.monotonic_ns()
        match message:
            case _Word(word):
                if word.encode() == ENDS:  # not before: `release` begins in the turn in which `over` shows
                    self.over = self._over
                    self.has_answered.set()
                return word.encode()
            case _Over():
                self._over = message
            case _Ask(scope, waiting) if self._limits is not None:
                self._limits.asked(Scope(*scope), waiting, now)
            case _Hand() if self._limits is not None:
                balances = tuple(map(read, message.balances))
                share = HandedShare(
                    Scope(*message.scope), message.ppm, balances, message.is_unmade, message.empty_since
                )
                (self._limits.left if message.is_left else self._limits.received)(share, now)
            case _Policy(kind, setting, name, before, after, held) if self._follow is not None:
                if kind not in set(PolicyKind):
                    structlog.get_logger().warning(
                        "policy changed in the new process of a takeover alone",
                        policy=f"{kind} {setting} {name}",
                        reason="this version does not know the kind",
                    )
                    return None
                change = StoredChange(PolicyKey(PolicyKind(kind), setting, name), before, after, held)
                self._follow(change, Principal(message.who, message.address))
            case _:
                pass
        return None


def _encoded(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message) + b"\n"


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


def _peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return the ids of the process at the other end, and of its user."""
    content = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(content)
    return process, user


def _process_behind(connection: socket.socket) -> int | None:
    """Return a descriptor of the process at the other end; None where the system has none for it."""
    process, _ = _peer_of(connection)
    with suppress(OSError):
        return os.pidfd_open(process)
    return None


class Successor:
    """The new process' side of a takeover.

    Args:
        connection: The connection to the running process.
        sockets: The listening sockets that came with its offer; addresses of the configuration take theirs away.
        process: A descriptor of the running process (pidfd); None: it cannot be had.
    """

    def __init__(self, connection: socket.socket, sockets: Sockets, process: int | None = None) -> None:
        self.sockets = sockets
        self.is_alone = False
        """Whether the process before has ended, as far as is known."""
        self.link = SocketLink(connection)
        self._process = process

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
                offer = typed_json.decode(content, _Offer)
            except msgspec.DecodeError:
                offer = _Offer(0, [], [])
            if offer.v != _VERSION or sum(count for _, count in offer.names) != len(received):
                for each in (*received, asking):
                    each.close()
                raise TakeoverError("the running process is of a version that cannot be taken over: restart it")
            asking.setblocking(False)
            queue = iter(received)
            by_name = {name: [next(queue) for _ in range(count)] for name, count in offer.names}
            return cls(asking, Sockets(by_name, {*offer.kept}), _process_behind(asking))
        raise TakeoverError(
            f"{door.path}: the running process has given no answer for {patience_s:g} s; perhaps it has taken over "
            "itself, and the process before it still drains"
        )

    async def ready(self) -> None:
        """Report that this process can serve, and wait until it may; the two processes share limits then.

        No process listens any more at the addresses whose sockets are not taken.

        Raises:
            TakeoverError: If the running process goes on without this one.
        """
        with suppress(BrokenPipeError, ConnectionResetError):
            await self.link.send(READY)
        answer = GONE
        try:
            answer = await self.link.hear(GO_S)
        except ConnectionResetError:
            pass
        except TimeoutError:
            raise TakeoverError(f"the running process has given no answer for {GO_S:g} s") from None
        if answer == ABORT:
            raise TakeoverError("the running process has given this one up; it goes on")
        self.is_alone = answer == GONE
        if not self.is_alone:
            await self.link.open()
        for name, group in self.sockets.by_name.items():
            for unused in group:
                if name not in self.sockets.kept:  # the service manager's stay open for the next start
                    with suppress(OSError):  # the process before has it as well, and listens again if it serves again
                        unused.shutdown(socket.SHUT_RDWR)
                unused.close()

    async def serves(self) -> None:
        """Report that this process serves, and return when the process before has ended; kill it if it hangs."""
        with suppress(BrokenPipeError, ConnectionResetError):
            await self.link.send(SERVES)
            patience_s = float("inf")  # a process that has left all limits gives no sign of life
            while (message := await self._heard(patience_s)) != GONE:
                patience_s = SILENT_S if message == BEAT and self._process is not None else float("inf")
        self.is_alone = True
        self.link.close()
        if self._process is not None:
            os.close(self._process)

    async def _heard(self, patience_s: float) -> bytes:
        with suppress(TimeoutError):
            return await self.link.hear(patience_s)
        with suppress(TimeoutError):  # a process that was frozen itself finds what has come meanwhile
            return await self.link.hear(_LAST_LOOK_S)
        assert self._process is not None, "there is no bound without it"
        structlog.get_logger().error("process before killed: it gives no sign of life", after_s=SILENT_S)
        with suppress(OSError):
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
        return await self.link.hear(float("inf"))


class Handovers:
    """Lets the next process ask this one for its sockets, one process at a time.

    Args:
        door: The socket by which it asks.
        predecessor: Returns the parts of this process, for a process with that id, by its connection.

    Attributes:
        is_under_way: Whether another process has, or is about to have, the sockets and files of this one.
    """

    def __init__(self, door: Door, predecessor: Callable[[int, SocketLink], Predecessor]) -> None:
        self.is_under_way = self._is_closed = False
        self._door = door
        self._predecessor = predecessor
        self._tasks = Tasks()
        self._listening: socket.socket | None = None

    def listen(self) -> None:
        """Let processes wait for their turn; a folder that does not allow it is reported."""
        self._listening = None
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

    def refuse(self) -> None:
        """Let no further process take over: this one ends."""
        self._is_closed = True

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
                if self._is_closed:
                    return
                connection.setblocking(False)
                process, user = _peer_of(connection)
                if user not in {0, os.geteuid()}:
                    log.warning("takeover refused: its process is of another user", user=user)
                    continue
                self.is_under_way = True
                log.info("takeover begins", by_pid=process)
                link = SocketLink(connection)
                try:
                    if await Handover(self._predecessor(process, link), link).run(listening.close):
                        return
                except Exception:
                    log.exception("takeover failed")
                finally:
                    link.close()
                self.is_under_way = False
            before = listening
            self.listen()  # the process that has ended may have put its own socket there
            before.close()  # only now: a process that asks meanwhile would be told that none runs
            listening = self._listening
