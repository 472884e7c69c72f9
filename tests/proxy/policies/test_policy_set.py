import pytest

from limiter.levels import Setting
from limiter.policies import Value
from limiter.token_bucket import Limit, rate
from proxy.config.limits import Limits
from proxy.policies.keys import split_subscription
from proxy.policies.layers import FilePolicies, file_policies
from proxy.policies.policy_set import Attached, PolicySet, as_tree, in_force, of_file, path_of
from tests.proxy.policies.layered import ORDERS, a_service


def test_what_limits_nothing_is_not_in_it() -> None:
    file = FilePolicies({("publish", Setting.PROXY, ""): Value(Limit(), "file")}, {"acme": ""}, {})
    assert in_force(a_service(file, {})).values == {}
    assert in_force(a_service(file, {})).attached == {}


def test_a_files_groups_are_there_even_when_nothing_is_said_of_them() -> None:
    limits = Limits.model_validate({"resource_groups": {"gold": {}, "on": {"tenants": ["acme"]}}})
    assert file_policies(limits, None).groups == {"gold", "on"}
    assert in_force(a_service(file_policies(limits, None), {})).lasting == {"gold", "on"}
    policy_set = of_file(limits, (5, 10**9))
    assert policy_set.groups == {"gold", "on"}
    assert policy_set.attached == {("tenant", "acme"): Attached("on", "file")}
    assert policy_set.values[("subscribe", Setting.TOPIC_OF_BROKER, "")].limit == Limit(rate(5, burst=5))


def test_the_tree_has_the_configurations_keys() -> None:
    policies = PolicySet(
        {
            ("dispatch", Setting.SUBSCRIPTION, f"a@b@{ORDERS}"): Value(Limit(rate(5)), "rest"),
            ("subscribe", Setting.TOPIC, ORDERS): Value(Limit(rate(5, burst=5)), "rest"),
            ("subscribe", Setting.TOPIC_OF_BROKER, ""): Value(Limit(rate(7, 30 * 10**9, 7)), "file"),
        },
        {("namespace", "acme/shop"): Attached("gold", "rest")},
        frozenset({"gold"}),
    )
    assert as_tree(policies) == {
        "limits": {
            "topics": {ORDERS: {"subscriptions": {"a@b": {"dispatch": {"messages": 5}}}, "subscribe": 5}},
            "resource_groups": {"gold": {"namespaces": ["acme/shop"]}},
        },
        "admission": {"subscribe_rate_per_consumer": "7/30s"},
    }


def test_every_setting_has_its_place_in_the_configuration() -> None:
    paths = {path_of(("dispatch", setting, f"s@{ORDERS}")) for setting in Setting}
    assert len(paths) == len(Setting)


@pytest.mark.parametrize("name", ["audit", "a@b", "s@persistent://t/n/x", "s@non-persistent://t/n/x"])
@pytest.mark.parametrize("topic", [ORDERS, "non-persistent://t/n/x"])
def test_a_subscription_may_have_the_name_of_another_one(name: str, topic: str) -> None:
    assert split_subscription(f"{name}@{topic}") == (name, topic)


@pytest.mark.parametrize("name", ["audit", "audit@orders", "audit@persistent://a/b", ""])
def test_a_subscription_without_its_topic_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match="write subscription@"):
        split_subscription(name)
