"""Publishing and receiving with the official client, with the counts that the claims judge."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Self

import _pulsar
import pulsar

from demo.processes import DemoError
from loadgen.load.clients import Clients

RUN = token_hex(4).encode()
"""Marks the messages of this run on a topic."""
MOST_PENDING = 100
SETTLE_S = 10.0
FILLER = b"." * 80


class Publisher:
    """Publishes numbered messages at a pace, from a thread of its own; see `publishing`.

    Args:
        producer: Of the official client.
        per_s: Messages a second; fewer while `pending` messages have no receipt.
        messages: Their number; None: until the publisher is ended.
        pending: Most messages without receipt.
    """

    def __init__(
        self, producer: pulsar.Producer, per_s: float, messages: int | None = None, pending: int = MOST_PENDING
    ) -> None:
        self._producer = producer
        self._per_s = per_s
        self._most = messages
        self._pending = pending
        self._name = producer.producer_name().encode()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = 0
        self.receipts = 0
        self.latencies: list[float] = []
        """Seconds from sending to receipt, in the order of receipts."""
        self.errors: Counter[str] = Counter()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Send no more."""
        self._ended.set()
        self._thread.join()

    @property
    def unsettled(self) -> int:
        """Messages that have neither a receipt nor an error yet."""
        return self.sent - self.receipts - self.errors.total()

    def _run(self) -> None:
        began = time.monotonic()
        while self.sent != self._most:
            due = began + self.sent / self._per_s
            if self._ended.wait(max(0.0, due - time.monotonic())):
                return
            if self.unsettled < self._pending:
                self._send()
            elif self._ended.wait(0.005):
                return

    def _send(self) -> None:
        at, number = time.monotonic(), self.sent
        self.sent += 1

        def settled(result: pulsar.Result, _: object) -> None:
            if result == pulsar.Result.Ok:
                self.receipts += 1
                self.latencies.append(time.monotonic() - at)
            else:
                self._failed(result.name)

        try:
            self._producer.send_async(b"%b %b %d %b" % (RUN, self._name, number, FILLER), settled)
        except _pulsar.PulsarException as error:
            self._failed(type(error).__name__)

    def _failed(self, error: str) -> None:
        # from this thread and from the client's
        with self._lock:
            self.errors[error] += 1


@contextmanager
def publishing(*publishers: Publisher) -> Iterator[None]:
    """Run publishers until the block ends, and wait for the receipts that are still to come."""
    for publisher in publishers:
        publisher.start()
    try:
        yield
    finally:
        for publisher in publishers:
            publisher.end()
    until = time.monotonic() + SETTLE_S
    while any(publisher.unsettled for publisher in publishers) and time.monotonic() < until:
        time.sleep(0.01)


class Receiver:
    """The arrivals at the receiving end: times, and each producer's numbers."""

    def __init__(self) -> None:
        self.times: list[float] = []
        """When each message arrived, monotonic seconds."""
        self._by_publisher: dict[str, list[tuple[float, int]]] = {}

    def record(self, payload: bytes) -> None:
        """Record a message that has just arrived, if it is of this run."""
        if not payload.startswith(RUN):
            return
        at = time.monotonic()
        _, name, number, _ = payload.split(b" ", 3)
        self.times.append(at)
        self._by_publisher.setdefault(name.decode(), []).append((at, int(number)))

    def count(self) -> int:
        """Messages so far."""
        return len(self.times)

    def wait_for(self, publisher_name: str, messages: int) -> None:
        """Return when this many messages of a producer have arrived, or after SETTLE_S: receipts may come first."""
        until = time.monotonic() + SETTLE_S
        while len(self.times_from(publisher_name)) < messages and time.monotonic() < until:
            time.sleep(0.01)

    def first_and_last(self) -> tuple[float, float]:
        """Return the times of the first and the last message.

        Raises:
            DemoError: If none arrived.
        """
        if not self.times:
            raise DemoError("nothing arrived at the broker")
        return self.times[0], self.times[-1]

    def numbers_from(self, publisher_name: str) -> list[int]:
        """Return the numbers of one producer's messages, in the order of their arrival."""
        return [number for _, number in self._by_publisher.get(publisher_name, [])]

    def times_from(self, publisher_name: str) -> list[float]:
        """Return the arrival times of one producer's messages."""
        return [at for at, _ in self._by_publisher.get(publisher_name, [])]


class Standstill:
    """Measures the longest standstill of this machine, by messages to the broker and back that do not pass Sluice.

    A machine that is busy delays these messages as it delays those of an example.

    Args:
        at_broker: Clients of the broker itself.
    """

    TOPIC = "persistent://public/default/sluice-example-beside"
    PERIOD_S = 0.02

    def __init__(self, at_broker: Clients) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self.worst_s = 0.0
        at_broker.subscribe({self.TOPIC: self._arrived})
        self._sender = at_broker.sender("beside", self.TOPIC, pending=10_000)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _send(self) -> None:
        due = time.monotonic()
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            # stamped with when it was due: a process that got no processor is a standstill too
            self._sender.send(b"%b %r" % (RUN, due), lambda _: None)
            due += self.PERIOD_S

    def _arrived(self, payload: bytes) -> None:
        run, due = payload.split()
        if run == RUN:
            self.worst_s = max(self.worst_s, time.monotonic() - float(due))
