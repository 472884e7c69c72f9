"""The addresses that a process listens on: for clients, for the admin REST, and for metrics alone."""

import asyncio
import errno
import socket
from contextlib import suppress
from typing import Final

import structlog

from protocol.endpoint import Endpoint
from proxy.admin.listener import Listener
from proxy.runtime import StartError, Tasks
from proxy.server import Server, Sockets

AGAIN_S: Final = 1.0
"""Seconds between two tries to accept at an address again, after a takeover that failed."""


class Addresses:
    """All listening sockets of a process.

    Args:
        server: Serves clients.
        inherited: The sockets of the process before, or of the service manager; those of addresses that this one has
            are taken out.
    """

    def __init__(self, server: Server, inherited: Sockets) -> None:
        self._server = server
        self._inherited = inherited
        self._listeners: dict[str, Listener] = {}
        self._tries = Tasks()
        """Those of addresses that another program has."""

    async def bind(self, key: str, listener: Listener, endpoint: Endpoint) -> str:
        """Listen for callers of HTTP, and accept none yet; returns `host:port`.

        Args:
            key: The configuration's key of the address.
            listener: Serves the callers.
            endpoint: The address.

        Raises:
            StartError: If the address cannot be had.
        """
        name = f"{key} {endpoint}"
        self._listeners[name] = listener
        try:
            return await listener.bind(endpoint, self._inherited.by_name.pop(name, None))
        except OSError as error:
            raise StartError(f"{key}: cannot listen on {endpoint.address}: {error.strerror or error}") from None

    async def bind_for_clients(self) -> str:
        """Listen for clients, and accept none yet; returns the addresses as `Server.bind` does.

        Raises:
            StartError: If one cannot be had.
        """
        try:
            return await self._server.bind(self._inherited)
        except OSError as error:
            where = ", ".join(each.address for each in self._server.engine.config.listen)
            raise StartError(f"listen: cannot listen on {where}: {error.strerror or error}") from None

    def accept_callers(self) -> None:
        """Accept callers of HTTP."""
        for listener in self._listeners.values():
            listener.accept()

    async def accept_again(self) -> None:
        """Accept clients and callers again, after `pause`.

        The next process, which has ended, may have shut an address that another program has now. It is reported, and
        tried each second until it is free, while the others are served.

        Raises:
            OSError: If the system has no descriptor for it; none is accepted then.
        """
        for name, group in self.sockets().by_name.items():
            for listening in group:
                try:
                    await self._accept_from(name, listening)
                except OSError as error:
                    if error.errno != errno.EADDRINUSE:
                        self.pause()
                        raise
                    structlog.get_logger().error(
                        "address is taken by another program; it is tried each second",
                        address=name,
                        remedy="end that program, or have a restart in place without this address",
                    )
                    self._tries.start(self._accept_when_free(name, listening), "listen again")

    async def _accept_from(self, name: str, listening: socket.socket) -> None:
        listener = self._listeners.get(name)
        if listener is None:
            await self._server.accept_from(listening)
        else:
            listener.accept_from(listening)

    async def _accept_when_free(self, name: str, listening: socket.socket) -> None:
        while True:
            await asyncio.sleep(AGAIN_S)
            with suppress(OSError):
                await self._accept_from(name, listening)
                structlog.get_logger().info("address is served again", address=name)
                return

    def sockets(self) -> Sockets:
        """Return all sockets, by the names of their addresses."""
        by_name = self._server.sockets() | {name: each.sockets for name, each in self._listeners.items()}
        return Sockets(by_name, self._inherited.kept & by_name.keys())

    def pause(self) -> None:
        """Accept no connection until `accept_again`."""
        self.give_up()
        self._server.pause_accepting()
        for listener in self._listeners.values():
            listener.pause_accepting()

    def give_up(self) -> None:
        """Try no more to serve addresses that another program has."""
        self._tries.cancel()

    def leave(self) -> None:
        """Listen no more: another process has the sockets. Connections that are open stay."""
        self.give_up()
        self._server.stop_listening()
        for listener in self._listeners.values():
            listener.stop_listening()

    async def stop_callers(self) -> None:
        """Accept no more callers of HTTP, and let running requests end."""
        for listener in self._listeners.values():
            await listener.stop()
