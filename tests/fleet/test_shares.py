"""The division of a limit."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from fleet.shares import UNBOUNDED, WHOLE, fill, is_enough, rounded

CLAIMS = st.lists(
    st.tuples(st.one_of(st.just(UNBOUNDED), st.just(0), st.integers(1, 2 * WHOLE)), st.integers(1, 50)),
    max_size=20,
)


def columns(claims: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """The demands, and their weights."""
    return [wanted for wanted, _ in claims], [weight for _, weight in claims]


@given(CLAIMS, st.integers(0, WHOLE))
def test_shares_sum_to_the_whole_and_levels_are_equal(claims, whole) -> None:
    shares = fill(*columns(claims), whole)
    assert sum(shares) == (whole if claims else 0)
    for (wanted, weight), share in zip(claims, shares, strict=True):
        assert share >= 0
        unmet = wanted == UNBOUNDED or share < wanted
        for (_, other), theirs in zip(claims, shares, strict=True):
            if unmet:  # no other member is above this one's level by more than rounding
                assert Fraction(theirs - 1, other) <= Fraction(share + 1, weight)


def test_pip_82_the_rest_of_three_demands_is_headroom_of_all() -> None:
    """10, 50 and 30 of 100 are used: each gets at least its use, and the other 10 are divided."""
    shares = fill([WHOLE * part // 100 for part in (10, 50, 30)], [1, 1, 1])
    assert shares == [133_333, 533_333, 333_334]


def test_pip_82_a_share_of_80_yields_to_a_growing_one_of_20() -> None:
    assert fill([UNBOUNDED, UNBOUNDED], [1, 1]) == [500_000, 500_000]
    assert fill([800_000, UNBOUNDED], [1, 1]) == [500_000, 500_000]
    assert fill([800_000, 200_000], [1, 1]) == [800_000, 200_000]


def test_weights_divide_a_scarce_limit() -> None:
    assert fill([UNBOUNDED, UNBOUNDED], [3, 1]) == [750_000, 250_000]


def test_a_lone_demand_has_the_whole_and_no_demands_share_it() -> None:
    assert fill([10, 0], [1, 9]) == [WHOLE, 0]
    assert fill([0, 0], [1, 3]) == [250_000, 750_000]


@given(CLAIMS.filter(len), st.data())
def test_enough_shares_meet_demands_and_half_of_the_headroom(claims, data) -> None:
    wanted, weights = columns(claims)
    targets = fill(wanted, weights)
    shares = [data.draw(st.integers(max(0, target - 9), target + 9)) for target in targets]
    if is_enough(shares, targets, wanted):
        for demand, share, target in zip(wanted, shares, targets, strict=True):
            assert demand != UNBOUNDED
            assert share - demand >= (target - demand) / 2 >= 0
            assert demand or share == target


def test_shares_below_half_of_the_headroom_are_not_enough() -> None:
    wanted = [300_000, 300_000]
    targets = fill(wanted, [1, 1])
    assert targets == [500_000, 500_000]
    assert is_enough([400_000, 600_000], targets, wanted)
    assert not is_enough([399_999, 600_001], targets, wanted)
    assert not is_enough([500_000, 500_000], targets, [UNBOUNDED, 300_000])
    assert not is_enough([1, WHOLE - 1], [0, WHOLE], [0, 300_000])
    assert not is_enough([499_999, 500_001], [500_000, 500_000], [0, 0])


@given(st.integers(0, WHOLE))
def test_a_rounded_share_is_a_quarter_of_a_percent_less_at_most(ppm) -> None:
    assert 0 <= ppm - rounded(ppm) <= ppm // 400
    assert rounded(WHOLE // 2) == WHOLE // 2
