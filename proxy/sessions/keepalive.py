"""Signs of life for both peers while one of them is not read: its PINGs and PONGs lie unread in the socket.

Measured: C++ and Python clients close a connection that sends them nothing but PINGs for 60 s; every client and the
broker take a PONG that they did not ask for.
"""

import asyncio
from collections.abc import Callable

INTERVAL_S = 20.0


class KeepAlive:
    """Sends in short enough intervals while it is switched on; no timer runs while it is off.

    Args:
        send: Sends a PONG to both peers.
    """

    def __init__(self, send: Callable[[], None]) -> None:
        self._send = send
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """A peer is no longer read."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._tick)

    def stop(self) -> None:
        """Both are read again, or gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        self.start()
        self._send()
