"""The addresses that a process listens on: for clients, for the admin REST, and for metrics alone."""

from protocol.endpoint import Endpoint
from proxy.admin.listener import Listener
from proxy.runtime import StartError
from proxy.server import Server, Sockets


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
        """Accept clients and callers again, after `pause`; none is accepted after an error.

        Raises:
            OSError: If the system has no descriptor for it, or another program has an address by now.
        """
        try:
            await self._server.accept()
            self.accept_callers()
        except OSError:
            self.pause()
            raise

    def sockets(self) -> Sockets:
        """Return all sockets, by the names of their addresses."""
        by_name = self._server.sockets() | {name: each.sockets for name, each in self._listeners.items()}
        return Sockets(by_name, self._inherited.kept & by_name.keys())

    def pause(self) -> None:
        """Accept no connection until `accept_again`."""
        self._server.pause_accepting()
        for listener in self._listeners.values():
            listener.pause_accepting()

    def leave(self) -> None:
        """Listen no more: another process has the sockets. Connections that are open stay."""
        self._server.stop_listening()
        for listener in self._listeners.values():
            listener.stop_listening()

    async def stop_callers(self) -> None:
        """Accept no more callers of HTTP, and let running requests end."""
        for listener in self._listeners.values():
            await listener.stop()
