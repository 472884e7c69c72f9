"""Logs of the same traffic with and without lines of several intervals: the verdicts are the same."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accesslog.record import IntervalLine, LimitLine
from compliance.judging.facts import Judged
from proxy.observe import counter_snapshot, log_lines
from tests.compliance.judging.pure import deficit_s, doubts, excess, verdicts
from tests.manual_clock import ManualClock
from tests.proxy.observe.test_lines_at_changes import PLACES, SECTIONS, Changing

STEADY_S = 10
STREAMS = 3
CHANGES = st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(SECTIONS)), min_size=1, max_size=2)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("change"), CHANGES),
        *[st.tuples(st.just("send"), st.integers(1, STREAMS), st.integers(1, 30), st.integers(1, 3))] * 4,
        *[st.tuples(st.just("wait"), st.sampled_from((0.05, 0.3, 1.0, 1.7)))] * 2,
        st.tuples(st.just("calm"), st.integers(2, 25)),
    ),
    min_size=5,
    max_size=30,
)


def lines_of(steps: Any, steady_s: float) -> list[Any]:
    """The log of a conversation."""
    changing = Changing(STREAMS, clock=ManualClock, access_log={"steady_interval": steady_s})
    for name, *arguments in steps:
        changing.world.advance(0.001)
        if name == "change":
            changing.change(dict(arguments[0]))
        elif name == "send":
            stream, entries, messages = arguments
            changing.send_one(stream, entries, messages)
        elif name == "wait":
            changing.world.advance(arguments[0])
        else:
            for _ in range(arguments[0]):
                for stream in range(1, STREAMS + 1):
                    changing.send_one(stream, 1, 1)
                changing.world.advance(1)
    changing.world.advance(STEADY_S)
    changing.world.loop.run(changing.world.intervals.flush)
    lines = changing.world.lines()
    changing.close()
    return lines


def summed(lines: list[Any]) -> dict[Any, tuple[int, ...]]:
    """What passed, by stream and by limiter."""
    sums: dict[Any, tuple[int, ...]] = {}
    for line in lines:
        if isinstance(line, (IntervalLine, LimitLine)):
            key = (line.level, line.name) if isinstance(line, LimitLine) else (line.topic, line.stream_id)
            counts = line.passed_entries, line.passed_messages, line.passed_bytes
            sums[key] = tuple(map(sum, zip(sums.get(key, (0, 0, 0)), counts, strict=True)))
    return sums


def assert_same(always: Judged, steady: Judged, key: Any) -> None:
    assert doubts(always) == doubts(steady), key
    assert max(excess(always), 0) == pytest.approx(max(excess(steady), 0), abs=0.01), key
    assert max(deficit_s(always), 0) == pytest.approx(max(deficit_s(steady), 0), abs=1e-4), key
    assert (always.entitlement is None) == (steady.entitlement is None), key
    if always.entitlement and steady.entitlement:
        assert always.entitlement.whole_waited_s == pytest.approx(steady.entitlement.whole_waited_s, abs=1e-3), key
        assert always.entitlement.unseen_s == pytest.approx(steady.entitlement.unseen_s, abs=1e-3), key


def judge_both(steps: Any) -> list[tuple[Any, Judged, Judged]]:
    """Judge the logs of the same steps: each limiter by a line for each interval, and by lines of several."""
    logs = [lines_of(steps, steady_s) for steady_s in (0, STEADY_S)]
    assert summed(logs[0]) == summed(logs[1])
    always, steady = (verdicts(log) for log in logs)
    assert always.keys() == steady.keys()
    return [(key, always[key], steady[key]) for key in always]


@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_verdicts_are_the_same_whether_lines_are_summed_or_not(steps: Any) -> None:
    for key, always, steady in judge_both(steps):
        assert_same(always, steady, key)


def is_kept(judged: Judged) -> bool:
    return excess(judged) <= 0 and deficit_s(judged) <= 0 and not doubts(judged)


@settings(max_examples=20, deadline=None)
@given(steps=STEPS)
def test_faults_are_found_whether_lines_are_summed_or_not(steps: Any) -> None:
    """The proxy believes that its limits are half of what its buckets let pass."""
    honest = log_lines.in_force

    def halved(limiter: Any) -> Any:
        return tuple(
            rate and type(rate)(rate.tokens, rate.period_ns * 2, max(1, rate.burst // 2)) for rate in honest(limiter)
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_lines, "in_force", halved)
        patch.setattr(counter_snapshot, "in_force", halved)
        for key, always, steady in judge_both(steps):
            assert is_kept(always) == is_kept(steady), key


def test_lines_of_a_steady_stream_and_its_limiters_are_summed() -> None:
    lines = lines_of([("change", [(PLACES[0], SECTIONS[2])]), ("wait", 1.0), ("calm", 25)], STEADY_S)
    streams = [line for line in lines if isinstance(line, IntervalLine) and line.steady]
    limits = [line for line in lines if isinstance(line, LimitLine) and line.steady]
    assert {line.stream_id for line in streams} == {1, 2, 3}
    assert len(streams) == 9
    assert len(limits) == 3
    assert max(line.duration_ms for line in (*streams, *limits)) == pytest.approx(10_000)
