"""A fleet's link without a topic: each member dials all others of a list, and only writes to the connections it dials.

    frame   [size u32][kind u8][body]

`Election` decides which member coordinates: a vote is a lease. With TLS, a peer takes part if it shows a certificate
that the fleet's own authority has signed. Without TLS, each process that reaches `listen` may take part, so the
configuration allows that on loopback only.
"""

import asyncio
import socket
import ssl
import time
from collections import deque
from dataclasses import dataclass
from functools import partial
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception
from typing import Final, Protocol, cast

import structlog

from fleet.election import Election, Ping
from fleet.messages import MOST_MESSAGE
from protocol.endpoint import Endpoint
from proxy.fleet.link import (
    MOST_ERROR,
    MOST_PAUSE_S,
    Callbacks,
    LinkCounts,
    LinkState,
    LinkTasks,
    PeerStatus,
    backoff,
)
from proxy.observe.operator_log import ThrottledLog
from proxy.tls.transport import why_it_failed

HELLO_S: Final = 5.0
"""Seconds until a connection has to stand, and its dialler to have said its name."""
SILENT_S: Final = 5.0
"""Seconds after which a connection to a peer that takes nothing is closed; if it says nothing, a lease later."""
MOST_UNSENT: Final = 4 * MOST_MESSAGE
"""Bytes of reports and grants that wait for a peer that does not read; the oldest are dropped for the next one."""
MOST_BALLOTS: Final = 16
"""Pings and votes that wait for such a peer; the oldest is dropped for the next one."""
_HELLO, _PING, _VOTE, _REPORT, _GRANT, _ORDER = range(1, 7)
"""The kinds of frames. Members of earlier versions send no order, and pass over one."""
_HEAD = Struct(">IB")
_PINGED, _VOTED = Struct(">QB"), Struct(">Q")
_MOST_HELLO = 1024
_AFTER_FAILURE_S = 1.0
_SAME = "give all members the same name and the same list in the same order"
_ADDRESSES = "see that no two of them have one address, if it goes on"
_CERTIFICATES = "give each member a certificate that is in force, of the authority in fleet.tls.ca"


class PeerTls(Protocol):
    """The TLS contexts between peers that are in force: `certificates.PeerCertificates`."""

    @property
    def server(self) -> ssl.SSLContext:
        """The TLS context for peers that dial this member. It asks for their certificate."""

    @property
    def client(self) -> ssl.SSLContext:
        """The TLS context for peers that this member dials."""


@dataclass(frozen=True, slots=True)
class FleetPeers:
    """The members of a fleet, as one of them sees it.

    Args:
        fleet: The fleet's name.
        order: The addresses by which members reach each other, in the same order in all of them.
        own: The one of these that is this member's.
        listen: The address at which this member's peers connect.
        lease_s: Seconds for which a vote holds.
        tls: TLS for new connections; None on loopback.
    """

    fleet: str
    order: tuple[Endpoint, ...]
    own: Endpoint
    listen: Endpoint
    lease_s: float = 2.0
    tls: PeerTls | None = None


