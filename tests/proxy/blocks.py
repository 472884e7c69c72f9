"""Blocking in conversations."""

from protocol.commands import encode
from protocol.pulsar_pb2 import CommandCloseProducer, CommandPartitionedTopicMetadata, NotAllowedError
from proxy.blocking.blocklist import Ended
from proxy.blocking.rules import Rule, read_key
from tests.proxy.conversation import World
from tests.proxy.wire import NO_REQUEST, TOPIC, error

OWN = 2**64 - 2
"""The first request id of the proxy's own."""


def block(world: World, kind: str, name: str, reason: str = "too loud", **where: str) -> Ended:
    done: tuple[Rule, Ended] = world.loop.run(world.engine.blocklist.block, read_key(kind, name, **where), reason)
    return done[1]


def unblock(world: World, kind: str, name: str, **where: str) -> None:
    assert world.loop.run(world.engine.blocklist.unblock, read_key(kind, name, **where))


def metadata(request_id: int = 1) -> bytes:
    return encode(CommandPartitionedTopicMetadata(topic=TOPIC, request_id=request_id))


def refused(request_id: int, who: str, kind: int = NotAllowedError) -> bytes:
    return error(request_id, kind, f"{who} is blocked by Sluice: too loud")


def close_to_client(producer_id: int = 1) -> bytes:
    return encode(CommandCloseProducer(producer_id=producer_id, request_id=NO_REQUEST))


def close_to_broker(producer_id: int = 1, request_id: int = OWN) -> bytes:
    return encode(CommandCloseProducer(producer_id=producer_id, request_id=request_id))
