"""The proxy's own errors to clients, as frames and exceptions."""

from protocol.commands import encode
from protocol.frames import ProtocolError
from protocol.pulsar_pb2 import (
    CommandError,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchemaResponse,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
    ServerError,
)

NO_REQUEST = 2**64 - 1
"""The request id of an error that answers no request, as brokers write it."""


class TooMuchUnfinishedError(ProtocolError):
    """The incomplete frames of a client's connections take more memory than may be kept for it."""

    cause = "too_much_unfinished"


def request_refused(request_id: int, error: ServerError, message: str) -> bytes:
    """Return the error response to most requests; with NO_REQUEST it concerns the whole connection."""
    return encode(CommandError(request_id=request_id, error=error, message=message))


def lookup_refused(request_id: int, error: ServerError, message: str) -> bytes:
    """Return the error response to a lookup, which has a form of its own."""
    failed = CommandLookupTopicResponse.Failed
    return encode(CommandLookupTopicResponse(request_id=request_id, response=failed, error=error, message=message))


def metadata_refused(request_id: int, error: ServerError, message: str) -> bytes:
    """Return the error response to a request for a topic's number of partitions."""
    failed = CommandPartitionedTopicMetadataResponse.Failed
    answer = CommandPartitionedTopicMetadataResponse(request_id=request_id, response=failed)
    answer.error, answer.message = error, message
    return encode(answer)


def schema_refused(request_id: int, error: ServerError, message: str) -> bytes:
    """Return the error response to a request for a topic's schema."""
    return encode(CommandGetSchemaResponse(request_id=request_id, error_code=error, error_message=message))


def schema_not_created(request_id: int, error: ServerError, message: str) -> bytes:
    """Return the error response to a request that gives a topic a schema."""
    return encode(CommandGetOrCreateSchemaResponse(request_id=request_id, error_code=error, error_message=message))


TOO_MANY_DEBTS = (
    "limits have too many debts of this address's earlier producers or consumers; try again when they are paid"
)
TOO_MUCH_KEPT = "all memory that may be kept for this client is in use (client_memory)"
"""The text for a command whose state would exceed the bound."""


class RefusedError(Exception):
    """A client's command is refused; the client gets the text.

    Attributes:
        error: The error's code in Pulsar's protocol.
    """

    def __init__(self, error: ServerError, message: str) -> None:
        super().__init__(message)
        self.error = error