class _Outlet:
    """The connection to one peer: dialled again and again, written to, never read. Pings and votes go first."""

    def __init__(self, link: "PeerLink", peer: Endpoint) -> None:
        self._link = link
        self._peer = peer
        self._ballots: deque[bytes] = deque()
        self._messages: deque[bytes] = deque()
        self._unsent = 0
        """Bytes of `_messages`."""
        self._filled = asyncio.Event()
        self.is_open = False
        self.last_error = ""
        """Why the peer is not reached; empty while it is."""

    def put(self, kind: int, body: bytes) -> bool:
        """Send a frame soon; False: the peer is not connected, and the frame is dropped."""
        dropped, frame = self._link.counts.dropped, _framed(kind, body)
        if not self.is_open:
            dropped["disconnected"] += 1
            return False
        if kind in (_PING, _VOTE):
            self._ballots.append(frame)
            if len(self._ballots) > MOST_BALLOTS:
                self._ballots.popleft()
                dropped["slow"] += 1
        else:
            self._messages.append(frame)
            self._unsent += len(frame)
            while self._unsent > MOST_UNSENT:
                self._unsent -= len(self._messages.popleft())
                dropped["slow"] += 1
        self._filled.set()
        return True

    async def run(self) -> None:
        """Stay connected until cancelled."""
        attempt = 0
        while True:
            try:
                attempt = await self._serve(attempt)
            except OSError as error:
                self._link.refused = isinstance(error, ConnectionRefusedError)
                self.last_error = str(error) or "no answer in time"
            self._link.counts.reconnects += 1
            attempt += 1
            await asyncio.sleep(backoff(attempt, self._link.most_pause_s))

    async def _serve(self, attempt: int) -> int:
        tls, name = self._link.peers.tls, self._peer.host
        async with asyncio.timeout(HELLO_S):
            reader, writer = await asyncio.open_connection(
                self._peer.host, self._peer.port, ssl=tls.client if tls else None, server_hostname=name if tls else None
            )
        _bound_silence(writer)
        ended = asyncio.get_running_loop().create_task(reader.read(1))
        """A peer writes nothing here: the connection is over when anything comes."""
        ended.add_done_callback(lambda _: self._filled.set())
        try:
            writer.write(_framed(_HELLO, self._link.hello) + _framed(_ORDER, self._link.order))
            self.is_open, self._link.refused = True, False
            while not ended.done():
                await self._filled.wait()
                self._filled.clear()
                while (frame := self._next()) and not ended.done():
                    writer.write(frame)
                    async with asyncio.timeout(SILENT_S):
                        await writer.drain()
                    attempt = 0
            refusal = ended.exception()
            self.last_error = str(refusal) if refusal else "it ends the connection; its log says why"
        finally:
            self.is_open = False
            self._ballots.clear()
            self._messages.clear()
            self._unsent = 0
            ended.cancel()
            writer.transport.abort()
            await asyncio.gather(ended, return_exceptions=True)
        return attempt

    def _next(self) -> bytes:
        if self._ballots:
            return self._ballots.popleft()
        if not self._messages:
            return b""
        frame = self._messages.popleft()
        self._unsent -= len(frame)
        return frame


