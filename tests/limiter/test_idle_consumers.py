"""Consumers that have permits at the broker, and nothing comes for them, take nothing from those for whom it does."""

from itertools import pairwise, repeat

import pytest

from limiter.permits import RULES, DispatchRules
from limiter.token_bucket import Limit, rate
from tests.limiter.asking import PLAIN
from tests.limiter.far_broker import FarBroker, FarConsumer

ROUND_TRIP = 3_000_000
START_S = 20 * ROUND_TRIP / 1e9
SPAN_S = 0.2
SIZE = 100
"""Bytes of a message."""


def limited(a_second: int, unit: str, rules: DispatchRules) -> FarBroker:
    limit = Limit(rate(a_second)) if unit == "messages" else Limit(None, rate(a_second * SIZE))
    return FarBroker(ROUND_TRIP, rules).limit_topics(limit)  # type: ignore[return-value]  # it is the same one


def gets_all(world: FarBroker, active: FarConsumer, a_second: int, messages: int = 1) -> None:
    """After twenty round trips it gets what the limit gives, and a while later still; in entries of so much."""
    active.has_backlog(messages, messages * SIZE)
    world.go_on(START_S)
    counts = [active.passed]
    for _ in range(2):
        world.go_on(SPAN_S)
        counts.append(active.passed)
    for before, after in pairwise(counts):
        assert after - before >= 0.99 * a_second * SPAN_S - messages
    world.ledger.check()


@pytest.mark.parametrize("rules", [RULES, PLAIN])
@pytest.mark.parametrize("unit", ["messages", "bytes"])
@pytest.mark.parametrize("a_second", [1000, 100_000])
@pytest.mark.parametrize("idle", [10, 1000])
def test_a_consumer_with_a_backlog_gets_all_beside_idle_ones(
    idle: int, a_second: int, unit: str, rules: DispatchRules
) -> None:
    world = limited(a_second, unit, rules)
    for _ in range(idle):
        world.far_consumer()
    world.go_on(0.1)
    gets_all(world, world.far_consumer(), a_second, max(1, a_second // 10_000))


@pytest.mark.parametrize("unit", ["messages", "bytes"])
@pytest.mark.parametrize("a_second", [1000, 100_000])
@pytest.mark.parametrize("idle", [10, 1000])
def test_the_last_consumer_with_a_backlog_gets_all(idle: int, a_second: int, unit: str) -> None:
    """Each of them in its turn had messages, and asked for more than came: far more than may go uncounted."""
    world = limited(a_second, unit, RULES)
    for _ in range(idle):
        consumer = world.far_consumer()
        consumer.backlog = repeat((1, SIZE), 3)
        world.go_on(4 * ROUND_TRIP / 1e9)
    gets_all(world, world.far_consumer(), a_second)
