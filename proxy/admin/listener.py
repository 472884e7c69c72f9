"""The listening socket of the admin REST, its connections, and the bounds of requests.

Bounded are the number of connections, the time of each step of a request, the rate of an address' requests, and the
size of a request.
"""

import asyncio
import contextlib
import math
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, cast

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from limiter.admission import Buckets, KeyedBuckets
from limiter.names import counted_as
from limiter.token_bucket import NANOS_PER_SECOND, Rate
from protocol.endpoint import Endpoint
from proxy.admin.handshakes import Handshakes
from proxy.admin.refusals import RefusalCause, RefusalLog, refusal
from proxy.config.sections import AdminAccess
from proxy.observe.operator_log import admin_logger
from proxy.runtime import Tasks
from proxy.session.keep_alive import set_options
from proxy.slices import Slices, Work

LONGEST_READ = 16 * 1024
"""Most bytes of a read: 256 connections that have 256 KiB each would make a turn of their copies alone."""
_PIECE, _BYTES = 512, 128
"""Bytes that aiohttp gets at once, and in one unit of work: 128 bytes hold at most 21 chunks of a body."""
GRACE_S = 1.0
"""Seconds beyond the time of a request, in which a client that took too long can get its error."""


class Connections:
    """The connections of one process to its admin address.

    At the bound, a connection that keeps the proxy waiting is ended for a new one: the longest wait of the address with
    most waiting connections. So a client that opens many and sends nothing keeps no other out. Connections whose
    requests are being worked on stay; if all connections are, the new one is refused.

    Args:
        most: Most connections at once.
        patience_s: Seconds for the TLS handshake, for a request to come in, and for its answer to be taken, each.
        refused: Counts and logs the connections that are ended.
        slices: Bounds the reading of all connections in one turn of the loop.
    """

    def __init__(self, most: int, patience_s: float, refused: RefusalLog, slices: Slices) -> None:
        self.patience_s = patience_s
        self.slices = slices
        self.buffer = memoryview(bytearray(LONGEST_READ))
        """All connections are read into this."""
        self.handshakes = Handshakes(patience_s, slices, self.buffer)
        self._most = most
        self._refused = refused
        self._working: set[AdminConnection] = set()
        self._waiting: dict[AdminConnection, None] = {}
        """Connections that the proxy waits for, the longest wait first."""

    def __len__(self) -> int:
        return len(self._working) + len(self._waiting)

    def admit(self, new: "AdminConnection") -> bool:
        """Accept a connection if there is room, or room can be made; return whether it is accepted."""
        if len(self) >= self._most:
            ended = self._to_end()
            self.end(
                ended or new,
                RefusalCause.CONNECTIONS,
                f"at most {self._most} at once (admin_access.max_connections)",
            )
            if ended is None:
                return False
        self._waiting[new] = None
        return True

    def _to_end(self) -> "AdminConnection | None":
        waiting_of = Counter(each.counted_as for each in self._waiting)
        most = max(waiting_of.values(), default=0)
        return next((each for each in self._waiting if waiting_of[each.counted_as] == most), None)

    def end(self, connection: "AdminConnection", why: RefusalCause, detail: str) -> None:
        """End a connection at once, and count it as refused."""
        self._refused.count(why, detail, connection.address)
        connection.abort()

    def wait_for(self, connection: "AdminConnection") -> None:
        """Take note that it is the client's turn."""
        self.forget(connection)
        self._waiting[connection] = None

    def work_for(self, connection: "AdminConnection") -> None:
        """Take note that it is the proxy's turn."""
        self.forget(connection)
        self._working.add(connection)

    def abort_all(self) -> None:
        """End all connections at once."""
        for connection in (*self._waiting, *self._working):
            connection.abort()

    def forget(self, connection: "AdminConnection") -> None:
        """Take note that a connection is gone."""
        self._waiting.pop(connection, None)
        self._working.discard(connection)


