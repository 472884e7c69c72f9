import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiter.token_bucket import NANOS_PER_SECOND, Limit, Rate, rate


@pytest.mark.parametrize("values", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (-5, 1, 1), (1, -1, 1), (1, 1, -1)])
def test_a_rate_needs_all_three_numbers_above_zero(values: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Rate(*values)


@pytest.mark.parametrize(
    ("tokens", "period_s", "burst"),
    [(1000, 1, 100), (10, 1, 1), (1, 1, 1), (1, 86_400, 1), (600, 60, 60), (10**12, 1, 10**11), (15, 1, 1)],
)
def test_the_default_burst_is_a_tenth_of_a_period_and_at_least_one(tokens: int, period_s: int, burst: int) -> None:
    assert rate(tokens, period_s * NANOS_PER_SECOND).burst == burst


@given(tokens=st.integers(1, 10**12), period_ns=st.integers(1, 86_400 * NANOS_PER_SECOND))
def test_the_default_burst_bears_a_sleep_of_twenty_milliseconds(tokens: int, period_ns: int) -> None:
    burst = rate(tokens, period_ns).burst
    assert burst >= tokens * 20_000_000 // period_ns
    assert burst >= 1


def test_a_burst_that_is_given_stands() -> None:
    assert rate(10, burst=1000).burst == 1000


def test_a_rate_is_told_per_second_whatever_its_period() -> None:
    assert rate(30, 60 * NANOS_PER_SECOND).per_second == 0.5


def test_a_limit_that_limits_nothing_is_none() -> None:
    assert not Limit()
    assert Limit(messages=rate(1))
    assert Limit(size=rate(1))
