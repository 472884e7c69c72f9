"""What the access log costs while many streams are active: Sluice with it and without it, by turns."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from socket import socket

from loadgen.bench import wire
from loadgen.bench.harness import Figure, Goal, Row, Sample
from loadgen.bench.native import Live
from loadgen.bench.proxies import SLUICE, RunningPeer, sluice_plan
from loadgen.bench.stage import Beside, CpuClock, DataRow, Stage, close_all

_SETTLE_S = 1.5
"""Until every stream has been active for a whole interval of the log."""
_TIMES_A_SECOND = 2
"""Each connection writes, where the rate is steady."""

Offer = Callable[[Sequence[socket]], object]
"""Sends on all connections until the window is over."""


@dataclass(frozen=True, slots=True)
class Active:
    """A load.

    Attributes:
        connections: How many, with a topic and its limit of its own each.
        streams: Producers of each.
        size: Bytes of a frame.
        window_s: How long the steady part is looked at: whole intervals of the log.
    """

    connections: int
    streams: int
    size: int
    window_s: float

    @property
    def chunk(self) -> bytes:
        """A frame of each stream of a connection."""
        ids = range(wire.PRODUCER_ID, wire.PRODUCER_ID + self.streams)
        return b"".join(wire.send_frame(self.size, number).frame for number in ids)


@dataclass(frozen=True, slots=True)
class WindowCost:
    """What a window came to: of a core, frames a second, CPU seconds a million frames."""

    core: float
    rate: float
    cpu: float


def row(load: Active) -> DataRow:
    """Sluice alone, for no peer writes such a log.

    A line costs the same however many frames it tells of. So its cost is looked at where all streams are active and
    little else is done: what it takes of a core there, it takes of the throughput where the core is all in use. What
    happens at full speed is told as well; there a frame's work differs more from window to window than a log costs.
    """
    figures = (
        Figure("core", "CPU of the access log, of a core", " %", digits=1, goals=(Goal("≤", 3),)),
        Figure("idle", "CPU at that rate without it, of a core", " %", digits=1),
        Figure("cpu", "at full speed: CPU s per million frames with it", digits=2),
        Figure("without", "without it", digits=2),
        Figure("rate", "frames/s with it"),
        Figure("free", "frames/s without it"),
    )
    count = load.connections * load.streams
    text = f"{count:,} active streams on {load.connections:,} connections, each within limits out of reach, SEND of "
    text += f"{load.size:,} B; the log's part at {count * _TIMES_A_SECOND:,}/s"
    return Row(f"log-{load.connections}", text, figures, partial(_measure, load), (SLUICE,))


def _measure(load: Active, stage: Stage, name: str) -> Sample:
    with stage.started(stage.plans[name]) as logging, stage.started(sluice_plan(is_logging=False)) as silent:
        steady, full = partial(_steadily, load, stage), partial(_fully, load, stage)
        core, idle = _by_turns(load, stage, (logging, silent), steady)
        quick, free = _by_turns(load, stage, (logging, silent), full)
    return {
        "core": (core.core - idle.core) * 100,
        "idle": idle.core * 100,
        "cpu": quick.cpu,
        "without": free.cpu,
        "rate": quick.rate,
        "free": free.rate,
    }


def _by_turns(
    load: Active, stage: Stage, peers: tuple[RunningPeer, RunningPeer], offer: Offer
) -> tuple[WindowCost, WindowCost]:
    """Two windows of each, in such turns that what grows or fades meanwhile meets both: their means."""
    one, other = peers
    turns = [_window(load, stage, peer, offer) for peer in (one, other, other, one)]
    return _mean(turns[0], turns[3]), _mean(turns[1], turns[2])


def _mean(one: WindowCost, other: WindowCost) -> WindowCost:
    return WindowCost((one.core + other.core) / 2, (one.rate + other.rate) / 2, (one.cpu + other.cpu) / 2)


def _window(load: Active, stage: Stage, peer: RunningPeer, offer: Offer) -> WindowCost:
    """The steady part; opening and closing are none of it."""
    here, there = stage.producers(peer.port, load.connections, load.streams)
    live = Live(load.connections)
    with ExitStack() as stack:
        stack.callback(close_all, there)
        stack.callback(close_all, here)
        stack.enter_context(Beside(lambda: stage.native.receive(there, live=live)))
        stack.enter_context(Beside(lambda: offer(here)))
        time.sleep(_SETTLE_S)
        begun, before, clock = time.monotonic(), live.frames, CpuClock(peer.pid)
        time.sleep(load.window_s)
        used, passed, took = clock.read(), live.frames - before, time.monotonic() - begun
    return WindowCost(used.cpu_s / took, passed / took, used.cpu_s / passed * 1e6)


def _steadily(load: Active, stage: Stage, here: Sequence[socket]) -> None:
    writes_a_second = load.connections * _TIMES_A_SECOND
    count = round((_SETTLE_S + load.window_s) * writes_a_second)
    stage.native.send_paced(here, load.chunk, 1 / writes_a_second, count)
    close_all(here)


def _fully(load: Active, stage: Stage, here: Sequence[socket]) -> None:
    frame = wire.send_frame(load.size).frame
    stage.native.send_for(here, wire.many(load.chunk), len(frame), _SETTLE_S + load.window_s)
