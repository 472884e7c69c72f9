"""Limits that change while clients are connected."""

from collections.abc import Callable
from typing import Any

from limiter.levels import Setting
from limiter.policies import Value
from limiter.token_bucket import Direction, Limit, rate
from tests.proxy.conversation import Peer, World, publisher
from tests.proxy.wire import flow, messages, send, sends, subscribe, success

Make = Callable[..., World]


def set_limit(world: World, direction: Direction, messages_per_s: int | None) -> None:
    """As the admin REST does for a namespace."""
    value = Value(Limit(rate(messages_per_s)), "rest") if messages_per_s else None
    world.engine.registry.policies.put(direction, Setting.TOPIC_OF_NAMESPACE, "acme/shop", value)
    world.loop.run(world.engine.policies_changed)


def one_a_second(make_world: Make, **more: Any) -> tuple[World, Peer, Peer]:
    world = make_world(limits={"namespaces": {"acme/shop": {"publish": {"messages": 1}}}}, **more)
    return (world, *publisher(world))


def test_without_the_limit_what_is_held_goes_at_once_and_in_order(make_world: Make) -> None:
    world, client, broker = one_a_second(make_world)
    client >> sends(10)
    broker << send(0)
    set_limit(world, "publish", None)
    broker << sends(9, start=1)
    client >> sends(50, start=10)
    broker << sends(50, start=10)


def test_a_raised_limit_lets_go_faster_from_that_moment_on(make_world: Make) -> None:
    world, client, broker = one_a_second(make_world)
    client >> sends(12)
    broker << send(0)
    set_limit(world, "publish", 100)
    world.advance(0.01)
    broker << send(1)
    world.advance(0.1)
    broker << sends(10, start=2)


def test_a_lowered_limit_slows_down_from_that_moment_on(make_world: Make) -> None:
    world, client, broker = one_a_second(make_world)
    set_limit(world, "publish", 100)
    client >> sends(20)
    set_limit(world, "publish", 1)
    passed = len(broker.heard())
    world.advance(2)
    assert len(broker.heard()) == 2
    assert passed <= 10


def test_a_limit_for_those_who_had_none_holds_from_the_next_entry_on(world: World) -> None:
    client, broker = publisher(world)
    client >> sends(5)
    broker << sends(5)
    set_limit(world, "publish", 1)
    client >> sends(2, start=5)
    broker << send(5)
    world.advance(1)
    broker << send(6)


def test_reading_goes_on_at_once_when_the_limit_that_paused_it_is_gone(make_world: Make) -> None:
    world, client, broker = one_a_second(make_world, publish={"hold_connection": "200"})
    client >> sends(100)
    assert not client.is_read
    set_limit(world, "publish", None)
    assert client.is_read
    broker << sends(100)


def test_deliveries_and_permits_follow_a_changed_limit(world: World) -> None:
    client, broker = world.pair()
    client >> subscribe()
    broker >> success(307)
    set_limit(world, "dispatch", 10)
    broker.heard()
    client.heard()
    client >> flow(1000)
    broker << flow(1)
    broker >> messages(2)
    assert client.heard() == messages(1)
    broker.heard()
    set_limit(world, "dispatch", None)
    client << messages(1, start=1)
    usage = world.engine.registry.live()[0].usage
    assert usage.permits_granted == usage.permits_asked == 1000