def _bound_silence(writer: asyncio.StreamWriter) -> None:
    """Let the system end a connection whose other end acknowledges nothing for SILENT_S, as one that is gone."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SILENT_S * 1000))


async def _listening(at: Endpoint) -> list[socket.socket]:
    """Sockets at every address that a name stands for; all or none."""
    found = await asyncio.get_running_loop().getaddrinfo(at.host, at.port, type=socket.SOCK_STREAM)
    opened: list[socket.socket] = []
    try:
        for family, *_, address in dict.fromkeys(found):
            opened.append(socket.create_server(address, family=family))
            opened[-1].setblocking(False)
    except OSError:
        for each in opened:
            each.close()
        raise
    return opened


def _framed(kind: int, body: bytes) -> bytes:
    return _HEAD.pack(len(body) + 1, kind) + body


class PeerLink:
    """A member's link by connections between peers.

    Args:
        peers: All members.
        callbacks: Called with what comes, and when this member begins or ceases to coordinate.
    """

    def __init__(self, peers: FleetPeers, callbacks: Callbacks) -> None:
        self.counts = LinkCounts()
        self.peers = peers
        self.most_pause_s = min(MOST_PAUSE_S, peers.lease_s)
        self.refused = False
        """Whether the last peer that was not reached refused at once."""
        self.last_error = ""
        """Why no connection could be accepted the last time; empty once one could."""
        self.hello = f"{peers.fleet}\n{peers.own.address}".encode()
        self.order = "\n".join([each.address for each in peers.order]).encode()
        self._warnings = ThrottledLog(time.monotonic_ns)
        self._callbacks = callbacks
        self._names = {each.address for each in peers.order} - {peers.own.address}
        self._outlets = {each.address: _Outlet(self, each) for each in peers.order if each != peers.own}
        self._election: Election | None = None
        self._is_leading = False
        self._confirmed_at = 0
        self._inlets: dict[asyncio.Task[None], str] = {}
        """The peer behind each accepted connection, by its task; empty as long as the peer has not said its name."""
        self._most_inlets = 2 * len(self._names) + 2
        self._tasks = LinkTasks(self.counts, self.most_pause_s)
        self._sockets: list[socket.socket] = []
        self._timers: deque[asyncio.TimerHandle] = deque(maxlen=16)
        """Timers, each of which ends a time in which no connection is accepted at one of the sockets."""

    @property
    def state(self) -> LinkState:
        """Whether reports and grants can pass, and whether this member coordinates."""
        if self._election is None:
            return "connecting"
        if self._is_leading and self._election.leads(self._now()):
            return "leading"
        outlet = self._outlets.get(self._election.votes_for)
        return "following" if outlet is not None and outlet.is_open else "connecting"

    def peer_states(self) -> list[PeerStatus]:
        """Return the other members, in the order of `peers`."""
        states, dialling = [], set(self._inlets.values())
        for address, one in self._outlets.items():
            dials = address in dialling
            error = one.last_error if not one.is_open else "" if dials else self.last_error
            states.append(PeerStatus(address, one.is_open, dials, error[:MOST_ERROR]))
        return states

    remedy, finds_nothing = "", False

    @property
    def problem(self) -> str:
        """Why no coordinator is reached: what a peer did the last time; empty if one is."""
        if self.state != "connecting":
            return ""
        return next(
            (f"{one.address}: {one.last_error}" for one in self.peer_states() if one.last_error), self.last_error
        )

    async def start(self) -> None:
        """Listen, and begin to dial.

        Raises:
            OSError: If `listen` cannot be listened on.
        """
        peers, loop = self.peers, asyncio.get_running_loop()
        order = [each.address for each in peers.order]
        self._election = Election(order, peers.own.address, int(peers.lease_s * 1e9), self._now())
        self._sockets = await _listening(peers.listen)
        for each in self._sockets:
            loop.add_reader(each, self._accept, each)
        for run in (*(each.run for each in self._outlets.values()), self._beat):
            self._tasks.start(run)

    async def stop(self) -> None:
        """End: no connection, task or timer is left."""
        for timer in self._timers:
            timer.cancel()
        for each in self._sockets:
            asyncio.get_running_loop().remove_reader(each)
            each.close()
        inlets = list(self._inlets)
        for task in inlets:
            task.cancel()
        await asyncio.gather(self._tasks.stop(), *inlets, return_exceptions=True)
        self._sockets, self._timers = [], deque()
        self._turn(is_leading=False)
        self._election = None

    def report(self, message: bytes) -> bool:
        """Send a report to the member for which this one votes, itself included; False: it cannot be sent now."""
        if self._election is None or not self._fits(message):
            return False
        if self.state == "leading" or self._election.votes_for == self.peers.own.address:
            asyncio.get_running_loop().call_soon(self._reported, message)
            return True
        outlet = self._outlets.get(self._election.votes_for)
        return outlet is not None and self._put(outlet, _REPORT, message)

    def grant(self, message: bytes) -> bool:
        """Send grants to all members; False: not leading."""
        if self.state != "leading" or not self._fits(message):
            return False
        for outlet in self._outlets.values():
            self._put(outlet, _GRANT, message)
        asyncio.get_running_loop().call_soon(self._callbacks.on_grant, message)
        return True

    def _put(self, outlet: _Outlet, kind: int, message: bytes) -> bool:
        is_put = outlet.put(kind, message)
        self.counts.messages_out += is_put
        return is_put

    def _fits(self, message: bytes) -> bool:
        if len(message) <= MOST_MESSAGE:
            return True
        self.counts.dropped["oversized"] += 1
        return False

    def _reported(self, message: bytes) -> None:
        if self.state == "leading":
            self._callbacks.on_report(message)

    @staticmethod
    def _now() -> int:
        return time.monotonic_ns()  # not the loop's clock, which stands still while a callback runs

    async def _beat(self) -> None:
        """Ping all others four times in a lease."""
        while True:
            if self._election is not None:
                ping = self._election.ping(self._now())
                body = _PINGED.pack(ping.sequence, ping.reaches | ping.leads << 1)
                for outlet in self._outlets.values():
                    if outlet.is_open:
                        outlet.put(_PING, body)
                self._look()
            await asyncio.sleep(self.peers.lease_s / 4)

    def _look(self) -> None:
        if self._election is None:
            return
        leads, asked_at = self._election.leads(self._now()), self._election.asked_at
        self._turn(is_leading=leads)
        if leads and asked_at > self._confirmed_at:
            self._confirmed_at = asked_at
            self._callbacks.on_confirmed(asked_at)

    def _turn(self, *, is_leading: bool) -> None:
        if is_leading == self._is_leading:
            return
        self._is_leading = is_leading
        self.counts.takeovers += is_leading
        (self._callbacks.on_lead if is_leading else self._callbacks.on_unlead)()

    # ---- connections that others dial

    def _accept(self, listening: socket.socket) -> None:
        """Called when a connection is there to be accepted."""
        loop = asyncio.get_running_loop()
        try:
            accepted, address = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # the dialler has gone
        except OSError as error:  # no more files, for one
            self.last_error = f"cannot accept: {error}"
            loop.remove_reader(listening)
            self._timers.append(loop.call_later(_AFTER_FAILURE_S, loop.add_reader, listening, self._accept, listening))
            return
        self.last_error = ""
        accepted.setblocking(False)
        strangers = [each for each, name in self._inlets.items() if not name]
        if len(self._inlets) >= self._most_inlets and strangers:
            strangers[0].cancel()  # else no peer could come
        task = loop.create_task(self._hear(accepted))
        self._inlets[task] = ""
        task.add_done_callback(partial(self._left, accepted, address[0]))

    def _left(self, accepted: socket.socket, host: str, task: asyncio.Task[None]) -> None:
        accepted.close()  # `_hear` did not even begin, if it was cancelled at once
        self.counts.dropped["foreign"] += not self._inlets.pop(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, ssl.SSLError):
            self._warn(
                "a peer's TLS fails, or that of a stranger", _CERTIFICATES, by=host, error=why_it_failed(error)[1]
            )
        elif error is not None and not isinstance(error, OSError | EOFError | StructError):  # whatever `_hear` names
            self._tasks.defect(error)

    async def _hear(self, accepted: socket.socket) -> None:
        """Take the frames of a peer until its connection ends, or another one of the same peer takes its place.

        Raises:
            OSError: If the dialler is no peer, or is silent, or the connection is lost.
            asyncio.IncompleteReadError, struct.error: If the connection ends, or a frame makes no sense.
        """
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_MOST_HELLO)
        task, tls = cast("asyncio.Task[None]", asyncio.current_task()), self.peers.tls
        transport: asyncio.Transport | None = None
        try:
            async with asyncio.timeout(HELLO_S):
                transport, _ = await loop.connect_accepted_socket(
                    lambda: asyncio.StreamReaderProtocol(reader), accepted, ssl=tls.server if tls else None
                )
                kind, body = await self._frame(reader, _MOST_HELLO)
            fleet, _, name = body.decode(errors="replace").partition("\n")
            if kind != _HELLO or fleet != self.peers.fleet or name not in self._names:
                if kind == _HELLO:
                    self._warn("a proxy that is not one of `peers` dials", _SAME, dials=name, of_fleet=fleet)
                raise ConnectionRefusedError("it is no peer of this fleet")
            for other in [each for each, who in self._inlets.items() if who == name]:
                other.cancel()  # a peer has one connection, its latest
                self._warn("a peer that is connected dials again", _ADDRESSES, peer=name)
            self._inlets[task] = name
            while True:
                async with asyncio.timeout(SILENT_S + self.peers.lease_s):
                    kind, body = await self._frame(reader, MOST_MESSAGE + 1)
                self._take(name, kind, body)
                await asyncio.sleep(0)  # more may be there already, and others wait, too
        finally:
            if transport is not None:
                transport.abort()

    async def _frame(self, reader: asyncio.StreamReader, most: int) -> tuple[int, bytes]:
        size, kind = _HEAD.unpack(await reader.readexactly(_HEAD.size))
        if not 1 <= size <= most:
            self.counts.dropped["oversized"] += 1
            raise ConnectionAbortedError("a frame is too large")
        return kind, await reader.readexactly(size - 1)

    def _take(self, by: str, kind: int, body: bytes) -> None:
        if self._election is None:
            return
        if kind == _PING:
            sequence, flags = _PINGED.unpack(body)
            ping = Ping(sequence, reaches=bool(flags & 1), leads=bool(flags & 2))
            if self._election.pinged(by, ping, self._now()) and self._outlets[by].is_open:
                self._outlets[by].put(_VOTE, _VOTED.pack(sequence))
        elif kind == _VOTE:
            self._election.voted(by, *_VOTED.unpack(body))
            self._look()
        elif kind == _REPORT:
            self.counts.messages_in += 1
            self._reported(body)
        elif kind == _GRANT:
            self.counts.messages_in += 1
            self._callbacks.on_grant(body)
        elif kind == _ORDER and body != self.order:
            self._warn("a peer has another list of `peers`", _SAME, peer=by)

    def _warn(self, what: str, remedy: str, **said: str) -> None:
        """Warn, each ten seconds at most, of what keeps members apart, or lets two of them coordinate."""
        if times := self._warnings.due(what):
            structlog.get_logger().warning(f"fleet: {what}: {remedy}", fleet=self.peers.fleet, times=times, **said)
