"""The broker's connections: sockets, signals and start-up, chunks to frames, each frame to its handler.

Lookups are answered here; all other rules of the broker are elsewhere.
"""

import asyncio
import json
import os
import signal
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO, cast

import uvloop
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from loadgen.standin.broker import BrokerOptions, StandinBroker, parse_name
from loadgen.standin.entry_log import StandinRefusal
from loadgen.standin.streams import Consuming, Link, Outbox, Producing
from protocol.commands import body_of, split
from protocol.endpoint import Endpoint, host_port
from protocol.frames import FrameCutter, MalformedFrame, ProtocolError, max_frame_size
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandConnected,
    CommandError,
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
    CommandPing,
    CommandPong,
    CommandSuccess,
    FeatureFlags,
    ServerError,
)

UNLISTED = "unlisted"
_TYPE_FIELD = BaseCommand.TYPE_FIELD_NUMBER

# The requests among the commands that protocol/pulsar.proto lists by type only. The first field of
# each is the request's id.
_REQUESTS = frozenset(
    {
        BaseCommand.CONSUMER_STATS,
        BaseCommand.NEW_TXN,
        BaseCommand.ADD_PARTITION_TO_TXN,
        BaseCommand.ADD_SUBSCRIPTION_TO_TXN,
        BaseCommand.END_TXN,
        BaseCommand.END_TXN_ON_PARTITION,
        BaseCommand.END_TXN_ON_SUBSCRIPTION,
        BaseCommand.TC_CLIENT_CONNECT_REQUEST,
        BaseCommand.WATCH_TOPIC_LIST,
        BaseCommand.WATCH_TOPIC_LIST_CLOSE,
    }
)


def request_id_of(envelope: BaseCommand) -> int | None:
    """The id of the request inside, None where the command is no request."""
    if envelope.type not in _REQUESTS:
        return None
    for known in ("watch_topic_list", "watch_topic_list_close"):
        if envelope.HasField(known):
            return int(getattr(envelope, known).request_id)
    body = _unknown_field(envelope, envelope.type)
    if body is None:
        return None
    try:
        begins_with_id = CommandSuccess.FromString(body.data)
    except DecodeError:
        return None
    return begins_with_id.request_id if begins_with_id.HasField("request_id") else None


def is_unlisted(envelope: BaseCommand) -> bool:
    """Return whether the command's type is newer than the protocol file: such a value is an unknown field."""
    return not envelope.HasField("type") and _unknown_field(envelope, _TYPE_FIELD) is not None


def _unknown_field(envelope: BaseCommand, number: int) -> Any:
    fields = UnknownFieldSet(envelope)
    matches = (fields[index] for index in range(len(fields)) if fields[index].field_number == number)
    return next(matches, None)


_DOMAINS = {
    CommandGetTopicsOfNamespace.PERSISTENT: ("persistent",),
    CommandGetTopicsOfNamespace.NON_PERSISTENT: ("non-persistent",),
    CommandGetTopicsOfNamespace.ALL: ("persistent", "non-persistent"),
}


