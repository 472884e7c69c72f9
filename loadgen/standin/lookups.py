"""Commands that ask where and what things are."""

from collections.abc import Callable

from google.protobuf.message import Message

from loadgen.standin.broker import Broker, parse_name
from loadgen.standin.refusal import Refused
from protocol.pulsar_pb2 import (
    CommandGetOrCreateSchema,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchema,
    CommandGetSchemaResponse,
    CommandGetTopicsOfNamespace,
    CommandGetTopicsOfNamespaceResponse,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
)

_DOMAINS = {
    CommandGetTopicsOfNamespace.PERSISTENT: ("persistent",),
    CommandGetTopicsOfNamespace.NON_PERSISTENT: ("non-persistent",),
    CommandGetTopicsOfNamespace.ALL: ("persistent", "non-persistent"),
}


class Lookups:
    """Answers one connection's questions. Errors go into the answers' own fields, as the protocol has it.

    Args:
        broker: What is asked about.
        service_url: Where clients reach this broker, as they see it.
        send: Sends an answer.
    """

    def __init__(self, broker: Broker, service_url: str, send: Callable[[Message], None]) -> None:
        self._broker = broker
        self._service_url = service_url
        self._send = send

    def partitioned_metadata(self, request: CommandPartitionedTopicMetadata, _: bytes) -> None:
        """How many partitions a topic has."""
        answer = CommandPartitionedTopicMetadataResponse(request_id=request.request_id)
        try:
            answer.partitions = self._broker.partitions(request.topic)
            answer.response = CommandPartitionedTopicMetadataResponse.Success
        except Refused as refusal:
            answer.response = CommandPartitionedTopicMetadataResponse.Failed
            answer.error, answer.message = refusal.error, refusal.message
        self._send(answer)

    def lookup(self, request: CommandLookupTopic, _: bytes) -> None:
        """Which broker serves a topic: always this one.

        As from a real standalone, the answer tells the client to come by the address that it used.
        """
        answer = CommandLookupTopicResponse(request_id=request.request_id)
        try:
            parse_name(request.topic)
            answer.response = CommandLookupTopicResponse.Connect
            answer.broker_service_url = self._service_url
            answer.authoritative = True
            answer.proxy_through_service_url = True
        except Refused as refusal:
            answer.response = CommandLookupTopicResponse.Failed
            answer.error, answer.message = refusal.error, refusal.message
        self._send(answer)

    def topics_of_namespace(self, request: CommandGetTopicsOfNamespace, _: bytes) -> None:
        """All topics of a namespace; the client applies its pattern itself (filtered = false)."""
        domains = _DOMAINS[request.mode]
        names = [name.full for name in self._broker.topics_of(request.namespace) if name.domain in domains]
        self._send(CommandGetTopicsOfNamespaceResponse(request_id=request.request_id, topics=names))

    def get_schema(self, request: CommandGetSchema, _: bytes) -> None:
        """A topic's schema."""
        answer = CommandGetSchemaResponse(request_id=request.request_id)
        try:
            schema, version = self._broker.schemas.find(parse_name(request.topic), request.schema_version)
            answer.schema.CopyFrom(schema)
            answer.schema_version = version
        except Refused as refusal:
            answer.error_code, answer.error_message = refusal.error, refusal.message
        self._send(answer)

    def get_or_create_schema(self, request: CommandGetOrCreateSchema, _: bytes) -> None:
        """The version of a schema, registered if need be."""
        answer = CommandGetOrCreateSchemaResponse(request_id=request.request_id)
        try:
            answer.schema_version = self._broker.schemas.register(parse_name(request.topic), request.schema)
        except Refused as refusal:
            answer.error_code, answer.error_message = refusal.error, refusal.message
        self._send(answer)
