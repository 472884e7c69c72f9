"""What is held of one direction of a session."""

import pytest

from proxy.budgets import Budget, Claim, Pool, Share, SharedBudget
from proxy.refusals import TooMuchUnfinishedError
from proxy.session.data_path import HeldMemory


def test_bytes_that_are_not_taken_count_for_their_tenant() -> None:
    own = Budget(100, lambda _is_full: None)
    shared = SharedBudget(300, lambda *_turn: None, lambda: None)
    holdings = HeldMemory(own, Share(shared, lambda _is_over: None), Claim(Pool(10**9, 10**9), ""))
    for tenant in ("acme", "umbrella", "acme", "acme"):
        holdings.take(tenant, 10)
    holdings.sent("acme", 10)
    assert (own.used, shared.used) == (30, 30)
    holdings.stuck(True)
    holdings.sent("umbrella", 10)
    holdings.sent("acme", 10)
    assert (own.used, shared.used) == (10, 30), "nothing more is held, but it is there"
    holdings.stuck(False)
    assert (own.used, shared.used) == (10, 10)
    holdings.sent("acme", 10)
    assert (own.used, shared.used) == (0, 0)
    holdings.stuck(False)
    assert shared.used == 0, "it was given back once"


def test_incomplete_frames_count_as_memory_and_too_many_end_it() -> None:
    shared, pool = SharedBudget(300, lambda *_turn: None, lambda: None), Pool(1000, 200)
    holdings = HeldMemory(Budget(100, lambda _is_full: None), Share(shared, lambda _is_over: None), Claim(pool, "a"))
    holdings.keep_unfinished(150)
    with pytest.raises(TooMuchUnfinishedError):
        holdings.keep_unfinished(51)
    assert (pool.used, shared.aside) == (150, 150), "what is refused is not counted"
    holdings.keep_unfinished(-150)
    assert (pool.used, shared.aside) == (0, 0)
