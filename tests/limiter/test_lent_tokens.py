"""Tokens that were taken and not used yet: see `TokenBucket.lend`."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.token_bucket import Rate, TokenBucket, rate
from tests.limiter.test_token_bucket import AMOUNTS, RATES, SECOND, SPANS


@settings(deadline=None)
@given(value=RATES, steps=st.lists(st.tuples(st.sampled_from(["lend", "take", "used", "unused"]), AMOUNTS, SPANS)))
def test_what_is_there_and_what_is_lent_are_never_more_than_fits(value: Rate, steps) -> None:
    bucket, now = TokenBucket(value, 0), 0
    most, part = bucket._capacity, Fraction(value.tokens, value.period_ns).denominator
    for what, tokens, span in steps:
        now += span
        if what == "lend" and bucket.holds(tokens, now):
            bucket.take(tokens, now)
            bucket.lend(tokens)
        elif what == "take" and bucket.holds(1, now):
            bucket.take(tokens, now)
        elif what == "used":
            bucket.come_back(tokens, 0, now)
        else:
            bucket.come_back(0, tokens, now)
        bucket.tokens(now)
        assert bucket.lent >= 0
        assert bucket._balance + bucket.lent * part <= most
        assert bucket._capacity == most - bucket.lent * part


def test_what_could_not_be_earned_while_tokens_were_lent_is_not_earned_afterwards() -> None:
    bucket = TokenBucket(rate(100, burst=40), 0)
    bucket.take(10, 0)
    bucket.lend(10)
    bucket.come_back(10, 0, 60 * SECOND)
    assert bucket.tokens(60 * SECOND) == 30


def test_another_rate_leaves_what_is_lent_lent() -> None:
    bucket = TokenBucket(rate(100, burst=40), 0)
    bucket.take(20, 0)
    bucket.lend(20)
    bucket.change(rate(50, burst=30), 0)
    assert bucket.tokens(0) == 10
    assert bucket.tokens(60 * SECOND) == 10
    bucket.come_back(0, 20, 60 * SECOND)
    assert bucket.tokens(60 * SECOND) == 30


def test_only_what_it_lent_itself_is_given_back() -> None:
    bucket = TokenBucket(rate(100, burst=40), 0)
    bucket.take(20, 0)
    bucket.release(20)
    bucket.come_back(0, 20, 0)
    assert bucket.tokens(0) == 20, "that was another's, in whose place this one stands; these entries are on their way"


def test_what_passed_at_another_rate_takes_no_room_at_this_one() -> None:
    bucket = TokenBucket(rate(3000, burst=300), 0)
    bucket.take(299, 0)
    bucket.release(200)
    bucket.change(rate(30, burst=3), 0)
    assert bucket.tokens(0) == 1
    bucket.release(1)
    bucket.gone(200, 0)
    assert (bucket.lent, bucket.tokens(SECOND)) == (0, 3)


def test_what_is_counted_beyond_what_was_lent_makes_no_debt_and_is_told_once() -> None:
    bucket = TokenBucket(rate(100, burst=40), 0)
    bucket.take(10, 0)
    bucket.lend(10)
    assert bucket.told(0)[0] == 40
    bucket.count_lent(15, 15)
    assert bucket.told(0) == (bucket.tokens(0), 0, 0, 5) == (30, 0, 0, 5)
    assert bucket.told(0) == (30, 0, 0, 0)


def test_what_was_lent_and_will_never_be_counted_is_told_once() -> None:
    bucket = TokenBucket(rate(100, burst=40), 0)
    bucket.take(10, 0)
    bucket.lend(10)
    bucket.give_up(12)
    assert bucket.told(0) == (30, 0, 10, 0)
    assert bucket.told(0) == (30, 0, 0, 0)
