"""Rows with many streams, and Sluice alone: what holding them on one limit costs, and what logging them costs."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from socket import socket
from typing import Literal

from bench import meters
from bench.data_path import wire
from bench.data_path.native import Live
from bench.data_path.proxies import SLUICE, UNREACHED, RunningPeer, sluice_plan
from bench.data_path.stage import CpuClock, DataRow, Stage, beside, close_all
from bench.harness import BenchError, Figure, Goal, Row, Sample
from bench.meters import lateness, scrape

_BURST_OVER_S = 1.0
"""Seconds after which the initial burst has passed and the held entries have reached their bound."""
_LOGGED_S = 1.5
"""Until lines about all streams are in the access log."""
_MEMORY = "sluice_hold_budget_most_bytes"
_ENTRY = 100
"""Bytes of the entries where messages are limited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load of many streams.

    Attributes:
        connections: How many, with a topic of its own each.
        streams: Producers of each.
        size: Bytes of a frame.
        window_s: Seconds of the steady part that are measured; for the log, whole intervals.
    """

    connections: int
    streams: int
    size: int
    window_s: float

    @property
    def entries(self) -> bytes:
        """One frame of each stream of a connection."""
        ids = range(wire.PRODUCER_ID, wire.PRODUCER_ID + self.streams)
        return b"".join(wire.send_frame(self.size, number).frame for number in ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held(Load):
    """A load that one limit holds.

    Attributes:
        unit: The unit of the limit.
        rate: Units a second, all streams together.
    """

    unit: Literal["messages", "bytes"]
    rate: int

    @property
    def cost(self) -> int:
        """The tokens of an entry: one message, or all bytes after its command."""
        frame = wire.send_frame(self.size).frame
        return 1 if self.unit == "messages" else len(frame) - 8 - int.from_bytes(frame[4:8], "big")

    def passing(self, live: Live) -> float:
        """Return the rate of arrivals while the window lasts, in the limit's unit a second."""
        begun, before = time.monotonic(), live.frames
        time.sleep(self.window_s)
        return (live.frames - before) * self.cost / (time.monotonic() - begun)


def held_row(load: Held) -> DataRow:
    """Make the row of streams that one limit holds: Sluice alone, as no peer holds some streams of a connection only.

    Whether 40 % of a core suffice is asked where entries are many; a GB/s costs what copying a GB costs.
    """
    figures = (
        Figure("share", "of the limit passed, after the first second", " %", digits=1, goals=(Goal("≥", 99),)),
        Figure("cpu", "CPU, of a core", " %", digits=1, goals=(Goal("≤", 40),) if load.unit == "messages" else ()),
        Figure("late", "p99 of the loop's lag (no later than)", " ms", digits=1, goals=(Goal("≤", 5),)),
        Figure("memory", "memory grown, of the bytes held", " x", digits=2, goals=(Goal("≤", 1.1),)),
        Figure("grown", "the same beside streams that have said nothing yet", " x", digits=2),
        Figure("held", "bytes held at most", " MB", digits=1),
        Figure("free", "passed where the limit is out of reach, of it", " %"),
    )
    limit = f"{load.rate:,} msg/s" if load.unit == "messages" else f"{load.rate / 1e9:g} GB/s"
    text = f"{load.connections * load.streams:,} streams on {load.connections} connections, all held by one limit"
    text += f" of {limit}, SEND of {load.size:,} B"
    return Row(f"held-{load.unit}", text, figures, partial(_measure_held, load), (SLUICE,), needs=("free", 120))


def limits(load: Held) -> dict[str, dict[str, dict[str, object]]]:
    """Make Sluice's limits: one for all streams, and limits of topics that are out of reach."""
    namespace = UNREACHED["namespaces"]["public/default"]
    return {"namespaces": {"public/default": {**namespace, "publish_total": {load.unit: load.rate}}}}


def _measure_held(load: Held, stage: Stage, name: str) -> Sample:
    free = _free(load, stage, stage.peers[name])
    return {**measure_held(load, stage, stage.started(sluice_plan(limits(load)))), "free": free / load.rate * 100}


def measure_held(load: Held, stage: Stage, starting: AbstractContextManager[RunningPeer]) -> Sample:
    """Measure a Sluice whose limit holds the load; it runs as long as the measurement."""
    with starting as peer:
        here, there = stage.producers(peer.port, load.connections, load.streams)
        silent = meters.resident_bytes(peer.pid)
        _pass_once(load, stage, here, there)
        if scrape(peer.spare_port).values[_MEMORY]:
            raise BenchError("Sluice held what is within the limit: memory cannot be told from that of active streams")
        empty, live = meters.resident_bytes(peer.pid), Live(len(there))
        meters.forget_peak(peer.pid)
        with _offering(load, stage, here, there, live, _BURST_OVER_S + load.window_s):
            time.sleep(_BURST_OVER_S)
            before, clock = scrape(peer.spare_port), CpuClock(peer.pid)
            rate = load.passing(live)
            used, after = clock.read(), scrape(peer.spare_port)
        memory, held = meters.peak_bytes(peer.pid), after.values[_MEMORY]
    return {
        "share": rate / load.rate * 100,
        "cpu": used.cpu_s / load.window_s * 100,
        "late": lateness(before, after, 0.99) * 1e3,
        **({"memory": (memory - empty) / held, "grown": (memory - silent) / held} if held else {}),
        "held": held / 1e6,
    }


