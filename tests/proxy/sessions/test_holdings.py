"""What is held of one direction of a session."""

from proxy.budget import Budget
from proxy.sessions.holdings import Holdings
from proxy.shared_budget import Share, SharedBudget


def test_each_held_byte_counts_for_its_connection_and_for_its_tenant() -> None:
    own = Budget(100, lambda _is_full: None)
    told: list[tuple[str, bool, int]] = []
    shared = SharedBudget(100, lambda *turn: told.append(turn))
    holdings = Holdings(own, Share(shared, lambda _is_over: None))
    assert not holdings.is_any
    holdings.take("acme", 30)
    holdings.take("umbrella", 40)
    assert holdings.is_any
    assert (own.used, shared.used) == (70, 70)
    assert told == [("umbrella", True, 40)], "30 are free: less than it holds"
    holdings.give("acme", 30)
    holdings.give("umbrella", 40)
    assert not holdings.is_any
    assert (own.used, shared.used) == (0, 0)
    assert told[1:] == [("umbrella", False, 0)]
