"""How a limit is divided."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from fleet.shares import UNBOUNDED, WHOLE, ShareClaim, fill

CLAIMS = st.lists(
    st.builds(ShareClaim, st.one_of(st.just(UNBOUNDED), st.just(0), st.integers(1, 2 * WHOLE)), st.integers(1, 50)),
    max_size=20,
)


@given(CLAIMS, st.integers(0, WHOLE))
def test_the_sum_is_the_whole_and_nobody_is_worse_off_than_another_that_has_more_than_it_wants(claims, whole) -> None:
    shares = fill(claims, whole)
    assert sum(shares) == (whole if claims else 0)
    for claim, share in zip(claims, shares, strict=True):
        assert share >= 0
        unmet = claim.wanted == UNBOUNDED or share < claim.wanted
        for other, theirs in zip(claims, shares, strict=True):
            if unmet:  # per weight, what another one has beyond this one's level is at most what rounding gives
                assert Fraction(theirs - 1, other.weight) <= Fraction(share + 1, claim.weight)


def test_pip_82_what_is_left_of_three_is_headroom_of_all() -> None:
    """10, 50 and 30 of 100 are used: nobody gets less than that, and the other 10 are divided."""
    shares = fill([ShareClaim(WHOLE * part // 100, 1) for part in (10, 50, 30)])
    assert shares == [133_333, 533_333, 333_334]


def test_pip_82_one_that_has_80_gives_way_to_one_that_has_20_and_wants_more() -> None:
    assert fill([ShareClaim(UNBOUNDED, 1), ShareClaim(UNBOUNDED, 1)]) == [500_000, 500_000]
    assert fill([ShareClaim(800_000, 1), ShareClaim(UNBOUNDED, 1)]) == [500_000, 500_000]
    assert fill([ShareClaim(800_000, 1), ShareClaim(200_000, 1)]) == [800_000, 200_000]


def test_weights_divide_what_is_scarce() -> None:
    assert fill([ShareClaim(UNBOUNDED, 3), ShareClaim(UNBOUNDED, 1)]) == [750_000, 250_000]


def test_who_alone_wants_something_has_the_whole_and_who_wants_nothing_shares_where_nobody_does() -> None:
    assert fill([ShareClaim(10, 1), ShareClaim(0, 9)]) == [WHOLE, 0]
    assert fill([ShareClaim(0, 1), ShareClaim(0, 3)]) == [250_000, 750_000]
