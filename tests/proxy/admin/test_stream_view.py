"""`GET /sluice/streams`."""

import json
from collections.abc import Callable

import pytest

from proxy.admin import stream_view
from proxy.admin.stream_view import streams_view
from tests.proxy.conversation import World, publisher
from tests.proxy.wire import OTHER_TOPIC, TOPIC, flow, producer, send, sends, subscribe, varint

Make = Callable[..., World]


def test_a_stream_says_who_it_is_what_it_did_and_why_it_waits(make_world: Make) -> None:
    world = make_world(limits={"namespaces": {"acme/shop": {"publish_total": {"messages": 1, "bytes": "1MB"}}}})
    client, _ = publisher(world)
    client >> sends(3, size=100)
    world.advance(0.25)
    (shown,) = streams_view(world.engine.registry.live(), world.clock())["streams"]
    assert shown == {
        "direction": "publish",
        "topic": TOPIC,
        "connection_id": 1,
        "client_address": "192.0.2.7:40001",
        "stream_id": 1,
        "producer_name": "named-by-broker",
        "subscription": "",
        "offered_messages": 3,
        "offered_bytes": 300,
        "passed_messages": 1,
        "passed_bytes": 100,
        "held_messages": 2,
        "held_bytes": 200,
        "permits_asked": 0,
        "permits_granted": 0,
        "waits_on": {"level": "namespace", "name": "acme/shop", "for_ms": 250.0},
        "limits": [
            {
                "level": "namespace",
                "name": "acme/shop",
                "source": "total file",
                "messages_per_s": 1.0,
                "bytes_per_s": 1_000_000.0,
            }
        ],
    }


def test_a_stream_without_a_limit_waits_on_nothing(world: World) -> None:
    client, _ = world.pair()
    client >> [subscribe(), flow(1000)]
    (shown,) = streams_view(world.engine.registry.live(), world.clock())["streams"]
    assert (shown["subscription"], shown["waits_on"], shown["limits"]) == ("sub", None, [])
    assert (shown["permits_asked"], shown["permits_granted"]) == (1000, 1000)


def test_those_who_wait_come_first_and_the_rest_is_cut_off_loudly(
    make_world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_view, "MOST_SHOWN", 2)
    world = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}}}})
    client, _ = world.pair()
    client >> [producer(1, OTHER_TOPIC), producer(2, OTHER_TOPIC), producer(3, TOPIC), *sends(3, producer_id=3)]
    view = streams_view(world.engine.registry.live(), world.clock())
    assert [shown["stream_id"] for shown in view["streams"]] == [3, 1]
    assert view["left_out"] == 1


def test_names_that_are_no_text_do_not_break_the_view(world: World) -> None:
    """Protobuf hands out a field that is not UTF-8 as bytes, which JSON has not."""
    client, _ = world.pair()
    command = producer()[8:]
    inner = command[command.index(TOPIC.encode()) - 2 :] + b"\x22\x02\xff\xfe"
    envelope = b"\x08\x05\x2a" + varint(len(inner)) + inner
    client.send_bytes((len(envelope) + 4).to_bytes(4, "big") + len(envelope).to_bytes(4, "big") + envelope)
    view = streams_view(world.engine.registry.live(), world.clock())
    assert json.loads(json.dumps(view))["streams"][0]["producer_name"] == "\ufffd\ufffd"
    client >> send(0)
