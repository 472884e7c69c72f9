"""Real sockets on loopback, for the few tests that are about them."""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from protocol.commands import split
from protocol.frames import FrameCutter
from tests.proxy.wire import body, connected, name_of, producer_success, receipt, success
from tests.waiting import PATIENCE_S


class TcpPeer:
    """One end of a connection, frame by frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._reader = reader
        self._cutter = FrameCutter(2**31)
        self._frames: list[bytes] = []

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def hear(self) -> bytes | None:
        """The next frame, or None at the end."""
        while not self._frames:
            chunk = await asyncio.wait_for(self._reader.read(65536), PATIENCE_S)
            if not chunk:
                return None
            self._frames += self._cutter.feed(chunk)
        return self._frames.pop(0)


async def connect_to(address: str, whence: str | None = None, tls: ssl.SSLContext | None = None) -> TcpPeer:
    host, _, port = address.rpartition(":")
    local = (whence, 0) if whence else None
    return TcpPeer(*await asyncio.open_connection(host, int(port), local_addr=local, ssl=tls))


def _answer(frame: bytes) -> bytes | None:
    match name_of(frame):
        case "CONNECT":
            return connected()
        case "PRODUCER":
            return producer_success(request_id=body(frame).request_id)
        case "SUBSCRIBE":
            return success(body(frame).request_id)
    return None


@asynccontextmanager
async def broker_on_loopback(
    seen: Counter[str] | None = None, *, stores: bool = False, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """A broker that lets clients, producers and consumers in and sends everything else back; gives its address.

    If it has `seen` to count the commands that come, it sends nothing else back; but receipts, if it `stores`.
    """
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        peer = TcpPeer(reader, writer)
        with suppress(ConnectionError, asyncio.CancelledError):
            while (frame := await peer.hear()) is not None:
                peer.send(_answer(frame) or (frame if seen is None else b""))
                if stores and name_of(frame) == "SEND":
                    peer.send(receipt(body(frame).sequence_id))
                if seen is not None:
                    seen[name_of(frame)] += 1
                assert split(frame)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await server.wait_closed()
