"""Clients that publish to topics and consume from them until a line of input comes, as `MovedClients.java` has them.

`python -m tests.real.moved_python URL TOPICS PAUSE_MS OF_CLIENT KIND…`: the same arguments, and the same last line.
"""

import itertools
import os
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pulsar

from loadgen.real.process import wait_until

CHUNKED = 40_000
"""Bytes of a message in chunks, each as large as the broker's largest message."""
KEYS = 8
_NUMBER = struct.Struct(">I")


class MovedTopic:
    """A producer, and its consumers or a reader; each message that comes is acknowledged at once.

    Args:
        client: Its client.
        topic: Its name.
        kind: A type of subscription, `Reader` or `Chunks`.

    Attributes:
        longest: The longest time until a receipt, in seconds.
    """

    def __init__(self, client: pulsar.Client, topic: str, kind: str) -> None:
        self.sent = self.received = self.failed = self.twice = self.disordered = 0
        self.longest = 0.0
        self.got = set[int]()
        self._client, self._kind = client, kind  # streams end with the last reference to their client
        self._last = [-1] * KEYS
        self._lock = threading.Lock()
        if kind == "Reader":
            client.create_reader(topic, pulsar.MessageId.earliest, reader_listener=self._take)
        else:
            type_of = getattr(pulsar.ConsumerType, kind.replace("_", ""), pulsar.ConsumerType.Exclusive)
            for _ in range(1 if type_of == pulsar.ConsumerType.Exclusive else 2):
                client.subscribe(topic, "s", type_of, message_listener=self._acknowledge)
        options: dict[str, Any] = {"batching_enabled": True}
        if kind == "Chunks":
            options = {"chunking_enabled": True}
        elif kind == "Key_Shared":
            options["batching_type"] = pulsar.BatchingType.KeyBased
        self._producer = client.create_producer(topic, **options)

    def send(self) -> None:
        """Send the next number."""
        number, sent_at = self.sent, time.monotonic()
        self.sent += 1

        def settled(result: pulsar.Result, _: pulsar.MessageId) -> None:
            self.longest = max(self.longest, time.monotonic() - sent_at)
            self.received += 1
            if result != pulsar.Result.Ok:
                self._fail(result)

        content = _NUMBER.pack(number)
        content = content.ljust(CHUNKED, b"\0") if self._kind == "Chunks" else content
        try:
            self._producer.send_async(content, settled, partition_key=f"k{number % KEYS}")
        except pulsar.PulsarException as error:
            self.received += 1
            self._fail(error)

    def is_complete(self) -> bool:
        """Return whether all receipts and all messages have come."""
        return self.received == self.sent == len(self.got)

    def _fail(self, cause: object) -> None:
        self.failed += 1
        _tell(f"{self._kind}: {cause}")

    def _acknowledge(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        self._take(consumer, message)
        consumer.acknowledge(message)

    def _take(self, _: object, message: pulsar.Message) -> None:
        (number,) = _NUMBER.unpack_from(message.data())
        key = number % KEYS
        with self._lock:
            if number in self.got:
                self.twice += 1
            elif number < self._last[key] and self._kind != "Shared":
                self.disordered += 1
            self.got.add(number)
            self._last[key] = max(self._last[key], number)


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _opened(url: str, prefix: str, of_client: int, kinds: Sequence[str]) -> Iterator[MovedTopic]:
    client = None
    for number, kind in enumerate(kinds):
        if client is None or number % of_client == 0:
            client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))
        yield MovedTopic(client, f"{prefix}{number}", kind)


def _publish(topics: Sequence[MovedTopic], pause_s: float, over: threading.Event) -> None:
    for topic in itertools.cycle(topics):
        if over.wait(pause_s / len(topics)):
            return
        topic.send()


def main(url: str, prefix: str, pause_ms: str, of_client: str, *kinds: str) -> None:
    """Run until a line other than `begin`, and print what became of all messages."""
    topics = list(_opened(url, prefix, int(of_client), kinds))
    over = threading.Event()
    publisher = threading.Thread(target=_publish, args=(topics, int(pause_ms) / 1e3, over))
    publisher.start()
    _tell("ready")
    while sys.stdin.readline() == "begin\n":
        for topic in topics:
            topic.longest = 0.0
    over.set()
    publisher.join()
    wait_until(lambda: all(topic.is_complete() for topic in topics), 60)
    longest = max(round(topic.longest * 1e3) for topic in topics)
    names = ("sent", "failed", "twice", "disordered")
    counts = {name: sum(getattr(topic, name) for topic in topics) for name in names}
    counts |= {"lacking": counts["sent"] - sum(len(topic.got) for topic in topics), "longest": longest}
    _tell(" ".join(f"{name} {count}" for name, count in counts.items()))
    os._exit(0)  # to close the clients is no part of it


if __name__ == "__main__":
    main(*sys.argv[1:])
