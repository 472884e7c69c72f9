"""The rows about publishing: each function offers a load and returns its figures."""

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from heapq import merge
from math import inf
from time import monotonic

from bench.harness import BenchError, Figure, Goal, Row, Sample, jain
from bench.limits.trial import (
    EVEN,
    EVENNESS,
    FREE_PENDING,
    FREE_RATE,
    LOW,
    NOTICED,
    PEERS,
    LaneOrder,
    LaneResult,
    LimitsRow,
    Times,
    TrialStage,
    by_turns,
    count_between,
    evenness,
    noticed,
)

PRODUCERS = 5

SUSTAINED = (
    *EVENNESS,
    Figure("jain", "Jain's index of the five", digits=3, goals=(Goal("≥", 0.99),)),
    Figure("pause", "longest standstill of the publishers", " ms", 0),
)


def sustained_row(*, quick: bool) -> LimitsRow:
    """The row; quick: five seconds instead of twelve."""
    seconds = 5 if quick else 12
    load = f"{EVEN}/s shared by {PRODUCERS} greedy clients, {seconds} s"
    return Row(
        "sustained", load, SUSTAINED, by_turns(partial(_measure_sustained, seconds)), PEERS, rounds=1 if quick else 3
    )


def _measure_sustained(seconds: int, stage: TrialStage) -> dict[str, float]:
    topic = stage.topic(EVEN).name
    # half a second more than is looked at: the first arrival is a little late
    lanes = [LaneOrder(client=f"c{index}", topic=topic, index=index, end_s=seconds + 0.5) for index in range(PRODUCERS)]
    with stage.trial(lanes, drain_s=0) as trial:
        pass
    figures = sustained([trial.arrivals[index] for index in range(PRODUCERS)], seconds)
    return {**figures, "pause": trial.longest_pause_s * 1000}


def sustained(arrivals: Sequence[Sequence[float]], seconds: int) -> dict[str, float]:
    """The figures of one trial.

    Args:
        arrivals: Of each producer, ascending seconds.
        seconds: How many are looked at, from the first arrival.
    """
    times = list(merge(*arrivals))
    end = times[0] + seconds if times else 0
    return evenness(times, seconds) | {"jain": jain([sum(at < end for at in series) for series in arrivals])}


HELD_PENDING = 50
HELD, WARM_UP, ALONE, BESIDE = range(4)

_NEIGHBOUR = NOTICED


def neighbour_row(*, quick: bool) -> LimitsRow:
    """The row; quick: seconds instead of ten."""
    times = Times(1, 3, 4, 7) if quick else Times(2, 8, 9, 19)
    seconds = times.end - times.beside
    load = f"one connection: A held at {LOW}/s ({HELD_PENDING} pending), B free at {FREE_RATE}/s, {seconds:g} s"
    return Row(
        "neighbour", load, _NEIGHBOUR, by_turns(partial(_measure_neighbour, times)), PEERS, rounds=1 if quick else 3
    )


def _measure_neighbour(times: Times, stage: TrialStage) -> dict[str, float]:
    held = LaneOrder(
        client="shared",
        topic=stage.topic(LOW).name,
        index=HELD,
        begin_s=times.held,
        end_s=times.end,
        pending=HELD_PENDING,
    )
    free = partial(LaneOrder, client="shared", topic=stage.topic(None).name, rate=FREE_RATE, pending=FREE_PENDING)
    lanes = [
        held,
        free(index=WARM_UP, end_s=times.alone),
        free(index=ALONE, begin_s=times.alone, end_s=times.held),
        free(index=BESIDE, begin_s=times.beside, end_s=times.end),
    ]
    # A's 50 have passed after 5 s, and with them the messages after them
    with stage.trial(lanes, drain_s=20) as trial:
        pass
    return neighbour(times, trial.results, trial.arrivals[BESIDE])


def neighbour(times: Times, results: Mapping[int, LaneResult], arrivals: Sequence[float]) -> dict[str, float]:
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


SHARED = 1000
SHARES_BATCH = 100
SHARES_PENDING = 1000
"""The client's default."""
BATCHING, SINGLE = range(2)

SHARES = (
    Figure("jain", "Jain's index of the two", digits=3, goals=(Goal("≥", 0.99),)),
    Figure("batching", "share of the batching producer", " %", 1),
    Figure("single", "share of the other", " %", 1),
)


def shares_row(*, quick: bool) -> LimitsRow:
    """The row; quick: four seconds instead of ten."""
    seconds = 4 if quick else 10
    load = f"{SHARED}/s shared by batches of {SHARES_BATCH} and single messages, {seconds} s"
    return Row("shares", load, SHARES, by_turns(partial(_measure_shares, seconds)), PEERS, rounds=1 if quick else 3)


def _measure_shares(seconds: int, stage: TrialStage) -> dict[str, float]:
    order = partial(LaneOrder, topic=stage.topic(SHARED).name, end_s=seconds + 0.5, pending=SHARES_PENDING)
    lanes = [order(client="batching", index=BATCHING, batch=SHARES_BATCH), order(client="single", index=SINGLE)]
    with stage.trial(lanes, drain_s=0) as trial:
        pass
    return shares(trial.arrivals[BATCHING], trial.arrivals[SINGLE], seconds)


def shares(batching: Sequence[float], single: Sequence[float], seconds: float) -> dict[str, float]:
    """The figures of one trial: what arrived within `seconds` of the first arrival, of times ascending."""
    end = min([*batching[:1], *single[:1]], default=0.0) + seconds
    many, singles = (sum(at < end for at in times) for times in (batching, single))
    total = max(1, many + singles)
    return {"jain": jain([many, singles]), "batching": 100 * many / total, "single": 100 * singles / total}


