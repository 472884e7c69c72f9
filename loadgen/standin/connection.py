"""One client connection: chunks to frames, each frame to the handler of its command."""

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from loadgen.standin.broker import Broker
from loadgen.standin.consuming import Consuming
from loadgen.standin.lookups import Lookups
from loadgen.standin.outbox import Link, Outbox
from loadgen.standin.producing import Producing
from loadgen.standin.refusal import Refused
from loadgen.standin.unknown import UNLISTED, is_unlisted, request_id_of
from protocol.commands import body_of, encode, split
from protocol.errors import MalformedFrame, ProtocolError
from protocol.frames import FrameCutter
from protocol.limits import max_frame_size
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandConnected,
    CommandError,
    CommandPing,
    CommandPong,
    FeatureFlags,
    ServerError,
)

PROTOCOL_VERSION = 21
SERVER_VERSION = "Pulsar Server (Sluice's stand-in)"

Handler = Callable[[Any, bytes], None]


class Connection:
    """What the broker does with one client's bytes.

    Args:
        broker: What all connections share.
        link: The socket.
        service_url: Where clients reach this broker, as they see it.
    """

    def __init__(self, broker: Broker, link: Link, service_url: str) -> None:
        self._broker = broker
        self._link = link
        self._cutter = FrameCutter(max_frame_size(broker.options.max_message_size))
        self._outbox = Outbox(link)
        self._producing = Producing(broker, self._outbox, self._send)
        self._consuming = Consuming(broker, self._outbox, self._send)
        self._handlers = self._handler_table(Lookups(broker, service_url, self._send))
        self._is_connected = False
        self._heard = False

    def _handler_table(self, lookups: Lookups) -> dict[BaseCommand.Type, Handler]:
        producing, consuming = self._producing, self._consuming
        return {
            BaseCommand.CONNECT: self._connect,
            BaseCommand.PING: lambda _, __: self._send(CommandPong()),
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

    # ---- What the socket tells

    def receive(self, chunk: bytes) -> None:
        """Bytes came."""
        self._heard = True
        try:
            for frame in self._cutter.feed(chunk):
                self._handle(frame)
        except ProtocolError as error:
            self._link.abort(str(error))
        self._broker.dispatch()

    def lost(self) -> None:
        """The connection is gone: so are its producers and consumers."""
        self._producing.close_all()
        self._consuming.close_all()
        self._broker.dispatch()

    def pause(self) -> None:
        """The peer reads too slowly: no deliveries for now; answers are still sent."""
        self._outbox.is_paused = True

    def resume(self) -> None:
        """The peer has caught up."""
        self._outbox.is_paused = False
        self._consuming.resume()
        self._broker.dispatch()

    def tick(self) -> None:
        """A keep-alive interval is over: who was silent for all of it, or never said CONNECT, is gone."""
        if not self._heard or not self._is_connected:
            self._link.abort("it was silent for a whole keep-alive interval")
            return
        self._heard = False
        self._send(CommandPing())

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
        except Refused as refusal:
            self._refuse(body.request_id, refusal)

    def _ignore(self, envelope: BaseCommand) -> None:
        name = BaseCommand.Type.Name(envelope.type)
        self._broker.ignored_commands[name] += 1
        request_id = request_id_of(envelope)
        if request_id is not None:
            refusal = Refused(ServerError.NotAllowedError, f"the stand-in broker does not know {name}")
            self._refuse(request_id, refusal)

    def _refuse(self, request_id: int, refusal: Refused) -> None:
        self._send(CommandError(request_id=request_id, error=refusal.error, message=refusal.message))

    def _send(self, command: Message) -> None:
        self._outbox.put(encode(command))

    def _connect(self, request: CommandConnect, _: bytes) -> None:
        self._is_connected = True
        self._send(
            CommandConnected(
                server_version=SERVER_VERSION,
                protocol_version=min(request.protocol_version, PROTOCOL_VERSION),
                max_message_size=self._broker.options.max_message_size,
                feature_flags=FeatureFlags(supports_get_partitioned_metadata_without_auto_creation=True),
            )
        )
