"""Several workers beside one process: Sluice alone, by turns, where it works and its peers hardly do."""

from collections.abc import Callable
from functools import partial

from loadgen.bench import proc
from loadgen.bench.errors import BenchError
from loadgen.bench.figures import Figure, Goal, Sample
from loadgen.bench.peers import sluice
from loadgen.bench.peers.plan import Peer
from loadgen.bench.rows import deliver, send
from loadgen.bench.rows.row import Row
from loadgen.bench.stage import CpuClock, Stage

WORKERS = 2
Measured = Callable[[Stage, Peer, int, int], Sample]
_GOALS = (Goal("≥", 1.6),)


def rows(size: int, connections: int) -> tuple[Row, Row]:
    """Frames of `size` bytes: small ones, as each costs Sluice the same, and the ends of the line by its bytes.

    The ends run on the same cores, and take a good part of two: there no number of workers could be 1.6 times as fast
    as one process. So what is asked for is what does not depend on them: the frames that a CPU second carries, times
    as many cores. Of MESSAGEs, whose metadata is walked, that is true: they are the work that is bound by the CPU. A
    SEND costs less than the reading of it; a worker that is faster than what feeds it then reads less at a time, and
    pays more for each frame. So that row has no goal.
    """
    many = f"{connections} connections"
    messages, sends = (partial(_measure, measured, size, connections) for measured in (deliver.measured, send.measured))
    return (
        _row("", f"MESSAGE of {size:,} B, {many}", messages, _GOALS),
        _row("-send", f"SEND of {size:,} B, {many}", sends, ()),
    )


def _row(name: str, what: str, measure: Callable[[Stage, str], Sample], goals: tuple[Goal, ...]) -> Row:
    figures = (
        Figure("cores", f"frames of {WORKERS} CPU seconds of {WORKERS} workers ÷ one of one process", " x", 2, goals),
        Figure("busiest", f"of the CPU of {WORKERS} workers, the busier one's", " %"),
        Figure("cpu", f"CPU s per million frames, {WORKERS} workers and their supervisor", digits=3),
        Figure("cpu_one", "CPU s per million frames, one process", digits=3),
        Figure("rate", f"frames/s, {WORKERS} workers, the ends on the same cores"),
        Figure("one", "frames/s, one process, likewise"),
    )
    text = f"{what}: `workers: {WORKERS}` and one process, by turns"
    return Row(f"workers-{WORKERS}{name}", text, figures, measure, (sluice.NAME,))


def _measure(measured: Measured, size: int, connections: int, stage: Stage, name: str) -> Sample:
    with stage.started(stage.plans[name]) as alone, stage.started(sluice.plan(workers=WORKERS)) as several:
        workers = [CpuClock(pid) for pid in proc.children(several.pid)]
        if len(workers) < WORKERS:
            raise BenchError("the kernel does not tell of Sluice's workers (/proc/PID/task/*/children)")
        turns = [measured(stage, peer, size, connections) for peer in (several, alone, alone, several)]
        used = [clock.read().cpu_s for clock in workers]
    rate, one = (turns[0]["rate"] + turns[3]["rate"]) / 2, (turns[1]["rate"] + turns[2]["rate"]) / 2
    cpu, cpu_one = (turns[0]["cpu"] + turns[3]["cpu"]) / 2, (turns[1]["cpu"] + turns[2]["cpu"]) / 2
    busiest = max(used) / sum(used) * 100
    cores = WORKERS * cpu_one / cpu
    return {"cores": cores, "busiest": busiest, "cpu": cpu, "cpu_one": cpu_one, "rate": rate, "one": one}
