"""A bounded number of held bytes."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.budgets import Budget


def test_it_turns_full_at_its_limit_and_has_room_again_at_half() -> None:
    turns: list[bool] = []
    budget = Budget(100, turns.append)
    budget.take(99)
    assert turns == []
    budget.take(1)
    budget.take(50)
    assert turns == [True]
    budget.give(99)
    assert turns == [True]
    budget.give(1)
    assert turns == [True, False]


def test_who_fills_it_again_while_it_turns_is_told_so() -> None:
    """A connection that goes on finds frames that it had read already."""
    turns: list[bool] = []

    def turned(is_full: bool) -> None:  # noqa: FBT001 - the new state
        turns.append(is_full)
        if not is_full:
            budget.take(100)

    budget = Budget(100, turned)
    budget.take(100)
    budget.give(50)
    assert turns == [True, False, True]
    assert budget.is_full
    assert budget.used == 150


@given(st.lists(st.integers(0, 200)), st.integers(1, 300))
def test_what_is_given_back_leaves_nothing(sizes: list[int], limit: int) -> None:
    turns: list[bool] = []
    budget = Budget(limit, turns.append)
    for size in sizes:
        budget.take(size)
        assert budget.is_full == (budget.used >= limit)
    for size in sizes:
        budget.give(size)
    assert budget.used == 0
    assert not budget.is_full
    assert turns in ([], [True, False])
