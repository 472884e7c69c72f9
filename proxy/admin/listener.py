"""A listening socket of the admin REST, with its connections in bounds."""

import asyncio
import ssl
from collections.abc import Callable

from aiohttp import web

from proxy.admin.connections import Connections, connection_factory
from proxy.brokers.targets import split_address
from proxy.observe.operator_log import admin_logger

_ENDING_PATIENCE_S = 2.0
"""How long an unfinished request may delay the end, and what is left of a refused one may still come."""


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
        )
        self._server: asyncio.Server | None = None

    async def start(self, address: str) -> str:
        """Listen; returns the address, with the port that the system chose for port 0.

        Raises:
            OSError: If it cannot be had.
        """
        await self._runner.setup()
        assert self._runner.server is not None, "set up"
        factory = connection_factory(self._runner.server, self._connections, self._context)
        host, port = split_address(address)
        self._server = await asyncio.get_running_loop().create_server(factory, host, port)
        return f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Accept no more, and let what is being worked on end."""
        if self._server is not None:
            self._server.close()
        self._connections.handshakes.cancel()
        await self._runner.cleanup()
