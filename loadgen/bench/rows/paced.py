"""Small writes at a steady rate, far from what a proxy can: what real traffic costs."""

from functools import partial

from loadgen.bench import frames
from loadgen.bench.figures import Figure, Goal, Sample
from loadgen.bench.native import Answer
from loadgen.bench.peers import bare, official
from loadgen.bench.rows.row import Row
from loadgen.bench.stage import Beside, CpuClock, Stage, close_all

CONNECTIONS = 20
SIZE = 100


def row(per_write: int, rate: int, *, receipts: bool) -> Row:
    """`rate` frames a second, `per_write` in each write, answered or not."""
    goals = (
        Goal("≤", 1.5, bare.NAME, guard=2.5),
        Goal("≤", 1.0, official.ZERO_COPY),
        Goal("≤", 1.0, official.PARSING),
    )
    figures = (
        Figure("cpu", "CPU s per million frames", digits=2, goals=goals),
        Figure("rate", "frames/s"),
    )
    load = f"{rate:,} SEND/s of {SIZE} B over {CONNECTIONS} connections, {per_write} in a write"
    load += ", with receipts" if receipts else ""
    return Row(f"paced-{per_write}", load, figures, partial(_measure, per_write, rate, receipts))


def _measure(per_write: int, rate: int, receipts: bool, stage: Stage, name: str) -> Sample:  # noqa: FBT001 - of the row
    peer = stage.peers[name]
    frame = frames.send_frame(SIZE).frame
    writes = int(rate * stage.seconds) // per_write
    here, there = stage.producers(peer.port, CONNECTIONS)
    receipt = frames.receipt()
    answer = Answer(receipt.frame, 1, receipt.sequence_at, frames.FIRST_SEQUENCE) if receipts else None
    clock = CpuClock(peer.pid)
    with Beside(lambda: stage.native.receive(there, answer, wanted=writes * per_write)) as receiving:
        begun = stage.native.send_paced(here, frame * per_write, per_write / rate, writes)
    received, used = receiving.result, clock.read()
    close_all(here)
    close_all(there)
    arrived = sum(received.frames)
    return {"cpu": used.cpu_s / arrived * 1e6, "rate": arrived / (received.last_at - begun)}
