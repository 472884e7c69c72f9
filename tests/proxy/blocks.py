"""Blocking in conversations."""

from protocol.commands import encode
from protocol.pulsar_pb2 import CommandCloseProducer, CommandPartitionedTopicMetadata, NotAllowedError
from proxy.block_rules import read_key
from proxy.blocking.blocklist import EndedByRule
from tests.proxy.conversation import World
from tests.proxy.wire import NO_REQUEST, TOPIC, error

OWN = 2**64 - 2
"""The first request id of the proxy's own."""


def block(world: World, kind: str, name: str, reason: str = "too loud", **where: str) -> EndedByRule:
    blocklist, key = world.engine.blocklist, read_key(kind, name, **where)
    done: EndedByRule = world.loop.run(blocklist.put, key, blocklist.order_to_block(key, reason))
    return done


def unblock(world: World, kind: str, name: str, **where: str) -> None:
    blocklist, key = world.engine.blocklist, read_key(kind, name, **where)
    assert blocklist.rules.get(key)
    world.loop.run(blocklist.put, key, blocklist.order_to_unblock(key))


def metadata(request_id: int = 1) -> bytes:
    return encode(CommandPartitionedTopicMetadata(topic=TOPIC, request_id=request_id))


def refused(request_id: int, subject: str, kind: int = NotAllowedError) -> bytes:
    return error(request_id, kind, f"{subject} is blocked by Sluice: too loud")


def close_to_client(producer_id: int = 1) -> bytes:
    return encode(CommandCloseProducer(producer_id=producer_id, request_id=NO_REQUEST))


def close_to_broker(producer_id: int = 1, request_id: int = OWN) -> bytes:
    return encode(CommandCloseProducer(producer_id=producer_id, request_id=request_id))
