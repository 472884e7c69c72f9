"""Messages that can be told apart, and what became of them: digests by producer, in order."""

import hashlib
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pulsar

Digests = dict[str, list[str]]
"""SHA-256 of each payload, by producer name, in order."""

PATIENCE_MS = 60_000
"""How long a message may take that comes in the end."""
QUIET_MS = 300
"""How long nothing more may come after the last message expected."""


OPERATION_S = 120
"""How long a client tries what is neither done nor refused."""


def quiet_client(service_url: str, **options: object) -> pulsar.Client:
    options = {"operation_timeout_seconds": OPERATION_S, **options}
    return pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), **options)


def payload(producer: str, index: int, size: int = 100) -> bytes:
    """Bytes that no other message has, and that do not compress."""
    head = f"{producer}:{index}:".encode()
    return head + random.Random(head).randbytes(max(0, size - len(head)))


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Sender:
    """One producer, and the digest of each message that it got a receipt for, in order of sending."""

    producer: pulsar.Producer
    name: str
    sent: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    """Why messages failed, by name of the result."""

    def send_async(self, content: bytes, **options: object) -> None:
        mark = digest(content)

        def on_receipt(result: pulsar.Result, _: pulsar.MessageId) -> None:
            if result == pulsar.Result.Ok:
                self.sent.append(mark)
            else:
                self.failed.append(mark)
                self.errors[str(result)] += 1

        self.producer.send_async(content, on_receipt, properties={"producer": self.name}, **options)

    def send_all(self, contents: list[bytes]) -> None:
        """Send, and wait for every receipt."""
        for content in contents:
            self.send_async(content)
        self.producer.flush()
        assert not self.failed


def open_sender(client: pulsar.Client, topic: str, name: str, **options: object) -> Sender:
    options = {"block_if_queue_full": True, **options}
    return Sender(client.create_producer(topic, producer_name=name, **options), name)


def receive(consumer: pulsar.Consumer, count: int, timeout_ms: int = PATIENCE_MS) -> list[pulsar.Message]:
    """The next `count` messages, each acknowledged; fails if they do not come, or if another one follows."""
    messages = []
    for _ in range(count):
        message = consumer.receive(timeout_ms)
        consumer.acknowledge(message)
        messages.append(message)
    assert_silent(consumer)
    return messages


def read_all(client: pulsar.Client, topic: str) -> list[pulsar.Message]:
    """Everything that the topic holds, in its order."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    messages = []
    while reader.has_message_available():
        messages.append(reader.read_next(PATIENCE_MS))
    reader.close()
    return messages


def assert_silent(consumer: pulsar.Consumer, quiet_ms: int = QUIET_MS) -> None:
    try:
        surplus = consumer.receive(quiet_ms)
    except pulsar.Timeout:
        return
    raise AssertionError(f"one message too many: {surplus.properties()} {surplus.message_id()}")


def digests(messages: list[pulsar.Message]) -> Digests:
    by_producer = defaultdict(list)
    for message in messages:
        by_producer[message.properties()["producer"]].append(digest(message.data()))
    return dict(by_producer)


def sent_by(*senders: Sender) -> Digests:
    return {sender.name: sender.sent for sender in senders}
