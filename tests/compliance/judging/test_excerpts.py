"""A part of a proxy's log, judged alone: nothing is found in it that the whole log does not show."""

from datetime import timedelta
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from accesslog.record import IntervalLine, LimitLine
from compliance.excerpt import MARGIN
from compliance.judging.account import JudgedPart
from compliance.judging.lines import BEHIND_CHANGE_S
from tests.compliance.judging.pure import deficit_s, doubts, excess, micros, verdicts
from tests.compliance.judging.test_steady import STEADY_S, STEPS, lines_of
from tests.proxy.observe.test_lines_at_changes import PLACES

_MARGIN_US = MARGIN // timedelta(microseconds=1)
PARTS = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted)


def part_of(lines: list[Any], begin_us: int, end_us: int) -> list[Any]:
    """The lines of an excerpt: amounts with those on its edges."""
    near = (begin_us - _MARGIN_US, end_us + _MARGIN_US)
    part = []
    for line in lines:
        first, last = near if isinstance(line, (IntervalLine, LimitLine)) else (begin_us, end_us)
        if first <= micros(line.start) < last:
            part.append(line)
    return part


@settings(max_examples=60)
@given(steps=STEPS, where=PARTS)
@example(steps=[("calm", 25), ("wait", 0.3), ("send", 1, 30, 3), ("calm", 25)], where=[0.31, 0.77])
@example(
    steps=[("change", [(PLACES[0], {"messages": 3})]), ("send", 1, 2, 2), ("wait", 0.05), ("send", 1, 2, 1)],
    where=[0.0, 1.0],
)
def test_an_excerpt_shows_nothing_that_the_whole_log_does_not(steps: Any, where: list[float]) -> None:
    lines = lines_of(steps, STEADY_S)
    whole = verdicts(lines)
    first, last = micros(min(line.start for line in lines)), micros(max(line.end for line in lines))
    begin_us, end_us = (round(first + share * (last - first)) for share in where)
    part = JudgedPart(begin_us + BEHIND_CHANGE_S * 1e6, begin_us, end_us, end_us)
    cut = verdicts(part_of(lines, begin_us, end_us), part, has_begin=begin_us <= first, complete_us=None)
    for key, result in cut.items():
        assert doubts(result) <= doubts(whole[key]), key
        assert excess(result) <= max(excess(whole[key]), 0), key
        assert deficit_s(result) <= max(deficit_s(whole[key]), 0) + 1e-6, key
        assert result.kept.lines <= whole[key].kept.lines
