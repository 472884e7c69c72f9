"""The proxy's own errors."""

from protocol.pulsar_pb2 import CommandLookupTopicResponse, NotAllowedError, TooManyRequests
from proxy.refusals import lookup_refused, request_refused
from tests.proxy.wire import body, error


def test_a_request_is_refused_as_brokers_do() -> None:
    assert request_refused(7, NotAllowedError, "no") == error(7, NotAllowedError, "no")


def test_a_lookup_has_an_error_of_its_own_form() -> None:
    answer = body(lookup_refused(7, TooManyRequests, "no"))
    assert (answer.request_id, answer.response) == (7, CommandLookupTopicResponse.Failed)
    assert (answer.error, answer.message) == (TooManyRequests, "no")
