"""Signs of life for both peers while one of them is not read: its PINGs and PONGs lie unread in the socket.

Measured: C++ and Python clients close a connection that sends them nothing but PINGs for 60 s; every client and the
broker take a PONG that they did not ask for.
"""

import asyncio
from collections.abc import Callable

INTERVAL_S = 5.0
"""Between two signs while something is held. Clients need one in 30 s; but a client that was killed with bytes under
way cannot even say that it has gone, until something is written to it."""
SELDOM_S = 20.0
"""Between two signs while nothing is: a client that has closed its connection, and whose last bytes are still under
way, answers a sign with a reset, which throws them away; and nothing of it takes up memory here."""
LOOK_S = 0.5
"""Between two looks whether the peer that is not read has left: what is held of it is to be given back soon."""


class KeepAlive:
    """Sends and looks in short enough intervals while it is switched on; no timer runs while it is off.

    Args:
        send: Sends a PONG to both peers.
        look: Finds out whether the client has left; called while something is held.
        holds: Whether something is.
    """

    __slots__ = ("_holds", "_look", "_looks", "_send", "_timer")

    def __init__(self, send: Callable[[], None], look: Callable[[], None], holds: Callable[[], bool]) -> None:
        self._send = send
        self._look = look
        self._holds = holds
        self._looks = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """A peer is no longer read."""
        if self._timer is None:
            self._looks = 0
            self._set_timer()

    def stop(self) -> None:
        """Both are read again, or gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._tick)

    def _tick(self) -> None:
        self._set_timer()
        self._looks += 1
        holds = self._holds()
        if self._looks * LOOK_S >= (INTERVAL_S if holds else SELDOM_S):
            self._looks = 0
            self._send()
        if holds:
            self._look()
