"""Accepts clients and gives each its session."""

import asyncio
import contextlib
import itertools
import os
import socket
from collections.abc import Iterable
from functools import partial
from typing import Any

import structlog

from protocol.endpoint import Endpoint
from proxy.observe.operator_log import ThrottledLog
from proxy.session.engine import Engine
from proxy.session.events import SessionLog
from proxy.session.keep_alive import set_options
from proxy.session.session import Session
from proxy.slices import Work

LISTENERS = 4
"""Duplicates of each listening socket. libuv accepts one connection per listener and loop turn. Four duplicates accept
four, which makes connection storms cheaper; a lone connection costs three extra accept calls."""
_BACKLOG = 4096
"""Most connections that wait to be accepted, if the system allows as many."""


def serves_both(endpoint: Endpoint, all_: Iterable[Endpoint]) -> bool:
    """Return whether an endpoint of the list takes clients of IPv6 and of IPv4.

    `[::]` does, unless another one, as `0.0.0.0`, takes clients of IPv4 on the same port.
    """
    if endpoint.host != "::" or not socket.has_dualstack_ipv6():
        return False
    return not any(other.port == endpoint.port != 0 and ":" not in other.host for other in all_)


class _Closed(asyncio.Protocol):
    """A client connection that is closed as soon as it is accepted."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        transport.abort()  # type: ignore[attr-defined] # each transport of a socket has it


class Server:
    """The listening sockets for Pulsar clients.

    Args:
        engine: The objects that sessions share.
        log: The sessions' log.
        most: Sessions that there are file descriptors for; None: any number.

    Attributes:
        sessions: The sessions whose connections are not both gone.
    """

    def __init__(self, engine: Engine, log: SessionLog, most: int | None = None) -> None:
        self._most = most
        self._refusals = ThrottledLog(engine.clock)
        self._engine = engine
        self._log = log
        self._ids = itertools.count(1)
        self._reuses_port = True if engine.config.processes > 1 else None
        self._listening: list[asyncio.Server] = []
        self.sessions: set[Session] = set()
        self._all_gone = asyncio.Event()

    async def start(self) -> str:
        """Listen; returns each address as `host:port`, with the port that the system chose for port 0.

        Raises:
            OSError: If an address cannot be had.
        """
        try:
            return ", ".join([await self._listen(endpoint) for endpoint in self._engine.config.listen])
        except BaseException:
            self.stop_listening()
            raise

    async def stop(self, patience_s: float) -> None:
        """Accept no more, end every session, and wait until the bytes left are sent."""
        self.stop_listening()
        self.end_sessions()
        if self.sessions:
            self._all_gone.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), patience_s)
        self._engine.slices.finish(Work.ENDINGS)

    def end_sessions(self) -> None:
        """End every session."""
        for session in list(self.sessions):
            session.shut_down()

    async def _listen(self, endpoint: Endpoint) -> str:
        first = await self._bind(endpoint)
        self._listening.append(first)
        for listener in first.sockets:
            set_options(listener, self._engine.config.keep_alive)
        endpoint = endpoint._replace(port=first.sockets[0].getsockname()[1])
        for listener in first.sockets:
            for _ in range(LISTENERS - 1):
                with contextlib.ExitStack() as unless_taken:
                    same = unless_taken.enter_context(socket.socket(fileno=os.dup(listener.fileno())))
                    self._listening.append(await self._serve(endpoint, sock=same))
                    unless_taken.pop_all()
        return endpoint.address

    async def _bind(self, endpoint: Endpoint) -> asyncio.Server:
        reuse = self._reuses_port
        if not serves_both(endpoint, self._engine.config.listen):  # the loop makes sockets of IPv6 alone
            return await self._serve(endpoint, host=endpoint.host, port=endpoint.port, reuse_port=reuse)
        with contextlib.ExitStack() as unless_taken:
            both = socket.create_server(
                (endpoint.host, endpoint.port), family=socket.AF_INET6, reuse_port=bool(reuse), dualstack_ipv6=True
            )
            server = await self._serve(endpoint, sock=unless_taken.enter_context(both))
            unless_taken.pop_all()
        return server

    async def _serve(self, endpoint: Endpoint, **place: Any) -> asyncio.Server:
        accept = partial(self._accept, endpoint)
        return await asyncio.get_running_loop().create_server(accept, backlog=_BACKLOG, **place)

    def stop_listening(self) -> None:
        """Accept no more; connections that are open stay."""
        servers, self._listening = self._listening, []
        for server in servers:
            server.close()

    def _accept(self, endpoint: Endpoint) -> asyncio.BaseProtocol:
        if self._most is not None and len(self.sessions) >= self._most:
            self._count_refused()
            return _Closed()
        session = Session(self._engine, next(self._ids), self._log, self._finished, endpoint)
        self.sessions.add(session)
        return session.client.protocol

    def _count_refused(self) -> None:
        """Count a client that gets no session, and no answer either: an answer would keep its descriptor."""
        self._engine.counters.descriptors_refused += 1
        times = self._refusals.due("descriptors")
        if times:
            structlog.get_logger().warning(
                "client connections are closed at once: the file descriptors that are left are kept for brokers, the "
                "admin address and log files; raise the limit (ulimit -n, LimitNOFILE, --ulimit nofile)",
                connections=len(self.sessions),
                refused=times,
            )

    def _finished(self, session: Session) -> None:
        self.sessions.discard(session)
        if not self.sessions:
            self._all_gone.set()
        self._engine.shared.heap.freed()
