"""The proxy's own errors."""

from protocol.pulsar_pb2 import (
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
    NotAllowedError,
    TooManyRequests,
)
from proxy.refusals import lookup_refused, metadata_refused, request_refused
from tests.proxy.wire import body, error


def test_a_request_is_refused_as_brokers_do() -> None:
    assert request_refused(7, NotAllowedError, "no") == error(7, NotAllowedError, "no")


def test_a_lookup_has_an_error_of_its_own_form() -> None:
    answer = body(lookup_refused(7, TooManyRequests, "no"))
    assert (answer.request_id, answer.response) == (7, CommandLookupTopicResponse.Failed)
    assert (answer.error, answer.message) == (TooManyRequests, "no")


def test_so_has_the_question_for_partitions() -> None:
    answer = body(metadata_refused(7, NotAllowedError, "no"))
    assert (answer.request_id, answer.response) == (7, CommandPartitionedTopicMetadataResponse.Failed)
    assert (answer.error, answer.message) == (NotAllowedError, "no")
