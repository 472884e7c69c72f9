"""A bare uvloop forwarder, which looks at no byte: `python -m bench.data_path.forwarder PORT BROKER_PORT [PEM CA]`.

PEM is its certificate and key for TLS with clients, CA the authority for TLS with the broker; empty: without TLS.
"""

import asyncio
import ssl
import sys
from typing import cast

import uvloop

_WRITE_BUFFER = 512 * 1024


class _Side(asyncio.Protocol):
    """One of the two connections; `other` is the other one, once it is there."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=_WRITE_BUFFER)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)
        else:
            self.early.append(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, _exc: Exception | None) -> None:
        self.transport = None
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class _Client(_Side):
    """The accepted side; dials the broker."""

    def __init__(self, broker: tuple[str, int], context: ssl.SSLContext | None) -> None:
        super().__init__()
        self._broker = broker
        self._context = context
        self._dialling: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._dialling = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        broker = _Side()
        broker.other = self
        await asyncio.get_running_loop().create_connection(lambda: broker, *self._broker, ssl=self._context)
        self.other = broker
        for data in self.early:
            self.data_received(data)


async def _serve(port: int, broker_port: int, client_file: str = "", broker_file: str = "") -> None:
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if client_file else None
    if own is not None:
        own.load_cert_chain(client_file)
    far = ssl.create_default_context(cafile=broker_file) if broker_file else None
    server = await asyncio.get_running_loop().create_server(
        lambda: _Client(("127.0.0.1", broker_port), far), "127.0.0.1", port, backlog=4096, ssl=own
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:5]))
