"""The listening socket of the admin REST and its connections.

So many are open at once, each with so much time for what its client has to do.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any, cast

import structlog
from aiohttp import web

from proxy.admin.rejections import Rejection, RejectionLog
from proxy.brokers.targets import split_address
from proxy.observe.operator_log import admin_logger
from proxy.runtime import Tasks

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

    def __init__(self, most: int, patience_s: float, refused: RejectionLog) -> None:
        self.patience_s = patience_s
        self._most = most
        self._refused = refused
        self._working: set[AdminConnection] = set()
        self._waiting: dict[AdminConnection, None] = {}
        """Whom the proxy waits for; since longest, first."""

    def __len__(self) -> int:
        return len(self._working) + len(self._waiting)

    def admit(self, new: "AdminConnection") -> bool:
        """Whether there is room, or can be made."""
        if len(self) >= self._most:
            ended = next(iter(self._waiting), None)
            self.end(
                ended or new,
                Rejection.CONNECTIONS,
                f"at most {self._most} at once (admin_access.max_connections)",
            )
            if ended is None:
                return False
        self._waiting[new] = None
        return True

    def end(self, connection: "AdminConnection", why: Rejection, detail: str) -> None:
        """End one at once."""
        self._refused.count(why, detail, connection.address)
        connection.abort()

    def wait_for(self, connection: "AdminConnection") -> None:
        """It is the client's turn."""
        self.forget(connection)
        self._waiting[connection] = None

    def work_for(self, connection: "AdminConnection") -> None:
        """It is the proxy's turn."""
        self.forget(connection)
        self._working.add(connection)

    def abort_all(self) -> None:
        """End them all at once."""
        for connection in (*self._waiting, *self._working):
            connection.abort()

    def forget(self, connection: "AdminConnection") -> None:
        """It is gone."""
        self._waiting.pop(connection, None)
        self._working.discard(connection)


class AdminConnection(asyncio.Protocol):
    """Stands between a transport and aiohttp's protocol, from the moment the client has been accepted.

    Args:
        inner: aiohttp's.
        all_: Where it counts.
        accepted: The socket, which is still to be given to the loop.
        address: The client's.
    """

    def __init__(self, inner: asyncio.Protocol, all_: Connections, accepted: socket.socket, address: str) -> None:
        self.address = address
        self.due = 0.0
        """Until when, in the loop's time, the request must have come in."""
        self._inner = inner
        self._all = all_
        self._socket = accepted
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._work: asyncio.Task[Any] | None = None
        self._is_idle = False
        self._is_over = False

    async def serve(self, context: ssl.SSLContext | None) -> None:
        """Give the socket to the loop, and shake hands if there is TLS; from then on the client may speak."""
        self._arm()
        loop = asyncio.get_running_loop()
        patience = self._all.patience_s if context else None
        try:
            await loop.connect_accepted_socket(lambda: self, self._socket, ssl=context, ssl_handshake_timeout=patience)
        except ssl.SSLError as error:
            self._end(Rejection.TLS, str(error))
        except ConnectionAbortedError:
            self._too_late()
        except OSError:
            self._gone()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client may speak."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none by name
        if self._is_over:
            self._transport.abort()
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """The first bytes after an answer begin the time of the next request."""
        if self._is_idle:
            self._is_idle = False
            self._arm()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """The client will send no more."""
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, whoever ended it."""
        self._gone()
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not take the answer as fast as it is written."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The client has taken enough."""
        self._inner.resume_writing()

    def request_is_there(self) -> None:
        """The time of the request no longer runs."""
        if not self._is_over:
            self._is_idle = False
            self._disarm()
            self._all.work_for(self)

    def request_is_answered(self) -> None:
        """The client must now take the answer; it may ask again."""
        if not self._is_over:
            self._is_idle = True
            self._all.wait_for(self)
            self._arm()

    @contextlib.contextmanager
    def taking_along(self, work: asyncio.Task[Any]) -> Iterator[None]:
        """Within this, work that is for nobody but the client ends with the connection."""
        self._work = work
        try:
            yield
        finally:
            self._work = None

    def abort(self) -> None:
        """End it, whatever is unsent."""
        self._gone()
        if self._transport is not None:
            self._transport.abort()
            return
        with contextlib.suppress(OSError):  # the handshake, which has no transport to show, fails by this
            self._socket.shutdown(socket.SHUT_RDWR)

    def _gone(self) -> None:
        self._is_over = True
        self._disarm()
        self._all.forget(self)
        if self._work is not None:
            self._work.cancel()

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
            self.abort()
        else:
            self._end(Rejection.TIME, f"no request within {self._all.patience_s:g} s (admin_access.request_timeout)")

    def _end(self, why: Rejection, detail: str) -> None:
        if not self._is_over:
            self._all.end(self, why, detail)


def connection_of(request: web.Request) -> AdminConnection | None:
    """The one that a request came by, if it is one of a listener's."""
    found = request.transport.get_protocol() if request.transport else None
    return found if isinstance(found, AdminConnection) else None


_ENDING_PATIENCE_S = 2.0
"""How long an unfinished request may delay the end, and what is left of a refused one may still come."""
_AFTER_FAILURE_S = 1.0
"""How long to wait for file descriptors, say, to become free."""
_BACKLOG = 128
_MOST_HEADERS = 64
_LONGEST_HEADER = 4096
"""With aiohttp's own bounds 256 connections could fill 256 MiB before any of them has shown a token."""


class Listener:
    """Serves one application at one address.

    Args:
        app: The application.
        connections: Bounds theirs.
        context: Gives each new connection its TLS, or None.
    """

    def __init__(
        self,
        app: web.Application,
        connections: Connections,
        context: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        self._connections = connections
        self._context = context
        self._runner = web.AppRunner(
            app,
            logger=admin_logger(),
            access_log=None,
            handle_signals=False,
            shutdown_timeout=_ENDING_PATIENCE_S,
            lingering_time=_ENDING_PATIENCE_S,
            max_headers=_MOST_HEADERS,
            max_field_size=_LONGEST_HEADER,
        )
        self._sockets: list[socket.socket] = []
        self._tasks = Tasks()

    async def start(self, address: str) -> str:
        """Listen; returns the address, with the port that the system chose for port 0.

        Raises:
            OSError: If it cannot be had.
        """
        await self._runner.setup()
        host, port = split_address(address)
        self._sockets = await _listening(host, port)
        for each in self._sockets:
            self._tasks.start(self._accept(each), f"admin {address}")
        return f"{host}:{self._sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Accept no more, and let what is being worked on end."""
        self._tasks.cancel()
        for each in self._sockets:
            each.close()
        await self._runner.cleanup()
        self._connections.abort_all()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:
                structlog.get_logger().error("admin address: cannot accept", error=str(error))
                await asyncio.sleep(_AFTER_FAILURE_S)
                continue
            assert self._runner.server is not None, "set up"
            connection = AdminConnection(self._runner.server(), self._connections, accepted, str(address[0]))
            if self._connections.admit(connection):
                self._tasks.start(connection.serve(self._context()), "admin connection")
            else:
                accepted.close()


async def _listening(host: str, port: int) -> list[socket.socket]:
    """Sockets at every address that `host` stands for; all or none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    opened: list[socket.socket] = []
    try:
        for family, *_, address in dict.fromkeys(found):
            opened.append(socket.create_server(address, family=family, backlog=_BACKLOG))
            opened[-1].setblocking(False)
    except OSError:
        for each in opened:
            each.close()
        raise
    return opened
