"""A limit of each level, exact at the broker's end, whoever shares it; all at once, where they do not meet."""

from collections.abc import Callable, Iterator
from typing import Any

import pulsar
import pytest

from loadgen.real.standalone import StandaloneBroker
from tests.real.arrivals import Line
from tests.real.conftest import IS_DIRECT
from tests.real.flows import Flow, Load, Played
from tests.real.pulsar_rest import TENANT, PulsarRest, topic_name
from tests.real.stages import Stage, open_stages
from tests.real.steadiness import assert_never_above, assert_used, evenness
from tests.real.test_blocking import TOKEN

pytestmark = pytest.mark.real

SEND_S = 5
TENANT_LIMITED = f"{TENANT}-limited"
NAMESPACES = ("levels", "levels-valued", "levels-group-1", "levels-group-2")
ROUND_ROBIN = {"message_routing_mode": pulsar.PartitionsRoutingMode.RoundRobinDistribution}


def publish(messages: int) -> dict[str, Any]:
    return {"publish": {"messages": messages}}


def topic(local: str, namespace: str = "levels") -> str:
    return topic_name(namespace, local)


CONFIGS = {
    "levels": {
        "limits": {
            "tenants": {TENANT_LIMITED: publish(100)},
            "resource_groups": {
                "two": {**publish(90), "namespaces": [f"{TENANT}/levels-group-1", f"{TENANT}/levels-group-2"]}
            },
            "namespaces": {f"{TENANT}/levels-valued": publish(60)},
            "topics": {
                topic("parts"): {"publish_total": {"messages": 80}},
                topic("own", "levels-valued"): publish(40),
                **{topic(local): publish(1000) for local in ("chosen", "given", "role")},
            },
            "each_topic": publish(120),
            "producers": {"chosen": publish(50), "*": publish(150)},
            "roles": {"billing": publish(70)},
        }
    },
    "address": {"limits": {"addresses": {"127.0.0.0/8": publish(110)}}},
}


@pytest.fixture(scope="module")
def stages(
    real_broker: StandaloneBroker, rest: PulsarRest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Stage]]:
    if IS_DIRECT:
        pytest.skip("the broker itself has not the limits of Sluice (SLUICE_TEST_DIRECT)")
    for namespace in NAMESPACES:
        rest.ensure_namespace(namespace)
    for namespace in ("one", "two"):
        rest.ensure_namespace(namespace, TENANT_LIMITED)
    rest.create_partitioned_topic(topic("parts"), 4)
    with open_stages(real_broker, CONFIGS, tmp_path_factory.mktemp("sluices")) as stages:
        yield stages


@pytest.fixture(scope="module")
def played(stages: dict[str, Stage]) -> Played[Flow]:
    """A flow for each level, of as many messages as its limit passes in the time."""
    stage = stages["levels"]
    in_tenant = tuple(f"persistent://{TENANT_LIMITED}/{namespace}/t" for namespace in ("one", "two"))
    in_group = tuple(topic("t", f"levels-group-{number}") for number in (1, 2))
    role = {"authentication": pulsar.AuthenticationToken(TOKEN)}
    loads = {
        "tenant": Load(in_tenant, count=100 * SEND_S // 2),
        "resource_group": Load(in_group, count=90 * SEND_S // 2),
        "partitioned_topic": Load((topic("parts"),), count=80 * SEND_S, consumers=2, options=ROUND_ROBIN),
        "producer chosen": Load((topic("chosen"),), count=50 * SEND_S, producer="chosen"),
        "producer given": Load((topic("given"),), count=150 * SEND_S, producer=None),
        "role": Load((topic("role"),), count=70 * SEND_S // 2, clients=2, client_options=role),
        "topic own": Load((topic("own", "levels-valued"),), count=40 * SEND_S),
        "topic of namespace": Load((topic("other", "levels-valued"),), count=60 * SEND_S),
        "topic of broker": Load((topic("plain"),), count=120 * SEND_S),
    }
    flows = {name: Flow(stage, load) for name, load in loads.items()}
    at_two = Load((topic("address-1"), topic("address-2")), count=110 * SEND_S // 4, clients=2)
    flows["address"] = Flow(stages["address"], at_two)
    scenes: dict[str, Callable[[], Flow]] = {name: flow.played for name, flow in flows.items()}
    return Played(scenes)


@pytest.mark.parametrize(
    ("level", "rate", "name"),
    [
        ("tenant", 100, TENANT_LIMITED),
        ("resource_group", 90, "two"),
        ("partitioned_topic", 80, topic("parts")),
        ("producer chosen", 50, f"chosen@{topic('chosen')}"),
        ("producer given", 150, f"{{given}}@{topic('given')}"),
        ("role", 70, "billing"),
        ("address", 110, "127.0.0.1"),
        ("topic own", 40, topic("own", "levels-valued")),
        ("topic of namespace", 60, topic("other", "levels-valued")),
        ("topic of broker", 120, topic("plain")),
    ],
)
def test_a_limit_holds_exactly_for_all_that_share_it(
    played: Played[Flow], stages: dict[str, Stage], level: str, rate: int, name: str
) -> None:
    """Of the level topic, the narrowest value: the topic's own, its namespace's, then that of each topic."""
    flow = played[level]
    flow.assert_whole()
    assert_never_above(flow.arrivals, Line(rate, burst=rate / 10), played.begun[level])
    stage, given = stages["address" if level == "address" else "levels"], flow.senders[0].producer.producer_name()
    assert_used(stage.sluice, "publish", level.partition(" ")[0], name.format(given=given))


@pytest.mark.parametrize(("level", "sharers"), [("tenant", 2), ("resource_group", 2), ("role", 2), ("address", 4)])
def test_who_shares_a_limit_gets_an_equal_share(
    played: Played[Flow], stages: dict[str, Stage], level: str, sharers: int
) -> None:
    flow, stage = played[level], stages["address" if level == "address" else "levels"]
    assert len(flow.senders) == sharers
    assert evenness(stage.sluice, "publish", *flow.topics) >= 0.99
