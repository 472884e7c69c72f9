"""TLS handshakes of the admin address, a few steps in each turn of the loop.

The loop's own TLS does a step as soon as its bytes are there: 400 clients that send their hello at once make one turn
of 400 signatures. Here the bytes of a handshake wait until the step has its turn among all handshakes of the process.

    raw transport ─bytes─▶ SlicedHandshake ─its turn─▶ asyncio's SSLProtocol ─▶ AdminConnection
                   ◀─ not read until then
"""

import asyncio
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from typing import Any, cast

from proxy.slices import CallsInSlices, Slices, Work


class Handshakes:
    """Makes the TLS handshakes of all connections.

    Args:
        patience_s: Seconds for a handshake.
        slices: Bounds the steps of all handshakes in one turn of the loop.
        buffer: The memory that all connections are read into.
    """

    def __init__(self, patience_s: float, slices: Slices, buffer: memoryview) -> None:
        self.buffer = buffer
        self.steps = CallsInSlices(slices, Work.HANDSHAKES)
        self._patience_s = patience_s

    async def secure(self, protocol: asyncio.BaseProtocol, accepted: socket.socket, context: ssl.SSLContext) -> None:
        """Give an accepted socket to the loop, and return after its TLS handshake.

        Args:
            protocol: Takes the decrypted bytes.
            accepted: The socket.
            context: Certificates, versions and ciphers.

        Raises:
            OSError: If the handshake fails, or takes too long (`ConnectionAbortedError`).
        """
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        tls: Any = SSLProtocol(
            loop,
            protocol,
            context,
            done,
            server_side=True,
            ssl_handshake_timeout=self._patience_s,  # type: ignore[arg-type] # any number
        )
        transport, _ = await loop.connect_accepted_socket(lambda: SlicedHandshake(tls, done, self), accepted)
        try:
            await done
        except BaseException:
            transport.abort()
            raise


class SlicedHandshake(asyncio.BufferedProtocol):
    """Passes the bytes of a connection on to TLS: those of its handshake when it is their turn, all later ones at once.

    Args:
        tls: Takes the bytes.
        done: Done at the end of the handshake.
        handshakes: Has the memory and the turns of all handshakes.
    """

    def __init__(self, tls: Any, done: "asyncio.Future[None]", handshakes: Handshakes) -> None:
        self._tls = tls
        self._done = done
        self._handshakes = handshakes
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none by name
        self._tls.connection_made(transport)

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the memory to read into."""
        return self._handshakes.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass bytes on, or keep those of a handshake until its turn; meanwhile no more are read."""
        data = bytes(self._handshakes.buffer[:nbytes])
        if self._done.done():
            self._take(data)
            return
        assert self._transport is not None, "connection_made was first"
        self._transport.pause_reading()
        self._handshakes.steps.add(lambda: self._step(data))

    def _step(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()  # before TLS, which may pause it again
            self._take(data)

    def _take(self, data: bytes) -> None:
        buffer = self._tls.get_buffer(len(data))
        buffer[: len(data)] = data
        self._tls.buffer_updated(len(data))

    def eof_received(self) -> bool | None:
        """The client sends no more."""
        goes_on: bool | None = self._tls.eof_received()
        return goes_on

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._transport = None
        self._tls.connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not take the answer as fast as it is written."""
        self._tls.pause_writing()

    def resume_writing(self) -> None:
        """The client has taken enough."""
        self._tls.resume_writing()