class Lookups:
    """Answers one connection's questions. Errors go into the answers' own fields, as the protocol has it.

    Args:
        broker: The broker with the topics.
        service_url: Where clients reach this broker, as they see it.
        outbox: Takes the answers.
    """

    def __init__(self, broker: StandinBroker, service_url: str, outbox: Outbox) -> None:
        self._broker = broker
        self._service_url = service_url
        self._outbox = outbox

    def partitioned_metadata(self, request: CommandPartitionedTopicMetadata, _: bytes) -> None:
        """Answer how many partitions a topic has."""
        answer = CommandPartitionedTopicMetadataResponse(request_id=request.request_id)
        try:
            answer.partitions = self._broker.partitions(request.topic)
            answer.response = CommandPartitionedTopicMetadataResponse.Success
        except StandinRefusal as refusal:
            answer.response = CommandPartitionedTopicMetadataResponse.Failed
            answer.error, answer.message = refusal.error, refusal.message
        self._outbox.send(answer)

    def lookup(self, request: CommandLookupTopic, _: bytes) -> None:
        """Answer which broker serves a topic: always this one.

        As from a real standalone, the client connects to the address that it used.
        """
        answer = CommandLookupTopicResponse(request_id=request.request_id)
        try:
            self._broker.existing(request.topic)
            answer.response = CommandLookupTopicResponse.Connect
            if self._service_url.startswith("pulsar+ssl:"):
                answer.broker_service_url_tls = self._service_url
            else:
                answer.broker_service_url = self._service_url
            answer.authoritative = True
            answer.proxy_through_service_url = True
        except StandinRefusal as refusal:
            answer.response = CommandLookupTopicResponse.Failed
            answer.error, answer.message = refusal.error, refusal.message
        self._outbox.send(answer)

    def topics_of_namespace(self, request: CommandGetTopicsOfNamespace, _: bytes) -> None:
        """Answer with all topics of a namespace; the client applies its pattern itself (filtered = false)."""
        domains = _DOMAINS[request.mode]
        names = [name.full for name in self._broker.topics_of(request.namespace) if name.domain in domains]
        self._outbox.send(CommandGetTopicsOfNamespaceResponse(request_id=request.request_id, topics=names))

    def get_schema(self, request: CommandGetSchema, _: bytes) -> None:
        """A topic's schema."""
        answer = CommandGetSchemaResponse(request_id=request.request_id)
        try:
            schema, version = self._broker.schemas.find(parse_name(request.topic), request.schema_version)
            answer.schema.CopyFrom(schema)
            answer.schema_version = version
        except StandinRefusal as refusal:
            answer.error_code, answer.error_message = refusal.error, refusal.message
        self._outbox.send(answer)

    def get_or_create_schema(self, request: CommandGetOrCreateSchema, _: bytes) -> None:
        """The version of a schema, registered if need be."""
        answer = CommandGetOrCreateSchemaResponse(request_id=request.request_id)
        try:
            answer.schema_version = self._broker.schemas.register(parse_name(request.topic), request.schema)
        except StandinRefusal as refusal:
            answer.error_code, answer.error_message = refusal.error, refusal.message
        self._outbox.send(answer)


PROTOCOL_VERSION = 21
SERVER_VERSION = "Pulsar Server (Sluice's stand-in)"

Handler = Callable[[Any, bytes], None]


