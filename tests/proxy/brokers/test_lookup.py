"""The answers that the proxy itself gives. How redirects are followed: tests/proxy/session/test_lookups.py."""

import pytest

from protocol.endpoint import EndpointError
from protocol.pulsar_pb2 import CommandLookupTopicResponse, ServiceNotReady
from proxy.brokers.lookup import broker_in, no_broker_found, through_proxy
from tests.proxy.endpoints import broker_at


def test_an_answer_through_the_proxy_names_the_broker_in_both_fields() -> None:
    found = CommandLookupTopicResponse(
        request_id=99,
        response=CommandLookupTopicResponse.Connect,
        broker_service_url="pulsar://b:6650/",
        broker_service_url_tls="pulsar+ssl://b:6651",
        authoritative=False,
    )
    assert broker_in(found) == broker_at("b:6650")
    answer = through_proxy(found, broker_in(found))
    assert answer.broker_service_url == answer.broker_service_url_tls == "pulsar://b:6650"
    assert answer.authoritative
    assert answer.proxy_through_service_url


@pytest.mark.parametrize(
    ("plain", "tls", "why"),
    [
        ("", "pulsar+ssl://b:6651", "the broker answers the lookup with 'pulsar+ssl://b:6651': Sluice speaks no TLS"),
        ("", "", "the broker answers the lookup with '': is not host:port"),
        ("pulsar://b:6650,c:6650", "", "the broker answers the lookup with 'pulsar://b:6650,c:6650': names several"),
    ],
)
def test_a_broker_that_cannot_be_reached_is_told_to_the_client_and_not_passed_on(
    plain: str, tls: str, why: str
) -> None:
    found = CommandLookupTopicResponse(request_id=99, response=CommandLookupTopicResponse.Connect)
    found.broker_service_url, found.broker_service_url_tls = plain, tls
    with pytest.raises(EndpointError) as refused:
        broker_in(found)
    answer = no_broker_found(7, refused.value)
    assert (answer.request_id, answer.response) == (7, CommandLookupTopicResponse.Failed)
    assert answer.error == ServiceNotReady
    assert answer.message.startswith(why)
