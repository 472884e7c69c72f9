"""What `GET /sluice/streams` says of streams."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import repeat
from types import SimpleNamespace
from typing import Any

import pytest

from limiter.limiter import Stream
from proxy.admin.routes.streams import Choice, Totals, WantedStreams, view
from tests.proxy.conversation import World, consumer, let_in, publisher
from tests.proxy.wire import OTHER_TOPIC, TOPIC, producer, sends

Make = Callable[..., World]
STEP = 10
"""Streams that are looked at in one step."""
ALL = WantedStreams(held=False, topic="", tenant="", most=1000)


def chosen(world: World, wanted: WantedStreams) -> tuple[list[int], Totals]:
    """The ids of the streams that are shown, and the totals."""
    choice = Choice(wanted)
    for stream in world.engine.registry.live():
        choice.look_at([stream])
    return [stream.name.stream_id for stream in ordered(choice)], choice.totals


def ordered(choice: Choice) -> list[Stream]:
    """The streams that are shown, after all steps."""
    for _ in choice.ordering():
        pass
    return choice.shown


def views(world: World) -> list[dict[str, Any]]:
    choice = Choice(ALL)
    choice.look_at(world.engine.registry.live())
    return [dict[str, Any](view(stream, world.clock())) for stream in ordered(choice)]


def test_a_stream_says_who_it_is_what_it_did_and_why_it_waits(make_world: Make) -> None:
    limit = {"messages": 1, "bytes": "1MB", "peak_messages": 5, "burst_messages": 1}
    world = make_world(limits={"namespaces": {"acme/shop": {"publish_total": limit}}})
    client, _ = publisher(world)
    client >> sends(3, size=100)
    world.advance(0.25)
    (shown,) = views(world)
    in_force = {
        "messages_per_s": 1.0,
        "bytes_per_s": 1_000_000.0,
        "burst_messages": 1,
        "burst_bytes": 100_000,
        "share_messages": None,
        "share_bytes": None,
    }
    assert shown == {
        "direction": "publish",
        "topic": TOPIC,
        "connection_id": 1,
        "client_address": "192.0.2.7:40001",
        "client_role": "",
        "client_tls": False,
        "stream_id": 1,
        "producer_name": "named-by-broker",
        "subscription": "",
        "consumer_name": "",
        "offered_messages": 3,
        "offered_bytes": 300,
        "passed_messages": 1,
        "passed_bytes": 100,
        "rejected_messages": 0,
        "rejected_bytes": 0,
        "rejected_by": None,
        "dropped_messages": 0,
        "throttled_ms": 250.0,
        "held_messages": 2,
        "held_bytes": 200,
        "held_for_ms": 250.0,
        "oldest_held_ms": 250.0,
        "permits_asked": 0,
        "permits_granted": 0,
        "permits_withheld": 0,
        "permits_at_broker": 0,
        "permits_wait_on": None,
        "waits_on": {
            "level": "namespace",
            "name": "acme/shop",
            "source": "total file",
            "messages_per_s": 1.0,
            "bytes_per_s": 1_000_000.0,
            "published_messages_per_s": None,
            "published_bytes_per_s": None,
            "in_force": in_force,
            "for_ms": 250.0,
        },
        "limits": [
            {
                "level": "namespace",
                "name": "acme/shop",
                "source": "total file",
                "mode": "enforce",
                "messages_per_s": 1.0,
                "bytes_per_s": 1_000_000.0,
                "burst_messages": 1,
                "burst_bytes": 100_000,
                "peak_messages_per_s": 5.0,
                "peak_bytes_per_s": None,
                "relative_to_publish_rate": False,
                "published_messages_per_s": None,
                "published_bytes_per_s": None,
                "in_force": in_force,
            }
        ],
        "observed": None,
    }


def test_how_long_it_is_held_is_not_how_long_it_waits_on_this_limit(make_world: Make) -> None:
    """It was held all the time, by one limit and then by another."""
    limits = {
        "tenants": {"acme": {"publish": {"messages": 1, "burst_messages": 2}}},
        "topics": {TOPIC: {"publish": {"messages": 2, "burst_messages": 1}}},
    }
    world = make_world(limits=limits)
    client, _ = publisher(world)
    client >> sends(4)
    world.advance(0.25)
    (shown,) = views(world)
    assert (shown["waits_on"]["level"], shown["waits_on"]["for_ms"], shown["held_for_ms"]) == ("topic", 250, 250)
    world.advance(1.5)
    (shown,) = views(world)
    assert (shown["waits_on"]["level"], shown["waits_on"]["for_ms"], shown["held_for_ms"]) == ("tenant", 250, 1750)
    assert shown["oldest_held_ms"] == 1750


def test_a_stream_without_a_limit_waits_on_nothing(world: World) -> None:
    consumer(world, permits=1000)
    (shown,) = views(world)
    assert (shown["subscription"], shown["waits_on"], shown["limits"]) == ("sub", None, [])
    assert (shown["held_for_ms"], shown["oldest_held_ms"]) == (None, None)
    assert (shown["permits_asked"], shown["permits_granted"]) == (1000, 1000)


def test_a_consumer_says_which_permits_are_withheld_by_which_limit_and_since_when(make_world: Make) -> None:
    """Nothing is held: all that came has passed."""
    limits = {"tenants": {"acme": {"dispatch": {"messages": 1000}}}, "topics": {TOPIC: {"dispatch": {"messages": 10}}}}
    world = make_world(limits=limits)
    consumer(world, permits=1000)
    world.advance(0.25)
    (shown,) = views(world)
    counts = [shown[f"permits_{state}"] for state in ("asked", "granted", "withheld", "at_broker")]
    assert (counts, shown["waits_on"]) == ([1000, 1, 999, 1], None)
    by = shown["permits_wait_on"]
    assert (by["level"], by["name"], by["messages_per_s"], by["for_ms"]) == ("topic", TOPIC, 10, 250)


def test_a_limit_that_is_only_observed_is_listed_with_what_it_would_do(make_world: Make) -> None:
    world = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1, "mode": "observe"}}}})
    client, _ = publisher(world)
    client >> sends(3, size=100)
    world.advance(0.25)
    (shown,) = views(world)
    assert (shown["held_messages"], shown["held_for_ms"], shown["waits_on"]) == (0, None, None)
    assert [limit["mode"] for limit in shown["limits"]] == ["observe"]
    would = {"held_messages": 2, "held_bytes": 200, "held_for_ms": 250.0, "throttled_ms": 250.0, "exceeded_messages": 0}
    assert shown["observed"] == would


def test_what_a_limit_rejected_is_told(make_world: Make) -> None:
    world = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1, "mode": "reject"}}}})
    client, _ = publisher(world)
    client >> sends(3, size=100)
    (shown,) = views(world)
    assert (shown["rejected_messages"], shown["rejected_bytes"], shown["held_messages"]) == (2, 200, 0)
    assert shown["limits"][0]["mode"] == "reject"
    rejecting = shown["rejected_by"]
    assert rejecting is not None
    assert (rejecting["level"], rejecting["name"], rejecting["messages_per_s"]) == ("topic", TOPIC, 1.0)


def test_a_limit_that_holds_later_is_not_the_one_that_rejected(make_world: Make) -> None:
    world = make_world(
        limits={
            "topics": {TOPIC: {"publish": {"messages": 1, "mode": "reject"}}},
            "tenants": {"acme": {"publish": {"bytes": "1kB"}}},
        }
    )
    client, _ = publisher(world)
    client >> sends(2, size=100)
    world.advance(1.0)
    client >> sends(1, size=2000)
    world.advance(1.0)
    client >> sends(1, size=100)
    (shown,) = views(world)
    assert shown["rejected_messages"] == 1
    assert shown["rejected_by"] is not None
    assert shown["rejected_by"]["level"] == "topic"
    assert shown["waits_on"] is not None
    assert shown["waits_on"]["level"] == "tenant"


def test_those_who_wait_come_first_and_the_rest_is_cut_off_loudly(make_world: Make) -> None:
    world = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}}}})
    client, broker = world.pair()
    client >> [producer(1, OTHER_TOPIC), producer(2, OTHER_TOPIC), producer(3, TOPIC)]
    let_in(client, broker)
    client >> sends(3, producer_id=3, size=9)
    shown, totals = chosen(world, WantedStreams(held=False, topic="", tenant="", most=2))
    assert shown == [3, 1]
    assert totals == {"streams": 3, "held_streams": 1, "held_messages": 2, "held_bytes": 18}


def test_those_who_hold_most_are_shown_however_many_wait(make_world: Make) -> None:
    world = make_world(limits={"each_topic": {"publish": {"messages": 1}}})
    client, broker = world.pair()
    client >> [producer(number, f"persistent://t/n/{number}") for number in range(9)]
    let_in(client, broker)
    for number in range(9):
        client >> sends(2 + number * 5 % 9, producer_id=number)
    shown, totals = chosen(world, WantedStreams(held=False, topic="", tenant="", most=3))
    assert [number * 5 % 9 for number in shown] == [8, 7, 6]
    assert (totals["held_streams"], totals["held_messages"]) == (9, 9 + 36)


@pytest.mark.parametrize(
    ("asked", "stream_ids"),
    [
        ({}, [3, 1, 2]),
        ({"held": True}, [3]),
        ({"topic": OTHER_TOPIC}, [1, 2]),
        ({"topic": TOPIC}, [3]),
        ({"topic": TOPIC[:-1]}, []),
        ({"tenant": "acme"}, [3, 1, 2]),
        ({"tenant": "acm"}, []),
        ({"held": True, "topic": OTHER_TOPIC}, []),
        ({"most": 0}, []),
    ],
)
def test_one_can_ask_for_some_of_them(make_world: Make, asked: dict[str, Any], stream_ids: list[int]) -> None:
    world = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}}}})
    client, broker = world.pair()
    client >> [producer(1, OTHER_TOPIC), producer(2, OTHER_TOPIC), producer(3, TOPIC)]
    let_in(client, broker)
    client >> sends(3, producer_id=3)
    wanted = WantedStreams(**{"held": False, "topic": "", "tenant": "", "most": 1000, **asked})
    assert chosen(world, wanted)[0] == stream_ids


def test_a_partitioned_topic_stands_for_its_partitions(world: World) -> None:
    client, _ = world.pair()
    client >> [producer(1, f"{TOPIC}-partition-0"), producer(2, f"{TOPIC}-partition-1"), producer(3, OTHER_TOPIC)]
    assert chosen(world, WantedStreams(held=False, topic=TOPIC, tenant="", most=9))[0] == [1, 2]
    assert chosen(world, WantedStreams(held=False, topic=f"{TOPIC}-partition-1", tenant="", most=9))[0] == [2]


class Compared(int):
    """A number that counts its comparisons."""

    count = 0

    def __lt__(self, other: int) -> bool:
        Compared.count += 1
        return super().__lt__(other)

    __gt__ = __lt__  # only the count matters


def test_no_step_compares_many_of_many_streams() -> None:
    most = 1000
    choice = Choice(replace(ALL, most=most))
    streams: list[Any] = [
        SimpleNamespace(held=[1], holds=True, permits=None, observed=None, name=None, usage=usage)
        for usage in (SimpleNamespace(held_messages=Compared(number), held_size=1) for number in range(3 * most))
    ]
    steps: list[int] = []
    for step in (
        *(partial(choice.look_at, streams[begin : begin + STEP]) for begin in range(0, len(streams), STEP)),
        *repeat(partial(next, choice.ordering(), None), most),
    ):
        Compared.count = 0
        step()
        steps.append(Compared.count)
    assert choice.shown == streams[: -most - 1 : -1]
    assert max(steps) <= STEP * 2 * most.bit_length()
