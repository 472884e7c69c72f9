"""Accepts clients and gives each its session."""

import asyncio
import contextlib
import itertools
import os
import socket

from protocol.endpoint import Endpoint
from proxy.session.engine import Engine
from proxy.session.events import SessionLog
from proxy.session.session import Session

LISTENERS = 4
"""Through each of them the loop lets one client in a turn (libuv accepts so); whoever comes is let in by any of them.
When thousands come at once, those that are served in one turn cost less: fewer turns, and fewer sleepers to wake. Who
comes alone costs a call of the system more for each door, which finds nobody."""
_BACKLOG = 4096
"""Clients that may have come and are not let in yet, if the system allows as many."""


class Server:
    """The listening socket for Pulsar clients.

    Args:
        engine: What sessions share.
        log: Where they write.
        numbers: The first one of a session, and how far they are apart; None for a process that listens alone, else
            others listen on the same port.
    """

    def __init__(self, engine: Engine, log: SessionLog, numbers: tuple[int, int] | None = None) -> None:
        self._engine = engine
        self._log = log
        self._ids = itertools.count(*(numbers or (1,)))
        self._reuses_port = True if numbers else None
        self._listening: list[asyncio.Server] = []
        self._open: set[Session] = set()
        self._all_gone = asyncio.Event()

    async def start(self) -> str:
        """Listen; returns `host:port`, with the port that the system chose for port 0.

        Raises:
            OSError: If the address cannot be had.
        """
        try:
            return await self._listen(self._engine.config.listen)
        except BaseException:
            self._stop_listening()
            raise

    async def stop(self, patience_s: float) -> None:
        """Accept no more, end every session, and wait for what is left to be sent."""
        self._stop_listening()
        for session in list(self._open):
            session.shut_down()
        if self._open:
            self._all_gone.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), patience_s)

    async def _listen(self, endpoint: Endpoint) -> str:
        loop, reuse = asyncio.get_running_loop(), self._reuses_port
        first = await loop.create_server(self._accept, endpoint.host, endpoint.port, backlog=_BACKLOG, reuse_port=reuse)
        self._listening.append(first)
        for listener in first.sockets:
            for _ in range(LISTENERS - 1):
                with contextlib.ExitStack() as unless_taken:
                    same = unless_taken.enter_context(socket.socket(fileno=os.dup(listener.fileno())))
                    self._listening.append(await loop.create_server(self._accept, sock=same, backlog=_BACKLOG))
                    unless_taken.pop_all()
        return endpoint._replace(port=first.sockets[0].getsockname()[1]).address

    def _stop_listening(self) -> None:
        servers, self._listening = self._listening, []
        for server in servers:
            server.close()

    def _accept(self) -> asyncio.BaseProtocol:
        session = Session(self._engine, next(self._ids), self._log, self._finished)
        self._open.add(session)
        return session.client.protocol

    def _finished(self, session: Session) -> None:
        self._open.discard(session)
        if not self._open:
            self._all_gone.set()
        self._engine.shared.heap.freed()
