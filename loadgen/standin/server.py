"""The stand-in broker's sockets, signals and start-up. No rule of the broker is in here."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import uvloop

from loadgen.standin.broker import BrokerOptions, StandinBroker
from loadgen.standin.connection import StandinConnection

KEEP_ALIVE_S = 30.0
HIGH_WATER_BYTES = 1024 * 1024


class Socket(asyncio.Protocol):
    """One accepted connection: passes on what asyncio tells, and is the Link to write to.

    Args:
        broker: What all connections share.
        keep_alive_s: Seconds between PINGs.
    """

    def __init__(self, broker: StandinBroker, keep_alive_s: float) -> None:
        self._broker = broker
        self._keep_alive_s = keep_alive_s
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own does not inherit from it
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self._peer = transport.get_extra_info("peername")
        host, port = transport.get_extra_info("sockname")[:2]
        self._connection = StandinConnection(self._broker, self, f"pulsar://{in_url(host, port)}")
        self._next_tick = self._loop.call_later(self._keep_alive_s, self._tick)

    def data_received(self, data: bytes) -> None:
        """Pass on."""
        self._connection.receive(data)

    def pause_writing(self) -> None:
        """Pass on."""
        self._connection.pause()

    def resume_writing(self) -> None:
        """Pass on."""
        self._connection.resume()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Pass on."""
        self._next_tick.cancel()
        self._connection.lost()

    def write(self, data: bytes) -> None:
        """Send."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def unsent_bytes(self) -> int:
        """Bytes in the transport's buffer."""
        return self._transport.get_write_buffer_size()

    def abort(self, reason: str) -> None:
        """Close and say why."""
        sys.stderr.write(f"stand-in broker: connection of {self._peer} closed: {reason}\n")
        self._transport.abort()

    def soon(self, act: Callable[[], None]) -> None:
        """At the loop's next turn."""
        self._loop.call_soon(act)

    def _tick(self) -> None:
        self._next_tick = self._loop.call_later(self._keep_alive_s, self._tick)
        self._connection.tick()


def in_url(host: str, port: int) -> str:
    """Host and port as they stand in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def listen(broker: StandinBroker, host: str, port: int, keep_alive_s: float = KEEP_ALIVE_S) -> asyncio.Server:
    """Accept connections from now on.

    Raises:
        OSError: If the address cannot be listened on.
    """
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: Socket(broker, keep_alive_s), host, port, backlog=1024)


async def serve(broker: StandinBroker, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT, and say so on stdout once connections are accepted."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    try:
        server = await listen(broker, host, port)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(f"cannot listen on {in_url(host, port)}: {reason}; choose another --listen") from None
    bound = server.sockets[0].getsockname()
    sys.stdout.write(f"stand-in broker listening on {in_url(*bound[:2])}\n")
    sys.stdout.flush()
    await stopped.wait()
    server.close()


def run(options: BrokerOptions, address: tuple[str, int], counts: Path | None) -> None:
    """Be the broker until told to end; then write the counts, if a file is named.

    Raises:
        OSError: If the address cannot be listened on, or the file cannot be written.
    """
    broker = StandinBroker(options)
    if counts is not None:
        counts.touch()  # what cannot be written should be known before, not after
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(broker, *address))
    if counts is not None:
        counts.write_text(json.dumps(broker.counts()) + "\n", encoding="utf-8")
