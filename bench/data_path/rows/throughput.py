"""Frames as fast as they go or at a steady pace, and the answers to them; and pulsar-perf with a real broker."""

import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from socket import socket

from bench import meters
from bench.data_path import wire
from bench.data_path.native import Received, SinkAnswer
from bench.data_path.proxies import (
    BARE,
    COPYING,
    EVERYBODY,
    HAPROXY,
    PARSING,
    SLUICE,
    ZERO_COPY,
    RunningPeer,
    interpreted_plan,
)
from bench.data_path.pulsar_perf import OUTSTANDING, Traffic, pass_through
from bench.data_path.stage import CpuClock, DataRow, Stage, beside, close_all
from bench.harness import BenchError, Figure, Goal, Row, Sample, percentile
from loadgen.real.jars import RealPulsarError

_LARGE = (Goal("≥", 0.95, BARE, guard=0.6), Goal("≥", 1.2, HAPROXY))
_SMALL = (Goal("≥", 0.45, BARE, guard=0.3), Goal("≥", 12, PARSING))


def send_row(size: int, connections: int) -> DataRow:
    """Make the row of SENDs of `size` bytes."""
    is_small = size < 1000
    cost = (Goal("≤", 0.2),) if is_small else (Goal("≤", 1.2, BARE, guard=2.4),)
    figures = (
        Figure("rate", "frames/s", goals=_SMALL if is_small else _LARGE),
        Figure("cpu", "CPU s per million frames", digits=2, goals=cost),
        Figure("lost", "frames lost at the close"),
    )
    many = "1 connection" if connections == 1 else f"{connections} connections"
    return Row(
        f"send-{size}-{connections}",
        f"SEND of {size:,} B, {many}",
        figures,
        partial(_measure_send, size, connections),
        EVERYBODY,
    )


def _measure_send(size: int, connections: int, stage: Stage, name: str) -> Sample:
    return measure_sends(stage, stage.peers[name], size, connections)


def measure_sends(stage: Stage, peer: RunningPeer, size: int, connections: int) -> Sample:
    """Measure the peer, all its processes together, with frames of `size` bytes on `connections` connections."""
    frame = wire.send_frame(size).frame
    here, there = stage.producers(peer.port, connections)
    clocks = clocks_of(peer)
    with beside(lambda: stage.native.receive(there, frame_size=len(frame))) as receiving:
        begun, sent = stage.native.send_for(here, wire.many(frame), len(frame), stage.seconds)
    received, used = receiving.result(), [clock.read().cpu_s for clock in clocks]
    close_all(there)
    return carried(begun, sent, received, used)


def clocks_of(peer: RunningPeer) -> list[CpuClock]:
    """Start a clock of the CPU time of each of the peer's processes."""
    return [CpuClock(pid) for pid in (peer.pid, *meters.children(peer.pid))]


def carried(begun: float, sent: list[int], received: Received, used: Sequence[float]) -> Sample:
    """Return the figures of frames that were sent from `begun` on and cost each process its part of CPU seconds."""
    arrived = sum(received.frames)
    return {
        "rate": arrived / (received.last_at - begun),
        "cpu": sum(used) / arrived * 1e6,
        "busiest": max(used) / sum(used),
        "lost": sum(sent) - arrived,
    }


QUEUE = 200_000
"""The consumer's receiver queue: it gives permits again by halves, as clients do, and they never run out."""


def deliver_row(size: int) -> DataRow:
    """Make the row of SENDs of `size` bytes."""
    figures = (
        Figure("rate", "frames/s", goals=(Goal("≥", 0.8, BARE, guard=0.5),)),
        Figure("cpu", "CPU s per million frames", digits=2, goals=(Goal("≤", None, BARE, guard=3.0),)),
        Figure("lost", "frames lost at the close"),
    )
    return Row(
        f"deliver-{size}",
        f"MESSAGE of {size:,} B, 1 connection",
        figures,
        partial(_measure_deliveries, size),
        EVERYBODY,
    )


def _measure_deliveries(size: int, stage: Stage, name: str) -> Sample:
    return measure_deliveries(stage, stage.peers[name], size, 1)


