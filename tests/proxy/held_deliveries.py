"""A consumer in conversation that is over its limit."""

from tests.proxy.conversation import Peer, World, consumer
from tests.proxy.wire import message, messages


def holding(world: World, *more: bytes) -> tuple[Peer, Peer]:
    """A client whose consumer 7 asked for a thousand; it got message 0, and 1 and 2 are held."""
    client, broker = consumer(world, *more, permits=1000)
    broker >> messages(3)
    client << message(0)
    broker.heard()
    return client, broker
