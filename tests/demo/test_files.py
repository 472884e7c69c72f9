"""demo/load.yaml and demo/sluice.yaml say the same limits, and the load is what the demo promises to show."""

from pathlib import Path
from typing import Any

import yaml

import demo.stage
from loadgen.load.scenario import Scenario, load_scenario, wanted_by
from protocol.topic_name import parse_topic

HERE = Path(demo.stage.__file__).parent


def scenario() -> Scenario:
    return load_scenario(HERE / "load.yaml")


def limits_of_sluice() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((HERE / "sluice.yaml").read_text())["limits"]["namespaces"]
    return content


def test_the_receiving_end_is_held_to_the_limits_of_sluice() -> None:
    expected = {
        namespace: (limits.get("publish") or limits["publish_total"])["messages"]
        for namespace, limits in limits_of_sluice().items()
    }
    seen = {parse_topic(topic).namespace_name: limit.messages for limit in scenario().limits for topic in limit.topics}
    assert seen == expected


def test_the_warm_up_is_a_scenario_on_topics_of_its_own() -> None:
    warm_up = {topic for topic, _ in load_scenario(HERE / "warm-up.yaml").topics()}
    assert warm_up
    assert not warm_up & {topic for topic, _ in scenario().topics()}


def test_every_topic_is_under_a_limit() -> None:
    limited = {topic for limit in scenario().limits for topic in limit.topics}
    assert limited == {topic for topic, _ in scenario().topics()}


def test_a_total_has_all_topics_of_its_namespace_and_another_limit_has_one() -> None:
    for limit in scenario().limits:
        (namespace,) = {parse_topic(topic).namespace_name for topic in limit.topics}
        assert len(limit.topics) == (2 if "publish_total" in limits_of_sluice()[namespace] else 1)


def test_three_tenants_share_one_connection() -> None:
    tenants = {parse_topic(topic).tenant for topic, load in scenario().topics() if load.connection == "gateway"}
    assert len(tenants) == 3


def test_only_the_steady_tenant_wants_less_than_its_limit() -> None:
    loads = dict(scenario().topics())
    for limit in scenario().limits:
        in_first_second = sum(wanted_by(loads[topic].pattern, 1) for topic in limit.topics)
        steady = all(loads[topic].pattern.kind == "steady" for topic in limit.topics)
        assert (in_first_second < limit.messages) == steady


def test_no_queue_takes_longer_to_drain_than_the_demo_waits() -> None:
    loads = dict(scenario().topics())
    for limit in scenario().limits:
        most = sum(loads[topic].pending * loads[topic].producers for topic in limit.topics)
        assert most / limit.messages < demo.stage.DRAIN_S / 4
