"""What is exported is accepted by `sluice check`, and applied makes the same hold."""

import asyncio
import contextlib
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings

from limiter.levels import Setting
from limiter.policies import PolicyTarget, Value
from limiter.token_bucket import Limit, rate
from proxy.config.model import load_config
from proxy.policies.bodies import OwnGroup, PublishRate, kept_as_own_group, kept_as_pulsar_s
from proxy.policies.keys import PolicyKey, PolicyKind, rate_key, read_target
from proxy.policies.layers import FilePolicies
from proxy.policies.policy_set import ApplyPlan, PolicySet, as_yaml, differences, in_force, of_file, plan
from proxy.policies.service import PolicyService
from proxy.policies.state import to_set
from tests.proxy.policies.layered import ANN, a_service, changes, effects, files

_EMPTY = FilePolicies({}, {}, {})
_SHOP: PolicyTarget = ("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop")


def checked(text: bytes) -> PolicySet:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "limits.yaml"
        file.write_bytes(text)
        config = load_config(file, {})
    return of_file(config.limits, config.admission.subscribe_rate_per_consumer)


def apply(service: PolicyService, wanted: PolicySet) -> None:
    asyncio.run(service.change(planned(service, wanted).wanted, ANN))


def planned(service: PolicyService, wanted: PolicySet) -> ApplyPlan:
    return plan(service, wanted, in_force(service))


@settings(max_examples=60, deadline=None)
@given(files(), changes(), files(), changes())
def test_exported_policies_have_the_same_effect_when_applied(file, policies, other_file, other_said) -> None:
    with contextlib.ExitStack() as stack:
        books = [a_service(file, policies), a_service(_EMPTY, {}), a_service(other_file, other_said)]
        for service in books:
            stack.callback(service.store.close)
        wanted = checked(b"".join(as_yaml(in_force(books[0]))))
        for service in books:
            apply(service, wanted)
            assert effects(service) == effects(books[0])
            assert not list(differences(wanted, in_force(service)))
            assert not planned(service, wanted).wanted, "the second time there is nothing left to do"


def test_what_the_proxys_own_file_limits_is_hidden_by_a_value_that_limits_nothing() -> None:
    file = FilePolicies({_SHOP: Value(Limit(rate(5)), "file")}, {"acme": "gold"}, {}, frozenset({"gold"}))
    service = a_service(file, {})
    made = planned(service, PolicySet(groups=frozenset({"gold"})))

    assert made.wanted == {
        rate_key(*_SHOP): kept_as_pulsar_s(PublishRate(-1, -1)),
        PolicyKey(PolicyKind.ATTACHMENT, "tenant", "acme"): "",
    }
    assert made.hidden == ["limits.namespaces.acme/shop.publish", "resource group of tenant acme"]
    service.store.close()


def test_what_the_file_says_already_is_not_written_again() -> None:
    service = a_service(
        FilePolicies({_SHOP: Value(Limit(rate(5)), "file")}, {}, {}),
        {rate_key(*_SHOP): kept_as_pulsar_s(PublishRate(7))},
    )
    wanted = PolicySet({_SHOP: Value(Limit(rate(5)), "file")})

    assert planned(service, wanted).wanted == {rate_key(*_SHOP): None}
    service.store.close()


def test_blocks_and_whatever_else_is_kept_stay_as_they_are() -> None:
    key = PolicyKey(PolicyKind.DYNAMIC, "", "dispatchThrottlingRateInMsg")
    service = a_service(_EMPTY, {key: "0"})
    assert planned(service, PolicySet()).wanted == {}
    service.store.close()


def test_a_group_s_limits_are_one_key_that_holds_both_directions() -> None:
    places: list[PolicyTarget] = [
        ("publish", Setting.RESOURCE_GROUP, "gold"),
        ("dispatch", Setting.RESOURCE_GROUP, "gold"),
    ]
    service = a_service(_EMPTY, {})
    wanted = PolicySet({place: Value(Limit(rate(5)), "file") for place in places}, groups=frozenset({"gold"}))

    made = planned(service, wanted)

    body: OwnGroup = {"publish": {"messages": 5}, "dispatch": {"messages": 5}}
    assert made == ApplyPlan({PolicyKey(PolicyKind.GROUP, "", "gold"): kept_as_own_group(body)})
    service.store.close()


def test_groups_that_are_wanted_no_longer_are_taken_back_by_their_own_keys_alone() -> None:
    key = PolicyKey(PolicyKind.GROUP, "", "gold")
    service = a_service(_EMPTY, {key: kept_as_own_group({"publish": {"messages": 5}})})

    assert planned(service, PolicySet()) == ApplyPlan({key: None})
    service.store.close()


def test_the_longest_names_that_can_be_set_come_back() -> None:
    part, name = "x" * 1024, '"é' * 500
    topic = f"non-persistent://{part}/{part}/{part}"
    names = {
        Setting.TENANT: part,
        Setting.TOPIC_OF_NAMESPACE: f"{part}/{part}",
        Setting.TOPIC: topic,
        Setting.SUBSCRIPTION: f"{name}@{topic}",
        Setting.RESOURCE_GROUP: name,
        Setting.ROLE: name[:256],
    }
    places = [read_target("dispatch", setting, longest) for setting, longest in names.items()]
    limit = {"messages": 5}
    service, other = (a_service(_EMPTY, {}) for _ in range(2))
    for place in places:
        asyncio.run(service.change(to_set(service, place, limit), ANN))
    asyncio.run(service.change({PolicyKey(PolicyKind.ATTACHMENT, "namespace", f"{part}/{part}"): name}, ANN))

    wanted = checked(b"".join(as_yaml(in_force(service))))
    apply(other, wanted)

    assert set(wanted.values) == set(places)
    assert in_force(other).values.keys() == in_force(service).values.keys()
    assert not [*differences(in_force(service), in_force(other)), *differences(wanted, in_force(other))]
    service.store.close()
    other.store.close()
