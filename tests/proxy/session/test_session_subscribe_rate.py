"""Subscribe rates that are set at run time, in conversation."""

import asyncio
from collections.abc import Callable

from limiter.levels import Setting
from protocol.pulsar_pb2 import NotAllowedError
from proxy.policies.bodies import SubscribeRate, kept_as_pulsar_s
from proxy.policies.keys import Principal, rate_key
from proxy.policies.layers import FilePolicies
from proxy.policies.service import Around, PolicyService
from proxy.policies.store import Store
from tests.proxy.conversation import BROKER, NOTHING, World
from tests.proxy.session.test_session_admission import subscribed
from tests.proxy.wire import body, close_consumer, error, subscribe

Make = Callable[..., World]
DATA = f"{BROKER[0]}:{BROKER[1]}"


def test_a_subscribe_rate_set_by_rest_refuses_and_a_higher_one_lets_in(make_world: Make) -> None:
    world = make_world()
    client, broker = world.pair(DATA)
    service = book_of(world)
    set_subscribe_rate(world, service, 2)
    for _ in range(2):
        subscribed(client, broker, 7, consumer_name="c")
        broker >> close_consumer(7)
        client.heard()
    client >> subscribe(7, consumer_name="c")
    broker << NOTHING
    why = "subscribes of one consumer: at most 2 per 30 s (admission.subscribe_rate_per_consumer, namespace rest)"
    client << error(307, NotAllowedError, why)
    subscribed(client, broker, 9, consumer_name="another")
    set_subscribe_rate(world, service, 3)
    subscribed(client, broker, 7, consumer_name="c")
    broker >> close_consumer(7)
    client.heard()
    client >> subscribe(7, consumer_name="c")
    assert body(client.heard()[0]).error == NotAllowedError
    set_subscribe_rate(world, service, None)
    subscribed(client, broker, 7, consumer_name="c")


def book_of(world: World) -> PolicyService:
    """Where the REST sets policies of a world without a file."""
    around = Around(lambda: (0, world.clock.now), world.engine.policies_changed)
    return PolicyService(world.engine.registry.policies, FilePolicies({}, {}, {}), Store(None), around)


def set_subscribe_rate(world: World, service: PolicyService, per_30_s: int | None) -> None:
    key = rate_key("subscribe", Setting.TOPIC_OF_NAMESPACE, "acme/shop")
    kept = kept_as_pulsar_s(SubscribeRate(per_30_s)) if per_30_s else None
    asyncio.run(service.change({key: kept}, Principal("ann", "10.0.0.1")))