class StandinConnection:
    """A client's connection: its bytes become frames, and each frame goes to its handler.

    Args:
        broker: What all connections share.
        link: The socket.
        service_url: Where clients reach this broker, as they see it.
    """

    def __init__(self, broker: StandinBroker, link: Link, service_url: str) -> None:
        self._broker = broker
        self._link = link
        self._cutter = FrameCutter(max_frame_size(broker.options.max_message_size))
        self._outbox = Outbox(link)
        self._producing = Producing(broker, self._outbox)
        self._consuming = Consuming(broker, self._outbox)
        self._handlers = self._handler_table(Lookups(broker, service_url, self._outbox))
        self._is_connected = False
        self._heard = False

    def _handler_table(self, lookups: Lookups) -> dict[BaseCommand.Type, Handler]:
        producing, consuming = self._producing, self._consuming
        return {
            BaseCommand.CONNECT: self._connect,
            BaseCommand.PING: lambda _, __: self._outbox.send(CommandPong()),
            BaseCommand.PONG: lambda _, __: None,
            BaseCommand.PARTITIONED_METADATA: lookups.partitioned_metadata,
            BaseCommand.LOOKUP: lookups.lookup,
            BaseCommand.GET_TOPICS_OF_NAMESPACE: lookups.topics_of_namespace,
            BaseCommand.GET_SCHEMA: lookups.get_schema,
            BaseCommand.GET_OR_CREATE_SCHEMA: lookups.get_or_create_schema,
            BaseCommand.PRODUCER: producing.open,
            BaseCommand.SEND: producing.publish,
            BaseCommand.CLOSE_PRODUCER: producing.close,
            BaseCommand.SUBSCRIBE: consuming.subscribe,
            BaseCommand.FLOW: consuming.flow,
            BaseCommand.ACK: consuming.acknowledge,
            BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: consuming.redeliver,
            BaseCommand.SEEK: consuming.seek,
            BaseCommand.GET_LAST_MESSAGE_ID: consuming.last_message_id,
            BaseCommand.UNSUBSCRIBE: consuming.unsubscribe,
            BaseCommand.CLOSE_CONSUMER: consuming.close,
        }

    # ---- events of the socket

    def receive(self, chunk: bytes) -> None:
        """Take bytes of the client."""
        self._heard = True
        try:
            for frame in self._cutter.feed(chunk):
                self._handle(frame)
        except ProtocolError as error:
            self._link.abort(str(error))
        self._broker.dispatch()

    def lost(self) -> None:
        """End all producers and consumers of a connection that is gone."""
        self._producing.close_all()
        self._consuming.close_all()
        self._broker.dispatch()

    def pause(self) -> None:
        """Deliver nothing for now, as the client reads too slowly; answers are still sent."""
        self._outbox.is_paused = True

    def resume(self) -> None:
        """Deliver again."""
        self._outbox.is_paused = False
        self._consuming.resume()
        self._broker.dispatch()

    def tick(self) -> None:
        """End a connection that was silent for a keep-alive interval, or has not sent CONNECT."""
        if not self._heard or not self._is_connected:
            self._link.abort("it was silent for a whole keep-alive interval")
            return
        self._heard = False
        self._outbox.send(CommandPing())

    # ---- Frames

    def _handle(self, frame: bytes) -> None:
        envelope, data = split(frame)
        if is_unlisted(envelope):
            self._broker.ignored_commands[UNLISTED] += 1
            return
        if not self._is_connected and envelope.type != BaseCommand.CONNECT:
            raise MalformedFrame("the first command is no CONNECT")
        handler = self._handlers.get(envelope.type)
        if handler is None:
            self._ignore(envelope)
            return
        body = body_of(envelope)
        try:
            handler(body, data)
        except StandinRefusal as refusal:
            self._refuse(body.request_id, refusal)

    def _ignore(self, envelope: BaseCommand) -> None:
        name = BaseCommand.Type.Name(envelope.type)
        self._broker.ignored_commands[name] += 1
        request_id = request_id_of(envelope)
        if request_id is not None:
            refusal = StandinRefusal(ServerError.NotAllowedError, f"the stand-in broker does not know {name}")
            self._refuse(request_id, refusal)

    def _refuse(self, request_id: int, refusal: StandinRefusal) -> None:
        self._outbox.send(CommandError(request_id=request_id, error=refusal.error, message=refusal.message))

    def _connect(self, request: CommandConnect, _: bytes) -> None:
        self._is_connected = True
        self._outbox.send(
            CommandConnected(
                server_version=SERVER_VERSION,
                protocol_version=min(request.protocol_version, PROTOCOL_VERSION),
                max_message_size=self._broker.options.max_message_size,
                feature_flags=FeatureFlags(supports_get_partitioned_metadata_without_auto_creation=True),
            )
        )


KEEP_ALIVE_S = 30.0
HIGH_WATER_BYTES = 1024 * 1024


class Socket(asyncio.Protocol):
    """A socket of an accepted connection: passes on asyncio's events, and is the Link to write to.

    Args:
        broker: What all connections share.
        keep_alive_s: Seconds between PINGs.
    """

    def __init__(self, broker: StandinBroker, keep_alive_s: float) -> None:
        self._broker = broker
        self._keep_alive_s = keep_alive_s
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own does not inherit from it
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self._peer = transport.get_extra_info("peername")
        host, port = transport.get_extra_info("sockname")[:2]
        scheme = "pulsar+ssl" if transport.get_extra_info("sslcontext") else "pulsar"
        self._connection = StandinConnection(self._broker, self, str(Endpoint(scheme, host, port)))
        self._next_tick = self._loop.call_later(self._keep_alive_s, self._tick)

    def data_received(self, data: bytes) -> None:
        """Pass on."""
        self._connection.receive(data)

    def pause_writing(self) -> None:
        """Pass on."""
        self._connection.pause()

    def resume_writing(self) -> None:
        """Pass on."""
        self._connection.resume()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Pass on."""
        self._next_tick.cancel()
        self._connection.lost()

    def write(self, data: bytes) -> None:
        """Send."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def unsent_bytes(self) -> int:
        """Bytes in the transport's buffer."""
        return self._transport.get_write_buffer_size()

    def abort(self, reason: str) -> None:
        """Close and say why."""
        sys.stderr.write(f"stand-in broker: connection of {self._peer} closed: {reason}\n")
        self._transport.abort()

    def soon(self, act: Callable[[], None]) -> None:
        """Call `act` at the loop's next turn."""
        self._loop.call_soon(act)

    def _tick(self) -> None:
        self._next_tick = self._loop.call_later(self._keep_alive_s, self._tick)
        self._connection.tick()