def measure_deliveries(stage: Stage, peer: RunningPeer, size: int, connections: int) -> Sample:
    """Measure the peer, all its processes together, with frames of `size` bytes on `connections` connections."""
    frame = wire.message_frame(size)
    here, there = stage.consumers(peer.port, connections)
    for consumer in here:
        consumer.sendall(wire.flow(QUEUE))
    clocks = clocks_of(peer)
    more = SinkAnswer(wire.flow(QUEUE // 2), every=QUEUE // 2)
    with beside(lambda: stage.native.receive(here, more)) as receiving:
        begun, sent = stage.native.send_for(there, wire.many(frame), len(frame), stage.seconds, obeys=True)
    received, used = receiving.result(), [clock.read().cpu_s for clock in clocks]
    close_all([*here, *there])
    return carried(begun, sent, received, used)


_PACED_CONNECTIONS = 20
_PACED_SIZE = 100


def paced_row(per_write: int, rate: int, *, receipts: bool) -> DataRow:
    """`rate` frames a second, `per_write` in each write, answered or not."""
    goals = (
        Goal("≤", 1.5, BARE, guard=2.5),
        Goal("≤", 1.0, ZERO_COPY),
        Goal("≤", 1.0, PARSING),
    )
    figures = (
        Figure("cpu", "CPU s per million frames", digits=2, goals=goals),
        Figure("rate", "frames/s"),
    )
    load = f"{rate:,} SEND/s of {_PACED_SIZE} B over {_PACED_CONNECTIONS} connections, {per_write} in a write"
    load += ", with receipts" if receipts else ""
    return Row(f"paced-{per_write}", load, figures, partial(_measure_paced, per_write, rate, receipts), EVERYBODY)


def _measure_paced(per_write: int, rate: int, receipts: bool, stage: Stage, name: str) -> Sample:  # noqa: FBT001 - of the row
    return measure_paced(stage, stage.peers[name], _PACED_SIZE, per_write, rate, receipts=receipts)


def measure_paced(stage: Stage, peer: RunningPeer, size: int, per_write: int, rate: int, *, receipts: bool) -> Sample:
    """Measure the peer with `rate` frames of `size` bytes a second, `per_write` in each write, answered or not."""
    frame = wire.send_frame(size).frame
    writes = int(rate * stage.seconds) // per_write
    here, there = stage.producers(peer.port, _PACED_CONNECTIONS)
    receipt = wire.receipt()
    answer = SinkAnswer(receipt.frame, 1, receipt.sequence_at, wire.FIRST_SEQUENCE) if receipts else None
    clock = CpuClock(peer.pid)
    with beside(lambda: stage.native.receive(there, answer, wanted=writes * per_write)) as receiving:
        begun = stage.native.send_paced(here, frame * per_write, per_write / rate, writes)
    received, used = receiving.result(), clock.read()
    close_all(here)
    close_all(there)
    arrived = sum(received.frames)
    return {"cpu": used.cpu_s / arrived * 1e6, "rate": arrived / (received.last_at - begun)}


_ASKED_SIZE = 100
_US = 1_000_000


def latency_row(rate: int) -> DataRow:
    """`rate` SENDs a second, each answered at once."""
    figures = (
        Figure("p50", "added to the p50 without a proxy", " µs", goals=(Goal("≤", 70),)),
        Figure("p99", "p99", " µs", goals=(Goal("≤", 1.5, BARE),)),
    )
    return Row(
        "latency",
        f"{rate:,} SEND/s of {_ASKED_SIZE} B, each answered at once",
        figures,
        partial(_measure_latency, rate),
        EVERYBODY,
    )


def _measure_latency(rate: int, stage: Stage, name: str) -> Sample:
    count = int(rate * stage.seconds)
    direct, took = (asked(stage, [port], rate, count)[0] for port in (stage.sink.port, stage.peers[name].port))
    return {
        "p50": (statistics.median(took) - statistics.median(direct)) * _US,
        "p99": percentile(took, 0.99) * _US,
    }


def asked(stage: Stage, ports: Sequence[int], rate: int, count: int) -> list[list[float]]:
    """Return the seconds of each of `count` answers by each of `ports`, in turns, `rate` a second in all."""
    send, receipt = wire.send_frame(_ASKED_SIZE), wire.receipt()
    here: list[socket] = []
    there: list[socket] = []
    with ExitStack() as stack:
        stack.callback(lambda: close_all([*here, *there]))
        for port in ports:
            begun, reached = stage.producers(port, 1)
            here += begun
            there += reached
        answer = SinkAnswer(receipt.frame, 1, receipt.sequence_at, wire.FIRST_SEQUENCE)
        with beside(lambda: stage.native.receive(there, answer, wanted=count * len(ports))):
            return stage.native.ask(
                here,
                send.frame,
                sequence_at=send.sequence_at,
                first_sequence=wire.FIRST_SEQUENCE,
                interval_s=1 / rate,
                count=count,
            )


_CLOSED_BY = (BARE, HAPROXY, ZERO_COPY, COPYING, PARSING, SLUICE)
_BURST_S = 0.02


def closing_row(lives: int) -> DataRow:
    """Make the row of connections that are closed behind their last write, one after the other."""
    figures = (
        Figure("share", "frames lost of those written", " %", digits=2, goals=(Goal("≤", 0),)),
        Figure("cut", "connections that lost some"),
    )
    load = f"{lives} connections, closed behind the last of SENDs of 1,024 B for {_BURST_S * 1000:g} ms"
    return Row("closing", load, figures, partial(_measure_closing, lives), _CLOSED_BY)


def _measure_closing(lives: int, stage: Stage, name: str) -> Sample:
    frame = wire.send_frame(1024).frame
    sent = lost = cut = 0
    for _ in range(lives):
        here, there = stage.producers(stage.peers[name].port, 1)
        with beside(partial(stage.native.receive, there)) as receiving:
            _, written = stage.native.send_for(here, wire.many(frame), len(frame), _BURST_S)
        close_all(there)
        missing = sum(written) - sum(receiving.result().frames)
        sent, lost, cut = sent + sum(written), lost + missing, cut + (missing > 0)
    return {"share": lost / sent * 100, "cut": cut}


_INTERPRETED_SIZE = 1024


def interpreted_row() -> DataRow:
    """Make the row of SENDs on one connection with Sluice interpreted."""
    figures = (
        Figure("rate", "frames/s", goals=(Goal("≥", 0.25, BARE),)),
        Figure("cpu", "CPU s per million frames", digits=2, goals=(Goal("≤", None, BARE),)),
    )
    load = f"SEND of {_INTERPRETED_SIZE:,} B, 1 connection, Sluice interpreted"
    return Row("interpreted", load, figures, _measure_interpreted, (BARE, SLUICE))


def _measure_interpreted(stage: Stage, name: str) -> Sample:
    if name != SLUICE:
        return measure_sends(stage, stage.peers[name], _INTERPRETED_SIZE, 1)
    with stage.started(interpreted_plan()) as peer:
        return measure_sends(stage, peer, _INTERPRETED_SIZE, 1)


_PERF_PEERS = (BARE, PARSING, SLUICE)
_REACHED = 95.0
"""Percent of the rate; below, the machine is not up to it."""


def perf_row(traffic: Traffic) -> DataRow:
    """Make the row of pulsar-perf: messages produced and at the same time consumed through the peer."""
    kind, most = ("batched", 1.2) if traffic.is_batched else ("unbatched", 1.6)
    figures = (
        Figure(
            "cpu",
            "CPU s per million messages, produced and consumed",
            digits=2,
            goals=(Goal("≤", most, BARE), Goal("≤", None, PARSING)),
        ),
        Figure("rate", "produced, of that rate", " %"),
    )
    load = f"real broker, pulsar-perf -o {OUTSTANDING}: {traffic.rate:,} msg/s of {traffic.size:,} B, {kind}"
    measure = partial(_measure_perf, traffic)
    return Row(f"perf-{traffic.size}", load, figures, measure, _PERF_PEERS, is_real=True, needs=("rate", _REACHED))


def _measure_perf(traffic: Traffic, stage: Stage, name: str) -> Sample:
    if stage.real is None:
        raise BenchError("a real broker is not wanted: --real")
    peer = stage.real(stage.plans[name])
    folder = Path(tempfile.mkdtemp(prefix="perf", dir=stage.folder))
    topic = f"persistent://public/default/{folder.name}"
    clock = CpuClock(peer.pid)
    try:
        rate = pass_through(f"pulsar://127.0.0.1:{peer.port}", topic, traffic, folder)
    except RealPulsarError as error:
        raise BenchError(str(error).splitlines()[0]) from error
    return {"cpu": clock.read().cpu_s / traffic.messages * 1e6, "rate": rate / traffic.rate * 100}
