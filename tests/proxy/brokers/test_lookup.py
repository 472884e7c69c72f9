"""The answers that the proxy itself gives. How redirects are followed: tests/proxy/session/test_lookups.py."""

from protocol.pulsar_pb2 import CommandLookupTopicResponse
from proxy.brokers.lookup import through_proxy


def test_an_answer_through_the_proxy_names_the_broker_in_both_fields() -> None:
    found = CommandLookupTopicResponse(
        request_id=99,
        response=CommandLookupTopicResponse.Connect,
        broker_service_url_tls="pulsar+ssl://b:6651",
        authoritative=False,
    )
    answer = through_proxy(found)
    assert answer.broker_service_url == answer.broker_service_url_tls == "pulsar+ssl://b:6651"
    assert answer.authoritative
    assert answer.proxy_through_service_url
