"""A fleet's link without a topic: each member dials each other one of a list, and what it dials it only writes to.

    frame   [size u32][kind u8][body]

Who coordinates is decided by `Election`, in which a vote is a lease. Who may take part: with TLS whoever shows a
certificate that the fleet's own authority has signed; without TLS whoever reaches `listen`, so the configuration takes
that on loopback only.
"""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception
from typing import Final, NamedTuple

from fleet.messages import MOST_MESSAGE
from protocol.endpoint import Endpoint
from proxy.fleet.link import Callbacks, LinkCounts, LinkState, backoff

HELLO_S: Final = 5.0
"""Seconds in which a connection, and who dials it, are to be known."""
MOST_QUEUED: Final = 64
"""Messages that wait for a peer that does not read; the oldest is dropped for the next one."""
_HELLO, _PING, _VOTE, _REPORT, _GRANT = range(1, 6)
_HEAD = Struct(">IB")
_PINGED, _VOTED = Struct(">QB"), Struct(">Q")
_MOST_HELLO = 1024
_DRIFT = 0.98
"""A candidate counts on this part of a vote's time: its clock and the voter's may run apart by 1 % each."""


class Ping(NamedTuple):
    """A candidate asks for votes.

    Attributes:
        sequence: Of this candidate's pings.
        reaches: It hears a majority.
        leads: It is confirmed.
    """

    sequence: int
    reaches: bool
    leads: bool


class Election:
    """Who coordinates: the first in the list's order that reaches a majority. No clock and no socket of its own.

    A vote answers a ping, and is a promise: for `lease` after it was sent, its voter votes for nobody else. The
    candidate counts on it for 0.98 `lease` from when it *sent* that ping, which was before the vote was sent, so never
    longer than the promise holds. Two confirmed at once would need two majorities; these have a voter in common, whose
    two promises would overlap, which it makes to nobody. A voter that has started anew knows not what it promised:
    it promises nothing for the first `lease`. Votes are renewed for who leads, though an earlier one comes back.

    Args:
        order: The names of all members, in the same order in all of them.
        own: This one's.
        lease: Nanoseconds.
        now: Monotonic nanoseconds.
    """

    def __init__(self, order: Sequence[str], own: str, lease: int, now: int) -> None:
        self._order = tuple(order)
        self._own = own
        self._lease = lease
        self._majority = len(self._order) // 2 + 1
        self._votes_for = ""
        self._promised_until = now + lease
        self._heard: dict[str, tuple[int, bool]] = {}
        """Of each other one: when its last ping came, and whether it reaches a majority."""
        self._sequence = 0
        self._sent: deque[tuple[int, int]] = deque(maxlen=64)
        self._fresh_until: dict[str, int] = {}

    @property
    def votes_for(self) -> str:
        """Whom this one voted for the last time; to whom its reports go."""
        return self._votes_for

    def leads(self, now: int) -> bool:
        """Whether this one is confirmed: nobody else can be."""
        return sum(until > now for until in self._fresh_until.values()) >= self._majority

    def asked_at(self) -> int:
        """Since when a majority has been asked: the votes by which this one leads answer pings sent then, or later."""
        asked = sorted(self._fresh_until.values(), reverse=True)[self._majority - 1]
        return asked - int(self._lease * _DRIFT)

    def ping(self, now: int) -> Ping:
        """What to tell all others now; its own vote is given here."""
        self._sequence += 1
        self._sent.append((self._sequence, now))
        ping = Ping(self._sequence, self._reaches(now), self.leads(now))
        if self._grants_to(self._own, ping, now):
            self._fresh_until[self._own] = now + int(self._lease * _DRIFT)
        return ping

    def pinged(self, by: str, ping: Ping, now: int) -> bool:
        """Whether to answer a ping of another one with a vote, now."""
        self._heard[by] = now, ping.reaches
        return self._grants_to(by, ping, now)

    def voted(self, by: str, sequence: int) -> None:
        """A vote of another one came, which answers this one's ping of that sequence."""
        sent = next((at for number, at in self._sent if number == sequence), None)
        if sent is not None and by in self._order:
            until = sent + int(self._lease * _DRIFT)
            self._fresh_until[by] = max(until, self._fresh_until.get(by, until))

    def _reaches(self, now: int) -> bool:
        return 1 + sum(self._is_heard(each, now) for each in self._heard) >= self._majority

    def _is_heard(self, name: str, now: int) -> bool:
        return name in self._heard and now - self._heard[name][0] < self._lease

    def _grants_to(self, name: str, ping: Ping, now: int) -> bool:
        is_free = now >= self._promised_until
        if name == self._votes_for:
            is_wanted = ping.leads or self._first(now) == name
        else:
            is_wanted = is_free and self._first(now) == name
        if is_wanted:
            self._votes_for, self._promised_until = name, now + self._lease
        return is_wanted

    def _first(self, now: int) -> str:
        """The first that reaches a majority, as far as this one hears."""
        for each in self._order:
            if each == self._own:
                if self._reaches(now):
                    return each
            elif self._is_heard(each, now) and self._heard[each][1]:
                return each
        return ""


