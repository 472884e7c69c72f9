"""Bounds on connections and lookups, in conversation."""

from collections.abc import Callable
from typing import Any

import pytest

from protocol.commands import encode
from protocol.pulsar_pb2 import (
    CommandGetTopicsOfNamespace,
    CommandGetTopicsOfNamespaceResponse,
    CommandLookupTopicResponse,
    ConsumerBusy,
    NotAllowedError,
    ProducerBusy,
    ServiceNotReady,
    TooManyRequests,
)
from proxy.admission_control import BoundName, NotAdmittedError
from proxy.refusals import lookup_refused, metadata_refused
from proxy.session.session_admission import error_of
from tests.proxy.blocks import metadata
from tests.proxy.conversation import NOTHING, Peer, World
from tests.proxy.wire import (
    NO_REQUEST,
    TOPIC,
    body,
    error,
    lookup,
    lookup_answer,
)

Make = Callable[..., World]


def bounded(make_world: Make, **bounds: Any) -> World:
    return make_world(admission=bounds)


def refused_connection(late: Peer) -> tuple[int, str]:
    """What a connection that is closed at once was told."""
    (answer,) = [body(frame) for frame in late.heard()]
    assert answer.request_id == NO_REQUEST
    assert late.is_gone
    return answer.error, answer.message


# ---- connections


def test_address_over_its_bound_gets_in_when_another_closes(make_world: Make) -> None:
    world = bounded(make_world, max_connections_per_address=2)
    first, _broker = world.pair()
    world.pair()
    late = world.client()
    assert refused_connection(late) == (
        TooManyRequests,
        "too_many_connections: connections of one address: at most 2 (admission.max_connections_per_address)",
    )
    world.pair(address="192.0.2.8")
    first.leave()
    world.pair()
    assert world.counters.not_admitted == {BoundName.CONNECTIONS_PER_ADDRESS: 1}
    assert world.counters.connections_ended["too_many_connections"] == 1


def test_an_ipv6_client_is_counted_by_its_network(make_world: Make) -> None:
    world = bounded(make_world, max_connections_per_address=1)
    world.pair(address="2001:db8::1")
    assert refused_connection(world.client("2001:db8::2"))[0] == TooManyRequests
    world.pair(address="2001:db8:0:1::1")


@pytest.mark.parametrize("bound", [BoundName.CONNECTION_RATE, BoundName.CONNECTION_RATE_PER_ADDRESS])
def test_connections_that_come_too_fast_are_told_and_closed(make_world: Make, bound: BoundName) -> None:
    world = bounded(make_world, **{str(bound): "2/10s"})
    for _ in range(2):
        world.client().leave()
    late = world.client()
    assert refused_connection(late)[1].endswith(f"at most 2 per 10 s (admission.{bound})")
    assert world.counters.connections_ended["connection_rate"] == 1
    world.advance(5)
    world.pair()
    assert refused_connection(world.client())[0] == TooManyRequests


def test_the_rate_of_an_address_is_no_other_ones(make_world: Make) -> None:
    world = bounded(make_world, connection_rate_per_address="1/min")
    world.pair()
    assert refused_connection(world.client())[0] == TooManyRequests
    world.pair(address="192.0.2.8")


def test_a_connection_over_the_bound_uses_up_nothing_of_the_rate(make_world: Make) -> None:
    world = bounded(make_world, max_connections_per_address=1, connection_rate="2/min")
    first, _broker = world.pair()
    for _ in range(5):
        assert refused_connection(world.client())[0] == TooManyRequests
    first.leave()
    world.pair()


# ---- lookups


def test_lookups_over_the_rate_are_refused_each_in_its_form(make_world: Make) -> None:
    world = bounded(make_world, lookup_rate_per_address="3/min")
    client, broker = world.pair()
    topics = encode(CommandGetTopicsOfNamespace(namespace="acme/shop", request_id=3))
    for frame in (lookup(1), metadata(2), topics):
        client >> frame
        broker << frame
    why = "lookups of one address: at most 3 per 60 s (admission.lookup_rate_per_address)"
    client >> [lookup(4), metadata(5), encode(CommandGetTopicsOfNamespace(namespace="acme/shop", request_id=6))]
    broker << NOTHING
    client << [
        lookup_refused(4, TooManyRequests, why),
        metadata_refused(5, TooManyRequests, why),
        error(6, TooManyRequests, why),
    ]
    assert world.counters.not_admitted == {BoundName.LOOKUP_RATE: 3}
    assert world.engine.lookups.used == 3


def test_connecting_again_gives_no_more_lookups(make_world: Make) -> None:
    world = bounded(make_world, lookup_rate_per_address="1/min")
    client, broker = world.pair()
    client >> lookup()
    broker << lookup()
    client.leave()
    again, broker = world.pair()
    again >> lookup()
    broker << NOTHING
    assert body(again.heard()[0]).error == TooManyRequests
    other, broker = world.pair(address="192.0.2.8")
    other >> lookup()
    broker << lookup()


def test_a_lookup_beyond_those_in_flight_uses_up_nothing_of_the_rate(make_world: Make) -> None:
    world = make_world(admission={"lookup_rate_per_address": "2/min"}, max_lookups_in_flight=1)
    client, broker = world.pair()
    client >> [lookup(1), *(lookup(number) for number in range(2, 7))]
    broker << lookup(1)
    broker >> lookup_answer(CommandLookupTopicResponse.Failed, request_id=1)
    client >> lookup(9)
    broker << lookup(9)


def test_answers_of_a_lookup_connection_pass_as_they_came(make_world: Make) -> None:
    world = bounded(make_world, lookup_rate_per_address="1/min")
    client, broker = world.pair()
    client >> CommandGetTopicsOfNamespace(namespace="acme/shop", request_id=3)
    assert broker.heard_names() == ["GET_TOPICS_OF_NAMESPACE"]
    frame = encode(CommandGetTopicsOfNamespaceResponse(request_id=3, topics=[TOPIC]))
    broker >> frame
    client << frame


def test_every_error_is_pulsars_own_for_it() -> None:
    busy = {
        BoundName.PRODUCERS: ProducerBusy,
        BoundName.CONSUMERS: ConsumerBusy,
        BoundName.CONSUMERS_OF_SUBSCRIPTION: ConsumerBusy,
    }
    others = dict.fromkeys(BoundName, TooManyRequests) | {BoundName.SUBSCRIBE_RATE: NotAllowedError}
    assert {bound: error_of(NotAdmittedError(bound, "")) for bound in BoundName} == others | busy
    assert {error_of(NotAdmittedError(bound, "", is_passing=True)) for bound in BoundName} == {ServiceNotReady}
