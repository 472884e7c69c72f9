"""Stand-ins for what surrounds the broker's logic: connections, sockets, clients."""

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from loadgen.standin.broker import BrokerOptions, StandinBroker
from loadgen.standin.server import StandinConnection
from loadgen.standin.subscription import Consumer, Delivery
from protocol.commands import SIZES, body_of, encode, encode_with_payload, split
from protocol.frames import FrameCutter
from protocol.pulsar_pb2 import (
    CommandConnect,
    CommandFlow,
    CommandMessage,
    CommandProducer,
    CommandSend,
    CommandSubscribe,
    MessageIdData,
    MessageMetadata,
)

TOPIC = "persistent://public/default/t"


class RecordingOutlet:
    """Keeps what it is told; `writable` can be set."""

    def __init__(self) -> None:
        self.writable = True
        self.deliveries: list[tuple[int, Delivery]] = []
        self.told: list[tuple[int, bool]] = []
        self.sent_away: list[int] = []

    def deliver(self, consumer: Consumer, delivery: Delivery) -> None:
        self.deliveries.append((consumer.consumer_id, delivery))

    def tell_active(self, consumer: Consumer, *, is_active: bool) -> None:
        self.told.append((consumer.consumer_id, is_active))

    def send_away(self, consumer: Consumer) -> None:
        self.sent_away.append(consumer.consumer_id)

    def entry_ids(self, consumer_id: int | None = None) -> list[int]:
        """What was delivered since the last look, to one consumer or to all."""
        ids = [delivery.entry.entry_id for receiver, delivery in self.deliveries if consumer_id in {None, receiver}]
        self.deliveries = [pair for pair in self.deliveries if consumer_id not in {None, pair[0]}]
        return ids


class RecordingLink:
    """A socket that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.unsent = 0
        self.aborted: list[str] = []
        self.waiting: list[Callable[[], None]] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def unsent_bytes(self) -> int:
        return self.unsent

    def abort(self, reason: str) -> None:
        self.aborted.append(reason)

    def soon(self, act: Callable[[], None]) -> None:
        self.waiting.append(act)

    def turn(self) -> None:
        """The event loop's next turn."""
        waiting, self.waiting = self.waiting, []
        for act in waiting:
            act()


class Peer:
    """A client at the other end of a connection, in conversation."""

    def __init__(self, broker: StandinBroker | None = None, *, connect: bool = True) -> None:
        self.broker = broker or StandinBroker(BrokerOptions())
        self.link = RecordingLink()
        self.connection = StandinConnection(self.broker, self.link, "pulsar://127.0.0.1:6650")
        self._cutter = FrameCutter(2**31)
        if connect:
            self.say(CommandConnect(client_version="peer", protocol_version=20))
            self.hear()

    def say(self, *commands: Message) -> None:
        self.connection.receive(b"".join(map(encode, commands)))

    def say_type(self, number: int, body: bytes) -> None:
        """A command that the protocol file does not know."""
        tag = varint(number << 3 | 2)
        command = b"\x08" + varint(number) + tag + varint(len(body)) + body
        self.connection.receive(SIZES.pack(len(command) + 4, len(command)) + command)

    def hear(self) -> list[Any]:
        """The bodies of all commands since the last time."""
        return [body for body, _ in self.hear_frames()]

    def hear_frames(self) -> list[tuple[Any, bytes]]:
        self.link.turn()
        written, self.link.written = b"".join(self.link.written), []
        parts = [split(frame) for frame in self._cutter.feed(written)]
        return [(body_of(envelope), data) for envelope, data in parts]

    def ask(self, command: Message) -> Any:
        """The last answer to a command."""
        self.say(command)
        return self.hear()[-1]

    def entry_ids(self) -> list[int]:
        """The entries of the MESSAGEs since the last time."""
        return [body.message_id.entry_id for body in self.hear() if isinstance(body, CommandMessage)]

    def open_producer(self, producer_id: int = 1, topic: str = TOPIC, **more: Any) -> Any:
        return self.ask(CommandProducer(topic=topic, producer_id=producer_id, request_id=1, **more))

    def publish(self, count: int = 1, producer_id: int = 1, **more: Any) -> None:
        for sequence_id in range(count):
            send = CommandSend(producer_id=producer_id, sequence_id=sequence_id, **more)
            self.connection.receive(encode_with_payload(send, payload(b"%d" % sequence_id)))

    def subscribe(self, consumer_id: int = 1, permits: int = 1000, **more: Any) -> Any:
        request = {"topic": TOPIC, "subscription": "s", "sub_type": CommandSubscribe.Shared, **more}
        answer = self.ask(CommandSubscribe(consumer_id=consumer_id, request_id=2, **request))
        if permits:
            self.say(CommandFlow(consumer_id=consumer_id, message_permits=permits))
        return answer


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def payload(data: bytes = b"", **metadata: Any) -> bytes:
    """What stands behind a SEND's command, without a checksum."""
    fields = {"producer_name": "p", "sequence_id": 0, "publish_time": 0, **metadata}
    header = MessageMetadata(**fields).SerializeToString()
    return len(header).to_bytes(4, "big") + header + data


def message_id(entry_id: int, ledger_id: int = 1, **more: Any) -> MessageIdData:
    return MessageIdData(ledger_id=ledger_id, entry_id=entry_id, **more)