async def listen(
    broker: StandinBroker,
    endpoint: Endpoint,
    keep_alive_s: float = KEEP_ALIVE_S,
    tls: ssl.SSLContext | None = None,
) -> asyncio.Server:
    """Accept connections from now on, by TLS if there is a context for it.

    Raises:
        OSError: If the address cannot be listened on.
    """
    loop = asyncio.get_running_loop()
    host, port = endpoint.host, endpoint.port
    return await loop.create_server(lambda: Socket(broker, keep_alive_s), host, port, backlog=1024, ssl=tls)


def context_of(endpoint: Endpoint, certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """The context of an address with TLS, None of one without.

    Args:
        endpoint: The address.
        certificate: PEM file.
        key: Of the certificate; None if it is in the same file.

    Raises:
        ValueError: If there is TLS without a certificate, or a certificate without TLS.
        OSError: If the files cannot be used.
    """
    if (endpoint.scheme == "pulsar+ssl") != (certificate is not None) or (key and not certificate):
        raise ValueError("--certificate and --listen pulsar+ssl://HOST:PORT go together; give both, or neither")
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, lambda: "")  # or OpenSSL would ask at the terminal
    except (OSError, ValueError) as error:
        files = " and ".join(str(file) for file in (certificate, key) if file)
        raise OSError(f"{files}: give a PEM certificate and its key, without a password: {error}") from None
    return context


async def serve(
    broker: StandinBroker, endpoint: Endpoint, tls: ssl.SSLContext | None = None, announce_to: TextIO | None = None
) -> str:
    """Serve until SIGTERM or SIGINT, and announce the address once connections are accepted; return it."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    try:
        server = await listen(broker, endpoint, tls=tls)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(f"cannot listen on {endpoint.address}: {reason}; choose another --listen") from None
    address = host_port(*server.sockets[0].getsockname()[:2])
    if announce_to is not None:
        announce_to.write(f"stand-in broker for clients and fleets, listening on {address}\n")
        announce_to.flush()
    await stopped.wait()
    server.close()
    return address


def run(
    options: BrokerOptions,
    endpoint: Endpoint,
    counts: Path | None,
    tls: ssl.SSLContext | None = None,
    *,
    as_json: bool = False,
    is_quiet: bool = False,
) -> None:
    """Run the broker until a signal ends it; then write the counts, if a file is named.

    Args:
        options: Of the broker.
        endpoint: The address to listen on.
        counts: The file for the counts; None: there is none.
        tls: The context of an address with TLS.
        as_json: Print the address and the counts at the end, as JSON, and nothing else on standard output.
        is_quiet: Do not announce the address.

    Raises:
        OSError: If the address cannot be listened on, or the file cannot be written.
    """
    broker = StandinBroker(options)
    if counts is not None:
        counts.touch()  # what cannot be written should be known before, not after
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        announce_to = sys.stderr if as_json else sys.stdout
        address = runner.run(serve(broker, endpoint, tls, None if is_quiet else announce_to))
    if counts is not None:
        counts.write_text(json.dumps(broker.counts()) + "\n", encoding="utf-8")
    if as_json:
        place = None if counts is None else str(counts)
        sys.stdout.write(json.dumps({"listen": address, "counts_file": place, **broker.counts()}, indent=2) + "\n")
