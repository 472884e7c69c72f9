"""Connections that are opened all at once, and their cost while they are idle."""

import resource
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from bench import meters
from bench.data_path import wire
from bench.data_path.proxies import EVERYBODY, HAPROXY, SLUICE, PeerPlan, sluice_plan
from bench.data_path.stage import CpuClock, DataRow, Stage, beside
from bench.data_path.wire import CONNECTED
from bench.harness import BenchError, Figure, Goal, Row, Sample

_TOPIC = "persistent://public/default/bench"


@dataclass(frozen=True, slots=True)
class Crowd:
    """Connections that stay.

    Attributes:
        seconds: From the first one's begin to the last one's greeting.
    """

    seconds: float


@contextmanager
def crowd(stage: Stage, port: int, count: int, at_once: int) -> Iterator[Crowd]:
    """Connect `count` times through the peer at `port`, `at_once` at a time; they stay while the block lasts.

    Raises:
        BenchError: If not all connections were greeted.
    """
    hello = wire.hello(wire.broker_of(_TOPIC, port))
    sockets: list[int] = []
    seconds, greeted = 0.0, 0
    try:
        with stage.sink.lent() as listener:
            for first in range(0, count, at_once):
                some = min(at_once, count - first)
                with beside(partial(stage.native.welcome_many, listener, some, CONNECTED)) as welcoming:
                    made, done, took = stage.native.connect_many(port, some, hello)
                sockets += [*made, *welcoming.result()]
                seconds += took
                greeted += done
        if greeted < count:
            raise BenchError(f"{greeted:,} of {count:,} connections were greeted")
        yield Crowd(seconds)
    finally:
        stage.native.reset_all(sockets)


def opening_row(connections: int) -> DataRow:
    """Make the row of connections that are opened at once, up to the broker's greeting on each."""
    figures = (
        Figure("rate", "connections/s", goals=(Goal("≥", 0.5, HAPROXY),)),
        Figure("cpu", "CPU of each", " ms", digits=2),
    )
    return Row(
        "opening",
        f"{connections:,} connections opened at once",
        figures,
        partial(_measure_opening, connections),
        EVERYBODY,
    )


def _measure_opening(count: int, stage: Stage, name: str) -> Sample:
    peer = stage.peers[name]
    clock = CpuClock(peer.pid)
    with crowd(stage, peer.port, count, count) as opened:
        used = clock.read()
        return {"rate": count / opened.seconds, "cpu": used.cpu_s / count * 1e3}


WINDOWS = 3
_AT_ONCE = 250
"""Few enough for a JVM that has just started."""
SETTLE_S = 12.0
"""Until all that follows from a start or an opening is done: Sluice closes a file of its access log after 10 s."""
_OWN_DESCRIPTORS = 1000
"""Descriptors that a JVM with some hundred jars needs beside the connections."""


def idle_row(connections: int, limits: int, window_s: float) -> DataRow:
    """Measure WINDOWS times `window_s`; the median window counts, for a heartbeat of 30 s falls into one."""
    figures = (
        Figure("memory", "memory of a connection", " KiB", digits=1, goals=(Goal("≤", 10),)),
        Figure("wake_ups", f"wake-ups in {window_s:g} s", goals=(Goal("≤", 0),)),
        Figure("cpu", f"CPU in {window_s:g} s", " ms", digits=1),
    )
    load = f"{connections:,} idle connections; Sluice with {limits:,} limits"
    return Row("idle", load, figures, partial(_measure_idle, connections, limits, window_s), EVERYBODY, rounds=1)


def connections_possible(wanted: int, most_descriptors: int) -> int:
    """Return as many as are wanted, or as descriptors allow: this process and every peer have two for each."""
    return min(wanted, (most_descriptors - _OWN_DESCRIPTORS) // 2)


def descriptors() -> int:
    """Allow this process, and those that it starts, as many descriptors as they may have at most."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def _measure_idle(connections: int, limits: int, window_s: float, stage: Stage, name: str) -> Sample:
    plan = sluice_plan(many_limits(limits)) if name == SLUICE else stage.plans[name]
    return _idle(stage, plan, connections, window_s)


def many_limits(count: int) -> dict[str, dict[str, object]]:
    """Return limits of `count` topics."""
    publish = {"publish": {"messages": 1000}}
    return {"topics": {f"persistent://public/default/limited-{number}": publish for number in range(count)}}


def _idle(stage: Stage, plan: PeerPlan, connections: int, window_s: float) -> Sample:
    with stage.started(plan) as peer:
        with crowd(stage, peer.port, 1, 1):
            time.sleep(SETTLE_S)  # Sluice gives the memory back that reading its limits took
            before = meters.resident_bytes(peer.pid)
        with crowd(stage, peer.port, connections, _AT_ONCE):
            time.sleep(SETTLE_S)
            memory = meters.resident_bytes(peer.pid) - before
            windows = []
            for _ in range(WINDOWS):
                clock = CpuClock(peer.pid)
                time.sleep(window_s)
                windows.append(clock.read())
    return {
        "memory": memory / connections / 1024,
        "wake_ups": statistics.median(used.wake_ups for used in windows),
        "cpu": statistics.median(used.cpu_s for used in windows) * 1e3,
    }