RAISED_FROM, RAISED_TO = 1, 1000
RAISED_S = 3.0
"""When the first topic's limit is raised; the others follow, `APART_S` after each other."""
APART_S = 0.3
DRAIN_S = 40.0

RAISED = (Figure("freed", "from the REST call until its next message arrives", " ms", 0, (Goal("≤", 50),)),)


def raised_row(*, quick: bool) -> LimitsRow:
    """The row: three topics at once; quick: one, and a smaller debt."""
    batch, topics = (6, 1) if quick else (20, 3)
    load = f"a batch of {batch} at {RAISED_FROM}/s; {RAISED_S:g} s later the limit is raised to {RAISED_TO}/s"
    return Row("raised", load, RAISED, by_turns(partial(_measure_raised, batch, topics)), PEERS, rounds=1)


def _measure_raised(batch: int, count: int, stage: TrialStage) -> list[Sample]:
    topics = [stage.topic(RAISED_FROM) for _ in range(count)]
    raised: list[float] = []
    lanes = [lane for number, topic in enumerate(topics) for lane in _raised_lanes(number, topic.name, batch)]
    with stage.trial(lanes, DRAIN_S) as trial:
        for number, topic in enumerate(topics):
            trial.wait_until(RAISED_S + number * APART_S)
            raised.append(monotonic() - trial.began)
            stage.limit(topic, RAISED_TO)
    return raised_samples(raised, [trial.arrivals[_next(number)] for number in range(count)])


def _raised_lanes(number: int, topic: str, batch: int) -> list[LaneOrder]:
    order = partial(LaneOrder, client=f"c{number}", topic=topic, batch=batch, end_s=1.0)
    return [order(index=_next(number) - 1, most=batch), order(index=_next(number), begin_s=0.5, most=1)]


def _next(number: int) -> int:
    """The index of the lane whose one message waits for the debt to be paid."""
    return 2 * number + 1


def raised_samples(raised: Sequence[float], arrivals: Sequence[Sequence[float]]) -> list[Sample]:
    """Milliseconds from each raise to the first arrival after it was waited for; infinity where none came."""
    return [{"freed": (min(times, default=inf) - at) * 1000} for at, times in zip(raised, arrivals, strict=True)]


PATIENT = 1
BATCH = 121
"""The burst of one message and a debt of two minutes."""
FOLLOWERS_S = 1.0
"""When the messages begin that must wait, one a second."""
DEBT, WAITING = range(2)
SAMPLE_S = 1.0

PATIENCE = (
    Figure("lost", "connections lost", goals=(Goal("≤", 0),)),
    Figure("slipped", "messages slipped through", goals=(Goal("≤", 0),)),
)


def patience_row(*, quick: bool) -> LimitsRow:
    """The row; quick: so short that nothing can be lost yet."""
    seconds = 5 if quick else 100
    load = f"a batch of {BATCH} at {PATIENT}/s (two minutes of debt), then more, {seconds} s"
    return Row("patience", load, PATIENCE, partial(_measure_patience, seconds), PEERS, rounds=1)


def _measure_patience(seconds: int, stages: Sequence[TrialStage]) -> list[list[Sample]]:
    """All stages at once: the load costs nothing, and takes long."""
    topics = [stage.topic(PATIENT).name for stage in stages]
    connections: list[set[str]] = [set() for _ in stages]
    with ExitStack() as open_trials:
        trials = [
            open_trials.enter_context(stage.trial(_patience_lanes(topic, seconds), drain_s=0))
            for stage, topic in zip(stages, topics, strict=True)
        ]
        while any(trial.now_s < seconds for trial in trials):
            for stage, topic, seen in zip(stages, topics, connections, strict=True):
                seen.update(stage.publishers(topic))
            time.sleep(SAMPLE_S)
    return [[patience(seen, trial.arrivals, seconds)] for seen, trial in zip(connections, trials, strict=True)]


def _patience_lanes(topic: str, seconds: int) -> list[LaneOrder]:
    order = partial(LaneOrder, client="patient", topic=topic, batch=BATCH)
    return [
        order(index=DEBT, end_s=FOLLOWERS_S, most=BATCH),
        order(index=WAITING, begin_s=FOLLOWERS_S, end_s=seconds, rate=1),
    ]


def patience(connections: Collection[str], arrivals: dict[int, list[float]], seconds: float) -> dict[str, float]:
    """The figures of one trial.

    Args:
        connections: All that its producer had, one after the other.
        arrivals: By index, ascending seconds.
        seconds: The measured time; messages that pass when the client leaves do not count.

    Raises:
        BenchError: If the debt did not last for `seconds`.
    """
    times = sorted([*arrivals[DEBT], *arrivals[WAITING]])
    # on a very busy machine the client may have cut the batch in two: the messages that came at once are the debt
    debt = count_between(times, 0, FOLLOWERS_S)
    if debt <= PATIENT * seconds + 1 or not connections:
        raise BenchError(f"patience: {debt} messages of {BATCH} passed at once, too few for {seconds:g} s of debt")
    return {"lost": len(connections) - 1, "slipped": count_between(times, FOLLOWERS_S, seconds)}


ROWS = (sustained_row, neighbour_row, shares_row, raised_row, patience_row)
"""The makers of the section's rows, in its order."""
