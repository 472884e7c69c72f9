"""Keep-alive of one session while a peer is not read, and the search for peers that are gone without a FIN or RST.

While both peers are read, their PINGs and PONGs pass, and each finds out by itself that the other one is gone. While
one is not read, its PINGs and PONGs lie in its socket. Sluice then sends PONGs to both in its place, and has to find
out itself:

    silent for 2/3 of keep_alive ──▶ PING ──silent for keep_alive more──▶ gone: the session ends
                                       └──anything comes──▶ alive

That a paused peer sends something is known without reading: TCP_INFO of Linux has the times at which bytes, and
acknowledgements, last came. A peer that is read is judged by the same bound. By Pulsar's own keep-alive a peer is gone
when a PING has no answer for an interval, so within two intervals.

Two cases are not judged by the bytes that come, but by the kernel's acknowledgements (`Vitals.unanswered`): a peer
whose bytes find no room in this socket's buffer, as it is not read, and a client that does not take all that was sent
to it, which is `write_timeout`'s business. TCP_USER_TIMEOUT cannot do that: Linux also ends a connection by it whose
peer acknowledges each probe, and only does not read (measured: 6.18). Nor does the age of the last acknowledgement
tell: a peer without room acknowledges probes alone, with pauses of up to `_RTO_MAX_MS`, or two minutes without it.

Source: org.apache.pulsar.common.protocol.PulsarHandler, handleKeepAliveTimeout
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

PROBES: Final = 3
"""Probes without an answer after which the kernel ends a connection without traffic."""
_RTO_MAX_MS: Final = 44
"""TCP_RTO_MAX_MS of Linux 6.15 and later: the longest time between two attempts to send the same bytes, or to ask for
room. By default it is 120 s."""
_ATTEMPTS: Final = 15
"""Attempts to send bytes again without an acknowledgement after which Linux ends a connection (tcp_retries2)."""
OFTEN: Final = 1 / 6
"""Part of `keep_alive` between two signs of life while something is held, and between two looks at both peers. Clients
need a sign in each interval. The end of a client that was killed with bytes under way is reported only when something
is written to it."""
SELDOM: Final = 2 / 3
"""Part of `keep_alive` between two signs of life while nothing is held, and the silence after which a PING is sent. A
client that has closed its connection, and whose last bytes are still under way, answers a sign with a reset, which
discards these bytes. While nothing is held, its end is not urgent."""
LOOK_S: Final = 0.5
"""Seconds between two checks whether a peer that is not read has left: its held memory should be given back soon."""
_LEAST_ROOM: Final = 4096
"""Bytes of room in this socket's buffer that are enough for a PONG of the peer to arrive."""
_LEAST_UNANSWERED: Final = 2
"""Least attempts without an answer that count: a single one may have been made just now."""


def set_options(connection: socket.socket, keep_alive: float) -> None:
    """Have the kernel end a connection whose peer is gone within twice `keep_alive` seconds.

    One without traffic is probed. Bytes that are under way are sent again, and that often that all attempts have failed
    by then; where `keep_alive` is below 7 s it takes up to 14 s, as the
    longest pause between two attempts is a second at least.

    Connections that a listener accepts have its options.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", round(keep_alive)),
        ("TCP_KEEPINTVL", round(keep_alive / PROBES)),
        ("TCP_KEEPCNT", PROBES),
    ):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), max(1, value))
    try:
        connection.setsockopt(socket.IPPROTO_TCP, _RTO_MAX_MS, max(1000, round(2000 * keep_alive / _ATTEMPTS)))
    except OSError:  # an older kernel: a peer without room for anything is probed each two minutes
        return


class Vitals(NamedTuple):
    """The kernel's account of a connection; times are seconds."""

    unanswered: int
    """Times that bytes, or a probe for room, were sent again because no acknowledgement came."""
    since_data: float
    """Since bytes of the peer last came, read or not."""
    since_ack: float
    """Since anything of the peer last came."""
    is_taken: bool
    """Whether the peer's kernel has acknowledged all that was written."""
    room: int
    """The receive window that the peer knows, in bytes; 0 on kernels before 6.2, which do not report it."""


_INFO: Final = struct.Struct("=2xBB4x16xI16x4x4xII84xI")
_ROOM: Final = struct.Struct("=I")
_ROOM_AT: Final = 232


