"""How much later an answer comes than without a proxy, at a rate that keeps nobody busy."""

import statistics
from functools import partial

from loadgen.bench import frames
from loadgen.bench.figures import Figure, Goal, Sample
from loadgen.bench.native import Answer
from loadgen.bench.peers import bare
from loadgen.bench.rows.row import Row
from loadgen.bench.stage import Beside, Stage, close_all

SIZE = 100
_US = 1_000_000


def row(rate: int) -> Row:
    """`rate` SENDs a second, each answered at once."""
    figures = (
        Figure("p50", "added to the p50 without a proxy", " µs", goals=(Goal("≤", 70),)),
        Figure("p99", "p99", " µs", goals=(Goal("≤", 1.5, bare.NAME),)),
    )
    return Row("latency", f"{rate:,} SEND/s of {SIZE} B, each answered at once", figures, partial(_measure, rate))


def _measure(rate: int, stage: Stage, name: str) -> Sample:
    direct = _asked(stage, stage.sink.port, rate)
    took = _asked(stage, stage.peers[name].port, rate)
    return {
        "p50": (statistics.median(took) - statistics.median(direct)) * _US,
        "p99": statistics.quantiles(took, n=100)[98] * _US,
    }


def _asked(stage: Stage, port: int, rate: int) -> list[float]:
    """What each of the answers by that port took, seconds."""
    send, receipt = frames.send_frame(SIZE), frames.receipt()
    (here,), (there,) = stage.producers(port, 1)
    count = int(rate * stage.seconds)
    answer = Answer(receipt.frame, 1, receipt.sequence_at, frames.FIRST_SEQUENCE)
    with Beside(lambda: stage.native.receive([there], answer, wanted=count)):
        took = stage.native.ask(here, send.frame, (send.sequence_at, frames.FIRST_SEQUENCE), 1 / rate, count)
    close_all([here, there])
    return took
