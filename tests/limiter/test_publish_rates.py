"""A topic's publish rate against counting by hand, and limits that are relative to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiter.relative_rates import MeasuredPublishRate, kept, relative_to
from limiter.token_bucket import NANOS_PER_SECOND, NOTHING_PUBLISHED, Limit, Published, Rate, rate

SECOND = NANOS_PER_SECOND
WINDOW_S = 10
PER_SECOND = st.tuples(st.integers(0, 1000), st.integers(0, 10**9))


def measured(per_second: list[tuple[int, int]], begin: int = 7) -> MeasuredPublishRate:
    """What was published in each second, sampled at the end of each."""
    publish_rate, messages, size = MeasuredPublishRate((0, 0), begin), 0, 0
    for second, (more_messages, more_size) in enumerate(per_second, 1):
        messages, size = messages + more_messages, size + more_size
        publish_rate.sample((messages, size), begin + second * SECOND)
    return publish_rate


def at_100_a_second(seconds: int) -> MeasuredPublishRate:
    return measured([(100, 20_000)] * seconds)


@pytest.mark.parametrize("seconds", [1, 2, 10, 60])
def test_a_steady_rate_is_known_after_a_second(seconds: int) -> None:
    assert at_100_a_second(seconds).mean() == Published(1000, 200_000), "in ten seconds"


@given(per_second=st.lists(PER_SECOND, min_size=1, max_size=40))
def test_the_mean_is_that_of_the_last_ten_seconds(per_second: list[tuple[int, int]]) -> None:
    last = per_second[-WINDOW_S:]
    messages, size = (sum(amounts) for amounts in zip(*last, strict=True))
    assert measured(per_second).mean() == Published(
        -(-messages * WINDOW_S // len(last)), -(-size * WINDOW_S // len(last))
    )


@given(samples=st.lists(st.tuples(st.integers(1, 3 * SECOND), st.integers(0, 500)), min_size=12, max_size=60))
def test_a_mean_is_within_the_samples_around_its_window(
    samples: list[tuple[int, int]],
) -> None:
    publish_rate, now, total, known = MeasuredPublishRate((0, 0), 0), 0, 0, [(0, 0)]
    for elapsed, messages in samples:
        now, total = now + elapsed, total + messages
        known.append((now, total))
        publish_rate.sample((total, 0), now)
        begin = now - WINDOW_S * SECOND
        if begin > 0:
            before = max(known_total for at, known_total in known if at <= begin)
            after = min(known_total for at, known_total in known if at >= begin)
            assert total - after <= publish_rate.mean().messages <= total - before


def test_a_topic_that_is_known_for_a_moment_counts_as_known_for_a_second() -> None:
    publish_rate = MeasuredPublishRate((0, 0), 0)
    publish_rate.sample((3, 60), SECOND // 1000)
    assert publish_rate.mean() == Published(30, 600)


def test_what_was_published_before_is_not_counted() -> None:
    publish_rate = MeasuredPublishRate((10**9, 10**9), 0)
    publish_rate.sample((10**9 + 100, 10**9), SECOND)
    assert publish_rate.mean() == Published(1000, 0)


def test_a_rest_is_part_of_the_window() -> None:
    publish_rate = at_100_a_second(3)
    for second in range(4, 15):
        publish_rate.sample(publish_rate.total, 7 + second * SECOND)
    assert publish_rate.mean() == NOTHING_PUBLISHED
    publish_rate.rested(7 + 99 * SECOND)
    publish_rate.sample((350, 60_000), 7 + 100 * SECOND)
    assert publish_rate.mean().messages == 50, "all of it in the last second, none before"


def test_a_moment_before_the_last_sample_is_no_rest() -> None:
    publish_rate = at_100_a_second(3)
    publish_rate.rested(0)
    assert publish_rate.mean() == Published(1000, 200_000)


@pytest.mark.parametrize(
    ("known", "mean", "goes_on"),
    [(1000, 1000, 1000), (1000, 1001, 1001), (1001, 999, 1001), (1010, 1000, 1010), (1011, 1000, 1000), (5, 0, 0)],
)
def test_a_rate_in_use_stays_while_it_is_no_less_and_at_most_a_hundredth_more(
    known: int, mean: int, goes_on: int
) -> None:
    assert kept(Published(known, 0), Published(mean, 0)) == Published(goes_on, 0)
    assert kept(Published(0, known), Published(0, mean)) == Published(0, goes_on), "bytes for themselves"


def test_the_publish_rate_comes_on_top_of_messages_and_of_bytes() -> None:
    limit = relative_to(Limit(rate(10), rate(500), published=NOTHING_PUBLISHED), Published(1000, 200_000))
    assert limit.messages is not None
    assert limit.size is not None
    assert (limit.messages.per_second, limit.size.per_second) == (110, 20_500)
    assert limit.published == Published(1000, 200_000)


@pytest.mark.parametrize("limit", [Limit(rate(10)), Limit(size=rate(10))])
def test_a_side_that_is_not_configured_stays_unlimited(limit: Limit) -> None:
    in_force = relative_to(limit, Published(1000, 1000))
    assert [side is None for side in (in_force.messages, in_force.size)] == [limit.messages is None, limit.size is None]


def test_without_publishing_the_limit_is_what_is_configured() -> None:
    limit = Limit(rate(10), published=NOTHING_PUBLISHED)
    assert relative_to(limit, NOTHING_PUBLISHED) == limit


def test_a_tenth_of_a_message_a_second_counts() -> None:
    messages = relative_to(Limit(rate(1)), Published(3)).messages
    assert messages is not None
    assert messages.per_second == pytest.approx(1.3)


def test_a_longer_period_stays_one() -> None:
    """30 a minute, and 100 a second published: 6,030 a minute."""
    messages = relative_to(Limit(rate(30, 60 * SECOND)), Published(1000)).messages
    assert messages is not None
    assert messages.per_second * 60 == pytest.approx(6030)
    assert messages.burst == rate(6030, 60 * SECOND).burst


@pytest.mark.parametrize(("configured", "burst"), [(None, 11), (5, 11), (50, 50)])
def test_the_burst_is_a_tenth_of_what_is_in_force_or_more_if_configured(configured: int | None, burst: int) -> None:
    messages = relative_to(Limit(rate(10, burst=configured)), Published(1000)).messages
    assert messages is not None
    assert messages.burst == burst


def test_a_peak_stays_above() -> None:
    limit = Limit(rate(10, burst=50), peak_messages=rate(20))
    peak = relative_to(limit, Published(1000)).peak_messages
    assert peak is not None
    assert peak.per_second == 120


@given(
    tokens=st.integers(1, 10**9),
    period_ns=st.integers(1, 86_400 * SECOND),
    published=st.integers(0, 10**10),
)
def test_both_parts_are_in_force_to_the_last_token(tokens: int, period_ns: int, published: int) -> None:
    messages = relative_to(Limit(Rate(tokens, period_ns, 1)), Published(published)).messages
    assert messages is not None
    due = tokens * WINDOW_S * SECOND + published * period_ns
    got = messages.tokens * WINDOW_S * SECOND * period_ns // messages.period_ns
    assert due <= got + 1
    assert got <= due + WINDOW_S * SECOND
