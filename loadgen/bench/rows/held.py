"""Many streams on one limit, all of them offering far more: what passes, and what it costs to hold the rest."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from socket import socket
from typing import Literal

from loadgen.bench import meters, wire
from loadgen.bench.harness import BenchError, Figure, Goal, Row, Sample
from loadgen.bench.meters import lateness, scrape
from loadgen.bench.native import Live
from loadgen.bench.proxies import SLUICE, UNREACHED, RunningPeer, sluice_plan
from loadgen.bench.stage import Beside, CpuClock, DataRow, Stage, close_all

_SETTLE_S = 1.0
"""The burst that the limit begins with, and the filling of what may be held, are over by then."""
_LOGGED_S = 1.5
"""Until lines about all streams are in the access log."""
_MEMORY = "sluice_hold_budget_most_bytes"
_ENTRY = 100
"""Bytes of the entries where messages are limited."""


@dataclass(frozen=True, slots=True)
class Held:
    """A load.

    Attributes:
        unit: What is limited.
        rate: Of that a second, all streams together.
        size: Bytes of a frame.
        connections: How many, with a topic of its own each.
        streams: Producers of each.
        window_s: How long the steady part is looked at.
    """

    unit: Literal["messages", "bytes"]
    rate: int
    size: int
    connections: int
    streams: int
    window_s: float

    @property
    def cost(self) -> int:
        """What an entry takes of the limit: one message, or everything behind its command."""
        frame = wire.send_frame(self.size).frame
        return 1 if self.unit == "messages" else len(frame) - 8 - int.from_bytes(frame[4:8], "big")

    @property
    def entries(self) -> bytes:
        """One of each stream of a connection."""
        ids = range(wire.PRODUCER_ID, wire.PRODUCER_ID + self.streams)
        return b"".join(wire.send_frame(self.size, number).frame for number in ids)

    @property
    def chunk(self) -> bytes:
        """Entries of all streams of a connection, in turns."""
        return wire.many(self.entries)


def row(load: Held) -> DataRow:
    """Sluice alone: no peer holds some streams of a connection and not the others.

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
    return Row(f"held-{load.unit}", text, figures, partial(_measure, load), (SLUICE,), needs=("free", 120))


def limits(load: Held) -> dict[str, dict[str, dict[str, object]]]:
    """Of Sluice: one for all streams, and none of a topic's that is reached."""
    namespace = UNREACHED["namespaces"]["public/default"]
    return {"namespaces": {"public/default": {**namespace, "publish_total": {load.unit: load.rate}}}}


def _measure(load: Held, stage: Stage, name: str) -> Sample:
    free = _free(load, stage, stage.peers[name])
    with stage.started(sluice_plan(limits(load))) as peer:
        here, there = stage.producers(peer.port, load.connections, load.streams)
        silent = meters.resident_bytes(peer.pid)
        _pass_once(load, stage, (here, there))
        if scrape(peer.spare_port).values[_MEMORY]:
            raise BenchError("Sluice held what is within the limit: memory cannot be told from that of active streams")
        empty, live = meters.resident_bytes(peer.pid), Live(len(there))
        meters.forget_peak(peer.pid)
        with _offering(load, stage, (here, there), live, _SETTLE_S + load.window_s):
            time.sleep(_SETTLE_S)
            before, clock = scrape(peer.spare_port), CpuClock(peer.pid)
            rate = _rate(load, live)
            used, after = clock.read(), scrape(peer.spare_port)
        memory, held = meters.peak_bytes(peer.pid), after.values[_MEMORY]
    return {
        "share": rate / load.rate * 100,
        "cpu": used.cpu_s / load.window_s * 100,
        "late": lateness(before, after, 0.99) * 1e3,
        **({"memory": (memory - empty) / held, "grown": (memory - silent) / held} if held else {}),
        "held": held / 1e6,
        "free": free / load.rate * 100,
    }


def _free(load: Held, stage: Stage, peer: RunningPeer) -> float:
    """What passes of the same load, of the limit's unit a second, where nothing is held: what the machine can."""
    here, there = stage.producers(peer.port, load.connections, load.streams)
    live = Live(len(there))
    with _offering(load, stage, (here, there), live, _SETTLE_S + load.window_s):
        time.sleep(_SETTLE_S)
        return _rate(load, live)


def _pass_once(load: Held, stage: Stage, ends: tuple[list[socket], list[socket]]) -> None:
    """Each stream says something within the limit: what it takes to read, follow and log them is there from then on."""
    here, there = ends
    wanted = load.connections * load.streams
    with Beside(partial(stage.native.receive, there, wanted=wanted)) as receiving:
        for connection in here:
            connection.sendall(load.entries)
    if (came := sum(receiving.result.frames)) < wanted:
        raise BenchError(f"of {wanted} entries within the limit {came} came")
    time.sleep(_LOGGED_S)


def _offering(
    load: Held, stage: Stage, ends: tuple[list[socket], list[socket]], live: Live, seconds: float
) -> ExitStack:
    """While the block runs, all streams are offered as fast as they are taken, and what arrives is counted."""
    here, there = ends
    chunk, size = load.chunk, len(wire.send_frame(load.size).frame)
    stack = ExitStack()
    stack.callback(close_all, there)
    stack.enter_context(Beside(lambda: stage.native.receive(there, live=live, frame_size=size)))
    stack.enter_context(Beside(lambda: stage.native.send_for(here, chunk, size, seconds)))
    return stack


def _rate(load: Held, live: Live) -> float:
    """What arrives a second while the window lasts, in the limit's unit."""
    begun, before = time.monotonic(), live.frames
    time.sleep(load.window_s)
    return (live.frames - before) * load.cost / (time.monotonic() - begun)
