"""A bucket's report of an earlier moment is exact, though later calls have earned tokens since."""

import pytest

from limiter.token_bucket import NANOS_PER_SECOND, Rate, TokenBucket

SECOND = NANOS_PER_SECOND


@pytest.mark.parametrize("taken", [0, 3, 10, 14])
@pytest.mark.parametrize("looked_at_ms", [1000, 1050, 1900, 4000])
def test_late_reports_add_up(taken: int, looked_at_ms: int) -> None:
    """Balance before + earned - overflow - taken is the balance, in both spans."""
    bucket = TokenBucket(Rate(10, SECOND, 10), 0)
    bucket.take(taken, 0)
    bucket.holds(1, looked_at_ms * SECOND // 1000)
    before, overflow = bucket.report(SECOND)
    assert before == pytest.approx(10 - taken + 10 - overflow)
    after, more = bucket.report(5 * SECOND)
    assert after == pytest.approx(before + 40 - more)
    assert (overflow >= 0, more >= 0) == (True, True)


def test_a_late_report_without_overflow_is_the_earlier_balance() -> None:
    bucket = TokenBucket(Rate(10, SECOND, 10), 0)
    bucket.take(100, 0)
    bucket.holds(1, 3 * SECOND)
    assert bucket.report(SECOND) == (-80, 0)
