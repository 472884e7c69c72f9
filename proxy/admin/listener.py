"""A listening socket of the admin REST, with its connections in bounds."""

import asyncio
import socket
import ssl
from collections.abc import Callable

import structlog
from aiohttp import web

from proxy.admin.connections import Connection, Connections
from proxy.brokers.targets import split_address
from proxy.observe.operator_log import admin_logger
from proxy.tasks import Tasks

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
            connection = Connection(self._runner.server(), self._connections, accepted, str(address[0]))
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
