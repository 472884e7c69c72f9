"""The walk over tenants, namespaces, topics and subscriptions of a stand-in broker."""

import pytest
from yarl import URL

from proxy.importing.admin_client import MOST_REQUESTS, connected
from proxy.importing.from_admin import BrokerState, OfTopic, walk
from proxy.importing.result import ImportFailed
from proxy.policies.bodies import DispatchRate, PublishRate, ResourceGroup, SubscribeRate
from tests.proxy.importing.broker_admin import BrokerAdmin, broker_admin

PUBLISH = {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}
DISPATCH = {"dispatchThrottlingRateInMsg": 7}
T = "persistent/shop/orders"


async def state_of(broker: BrokerAdmin) -> BrokerState:
    async with connected(URL(broker.url), "") as admin:
        return await walk(admin, lambda *_: None)


async def test_a_broker_without_limits_is_asked_for_its_lists_only() -> None:
    async with broker_admin() as broker:
        assert await state_of(broker) == BrokerState({"clusterName": "here"}, {})
        assert broker.asked == [
            "brokers/configuration/runtime",
            "brokers/configuration/values",
            "resourcegroups",
            "tenants",
        ]


async def test_policies_of_namespaces_and_groups_are_read_and_unknown_parts_passed_over() -> None:
    async with broker_admin(resourcegroups=["my gold"]) as broker:
        broker.answers["resourcegroups/my%20gold"] = {"publishRateInMsgs": 9, "dispatchRateInMsgs": None}
        broker.add_namespace(
            "shop/orders",
            {
                "publishMaxMessageRate": {"here": PUBLISH},
                "topicDispatchRate": {},
                "resource_group_name": "my gold",
                "bundles": {"numBundles": 4},
            },
        )
        state = await state_of(broker)
    assert state.groups == {"my gold": ResourceGroup(publishRateInMsgs=9)}
    assert state.namespaces["shop/orders"].publish == {"here": PublishRate(5)}
    assert state.namespaces["shop/orders"].resource_group == "my gold"


async def test_each_topic_is_asked_once_and_pulsars_own_not_at_all() -> None:
    async with broker_admin() as broker:
        broker.add_namespace(
            "shop/orders",
            {},
            "persistent://shop/orders/a",
            "persistent://shop/orders/p-partition-0",
            "persistent://shop/orders/p-partition-1",
            "persistent://shop/orders/__change_events",
            partitioned=("persistent://shop/orders/p", "persistent://shop/orders/q"),
        )
        await state_of(broker)
        of_topics = [path for path in broker.asked if "publishRate" in path and "isGlobal=false" in path]
    assert sorted(path.split("/")[3] for path in of_topics) == ["a", "p", "q"]


async def test_policies_of_topics_are_read_of_this_cluster_and_of_all() -> None:
    async with broker_admin() as broker:
        broker.add_namespace("shop/orders", {}, "persistent://shop/orders/a b", "persistent://shop/orders/plain")
        broker.set_rate(f"{T}/a%20b/publishRate", PUBLISH)
        broker.set_rate(f"{T}/a%20b/publishRate", PUBLISH | {"publishThrottlingRateInMsg": 6}, is_global=True)
        broker.set_rate(f"{T}/a%20b/subscriptionDispatchRate", DISPATCH, is_global=True)
        broker.set_rate(f"{T}/a%20b/subscribeRate", {"subscribeThrottlingRatePerConsumer": 3})
        state = await state_of(broker)
    assert list(state.topics) == ["persistent://shop/orders/a b"]
    policies = state.topics["persistent://shop/orders/a b"]
    assert policies.local == {OfTopic("publish"): PublishRate(5), OfTopic("subscribe"): SubscribeRate(3)}
    assert policies.everywhere == {
        OfTopic("publish"): PublishRate(6),
        OfTopic("subscription_dispatch"): DispatchRate(7),
    }


async def test_subscriptions_are_named_by_what_is_stored_and_pulsars_own_are_not_asked() -> None:
    async with broker_admin() as broker:
        broker.add_namespace(
            "shop/orders", {}, "persistent://shop/orders/a", partitioned=("persistent://shop/orders/p",)
        )
        broker.answers[f"{T}/a/internal-info"] = {"cursors": {"my+sub%2F1": {}, "pulsar.repl.b": {}, "other": {}}}
        broker.answers[f"{T}/p/internal-info"] = {"partitions": {"p-partition-0": {"cursors": {"s": {}}}}}
        broker.set_rate(f"{T}/a/my%20sub%2F1/dispatchRate", DISPATCH)
        broker.set_rate(f"{T}/p/s/dispatchRate", DISPATCH, is_global=True)
        state = await state_of(broker)
        assert not [path for path in broker.asked if "repl" in path]
    assert state.topics["persistent://shop/orders/a"].local == {
        OfTopic("subscription_dispatch", "my sub/1"): DispatchRate(7)
    }
    assert state.topics["persistent://shop/orders/p"].everywhere == {
        OfTopic("subscription_dispatch", "s"): DispatchRate(7)
    }


