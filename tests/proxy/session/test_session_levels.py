"""Limits of who publishes, wherever that is: tenants, roles, addresses, producers."""

from collections.abc import Callable
from typing import Any

from tests.proxy.conversation import BROKER, NOTHING, Peer, World, consumer, publisher
from tests.proxy.wire import (
    OTHER_TOPIC,
    UNLIMITED_TOPIC,
    connect,
    connected,
    flow,
    message,
    producer,
    producer_success,
    send,
    sends,
    subscribe,
    success,
)

Make = Callable[..., World]
ONE = {"publish": {"messages": 1}}


def publishers(world: World, *topics: str, **login: Any) -> list[tuple[Peer, Peer]]:
    """A client of its own for each topic, with producer 1."""
    pairs: list[tuple[Peer, Peer]] = []
    for topic in topics:
        client = world.client()
        client >> connect(f"{BROKER[0]}:{BROKER[1]}", **login)
        broker = world.dialled()
        broker >> connected()
        client >> producer(topic=topic)
        broker >> producer_success()
        client.heard()
        broker.heard()
        pairs.append((client, broker))
    return pairs


def passed_at_once(pairs: list[tuple[Peer, Peer]]) -> list[int]:
    """How many of three messages each passes in the same instant."""
    for client, _ in pairs:
        client >> sends(3)
    return [len(broker.heard()) for _, broker in pairs]


def test_a_tenants_total_is_shared_by_its_namespaces_and_by_nobody_else(make_world: Make) -> None:
    world = make_world(limits={"tenants": {"acme": ONE}})
    pairs = publishers(world, "acme/shop/a", "acme/other/b", "free/space/c")
    assert passed_at_once(pairs) == [1, 0, 3]


def test_a_star_gives_each_tenant_a_total_of_its_own(make_world: Make) -> None:
    world = make_world(limits={"tenants": {"*": ONE, "free": {"publish": {"messages": 100}}}})
    pairs = publishers(world, "acme/shop/a", "acme/other/b", "beta/n/x", "free/space/c")
    assert passed_at_once(pairs) == [1, 0, 1, 3]


def test_the_proxys_own_limit_is_shared_by_all(make_world: Make) -> None:
    world = make_world(limits={"proxy": {"publish": {"messages": 1}}})
    assert passed_at_once(publishers(world, "acme/shop/a", "free/space/c")) == [1, 0]


def test_a_resource_group_is_shared_by_what_is_attached_to_it(make_world: Make) -> None:
    group = {**ONE, "tenants": ["acme"], "namespaces": ["free/space"]}
    world = make_world(limits={"resource_groups": {"small": group}})
    pairs = publishers(world, "acme/shop/a", "free/space/c", "free/other/d")
    assert passed_at_once(pairs) == [1, 0, 3]


def test_a_partitioned_topics_total_is_shared_by_its_partitions(make_world: Make) -> None:
    world = make_world(limits={"topics": {"acme/shop/a": {"publish_total": {"messages": 1}}}})
    pairs = publishers(world, "acme/shop/a-partition-0", "acme/shop/a-partition-1", "acme/shop/b")
    assert passed_at_once(pairs) == [1, 0, 3]


def test_each_topic_has_the_brokers_value_unless_it_or_its_namespace_has_one(make_world: Make) -> None:
    namespaces = {"acme/shop": {"publish": {"messages": 20, "burst_messages": 2}}}
    world = make_world(limits={"each_topic": ONE, "namespaces": namespaces})
    assert passed_at_once(publishers(world, "acme/shop/a", "free/space/c", "free/space/d")) == [2, 1, 1]


def test_all_producers_of_a_role_share_its_limit(make_world: Make) -> None:
    world = make_world(limits={"roles": {"billing": ONE}})
    billing = publishers(world, OTHER_TOPIC, UNLIMITED_TOPIC, auth_method_name="basic", auth_data=b"billing:secret")
    others = publishers(world, OTHER_TOPIC, auth_method_name="basic", auth_data=b"stock:secret")
    assert passed_at_once(billing + others) == [1, 0, 3]


def test_clients_of_one_address_share_its_limit(make_world: Make) -> None:
    world = make_world(limits={"addresses": {"192.0.2.0/24": ONE}})
    assert passed_at_once(publishers(world, OTHER_TOPIC, UNLIMITED_TOPIC)) == [1, 0]


def test_an_address_outside_the_network_is_not_limited(make_world: Make) -> None:
    world = make_world(limits={"addresses": {"198.51.100.0/24": ONE}})
    assert passed_at_once(publishers(world, OTHER_TOPIC)) == [3]


def test_a_producer_is_limited_by_the_name_that_it_chose(make_world: Make) -> None:
    world = make_world(limits={"producers": {"meter": ONE}})
    client, broker = world.pair(f"{BROKER[0]}:{BROKER[1]}")
    client >> producer(producer_name="meter")
    broker.heard()
    broker >> producer_success(name="meter")
    client >> sends(3)
    broker << send(0)


def test_a_producer_is_limited_by_the_name_that_the_broker_chose(make_world: Make) -> None:
    world = make_world(limits={"producers": {"named-by-broker": ONE}})
    client, broker = publisher(world)
    client >> sends(3)
    broker << send(0)


def test_producers_of_one_name_on_different_topics_have_limits_of_their_own(make_world: Make) -> None:
    world = make_world(limits={"producers": {"*": ONE}})
    assert passed_at_once(publishers(world, OTHER_TOPIC, UNLIMITED_TOPIC)) == [1, 1]


def test_all_levels_hold_at_once(make_world: Make) -> None:
    """Each second the address lets one more pass; the role's two messages at once are not enough."""
    limits = {
        "roles": {"billing": {"publish": {"messages": 20, "burst_messages": 2}}},
        "addresses": {"192.0.2.7": ONE},
        "each_topic": {"publish": {"messages": 100}},
    }
    world = make_world(limits=limits)
    ((client, broker),) = publishers(world, OTHER_TOPIC, auth_method_name="basic", auth_data=b"billing:secret")
    client >> sends(4)
    broker << send(0)
    world.advance(1)
    broker << send(1)
    world.advance(0.5)
    broker << NOTHING
    world.advance(0.5)
    broker << send(2)


def test_a_peak_holds_while_the_burst_lasts(make_world: Make) -> None:
    rate = {"messages": 10, "burst_messages": 30, "peak_messages": 20}
    world = make_world(limits={"each_topic": {"publish": rate}})
    client, broker = publisher(world)
    client >> sends(200)
    seconds = []
    for _ in range(6):
        world.advance(1)
        seconds.append(len(broker.heard()))
    assert seconds == [22, 20, 18, 10, 10, 10]


def test_limit_of_a_subscription_is_shared_by_its_consumers_only(make_world: Make) -> None:
    world = make_world(limits={"each_subscription": {"dispatch": {"messages": 1}}})
    client, broker = consumer(world, permits=1000)
    for consumer_id, subscription in ((8, "sub"), (9, "other")):
        client >> [subscribe(consumer_id, subscription=subscription), flow(1000, consumer_id)]
        broker.heard()
        broker >> success(300 + consumer_id)
        client.heard()
    broker >> [message(0), message(1, consumer_id=8), message(2, consumer_id=9)]
    client << [message(0), message(2, consumer_id=9)]
    world.advance(1.01)
    client << message(1, consumer_id=8)
