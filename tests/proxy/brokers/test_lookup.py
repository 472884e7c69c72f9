"""The answers that the proxy itself gives. How redirects are followed: tests/proxy/session/test_lookups.py."""

import pytest

from protocol.endpoint import EndpointError
from protocol.pulsar_pb2 import CommandLookupTopicResponse, ServiceNotReady
from proxy.brokers.dialing import broker_in, no_broker_found, through_proxy
from tests.proxy.endpoints import broker_at


def test_an_answer_through_the_proxy_names_the_broker_in_both_fields() -> None:
    response = CommandLookupTopicResponse(
        request_id=99,
        response=CommandLookupTopicResponse.Connect,
        broker_service_url="pulsar://b:6650/",
        broker_service_url_tls="pulsar+ssl://b:6651",
        authoritative=False,
    )
    assert broker_in(response, "pulsar") == broker_at("b:6650")
    assert broker_in(response, "pulsar+ssl") == broker_at("pulsar+ssl://b:6651")
    answer = through_proxy(response, broker_in(response, "pulsar"), is_tls=False)
    assert answer.broker_service_url == answer.broker_service_url_tls == "pulsar://b:6650"
    assert answer.authoritative
    assert answer.proxy_through_service_url


@pytest.mark.parametrize("reached_by", ["pulsar://b:6650", "pulsar+ssl://b:6650"])
@pytest.mark.parametrize(("is_tls", "scheme"), [(False, "pulsar"), (True, "pulsar+ssl")])
def test_lookup_answer_has_the_scheme_of_the_client(reached_by: str, scheme: str, *, is_tls: bool) -> None:
    answer = through_proxy(CommandLookupTopicResponse(request_id=1), broker_at(reached_by), is_tls=is_tls)
    assert answer.broker_service_url == answer.broker_service_url_tls == f"{scheme}://b:6650"


@pytest.mark.parametrize(
    ("scheme", "plain", "tls", "why"),
    [
        ("pulsar", "", "pulsar+ssl://b:6651", "'pulsar+ssl://b:6651': no pulsar:// address is named"),
        ("pulsar+ssl", "pulsar://b:6650", "", "'pulsar://b:6650': no pulsar+ssl:// address is named, by which"),
        ("pulsar+ssl", "", "pulsar://b:6650", "'pulsar://b:6650': is no pulsar+ssl:// address, by which"),
        ("pulsar", "", "", "'': is not host:port"),
        ("pulsar", "pulsar://b:6650,c:6650", "", "'pulsar://b:6650,c:6650': names several"),
    ],
)
def test_a_broker_that_cannot_be_reached_is_told_to_the_client_and_not_passed_on(
    scheme: str, plain: str, tls: str, why: str
) -> None:
    response = CommandLookupTopicResponse(request_id=99, response=CommandLookupTopicResponse.Connect)
    response.broker_service_url, response.broker_service_url_tls = plain, tls
    with pytest.raises(EndpointError) as refused:
        broker_in(response, scheme)
    answer = no_broker_found(7, refused.value)
    assert (answer.request_id, answer.response) == (7, CommandLookupTopicResponse.Failed)
    assert answer.error == ServiceNotReady
    assert answer.message.startswith(f"the broker answers the lookup with {why}")
