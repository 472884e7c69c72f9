"""A free producer shares its connection with one that is held: what does it notice?"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf

from loadgen.bench_limits.figures import Samples
from loadgen.bench_limits.measures import count_between
from loadgen.bench_limits.orders import LaneOrder, LaneResult
from loadgen.bench_limits.rows.beside import LIMIT, NOTICED, PENDING, RATE, Times, noticed
from loadgen.bench_limits.rows.row import Row, by_turns
from loadgen.bench_limits.trial import Stage

HELD_PENDING = 50
HELD, WARM_UP, ALONE, BESIDE = range(4)

FIGURES = NOTICED


def row(*, quick: bool) -> Row:
    """The row; quick: seconds instead of ten."""
    times = Times(1, 3, 4, 7) if quick else Times(2, 8, 9, 19)
    seconds = times.end - times.beside
    load = f"one connection: A held at {LIMIT}/s ({HELD_PENDING} pending), B free at {RATE}/s, {seconds:g} s"
    return Row("neighbour", load, FIGURES, by_turns(partial(_measure, times)), rounds=1 if quick else 3)


def _measure(times: Times, stage: Stage) -> Samples:
    held = LaneOrder(
        client="shared",
        topic=stage.topic(LIMIT).name,
        index=HELD,
        begin_s=times.held,
        end_s=times.end,
        pending=HELD_PENDING,
    )
    free = partial(LaneOrder, client="shared", topic=stage.topic(None).name, rate=RATE, pending=PENDING)
    lanes = [
        held,
        free(index=WARM_UP, end_s=times.alone),
        free(index=ALONE, begin_s=times.alone, end_s=times.held),
        free(index=BESIDE, begin_s=times.beside, end_s=times.end),
    ]
    # A's 50 are gone after 5 s, and with them what stood behind them
    with stage.trial(lanes, drain_s=20) as trial:
        pass
    return samples(times, trial.results, trial.arrivals[BESIDE])


def samples(times: Times, results: Mapping[int, LaneResult], arrivals: Sequence[float]) -> Samples:
    """The figures of one trial.

    Args:
        times: Its spans.
        results: By index.
        arrivals: When the neighbour's messages offered beside the held producer arrived, ascending.
    """
    alone, beside = (latencies_ms(results[index]) for index in (ALONE, BESIDE))
    return noticed(times, alone, beside, count_between(arrivals, times.beside, times.end))


def latencies_ms(result: LaneResult) -> list[float]:
    """Milliseconds from offer to receipt; infinity for each message without one."""
    return [latency * 1000 for latency in result.latencies] + [inf] * (result.unsettled + sum(result.errors.values()))