class AdminConnection(asyncio.BufferedProtocol):
    """A protocol between a transport and aiohttp's protocol, from the moment the client has been accepted.

    Args:
        inner: The protocol of aiohttp.
        all_: All connections.
        accepted: The accepted socket, which is not in the loop yet.
        address: The client's address.
    """

    def __init__(self, inner: asyncio.Protocol, all_: Connections, accepted: socket.socket, address: str) -> None:
        self.address = address
        self.counted_as = counted_as(address)
        self.due = 0.0
        """The loop's time by which the request must have come in."""
        self._inner = inner
        self._all = all_
        self._socket = accepted
        self._transport: asyncio.Transport | None = None
        self._left = bytearray()
        """Bytes that came and that aiohttp has not got yet: no more are read until it has."""
        self._is_feeding = False
        self._is_at_end = False
        self._is_paused = False
        self._is_inner_paused = False
        self._deadline: asyncio.TimerHandle | None = None
        self._work: asyncio.Task[Any] | None = None
        self._is_idle = False
        self._is_over = False

    async def serve(self, context: ssl.SSLContext | None) -> None:
        """Give the socket to the loop, and do the TLS handshake, if any; then the client may speak."""
        self._arm()
        loop = asyncio.get_running_loop()
        try:
            if context is None:
                await loop.connect_accepted_socket(lambda: self, self._socket)
            else:
                await self._all.handshakes.secure(self, self._socket, context)
        except ssl.SSLError as error:
            self._end(RefusalCause.TLS, str(error))
        except ConnectionAbortedError:
            self._too_late()
        except OSError:
            self._gone()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop when the client may speak."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none by name
        if self._is_over:
            self._transport.abort()
        self._inner.connection_made(cast("asyncio.BaseTransport", _InnerTransport(self, self._transport)))

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Called by the loop: return the memory to read into."""
        return self._all.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop; the first bytes after an answer begin the time of the next request.

        aiohttp gets the bytes in pieces, a few in one turn: 256 KiB in chunks of one byte take it 30 ms.
        """
        if self._is_idle:
            self._is_idle = False
            self._arm()
        self._left += self._all.buffer[:nbytes]
        self._feed()
        self._read_or_not()

    def eof_received(self) -> bool | None:
        """Called by the loop when the client sends no more."""
        if self._left:
            self._is_at_end = True
            return True
        return self._inner.eof_received()

    def pause_inner(self, *, is_paused: bool) -> None:
        """Take note whether aiohttp wants to read."""
        self._is_inner_paused = is_paused
        self._feed()
        self._read_or_not()

    def _feed(self) -> None:
        if self._left and not self._is_feeding and not self._is_inner_paused and not self._is_over:
            self._is_feeding = True
            self._all.slices.run(Work.REQUESTS, self._feeding(), self._fed)

    def _feeding(self) -> Iterator[None]:
        while self._left and not self._is_inner_paused and not self._is_over:
            piece = bytes(self._left[:_PIECE])
            del self._left[:_PIECE]
            self._inner.data_received(piece)
            for _ in range(1 + len(piece) // _BYTES):
                yield

    def _fed(self) -> None:
        self._is_feeding = False
        self._feed()
        self._read_or_not()
        if self._is_at_end and not self._left and not self._is_over and not self._inner.eof_received():
            assert self._transport is not None, "it was there when bytes came"
            self._transport.close()

    def _read_or_not(self) -> None:
        is_pausing = bool(self._left) or self._is_inner_paused
        if self._is_over or self._transport is None or is_pausing == self._is_paused:
            return
        self._is_paused = is_pausing
        if is_pausing:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection is over."""
        self._gone()
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Called by the loop when the client does not take the answer as fast as it is written."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Called by the loop when the client has taken enough."""
        self._inner.resume_writing()

    def request_is_there(self) -> None:
        """Stop the time of the request: it is here."""
        if not self._is_over:
            self._is_idle = False
            self._disarm()
            self._all.work_for(self)

    def request_is_answered(self) -> None:
        """Begin the time in which the client must take the answer; it may then ask again."""
        if not self._is_over:
            self._is_idle = True
            self._all.wait_for(self)
            self._arm()

    @contextlib.contextmanager
    def taking_along(self, work: asyncio.Task[Any]) -> Iterator[None]:
        """End `work` with the connection, while the block runs: the work is only for this client."""
        self._work = work
        try:
            yield
        finally:
            self._work = None

    def abort(self) -> None:
        """End the connection at once, without its unsent bytes."""
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
            self._end(RefusalCause.TIME, f"no request within {self._all.patience_s:g} s (admin_access.request_timeout)")

    def _end(self, why: RefusalCause, detail: str) -> None:
        if not self._is_over:
            self._all.end(self, why, detail)


class _InnerTransport:
    """The transport as aiohttp sees it: the connection decides whether the socket is read."""

    def __init__(self, connection: AdminConnection, transport: asyncio.Transport) -> None:
        self._connection = connection
        self._transport = transport

    def pause_reading(self) -> None:
        self._connection.pause_inner(is_paused=True)

    def resume_reading(self) -> None:
        self._connection.pause_inner(is_paused=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def connection_of(request: web.Request) -> AdminConnection | None:
    """Return the listener's connection that a request came by, or None."""
    protocol = request.transport.get_protocol() if request.transport else None
    return protocol if isinstance(protocol, AdminConnection) else None


_ENDING_PATIENCE_S = 2.0
"""Seconds that an unfinished request may delay the end, and in which the rest of a refused one may still come."""
_AFTER_FAILURE_S = 1.0
"""Seconds to wait after a failed accept, say for file descriptors to become free."""
_BACKLOG = 128
_MOST_UNREAD = 2048
"""Bytes of a body after which aiohttp reads no more until some are taken: unread bytes are taken at once."""
_MOST_HEADERS = 64
_LONGEST_HEADER = 4096
"""Most bytes of a header. With aiohttp's bounds, 256 connections could fill 256 MiB before any has shown a token."""


class Listener:
    """Serves one application at one address.

    Args:
        app: The application.
        connections: Bounds the connections.
        context: Returns the TLS context of a new connection, or None.
        keep_alive: Half of the seconds after which the kernel ends a connection whose caller is gone.

    Attributes:
        sockets: The listening sockets.
    """

    def __init__(
        self,
        app: web.Application,
        connections: Connections,
        context: Callable[[], ssl.SSLContext | None] = lambda: None,
        keep_alive: float = 30.0,
    ) -> None:
        self._keep_alive = keep_alive
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
            read_bufsize=_MOST_UNREAD,
            auto_decompress=False,  # the parser would inflate a body before any handler could refuse it
        )
        self.sockets: list[socket.socket] = []
        self._tasks, self._accepting = Tasks(), Tasks()

    async def start(self, endpoint: Endpoint) -> str:
        """Listen; returns `host:port`, with the port that the system chose for port 0.

        Raises:
            OSError: If the address cannot be listened on.
        """
        address = await self.bind(endpoint)
        self.accept()
        return address

    async def bind(self, endpoint: Endpoint, inherited: list[socket.socket] | None = None) -> str:
        """Listen as `start` does, by the sockets of the process before if there are some, and accept nothing yet.

        Raises:
            OSError: If the address cannot be listened on.
        """
        await self._runner.setup()
        self.sockets = await _listening(endpoint.host, endpoint.port) if inherited is None else inherited
        for each in self.sockets:
            each.listen(_BACKLOG)  # the process before may lack this address: another program has it by now
            each.setblocking(False)
            set_options(each, self._keep_alive)
        return endpoint._replace(port=self.sockets[0].getsockname()[1]).address

    def accept(self) -> None:
        """Accept connections.

        Raises:
            OSError: As `accept_from`.
        """
        for each in self.sockets:
            self.accept_from(each)

    def accept_from(self, listening: socket.socket) -> None:
        """Accept the connections of one of `sockets`.

        Raises:
            OSError: EADDRINUSE: the next process, which has ended, has shut the address, and another program has it.
        """
        listening.listen(_BACKLOG)
        self._accepting.start(self._accept(listening), "admin address")

    def pause_accepting(self) -> None:
        """Accept no connection until `accept` is called again."""
        self._accepting.cancel()

    def stop_listening(self) -> None:
        """Listen no more; connections that are open stay."""
        self._accepting.cancel()
        for each in self.sockets:
            each.close()

    async def stop(self) -> None:
        """Accept no more connections, and let running requests end."""
        self.stop_listening()
        self._tasks.cancel()
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
    """Return sockets at every address that `host` stands for; all or none."""
    resolved = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    opened: list[socket.socket] = []
    try:
        for family, *_, address in dict.fromkeys(resolved):
            opened.append(socket.create_server(address, family=family, backlog=_BACKLOG))
            opened[-1].setblocking(False)
    except OSError:
        for each in opened:
            each.close()
        raise
    return opened


MOST_KEYS = 100
"""Keys of a query, which is read in one go: the 8 KiB of a request line have room for 4,000, which take 8 ms."""
MOST_CALLERS = 10_000
"""Addresses whose rates are remembered."""
WHOLE_SETS = "/sluice/policies"
"""The path that takes whole sets of policies: 100,000 topics in one body."""
RETRY_WHOLE_SET_S = 5

_STATUSES = {RefusalCause.TIME: 408, RefusalCause.SIZE: 413, RefusalCause.ENCODING: 415, RefusalCause.BUSY: 503}
_IDENTITY = "identity"


def _is_encoded(request: web.Request) -> bool:
    """Return whether a body is compressed, or encoded in any other way, as its headers say."""
    codings = ",".join(request.headers.getall("Content-Encoding", []))
    return any(coding.strip().lower() not in {"", _IDENTITY} for coding in codings.split(","))


class RequestLimits:
    """Two middlewares: rate and encoding come first, the body is read once it is known that the caller may call.

    A body that is larger than most may be is taken for a whole policy set only, and one at a time.

    Args:
        access: The bounds.
        refused: Counts and logs requests over the bounds.
        clock: Monotonic nanoseconds.
    """

    def __init__(self, access: AdminAccess, refused: RefusalLog, clock: Callable[[], int]) -> None:
        tokens, period_ns = access.rate
        self._callers = KeyedBuckets(Rate(tokens, period_ns, access.burst), Buckets(MOST_CALLERS))
        self._said = f"at most {tokens} per {period_ns / NANOS_PER_SECOND:g} s (admin_access.rate)"
        self._retry_after_s = max(1, math.ceil(period_ns / tokens / NANOS_PER_SECOND))
        self._patience_s = access.request_timeout
        self.most_bytes = access.max_body
        self._most_of_set = max(access.max_body, access.max_policies_body)
        self._whole_set = asyncio.Lock()
        self._refused = refused
        self._clock = clock

    @web.middleware
    async def rate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """429 for an address that asks too often; 413 for a query of too many keys; 415 for an encoded body."""
        try:
            return await self._at_rate(request, handler)
        finally:
            if connection := connection_of(request):
                connection.request_is_answered()

    async def _at_rate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        caller = request.remote or "?"
        key, now = counted_as(caller), self._clock()
        if self._callers.admits(key, now):
            self._callers.take(key, now)
            if request.raw_path.count("&") > MOST_KEYS:
                return self._refuse(request, RefusalCause.SIZE, f"a query of more than {MOST_KEYS} keys")
            return self._refuse_encoded(request) if _is_encoded(request) else await handler(request)
        self._refused.count(RefusalCause.RATE, self._said, caller)
        answer = refusal(429, f"too many requests from {caller}: {self._said}")
        answer.headers["Retry-After"] = str(self._retry_after_s)
        return answer

    @web.middleware
    async def body(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """408 for a body that does not come in time, 413 for one that is too large; handlers find it read.

        A body that says that it is too large is not read at all.
        """
        if not self._may_be_large(request):
            return await self._with_body(request, handler, "max_body")
        if self._whole_set.locked():
            return self._refuse_second(request)
        async with self._whole_set:
            large = request.clone(client_max_size=self._most_of_set)
            return await self._with_body(large, handler, "max_policies_body")

    async def _with_body(self, request: web.Request, handler: Handler, key: str) -> web.StreamResponse:
        connection = connection_of(request)
        due = connection.due if connection else asyncio.get_running_loop().time() + self._patience_s
        too_large = f"a body of more than {request.client_max_size} bytes"
        if (request.content_length or 0) > request.client_max_size:
            return self._refuse(request, RefusalCause.SIZE, too_large, key)
        try:
            async with asyncio.timeout_at(due):
                await request.read()
        except TimeoutError:
            return self._refuse(
                request, RefusalCause.TIME, f"no request within {self._patience_s:g} s", "request_timeout"
            )
        except web.HTTPRequestEntityTooLarge:
            return self._refuse(request, RefusalCause.SIZE, too_large, key)
        if connection:
            connection.request_is_there()
        return await handler(request)

    def _may_be_large(self, request: web.Request) -> bool:
        resource, length = request.match_info.route.resource, request.content_length
        if resource is None or resource.canonical != WHOLE_SETS or request.method != "PUT":
            return False
        return length is None or length > self.most_bytes

    def _refuse_encoded(self, request: web.Request) -> web.Response:
        """Return a 415, even to callers with a token: gzip may turn a few bytes into a thousand times as many."""
        answer = self._refuse(request, RefusalCause.ENCODING, "send the body without Content-Encoding: none is decoded")
        answer.headers["Accept-Encoding"] = _IDENTITY
        return answer

    def _refuse_second(self, request: web.Request) -> web.Response:
        answer = self._refuse(
            request, RefusalCause.BUSY, "another large policy set is being read or applied; try again"
        )
        answer.headers["Retry-After"] = str(RETRY_WHOLE_SET_S)
        return answer

    def _refuse(self, request: web.Request, why: RefusalCause, detail: str, key: str | None = None) -> web.Response:
        reason = f"{detail} (admin_access.{key})" if key else detail
        self._refused.count(why, reason, request.remote or "?")
        answer = refusal(_STATUSES[why], f"{request.method} {request.path}: {reason}")
        answer.force_close()
        return answer
