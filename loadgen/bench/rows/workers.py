"""Several workers beside one process: Sluice alone, by turns, where it works and its peers hardly do."""

from functools import partial

from loadgen.bench import frames, proc
from loadgen.bench.errors import BenchError
from loadgen.bench.figures import Figure, Goal, Sample
from loadgen.bench.peers import sluice
from loadgen.bench.peers.plan import Peer
from loadgen.bench.rows.row import Row
from loadgen.bench.stage import Beside, CpuClock, Stage, close_all

WORKERS = 2
_GOALS = (Goal("≥", 1.6),)


def row(size: int, connections: int) -> Row:
    """Frames of `size` bytes: small ones, as each costs Sluice the same, and the ends of the line by its bytes.

    The ends run on the same cores, and a frame costs Sluice so little that they take a good part of two: there no
    number of workers could be 1.6 times as fast as one process. So the goal is for what does not depend on them: the
    frames that a CPU second carries, times as many cores.
    """
    figures = (
        Figure("cores", f"frames of {WORKERS} CPU seconds of {WORKERS} workers ÷ one of one process", " x", 2, _GOALS),
        Figure("cpu", f"CPU s per million frames, {WORKERS} workers and their supervisor", digits=3),
        Figure("cpu_one", "CPU s per million frames, one process", digits=3),
        Figure("rate", f"frames/s, {WORKERS} workers, the ends on the same cores"),
        Figure("one", "frames/s, one process, likewise"),
    )
    text = f"SEND of {size:,} B, {connections} connections: `workers: {WORKERS}` and one process, by turns"
    return Row(f"workers-{WORKERS}", text, figures, partial(_measure, size, connections), (sluice.NAME,))


def _measure(size: int, connections: int, stage: Stage, name: str) -> Sample:
    with stage.started(stage.plans[name]) as alone, stage.started(sluice.plan(workers=WORKERS)) as several:
        if len(proc.children(several.pid)) < WORKERS:
            raise BenchError("the kernel does not tell of Sluice's workers (/proc/PID/task/*/children)")
        turns = [_window(stage, peer, size, connections) for peer in (several, alone, alone, several)]
    rate, one = (turns[0][0] + turns[3][0]) / 2, (turns[1][0] + turns[2][0]) / 2
    cpu, cpu_one = (turns[0][1] + turns[3][1]) / 2, (turns[1][1] + turns[2][1]) / 2
    return {"cores": WORKERS * cpu_one / cpu, "cpu": cpu, "cpu_one": cpu_one, "rate": rate, "one": one}


def _window(stage: Stage, peer: Peer, size: int, connections: int) -> tuple[float, float]:
    """Frames a second, and CPU seconds a million of them."""
    frame = frames.send_frame(size).frame
    here, there = stage.producers(peer.port, connections)
    clocks = [CpuClock(pid) for pid in (peer.pid, *proc.children(peer.pid))]
    with Beside(lambda: stage.native.receive(there)) as receiving:
        begun, _ = stage.native.send_for(here, frames.many(frame), len(frame), stage.seconds)
    received, used = receiving.result, sum(clock.read().cpu_s for clock in clocks)
    close_all(there)
    arrived = sum(received.frames)
    return arrived / (received.last_at - begun), used / arrived * 1e6
