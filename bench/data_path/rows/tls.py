"""Rows of TLS: frames, answers, handshakes and idle connections, with TLS on both legs of a peer or on one."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench import meters
from bench.data_path.proxies import BARE, HAPROXY, OFFICIAL, SLUICE, RunningPeer
from bench.data_path.rows.connections import SETTLE_S, crowd
from bench.data_path.rows.throughput import asked, measure_deliveries, measure_sends
from bench.data_path.stage import CpuClock, DataRow, Stage, TlsLines, settle
from bench.harness import BenchError, Figure, Goal, Row, Sample, percentile

PEERS = (BARE, HAPROXY, OFFICIAL, SLUICE)
_MILLION = 1e6
_PER_CPU = (Goal("≥", 0.95, BARE), Goal("≥", 0.7, HAPROXY))


@dataclass(frozen=True, slots=True)
class Legs:
    """The legs that have TLS.

    Attributes:
        name: For the command line.
        text: For the table.
        client, broker: Which.
    """

    name: str
    text: str
    client: bool
    broker: bool


BOTH = Legs("both", "TLS on both legs", client=True, broker=True)
CLIENT = Legs("client", "TLS with clients only", client=True, broker=False)
BROKER = Legs("broker", "TLS with the broker only", client=False, broker=True)
_Carry = Callable[[Stage, RunningPeer, int, int], Sample]


def rows(connections: int) -> list[DataRow]:
    """Return the rows; `connections` is the number of idle connections."""
    return [
        *(_carried_row("send", "SEND", measure_sends, BOTH, size) for size in (1024, 16384)),
        *(_carried_row("send", "SEND", measure_sends, legs, 1024) for legs in (CLIENT, BROKER)),
        _carried_row("deliver", "MESSAGE", measure_deliveries, BOTH, 1024),
        _latency_row(1000),
        _handshakes_row(1000, 100),
        _idle_row(connections),
    ]


def _carried_row(name: str, frame: str, carry: _Carry, legs: Legs, size: int) -> DataRow:
    """Frames as fast as they go: what counts is those of a CPU second, for the ends take a share of the cores."""

    def measure(stage: Stage, peer_name: str) -> Sample:
        _, at, peer = peer_on(stage, peer_name, legs)
        sample = carry(at, peer, size, 1)
        return {**sample, "per_cpu": _MILLION / sample["cpu"]}

    figures = (
        Figure("per_cpu", "frames per CPU s", goals=_PER_CPU),
        Figure("rate", "frames/s"),
        Figure("lost", "frames lost at the close"),
    )
    text = f"{legs.text}: {frame} of {size:,} B, 1 connection"
    return Row(f"tls-{name}-{size}-{legs.name}", text, figures, measure, PEERS)


def _latency_row(rate: int) -> DataRow:
    def measure(stage: Stage, name: str) -> Sample:
        lines, at, peer = peer_on(stage, name, BOTH)
        direct, took = asked(at, (lines.direct(), peer.port), rate, _PARTS * int(rate * stage.seconds / 5))
        p50, p99 = added(direct, took, 0.5), added(direct, took, 0.99)
        return {"p50": p50 * _MILLION, "p99": percentile(took, 0.99) * _MILLION, "added": p99 * _MILLION}

    figures = (
        Figure("p50", "added to the p50 without a proxy", " µs", goals=(Goal("≤", None, BARE),)),
        Figure("added", "added to the p99 without a proxy", " µs", goals=(Goal("≤", 1.5, BARE),)),
        Figure("p99", "p99", " µs", goals=(Goal("≤", 1.5, BARE),)),
    )
    text = f"{BOTH.text}: {rate:,} SEND/s of 100 B, each answered at once, by turns with and without a proxy"
    return Row("tls-latency", text, figures, measure, PEERS)


_PARTS = 8


def added(direct: Sequence[float], took: Sequence[float], part: float) -> float:
    """Return the excess of a percentile of `took` over that of `direct`: the median of differences of equal parts.

    Delays of both at the same time are the machine's and cancel out; a disturbed part is one of many.
    """
    each = len(direct) // _PARTS
    spans = [slice(at, at + each) for at in range(0, each * _PARTS, each)]
    return statistics.median(percentile(took[span], part) - percentile(direct[span], part) for span in spans)


def _handshakes_row(count: int, at_once: int) -> DataRow:
    def measure(stage: Stage, name: str) -> Sample:
        _, at, peer = peer_on(stage, name, CLIENT)
        clock = CpuClock(peer.pid)
        with crowd(at, peer.port, count, at_once):
            return {"per_cpu": count / clock.read().cpu_s}

    figures = (Figure("per_cpu", "handshakes per CPU s", goals=(Goal("≥", 0.6, HAPROXY),)),)
    text = f"{CLIENT.text}: {count:,} connections opened, {at_once} at once, none resumed"
    return Row("tls-handshakes", text, figures, measure, PEERS)


def _idle_row(count: int) -> DataRow:
    def measure(stage: Stage, name: str) -> Sample:
        lines, at = lines_on(stage, broker=True)
        with lines.started(stage.plans[name], client=True, broker=True) as peer:
            with crowd(at, peer.port, 1, 1):
                before = meters.resident_bytes(peer.pid)
            with crowd(at, peer.port, count, 100):
                time.sleep(SETTLE_S)
                return {"memory": (meters.resident_bytes(peer.pid) - before) / count / 1024}

    figures = (Figure("memory", "memory of a connection", " KiB", digits=1, goals=(Goal("≤", 60),)),)
    return Row("tls-idle", f"{BOTH.text}: {count:,} idle connections", figures, measure, PEERS, rounds=1)


def lines_on(stage: Stage, *, broker: bool) -> tuple[TlsLines, Stage]:
    """Return the lines with TLS, and the stage with the sink of those that reach the broker with it, or without."""
    if stage.tls is None:
        raise BenchError("peers with TLS are not wanted")
    return stage.tls, replace(stage, sink=stage.tls.sink(broker=broker))


def peer_on(stage: Stage, name: str, legs: Legs) -> tuple[TlsLines, Stage, RunningPeer]:
    """Return the lines with TLS, the stage with their sink, and the peer with TLS on `legs`."""
    lines, at = lines_on(stage, broker=legs.broker)
    peer = lines.peer(stage.plans[name], client=legs.client, broker=legs.broker)
    settle(peer.pid)  # of the measurement before
    return lines, at, peer
