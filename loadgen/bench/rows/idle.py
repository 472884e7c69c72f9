"""What connections cost that do nothing: memory, and whether anybody wakes up for them."""

import resource
import statistics
import time
from functools import partial

from loadgen.bench import proc
from loadgen.bench.figures import Figure, Goal, Sample
from loadgen.bench.peers import sluice
from loadgen.bench.peers.plan import Plan
from loadgen.bench.rows.crowd import crowd
from loadgen.bench.rows.row import Row
from loadgen.bench.stage import CpuClock, Stage

WINDOWS = 3
_AT_ONCE = 250
"""Few enough for a JVM that has just started."""
_SETTLE_S = 12.0
"""Until all that follows from the opening is done: Sluice closes a file of its access log after 10 s."""
_OWN_DESCRIPTORS = 1000
"""What a JVM with some hundred jars needs beside the connections."""


def row(connections: int, limits: int, window_s: float) -> Row:
    """Looked at for WINDOWS times `window_s`; the median window counts, for a heartbeat of 30 s falls into one."""
    figures = (
        Figure("memory", "memory of a connection", " KiB", digits=1, goals=(Goal("≤", 10),)),
        Figure("wake_ups", f"wake-ups in {window_s:g} s", goals=(Goal("≤", 0),)),
        Figure("cpu", f"CPU in {window_s:g} s", " ms", digits=1),
    )
    load = f"{connections:,} idle connections; Sluice with {limits:,} limits"
    return Row("idle", load, figures, partial(_measure, connections, limits, window_s), is_once=True)


def connections_possible(wanted: int, most_descriptors: int) -> int:
    """As many as are wanted, or as a process that has two sockets for each may have: this one, and every peer."""
    return min(wanted, (most_descriptors - _OWN_DESCRIPTORS) // 2)


def descriptors() -> int:
    """Allow this process, and those that it starts, as many descriptors as they may have at most."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def _measure(connections: int, limits: int, window_s: float, stage: Stage, name: str) -> Sample:
    plan = sluice.plan(many_limits(limits)) if name == sluice.NAME else stage.plans[name]
    return _idle(stage, plan, connections, window_s)


def many_limits(count: int) -> dict[str, dict[str, object]]:
    """So many topics with a limit each."""
    publish = {"publish": {"messages": 1000}}
    return {"topics": {f"persistent://public/default/limited-{number}": publish for number in range(count)}}


def _idle(stage: Stage, plan: Plan, connections: int, window_s: float) -> Sample:
    with stage.started(plan) as peer:
        with crowd(stage, peer.port, 1, 1):
            before = proc.resident_bytes(peer.pid)
        with crowd(stage, peer.port, connections, _AT_ONCE):
            time.sleep(_SETTLE_S)
            memory = proc.resident_bytes(peer.pid) - before
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