async def test_a_topic_that_is_not_persistent_is_asked_itself_for_its_subscriptions() -> None:
    async with broker_admin() as broker:
        broker.add_namespace("shop/orders", {}, partitioned=("non-persistent://shop/orders/p",))
        broker.answers["non-persistent/shop/orders/p/subscriptions"] = ["s"]
        broker.set_rate("non-persistent/shop/orders/p/s/dispatchRate", DISPATCH)
        state = await state_of(broker)
    assert OfTopic("subscription_dispatch", "s") in state.topics["non-persistent://shop/orders/p"].local


async def test_what_is_gone_since_it_was_listed_is_passed_over() -> None:
    async with broker_admin(tenants=["gone", "shop"], resourcegroups=["gone"]) as broker:
        broker.add_namespace("shop/orders", {}, "persistent://shop/orders/a")
        broker.answers["namespaces/shop"].append("shop/gone")
        broker.set_rate(f"{T}/a/publishRate", (404, {}))
        state = await state_of(broker)
    assert (list(state.namespaces), state.topics, state.groups, state.unlisted) == (["shop/orders"], {}, {}, [])


async def test_with_topic_policies_disabled_no_more_topics_are_asked() -> None:
    async with broker_admin() as broker:
        names = [f"persistent://shop/orders/{number}" for number in range(100)]
        broker.add_namespace("shop/orders", {}, *names)
        for number in range(100):
            broker.answers[f"{T}/{number}/publishRate?applied=false&isGlobal=false"] = (405, {"reason": "disabled"})
        state = await state_of(broker)
        asked = [path for path in broker.asked if "publishRate" in path]
    assert not state.has_topic_policies
    assert len(asked) <= MOST_REQUESTS


async def test_a_name_like_a_partitions_can_have_no_policies() -> None:
    async with broker_admin() as broker:
        broker.add_namespace("shop/orders", {}, "persistent://shop/orders/a-partition-0")
        broker.answers[f"{T}/a/publishRate?applied=false&isGlobal=false"] = (412, {"reason": "a partition"})
        state = await state_of(broker)
    assert (state.topics, state.has_topic_policies) == ({}, True)


async def test_names_of_other_forms_are_remembered() -> None:
    async with broker_admin() as broker:
        broker.add_namespace("shop/orders", {})
        broker.answers["namespaces/shop"].append("shop/cluster/old")
        broker.answers["persistent/shop/orders"] = ["topic://shop/orders/new"]
        broker.answers["tenants"].append("pulsar")
        broker.answers["namespaces/pulsar"] = ["pulsar/system"]
        state = await state_of(broker)
        assert "namespaces/pulsar/system" not in broker.asked
    assert sorted(state.strange) == ["shop/cluster/old", "topic://shop/orders/new"]


async def test_a_topic_that_cannot_be_printed_is_remembered_and_not_asked_for() -> None:
    """Brokers take it of clients, and answer 400 if they are asked for it."""
    async with broker_admin() as broker:
        broker.add_namespace("shop/orders", {}, "persistent://shop/orders/a")
        broker.answers[T].extend(["persistent://shop/orders/b\0c", "persistent://shop/orders/b\0c-partition-1"])
        state = await state_of(broker)
        assert not [path for path in broker.asked if "%00" in path or "\0" in path]
    assert state.unseen == {"persistent://shop/orders/b\0c"}


@pytest.mark.parametrize("status", [404, 500])
async def test_a_topic_whose_subscriptions_cannot_be_listed_is_remembered(status: int) -> None:
    async with broker_admin() as broker:
        broker.add_namespace("shop/orders", {}, "persistent://shop/orders/a")
        broker.answers[f"{T}/a/internal-info"] = (status, {"reason": "no ledger"})
        assert (await state_of(broker)).unlisted == ["persistent://shop/orders/a"]


@pytest.mark.parametrize("path", ["tenants", "namespaces/shop", "namespaces/shop/orders", f"{T}/7/dispatchRate"])
async def test_a_refusal_anywhere_ends_it_all_with_one_line(path: str) -> None:
    async with broker_admin() as broker:
        broker.add_namespace("shop/orders", {}, *(f"persistent://shop/orders/{number}" for number in range(40)))
        full = f"{path}?applied=false&isGlobal=false" if "Rate" in path else path
        broker.answers[full] = (403, {"reason": "no"})
        with pytest.raises(ImportFailed) as failed:
            await state_of(broker)
    (problem,) = failed.value.problems
    assert f"{full}: 403: " in problem


async def test_few_requests_are_under_way_at_once_and_progress_is_told() -> None:
    steps: list[tuple[str, int, int]] = []
    async with broker_admin() as broker:
        broker.add_namespace("shop/orders", {}, *(f"persistent://shop/orders/{number}" for number in range(50)))
        async with connected(URL(broker.url), "") as admin:
            await walk(admin, lambda *now: steps.append(now))
        assert 1 < broker.most_at_once <= MOST_REQUESTS
    assert steps == [("namespaces", 1, 1), *(("topics", number, 50) for number in range(1, 51))]