@dataclass(frozen=True, slots=True)
class FleetPeers:
    """The members of a fleet, as one of them sees it.

    Args:
        fleet: The fleet's name.
        order: All members as they reach each other, in the same order in all of them.
        own: Which of them this is.
        listen: Where its peers connect.
        lease_s: So long a vote lasts.
        server: TLS for those who connect, which asks for their certificate; None on loopback.
        client: TLS for those that are dialled; None on loopback.
    """

    fleet: str
    order: tuple[Endpoint, ...]
    own: Endpoint
    listen: Endpoint
    lease_s: float = 2.0
    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None


class _Outlet:
    """The connection to one peer: dialled again and again, written to, never read."""

    def __init__(self, link: "PeerLink", peer: Endpoint) -> None:
        self._link = link
        self._peer = peer
        self._queue: deque[bytes] = deque()
        self._filled = asyncio.Event()
        self.is_open = False

    def put(self, frame: bytes) -> bool:
        """Send a frame soon; False: nobody is connected."""
        if not self.is_open:
            self._link.counts.dropped["disconnected"] += 1
            return False
        if len(self._queue) >= MOST_QUEUED:
            self._queue.popleft()
            self._link.counts.dropped["slow"] += 1
        self._queue.append(frame)
        self._filled.set()
        return True

    async def run(self) -> None:
        """Stay connected until cancelled."""
        attempt = 0
        while True:
            try:
                attempt = await self._serve(attempt)
            except OSError as error:
                self._link.is_refused = isinstance(error, ConnectionRefusedError)
            self._link.counts.reconnects += 1
            attempt += 1
            await asyncio.sleep(backoff(attempt))

    async def _serve(self, attempt: int) -> int:
        tls, name = self._link.peers.client, self._peer.host
        async with asyncio.timeout(HELLO_S):
            reader, writer = await asyncio.open_connection(
                self._peer.host, self._peer.port, ssl=tls, server_hostname=name if tls else None
            )
        ended = asyncio.get_running_loop().create_task(reader.read(1))
        """A peer writes nothing here: whatever comes, it is over."""
        ended.add_done_callback(lambda _: self._filled.set())
        try:
            writer.write(_framed(_HELLO, self._link.hello))
            self.is_open, self._link.is_refused = True, False
            while not ended.done():
                await self._filled.wait()
                self._filled.clear()
                while self._queue and not ended.done():
                    writer.write(self._queue.popleft())
                    await writer.drain()
                    attempt = 0
        finally:
            self.is_open = False
            self._queue.clear()
            ended.cancel()
            writer.transport.abort()
            await asyncio.gather(ended, return_exceptions=True)
        return attempt


def _framed(kind: int, body: bytes) -> bytes:
    return _HEAD.pack(len(body) + 1, kind) + body


