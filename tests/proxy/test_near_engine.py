"""What sessions share where their limits are kept, too."""

import asyncio
from collections.abc import Callable

from limiter.levels import Setting
from limiter.policies import Change, Value, change_of
from limiter.registry import SLICE
from limiter.token_bucket import Limit, rate
from tests.proxy.conversation import Peer, World, publisher
from tests.proxy.wire import TOPIC, producer, sends

Make = Callable[..., World]


def test_changed_policies_reach_the_streams_that_are_open(make_world: Make) -> None:
    world = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}}}})
    client, broker = publisher(world)
    client >> sends(3)
    broker.heard()
    world.engine.registry.policies.clear()
    world.loop.run(world.engine.policies_changed)
    broker << sends(2, start=1)


def changed(world: World, setting: Setting, name: str, messages: int | None) -> list[Change]:
    """What a change of a publish limit is."""
    policies = world.engine.registry.policies
    before = policies.by_name("publish", setting).get(name)
    after = Value(Limit(rate(messages)), "rest") if messages else None
    policies.put("publish", setting, name, after)
    change = change_of(("publish", setting, name), before, after)
    return [change] if change is not None else []


def producers(world: World, count: int) -> tuple[Peer, Peer]:
    return publisher(world, *(producer(number) for number in range(2, count + 1)))


def test_new_limit_reaches_all_streams_in_slices(make_world: Make) -> None:
    world = make_world()
    producers(world, 3 * SLICE)
    limited: list[int] = []

    def look() -> None:
        limited.append(sum(bool(stream.chain) for stream in world.engine.registry.live()))
        if world.engine.registry.is_changing:
            asyncio.get_running_loop().call_soon(look)

    def change() -> None:
        world.engine.policies_changed(changed(world, Setting.PROXY, "", 10))
        look()

    world.loop.run(change)
    # The last turn looks at limiters at rest.
    assert limited == [*range(SLICE // 2, 3 * SLICE + 1, SLICE // 2), 3 * SLICE]


def test_of_two_changes_one_upon_the_other_the_last_one_holds_everywhere(make_world: Make) -> None:
    world = make_world()
    producers(world, 3 * SLICE)

    def change() -> None:
        for messages in (10, 20, None, 30):
            world.engine.policies_changed(changed(world, Setting.PROXY, "", messages))

    world.loop.run(change)
    chains = {stream.chain for stream in world.engine.registry.live()}
    assert [[limiter.limit for limiter in chain] for chain in chains] == [[Limit(rate(30))]]


def test_a_changed_value_acts_at_once_on_all_streams(make_world: Make) -> None:
    world = make_world(limits={"proxy": {"publish": {"messages": 1}}})
    client, broker = producers(world, 2 * SLICE)
    client >> sends(3)
    broker << sends(1)
    world.loop.run(lambda: world.engine.policies_changed(changed(world, Setting.PROXY, "", 1000)))
    assert not world.engine.registry.is_changing
    world.advance(0.002)
    broker << sends(2, start=1)
