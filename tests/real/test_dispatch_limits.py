"""Dispatch limits, measured at the consumers behind Sluice, and how much of a backlog waits in Sluice.

Twenty consumers of one subscription, and other numbers of Pulsar's own tests: `test_pulsar_dispatch_numbers`.
"""

from collections.abc import Callable
from functools import partial
from math import log

import pytest

from loadgen.real.standalone import StandaloneBroker
from tests.real.arrivals import Line
from tests.real.backlogs import Backlog, Drained
from tests.real.conftest import IS_DIRECT
from tests.real.flows import Played
from tests.real.pulsar_rest import PulsarRest, topic_name
from tests.real.sluice_process import SluiceProcess
from tests.real.steadiness import assert_never_above, assert_used, in_bytes
from tests.real.traffic import quiet_client

pytestmark = [pytest.mark.real, pytest.mark.skipif(IS_DIRECT, reason="the broker itself has not Sluice's limits")]

LIMIT = 100
BYTES = 20_000
OF_SUBSCRIPTION = 60
BATCH = 50
HORIZON_S = 0.2
"""What Sluice lets be under way, in time of the limit; and an entry of each consumer."""
TOPICS = {
    **{name: {"dispatch": {"messages": LIMIT}} for name in ("unbatched", "batched", "shared")},
    "bytes": {"dispatch": {"bytes": BYTES}},
    "subscriptions": {"subscription_dispatch": {"messages": OF_SUBSCRIPTION}},
}


def topic(name: str) -> str:
    return topic_name("dispatch-limits", name)


CONFIG = {"limits": {"topics": {topic(name): limits for name, limits in TOPICS.items()}}}
BACKLOGS = {
    "unbatched": Backlog(topic("unbatched"), 1500),
    "batched": Backlog(topic("batched"), 3000, options={"batching_enabled": True, "batching_max_messages": BATCH}),
    "shared": Backlog(topic("shared"), 1500, subscriptions="sss", queue=100),
    "bytes": Backlog(topic("bytes"), 1500),
    "subscriptions": Backlog(topic("subscriptions"), 1000, subscriptions="st"),
}


@pytest.fixture(scope="module")
def played(sluice_proxy: SluiceProcess, real_broker: StandaloneBroker, rest: PulsarRest) -> Played[Drained]:
    """Every backlog is drained at once: they do not meet."""
    rest.ensure_namespace("dispatch-limits")
    at_broker = quiet_client(real_broker.service_url)
    try:
        for backlog in BACKLOGS.values():
            backlog.fill(at_broker)
        scenes: dict[str, Callable[[], Drained]] = {
            name: partial(backlog.drained, sluice_proxy) for name, backlog in BACKLOGS.items()
        }
        return Played(scenes)
    finally:
        at_broker.close()


@pytest.mark.parametrize(("name", "entry"), [("unbatched", 1), ("shared", 1), ("batched", BATCH)])
def test_a_backlog_flows_at_the_limit_however_many_share_it(
    played: Played[Drained], sluice_proxy: SluiceProcess, name: str, entry: int
) -> None:
    """From the first second on."""
    line = Line(LIMIT, burst=LIMIT / 10, entry=entry)
    assert_never_above(played[name].arrivals, line, played.begun[name])
    assert_used(sluice_proxy, "dispatch", "topic", topic(name))


def test_a_limit_in_bytes_holds_from_the_first_second_on(played: Played[Drained], sluice_proxy: SluiceProcess) -> None:
    drained = played["bytes"]
    entry = drained.entry_bytes
    line = Line(BYTES, burst=BYTES / 10, entry=2 * entry)  # some are longer by a few bytes
    assert_never_above(in_bytes(drained.arrivals, entry), line, played.begun["bytes"])
    assert_used(sluice_proxy, "dispatch", "topic", topic("bytes"))


def test_each_subscription_has_its_limit_for_itself(played: Played[Drained], sluice_proxy: SluiceProcess) -> None:
    line = Line(OF_SUBSCRIPTION, burst=OF_SUBSCRIPTION / 10)
    for subscription, arrivals in zip("st", played["subscriptions"].by_consumer, strict=True):
        assert_never_above(arrivals, line, played.begun["subscriptions"])
        assert_used(sluice_proxy, "dispatch", "subscription", f"{subscription}@{topic('subscriptions')}")


@pytest.mark.parametrize(
    ("name", "rate", "entry"),
    [
        ("unbatched", LIMIT, 1),
        ("batched", LIMIT, BATCH),
        ("shared", LIMIT, 1),
        ("subscriptions", 2 * OF_SUBSCRIPTION, 1),
    ],
)
def test_the_backlog_waits_in_the_broker(played: Played[Drained], name: str, rate: int, entry: int) -> None:
    """Sluice holds a short horizon's worth, and an entry of each consumer; and it asked for no more.

    Of consumers that share a limit each gets a share of the horizon when it comes, whatever the others have: the
    bound of all together is then that of `CreditWindow`.
    """
    watched, consumers = played[name].watched, len(BACKLOGS[name].subscriptions)
    budget = HORIZON_S * rate + consumers * entry
    if name == "shared":
        budget = HORIZON_S * rate * (2 + log(consumers)) + (consumers + 1) * entry
    assert 0 < watched.most["held_messages"] <= budget
    assert watched.sum_of("offered_messages") - watched.sum_of("passed_messages") <= budget
    assert watched.sum_of("offered_messages") < BACKLOGS[name].count


def test_the_backlog_waits_in_the_broker_where_bytes_are_limited(played: Played[Drained]) -> None:
    drained = played["bytes"]
    assert 0 < drained.watched.most["held_bytes"] <= HORIZON_S * BYTES + 2 * drained.entry_bytes
