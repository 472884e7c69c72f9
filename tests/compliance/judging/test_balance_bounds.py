"""A line that follows at once with the same value: the short way is the long one."""

from copy import copy
from dataclasses import asdict

from hypothesis import example, given
from hypothesis import strategies as st

from compliance.judging.entitlement import BalanceBounds
from compliance.judging.lines import Step

AMOUNTS = st.floats(-1e6, 1e6)
STEPS = st.builds(
    Step,
    gap_s=st.sampled_from((0.0, 0.5, 20.0)),
    is_unsettled=st.booleans(),
    is_hidden=st.booleans(),
    is_unknown=st.booleans(),
    follows=st.booleans(),
    late_s=st.sampled_from((0.0, 0.1)),
    adds_up=st.booleans(),
)
VALUES = st.tuples(st.sampled_from((0.5, 10.0, 1000.0)), st.sampled_from((1.0, 50.0, 1e4)))
SETTLED = st.tuples(AMOUNTS, AMOUNTS, st.none() | AMOUNTS)


@given(before=st.lists(st.tuples(VALUES, STEPS, st.none() | AMOUNTS, SETTLED), min_size=1, max_size=6))
@example(before=[((10.0, 50.0), Step(is_unknown=True), None, (-20.0, 3.0, None))])
def test_to_go_on_is_to_tune_without_a_step(
    before: list[tuple[tuple[float, float], Step, float | None, tuple[float, float, float | None]]],
) -> None:
    held = BalanceBounds(0)
    for value, step, began, (least, more, logged) in before:
        held.tune(*value, step, began)
        held.least, held.most, held.logged = least, least + abs(more), logged
    tuned = copy(held)
    tuned.tune(held.rate, held.burst, Step())
    held.go_on()
    assert asdict(held) == asdict(tuned)
