"""Why a stream waits, and which limits it is under."""

from limiter.limiter import Limiter, Scope, Stream, StreamName
from limiter.permits import CreditWindow, Permits, horizon_of
from limiter.registry import windows_of
from limiter.token_bucket import Limit, Published, rate
from proxy.observe.log_lines import names_of_limits, narrowest, per_second, published_per_second, reason, withholding


def limiter(level: str, messages: int | None = None, size: int | None = None) -> Limiter:
    limit = Limit(rate(messages) if messages else None, rate(size) if size else None)
    return Limiter(Scope("publish", level, "n", "", ""), limit, "test", 0)


def stream(*chain: Limiter) -> Stream:
    return Stream(StreamName("publish", "t", "n", "topic", 1), chain, lambda _stream, _entry: None)


def narrowest_level(chain):
    limiter, messages, size = narrowest(chain)
    return limiter and limiter.scope.level, messages, size


def test_the_resource_group_is_that_of_its_limit() -> None:
    limiters = (limiter("proxy", 1), limiter("resource_group", 1), limiter("topic", 1))
    assert names_of_limits(stream(*limiters)) == {"resource_group": "n"}
    assert names_of_limits(stream(limiter("topic", 1))) == {}


def test_without_limits_nothing_is_narrowest() -> None:
    assert narrowest(()) == (None, None, None)


def test_the_narrowest_is_the_lowest_and_not_the_last() -> None:
    chain = (limiter("proxy", 1000), limiter("tenant", 50, 9000), limiter("topic", 80, 10_000))
    assert narrowest_level(chain) == ("tenant", 50, 9000)


def test_messages_and_bytes_may_come_from_different_limits() -> None:
    assert narrowest_level((limiter("tenant", 50), limiter("topic", None, 700))) == ("tenant", 50, 700)
    assert narrowest_level((limiter("tenant", None, 50), limiter("topic", None, 700))) == ("tenant", None, 50)


def test_of_equal_ones_the_outermost_counts() -> None:
    assert narrowest_level((limiter("tenant", 50), limiter("topic", 50)))[0] == "tenant"


def test_the_reason_is_where_the_stream_waits_or_else_where_it_last_did() -> None:
    tenant, topic = limiter("tenant", 50), limiter("topic", 5)
    waiting = stream(tenant, topic)
    assert reason(waiting) is None
    waiting.last_reason = "tenant"
    assert reason(waiting) is tenant
    waiting.waits_on = topic
    assert reason(waiting) is topic


def test_a_limit_that_is_gone_cannot_be_named() -> None:
    waiting = stream(limiter("tenant", 50))
    waiting.last_reason = "topic"
    assert reason(waiting) is None


def test_rates_are_told_per_second() -> None:
    assert (per_second(rate(30, 60_000_000_000)), per_second(None)) == (0.5, None)


def test_what_of_a_limit_is_the_publish_rate_is_told_per_second() -> None:
    assert published_per_second(Limit(rate(10), rate(10))) == (None, None)
    published = Published(messages=1003, size=55)
    assert published_per_second(Limit(rate(10), rate(10), published=published)) == (100.3, 5.5)
    assert published_per_second(Limit(rate(10), published=published)) == (100.3, None), "bytes are not limited"


def test_permits_are_withheld_by_the_limit_with_the_least_room() -> None:
    chain = (limiter("proxy", 1000), limiter("topic", 10))
    for link in chain:
        link.windows = (CreditWindow(horizon_of(link.limit.messages or rate(1))),)
    consumer = stream(*chain)
    assert withholding(consumer) is None, "a producer"
    consumer.permits = Permits(consumer.usage, lambda _permits: None, lambda: None)
    consumer.permits.rewire(windows_of(chain))
    assert withholding(consumer) is None, "nothing is asked for"
    consumer.permits.ask(5)
    assert withholding(consumer) is chain[1]