def vitals_of(connection: socket.socket | None) -> Vitals | None:
    """Return the kernel's account of a connection; None where there is none, as on other systems than Linux.

    Source: struct tcp_info of linux/tcp.h
    """
    if connection is None or not hasattr(socket, "TCP_INFO"):
        return None
    if connection.family not in {socket.AF_INET, socket.AF_INET6}:
        return None
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ROOM_AT + _ROOM.size)
    if len(info) < _INFO.size:
        return None
    again, probes, unacked, since_data, since_ack, waiting = _INFO.unpack_from(info)
    room = _ROOM.unpack_from(info, _ROOM_AT)[0] if len(info) >= _ROOM_AT + _ROOM.size else 0
    return Vitals(max(again, probes), since_data / 1000, since_ack / 1000, not (unacked or waiting), room)


class PeerProbe:
    """Finds out whether one peer of a session is gone.

    Args:
        keep_alive: Seconds of Pulsar's keep-alive.
        vitals: Returns the kernel's account of the connection.
        ping: Sends a PING, if that is possible; returns whether it was.
        may_not_read: Spares a silent peer as long as its kernel answers and does not take all that was sent.
    """

    __slots__ = ("_keep_alive", "_may_not_read", "_ping", "_pinged_at", "_vitals", "_was_pinged")

    def __init__(
        self,
        keep_alive: float,
        vitals: Callable[[], Vitals | None],
        ping: Callable[[], bool],
        *,
        may_not_read: bool,
    ) -> None:
        self._keep_alive = keep_alive
        self._vitals = vitals
        self._ping = ping
        self._may_not_read = may_not_read
        self._pinged_at: float | None = None
        self._was_pinged = False

    def look(self, now: float) -> str:
        """Return why the peer is taken to be gone, in words; empty if it is not. Sends a PING if the peer is silent."""
        vitals = self._vitals()
        if vitals is None:
            return ""
        by_data = self._was_pinged or self._pinged_at is None
        if vitals.room < _LEAST_ROOM or (self._may_not_read and not vitals.is_taken):
            by_data = False
        silent = vitals.since_data if by_data else min(vitals.since_data, vitals.since_ack)
        if silent < SELDOM * self._keep_alive:
            self._pinged_at = None
        elif self._pinged_at is None or silent < now - self._pinged_at:
            self._pinged_at, self._was_pinged = now, self._ping()
        elif now - self._pinged_at >= self._keep_alive and (by_data or vitals.unanswered >= _LEAST_UNANSWERED):
            return f"nothing came from it for {silent:.0f} s"
        return ""


def _nothing() -> None:
    pass


def _nothing_held() -> bool:
    return False


class KeepAlive:
    """Sends signs of life to both peers while one is not read: its PINGs and PONGs lie unread in the socket.

    A timer sends and looks while the keep-alive is on; none runs while it is off. A limit may switch it on and off with
    each message. The looks at both peers then go on, as each of their PINGs may have met a pause. Measured: C++ and
    Python clients close a connection that sends them nothing but PINGs for 60 s. Every client and the broker accept a
    PONG without a PING.

    Args:
        keep_alive: Seconds of Pulsar's keep-alive.
        send: Sends a PONG to both peers.
        look: Checks whether the client has left; called while something is held.
        holds: Returns whether something is held.
        probe: Checks whether one of both peers is gone.
    """

    __slots__ = (
        "_due",
        "_holds",
        "_keep_alive",
        "_look",
        "_probe",
        "_probe_at",
        "_send",
        "_signed_at",
        "_stopped_at",
        "_timer",
    )

    def __init__(
        self,
        keep_alive: float,
        send: Callable[[], object],
        look: Callable[[], object],
        holds: Callable[[], bool],
        probe: Callable[[], object],
    ) -> None:
        self._keep_alive = keep_alive
        self._send = send
        self._look = look
        self._holds = holds
        self._probe = probe
        self._due = self._signed_at = self._probe_at = 0.0
        self._stopped_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to send signs of life: a peer is no longer read."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            now = loop.time()
            self._signed_at = now
            if self._stopped_at is None or now - self._stopped_at >= LOOK_S:
                self._due, self._probe_at = now + LOOK_S, now + OFTEN * self._keep_alive
            self._timer = loop.call_at(self._due, self._tick)

    def stop(self) -> None:
        """Stop sending signs of life: both peers are read again, or gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._stopped_at = asyncio.get_running_loop().time()

    def let_go(self) -> None:
        """Drop the callbacks, so that no reference cycle remains: both peers are gone."""
        self._send = self._look = self._probe = _nothing
        self._holds = _nothing_held

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._due = now + LOOK_S
        self._timer = loop.call_at(self._due, self._tick)
        holds = self._holds()
        if now - self._signed_at >= (OFTEN if holds else SELDOM) * self._keep_alive:
            self._signed_at = now
            self._send()
        if now >= self._probe_at:
            self._probe_at = now + OFTEN * self._keep_alive
            self._probe()
        if holds:
            self._look()
