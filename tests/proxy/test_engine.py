"""What all sessions of a process share."""

from collections.abc import Callable

from limiter.policies import Policies
from proxy.config import Config
from proxy.engine import Engine
from proxy.observe.counters import Counters
from tests.proxy.conversation import World, publisher
from tests.proxy.wire import TOPIC, sends

Make = Callable[..., World]


def test_the_configured_broker_is_the_one_that_clients_may_reach() -> None:
    engine = Engine(Config(), Policies(), Counters(), lambda: None)
    assert engine.broker == ("127.0.0.1", 6651)
    assert engine.lookups.limit == Config().max_lookups_in_flight


def test_changed_policies_reach_the_streams_that_are_open(make_world: Make) -> None:
    world = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}}}})
    client, broker = publisher(world)
    client >> sends(3)
    broker.heard()
    world.engine.registry.policies.clear()
    world.loop.run(world.engine.policies_changed)
    broker << sends(2, start=1)
