from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiter.token_bucket import NANOS_PER_SECOND, NOTHING_PUBLISHED, Limit, Mode, Rate, rate
from proxy.config.limits import RateLimit, TopicDispatchLimit
from proxy.policies.bodies import SubscribeLimit, section_of, section_text

_TOKENS = st.integers(1, 2**62)
_MOST_BURST = 2**63 - 1
"""That can be written; a peak needs one that is."""
_PERIODS = st.integers(1, 10**15) | st.sampled_from([10**9, 60 * 10**9, 30 * 10**9, 3600 * 10**9, 86400 * 10**9])
_RATES = st.builds(rate, _TOKENS, _PERIODS, st.none() | st.integers(1, 2**60))


def a_peak(draw: st.DrawFn, sustained: Rate | None) -> Rate | None:
    if sustained is None or sustained.burst > _MOST_BURST or not draw(st.booleans()):
        return None
    return rate(sustained.tokens + draw(st.integers(1, 10**6)), sustained.period_ns)


@st.composite
def limits(draw: st.DrawFn, modes: tuple[Mode, ...] = ("enforce", "observe", "reject")) -> Limit:
    """Any limit that can be configured."""
    messages, size = draw(st.tuples(_RATES, _RATES) | st.tuples(_RATES, st.none()) | st.tuples(st.none(), _RATES))
    return Limit(messages, size, a_peak(draw, messages), a_peak(draw, size), draw(st.sampled_from(modes)))


@given(limits())
def test_any_publish_limit_is_read_back_from_what_is_written(limit: Limit) -> None:
    assert RateLimit.model_validate(section_of("publish", limit)).limit() == limit


@given(limits(("enforce", "observe")), st.sampled_from([None, NOTHING_PUBLISHED]))
def test_any_dispatch_limit_is_read_back_from_what_is_written(limit: Limit, published: None) -> None:
    limit = Limit(limit.messages, limit.size, limit.peak_messages, limit.peak_size, limit.mode, published)
    assert TopicDispatchLimit.model_validate(section_of("dispatch", limit)).limit() == limit


@given(_TOKENS, _PERIODS)
def test_any_subscribe_rate_is_read_back_from_what_is_written(count: int, period_ns: int) -> None:
    limit = Limit(rate(count, period_ns, burst=count))
    assert SubscribeLimit.model_validate(section_of("subscribe", limit)).limit() == limit


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (Limit(rate(500)), "messages 500"),
        (Limit(None, rate(10_000_000)), "bytes 10MB"),
        (Limit(rate(30, 60 * NANOS_PER_SECOND, 5), mode="observe"), "messages 30/min, burst_messages 5, mode observe"),
        (Limit(rate(5, 90 * NANOS_PER_SECOND)), "messages 5/90s"),
        (Limit(rate(7, 1_500_000)), "messages 7/1.5ms"),
        (Limit(None, rate(1 << 20, burst=3), published=NOTHING_PUBLISHED), "bytes 1MiB, burst_bytes 3, relative"),
        (Limit(), "no limit"),
    ],
)
def test_it_is_written_as_people_would(limit: Limit, text: str) -> None:
    about: Literal["dispatch"] = "dispatch"
    assert section_text(section_of(about, limit)).startswith(text)
