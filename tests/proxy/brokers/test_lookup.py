"""Lookup slots, and the answers that the proxy itself gives. How redirects are followed: test_session_lookups."""

from protocol.pulsar_pb2 import CommandLookupTopicResponse, TooManyRequests
from proxy.brokers.lookup import LookupSlots, through_proxy, too_many
from tests.proxy.wire import body


def test_slots_bound_what_is_in_flight_and_count_what_is_refused() -> None:
    slots = LookupSlots(2)
    assert [slots.take() for _ in range(3)] == [True, True, False]
    assert (slots.in_flight, slots.refused) == (2, 1)
    slots.give()
    assert slots.take()


def test_too_many_is_an_error_that_clients_retry_without_leaving() -> None:
    """ServiceNotReady would make Java clients drop the connection."""
    answer = body(too_many(7))
    assert (answer.request_id, answer.response) == (7, CommandLookupTopicResponse.Failed)
    assert answer.error == TooManyRequests


def test_an_answer_through_the_proxy_names_the_broker_in_both_fields() -> None:
    found = CommandLookupTopicResponse(
        request_id=99,
        response=CommandLookupTopicResponse.Connect,
        broker_service_url_tls="pulsar+ssl://b:6651",
        authoritative=False,
    )
    answer = body(through_proxy(found, 7))
    assert answer.request_id == 7
    assert answer.broker_service_url == answer.broker_service_url_tls == "pulsar+ssl://b:6651"
    assert answer.authoritative
    assert answer.proxy_through_service_url
