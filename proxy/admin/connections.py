"""The connections of the admin address: so many at once, each with so much time for what its client has to do.

aiohttp itself bounds neither: a client that sends its request byte by byte, or does not take the answer, would keep
its connection for as long as it likes.
"""

import asyncio
import ssl
from collections.abc import Callable

from proxy.admin.refused import Refused, Why
from proxy.tasks import Tasks

GRACE_S = 1.0
"""Beyond the time of a request, in which whoever took too long can be told."""


class Connections:
    """All of one process.

    When they are as many as may be, the one that has kept the proxy waiting longest makes room for a new one: whoever
    opens many to send nothing keeps nobody out. Those whose requests are being worked on stay; if all are, the new one
    is refused.

    Args:
        most: At once.
        patience_s: For the handshake of TLS, for a request to come in, and for its answer to be taken.
        refused: Told of those that are ended.
    """

    def __init__(self, most: int, patience_s: float, refused: Refused) -> None:
        self.patience_s = patience_s
        self.handshakes = Tasks()
        self._most = most
        self._refused = refused
        self._working: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}
        """Whom the proxy waits for; since longest, first."""

    def __len__(self) -> int:
        return len(self._working) + len(self._waiting)

    def admit(self, new: "Connection") -> bool:
        """Whether there is room, or can be made."""
        if len(self) >= self._most:
            ended = next(iter(self._waiting), None)
            self.end(ended or new, Why.CONNECTIONS, f"at most {self._most} at once (admin_access.max_connections)")
            if ended is None:
                return False
        self._waiting[new] = None
        return True

    def end(self, connection: "Connection", why: Why, detail: str) -> None:
        """End one at once."""
        self._refused.count(why, detail, connection.address)
        self.forget(connection)
        connection.abort()

    def wait_for(self, connection: "Connection") -> None:
        """It is the client's turn."""
        self.forget(connection)
        self._waiting[connection] = None

    def work_for(self, connection: "Connection") -> None:
        """It is the proxy's turn."""
        self.forget(connection)
        self._working.add(connection)

    def forget(self, connection: "Connection") -> None:
        """It is gone."""
        self._waiting.pop(connection, None)
        self._working.discard(connection)


class Connection(asyncio.Protocol):
    """Stands between a transport and aiohttp's protocol.

    Args:
        inner: aiohttp's.
        all_: Where it counts.
        context: Makes the connection one of TLS first; None for none.
    """

    def __init__(self, inner: asyncio.Protocol, all_: Connections, context: ssl.SSLContext | None) -> None:
        self._inner = inner
        self._all = all_
        self._context = context
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_idle = False
        self._is_open = False
        self._is_ended = False
        self._early = bytearray()
        """What came with the end of the handshake, before aiohttp knew of the connection."""
        self.address = "?"
        self.due = 0.0
        """Until when, in the loop's time, the request must have come in."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has connected, who need not have said anything yet."""
        assert isinstance(transport, asyncio.Transport), "TCP"
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else "?"
        if not self._all.admit(self):
            return
        self._arm()
        if self._context is None:
            self._open(transport)
        else:
            transport.pause_reading()
            self._all.handshakes.start(self._shake_hands(transport, self._context), "admin handshake")

    def data_received(self, data: bytes) -> None:
        """The first bytes after an answer begin the time of the next request."""
        if not self._is_open:
            self._early += data
            return
        if self._is_idle:
            self._is_idle = False
            self._arm()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """The client will send no more."""
        return self._inner.eof_received() if self._is_open else None

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, whoever ended it."""
        self._disarm()
        self._all.forget(self)
        if self._is_open:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not take the answer as fast as it is written."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The client has taken enough."""
        self._inner.resume_writing()

    def request_is_there(self) -> None:
        """The time of the request no longer runs."""
        if not self._is_over():
            self._is_idle = False
            self._disarm()
            self._all.work_for(self)

    def request_is_answered(self) -> None:
        """The client must now take the answer; it may ask again."""
        if not self._is_over():
            self._is_idle = True
            self._all.wait_for(self)
            self._arm()

    def abort(self) -> None:
        """End it, whatever is unsent."""
        self._is_ended = True
        self._disarm()
        if self._transport is not None:
            self._transport.abort()

    def _open(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._is_open = True
        self._inner.connection_made(transport)
        if self._early:
            self._inner.data_received(bytes(self._early))
            self._early.clear()

    async def _shake_hands(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        try:
            secure = await loop.start_tls(
                transport, self, context, server_side=True, ssl_handshake_timeout=self._all.patience_s
            )
        except OSError as error:
            if not self._is_ended:
                self._all.end(self, Why.TLS, str(error) or "the client left")
            return
        assert secure is not None, "TCP"
        self._open(secure)

    def _is_over(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _arm(self) -> None:
        self._disarm()
        loop = asyncio.get_running_loop()
        self.due = loop.time() + self._all.patience_s
        self._deadline = loop.call_at(self.due + GRACE_S, self._too_late)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def _too_late(self) -> None:
        if self._is_idle:
            self._all.forget(self)
            self.abort()
            return
        seconds = f"{self._all.patience_s:g} s"
        self._all.end(self, Why.TIME, f"no request within {seconds} (admin_access.request_timeout)")


def connection_factory(
    inner: Callable[[], asyncio.Protocol], all_: Connections, context: Callable[[], ssl.SSLContext | None]
) -> Callable[[], asyncio.Protocol]:
    """What a listening socket makes of each client: `inner` within bounds, with the TLS of the day."""
    return lambda: Connection(inner(), all_, context())
