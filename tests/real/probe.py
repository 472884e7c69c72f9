"""How still the way stood that no limit is on: what a busy machine does to every arrival, measured beside them."""

import threading
import time
from typing import Self

import pulsar

SLACK_S = 0.050
"""What any machine may add to the distance of two arrivals."""

_PERIOD_S = 0.010


class Probe:
    """Messages at a steady pace from this process to the broker and back, past Sluice.

    A broker that collects its garbage, or a test that does not get the processor, delays these as it delays what is
    measured; a fault of Sluice does not.

    Args:
        client: One of the broker itself.
        topic: The probe's own.
    """

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self._consumer = client.subscribe(topic, "probe")
        self._producer = client.create_producer(topic)
        # The first message of a topic is slow at the broker.
        self._producer.send(b"0")
        self._consumer.acknowledge(self._consumer.receive(60_000))
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=run) for run in (self._send, self._receive)]
        self.worst_delay_s = 0.0
        self._delay_s = 0.0
        self.stalled_s = 0.0
        """All standstills together: what a limit that is always used has lost by them, but for its burst."""

    @property
    def stall_s(self) -> float:
        """The longest standstill, 0 if it was none worth the name."""
        return self.worst_delay_s if self.worst_delay_s > SLACK_S else 0.0

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        # What is still on its way must not reach the next probe of this topic: it would look like a standstill.
        self._consumer.unsubscribe()

    def _send(self) -> None:
        # Stamped with when it was due, not with when this thread got to it: a frozen process is a delay too.
        due = time.monotonic()
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            self._producer.send_async(str(due).encode(), lambda *_: None)
            due += _PERIOD_S

    def _receive(self) -> None:
        while not self._ended.is_set():
            try:
                message = self._consumer.receive(100)
            except pulsar.Timeout:
                continue
            self._note(time.monotonic() - float(message.data()))
            self._consumer.acknowledge(message)

    def _note(self, delay_s: float) -> None:
        # After a standstill come those that were due in it, each less late than the one before.
        if delay_s > SLACK_S:
            self.stalled_s += max(0.0, delay_s - self._delay_s)
        self._delay_s = delay_s
        self.worst_delay_s = max(self.worst_delay_s, delay_s)
