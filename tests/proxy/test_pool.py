"""What clients take, by connection, by address and in all."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.budgets import Claim, Pool


def test_a_connection_gets_no_more_than_one_may() -> None:
    pool = Pool(1000, 3)
    claim = Claim(pool, "a")
    assert [claim.take(2), claim.take(2), claim.take(1)] == [True, False, True]
    assert (claim.held, pool.used, pool.refused) == (3, 3, 1)


def test_connections_of_an_address_get_no_more_than_is_free() -> None:
    pool = Pool(100, 100)
    claims = [Claim(pool, "a") for _ in range(200)]
    assert sum(claim.take(1) for claim in claims) == 50
    assert sum(Claim(pool, "b").take(1) for _ in range(200)) == 25


def test_what_is_given_back_is_there_for_others() -> None:
    pool = Pool(10, 10)
    claim = Claim(pool, "a")
    assert claim.take(5)
    assert not claim.take(1)
    claim.add(-5)
    assert pool.held_by("a") == 0
    assert Claim(pool, "b").take(5)
    assert pool.most == 5


def test_a_connection_that_ends_gives_all_back_and_changes_nothing_afterwards() -> None:
    pool = Pool(10, 10)
    claim = Claim(pool, "a")
    claim.take(4)
    claim.end()
    claim.add(-4)
    claim.end()
    assert (pool.used, pool.held_by("a")) == (0, 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 40)), max_size=60))
def test_an_address_that_has_nothing_always_gets_some(takes: list[tuple[str, int]]) -> None:
    """All that is asked for one by one: the pool is never full for a newcomer."""
    pool = Pool(1000, 1000)
    for address, amount in takes:
        Claim(pool, address).take(amount)
        assert pool.used <= pool.limit
    assert Claim(pool, "newcomer").take(1)