def _free(load: Held, stage: Stage, peer: RunningPeer) -> float:
    """The rate of the same load in the limit's unit where nothing is held: as much as the machine can."""
    here, there = stage.producers(peer.port, load.connections, load.streams)
    live = Live(len(there))
    with _offering(load, stage, here, there, live, _BURST_OVER_S + load.window_s):
        time.sleep(_BURST_OVER_S)
        return load.passing(live)


def _pass_once(load: Held, stage: Stage, here: list[socket], there: list[socket]) -> None:
    """Pass an entry of each stream within the limit, which makes the objects to read, follow and log it."""
    wanted = load.connections * load.streams
    with beside(partial(stage.native.receive, there, wanted=wanted)) as receiving:
        for connection in here:
            connection.sendall(load.entries)
    if (came := sum(receiving.result().frames)) < wanted:
        raise BenchError(f"of {wanted} entries within the limit {came} came")
    time.sleep(_LOGGED_S)


def _offering(
    load: Held, stage: Stage, here: list[socket], there: list[socket], live: Live, seconds: float
) -> ExitStack:
    """While the block runs, all streams are offered as fast as they are taken, and what arrives is counted."""
    chunk, size = wire.many(load.entries), len(wire.send_frame(load.size).frame)
    stack = ExitStack()
    stack.callback(close_all, there)
    stack.enter_context(beside(lambda: stage.native.receive(there, live=live, frame_size=size)))
    stack.enter_context(beside(lambda: stage.native.send_for(here, chunk, size, seconds)))
    return stack


_ALL_LOGGED_S = 1.5
"""Until every stream has been active for a whole interval of the log."""
_TIMES_A_SECOND = 2
"""Each connection writes, where the rate is steady."""

Offer = Callable[[Sequence[socket]], object]
"""Sends on all connections until the window is over."""


@dataclass(frozen=True, slots=True)
class WindowCost:
    """The figures of a window: part of a core, frames a second, CPU seconds a million frames."""

    core: float
    rate: float
    cpu: float


def log_row(load: Load) -> DataRow:
    """Make the row of the access log's cost: Sluice alone, as no peer writes such a log.

    A line costs the same for any number of frames. So its cost is measured while all streams are active and little else
    is done: the part of a core that it takes there is the part of the throughput that it takes at full speed. Figures
    at full speed are printed as well; there a frame's work differs more from window to window than a log costs.
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
    return Row(f"log-{load.connections}", text, figures, partial(_measure_log, load), (SLUICE,))


def _measure_log(load: Load, stage: Stage, name: str) -> Sample:
    with stage.started(stage.plans[name]) as logging, stage.started(sluice_plan(is_logging=False)) as silent:
        steady, full = partial(_steadily, load, stage), partial(_fully, load, stage)
        core, idle = _by_turns(load, stage, logging, silent, steady)
        quick, free = _by_turns(load, stage, logging, silent, full)
    return {
        "core": (core.core - idle.core) * 100,
        "idle": idle.core * 100,
        "cpu": quick.cpu,
        "without": free.cpu,
        "rate": quick.rate,
        "free": free.rate,
    }


def _by_turns(
    load: Load, stage: Stage, subject: RunningPeer, other: RunningPeer, offer: Offer
) -> tuple[WindowCost, WindowCost]:
    """Measure two windows of each peer, in turns, so that trends meet both alike; return the means."""
    turns = [_window(load, stage, peer, offer) for peer in (subject, other, other, subject)]
    return _mean(turns[0], turns[3]), _mean(turns[1], turns[2])


def _mean(cost: WindowCost, other: WindowCost) -> WindowCost:
    return WindowCost((cost.core + other.core) / 2, (cost.rate + other.rate) / 2, (cost.cpu + other.cpu) / 2)


def _window(load: Load, stage: Stage, peer: RunningPeer, offer: Offer) -> WindowCost:
    """Measure the steady part, without opening and closing."""
    here, there = stage.producers(peer.port, load.connections, load.streams)
    live = Live(load.connections)
    with ExitStack() as stack:
        stack.callback(close_all, there)
        stack.callback(close_all, here)
        stack.enter_context(beside(lambda: stage.native.receive(there, live=live)))
        stack.enter_context(beside(lambda: offer(here)))
        time.sleep(_ALL_LOGGED_S)
        begun, before, clock = time.monotonic(), live.frames, CpuClock(peer.pid)
        time.sleep(load.window_s)
        used, passed, took = clock.read(), live.frames - before, time.monotonic() - begun
    return WindowCost(used.cpu_s / took, passed / took, used.cpu_s / passed * 1e6)


def _steadily(load: Load, stage: Stage, here: Sequence[socket]) -> None:
    writes_a_second = load.connections * _TIMES_A_SECOND
    count = round((_ALL_LOGGED_S + load.window_s) * writes_a_second)
    stage.native.send_paced(here, load.entries, 1 / writes_a_second, count)
    close_all(here)


def _fully(load: Load, stage: Stage, here: Sequence[socket]) -> None:
    frame = wire.send_frame(load.size).frame
    stage.native.send_for(here, wire.many(load.entries), len(frame), _ALL_LOGGED_S + load.window_s)