class PeerLink:
    """A member's link by connections between peers.

    Args:
        peers: All members.
        callbacks: Are told what happens.
    """

    def __init__(self, peers: FleetPeers, callbacks: Callbacks) -> None:
        self.counts = LinkCounts()
        self.peers = peers
        self.is_refused = False
        self.hello = f"{peers.fleet}\n{peers.own.address}".encode()
        self._callbacks = callbacks
        self._names = {each.address for each in peers.order} - {peers.own.address}
        self._outlets = {each.address: _Outlet(self, each) for each in peers.order if each != peers.own}
        self._election: Election | None = None
        self._is_leading = False
        self._inlets: dict[asyncio.Task[None], str] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None

    @property
    def state(self) -> LinkState:
        """Whether reports and grants can pass, and whether this member coordinates."""
        if self._election is None:
            return "connecting"
        if self._is_leading and self._election.leads(self._now()):
            return "leading"
        outlet = self._outlets.get(self._election.votes_for)
        return "following" if outlet is not None and outlet.is_open else "connecting"

    @property
    def refused(self) -> bool:
        """Whether the last peer that was not reached refused at once."""
        return self.is_refused

    async def start(self) -> None:
        """Listen, and begin to dial.

        Raises:
            OSError: If `listen` cannot be listened on.
        """
        peers, loop = self.peers, asyncio.get_running_loop()
        order = [each.address for each in peers.order]
        self._election = Election(order, peers.own.address, int(peers.lease_s * 1e9), self._now())
        self._server = await asyncio.start_server(
            self._accept,
            peers.listen.host,
            peers.listen.port,
            ssl=peers.server,
            ssl_handshake_timeout=HELLO_S if peers.server else None,
            limit=_MOST_HELLO,
        )
        self._tasks = [loop.create_task(each.run()) for each in self._outlets.values()]
        self._tasks.append(loop.create_task(self._beat()))

    async def stop(self) -> None:
        """End: no connection, task or timer is left."""
        if self._server is not None:
            self._server.close()
        tasks = [*self._tasks, *self._inlets]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks, self._server = [], None
        self._turn(is_leading=False)
        self._election = None

    def report(self, message: bytes) -> bool:
        """Send a report to whom this member votes for; False: it cannot be sent now."""
        if self._election is None or not self._fits(message):
            return False
        if self._election.votes_for == self.peers.own.address:
            asyncio.get_running_loop().call_soon(self._reported, message)
            return True
        outlet = self._outlets.get(self._election.votes_for)
        return outlet is not None and self._put(outlet, _framed(_REPORT, message))

    def grant(self, message: bytes) -> bool:
        """Send grants to all members; False: not leading."""
        if self.state != "leading" or not self._fits(message):
            return False
        frame = _framed(_GRANT, message)
        for outlet in self._outlets.values():
            self._put(outlet, frame)
        asyncio.get_running_loop().call_soon(self._callbacks.on_grant, message)
        return True

    def _put(self, outlet: _Outlet, frame: bytes) -> bool:
        is_put = outlet.put(frame)
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
        return int(asyncio.get_running_loop().time() * 1e9)

    async def _beat(self) -> None:
        """Ping all others four times in a lease."""
        while True:
            if self._election is not None:
                ping = self._election.ping(self._now())
                body = _PINGED.pack(ping.sequence, ping.reaches | ping.leads << 1)
                for outlet in self._outlets.values():
                    if outlet.is_open:
                        outlet.put(_framed(_PING, body))
                self._look()
            await asyncio.sleep(self.peers.lease_s / 4)

    def _look(self) -> None:
        leads = self._election is not None and self._election.leads(self._now())
        self._turn(is_leading=leads)
        if leads and self._election is not None:
            self._callbacks.on_confirmed(self._election.asked_at())

    def _turn(self, *, is_leading: bool) -> None:
        if is_leading == self._is_leading:
            return
        self._is_leading = is_leading
        self.counts.takeovers += is_leading
        (self._callbacks.on_lead if is_leading else self._callbacks.on_unlead)()

    # ---- What others dial

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._inlets) >= 2 * len(self._names) + 2:
            self.counts.dropped["foreign"] += 1
            writer.transport.abort()
            return
        self._inlets[task] = ""
        try:
            async with asyncio.timeout(HELLO_S):
                kind, body = await self._frame(reader, _MOST_HELLO)
            fleet, _, name = body.decode(errors="replace").partition("\n")
            if kind != _HELLO or fleet != self.peers.fleet or name not in self._names:
                raise ConnectionRefusedError("it is no peer of this fleet")
            for other in [each for each, who in self._inlets.items() if who == name]:
                other.cancel()  # a peer has one connection, its latest
            self._inlets[task] = name
            while True:
                self._take(name, *await self._frame(reader, MOST_MESSAGE + 1))
        except (OSError, asyncio.IncompleteReadError, StructError):
            self.counts.dropped["foreign"] += not self._inlets[task]
        except asyncio.CancelledError:
            pass  # by `stop`, or for a later connection; the server's task has nobody who waits for it
        finally:
            del self._inlets[task]
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

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
                self._outlets[by].put(_framed(_VOTE, _VOTED.pack(sequence)))
        elif kind == _VOTE:
            self._election.voted(by, *_VOTED.unpack(body))
            self._look()
        elif kind == _REPORT:
            self.counts.messages_in += 1
            self._reported(body)
        elif kind == _GRANT:
            self.counts.messages_in += 1
            self._callbacks.on_grant(body)
