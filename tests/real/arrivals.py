"""When messages arrived at the receiving end, and whether that obeys a limit."""

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Self

import pulsar

from tests.waiting import wait_for

Arrival = tuple[float, int]
"""Monotonic seconds, messages of the entry that arrived."""


@dataclass(frozen=True)
class Line:
    """What a limiter may pass in any interval: `burst + rate * seconds + one entry`."""

    rate: float
    burst: float
    entry: int = 1

    def excess_since(self, begun: float, arrivals: list[Arrival], *later: tuple[float, float]) -> float:
        """How many messages above the line were there at the worst arrival, of all since `begun`; at most 0 if none is.

        Whatever is slow only delays arrivals, so no machine breaks that. What interval in between had too many, the
        access log tells (`assert_used`).

        Args:
            begun: Before the first of them could pass.
            arrivals: In order of time.
            later: From when on the rate was another one: not after it was if that is higher, not before if it is lower.
        """
        rates = [(begun, self.rate), *later]
        ends = [*(since for since, _ in later), float("inf")]

        def allowed(at: float) -> float:
            return sum(rate * max(0.0, min(at, end) - since) for (since, rate), end in zip(rates, ends, strict=True))

        counts = accumulate(messages for _, messages in arrivals)
        worst = max((count - allowed(at) for count, (at, _) in zip(counts, arrivals, strict=True)), default=0.0)
        return worst - self.burst - self.entry


@dataclass
class Watcher:
    """A thread that receives, acknowledges and notes the time of each arrival until its block ends."""

    consumer: pulsar.Consumer
    arrivals: list[Arrival] = field(default_factory=list)
    by_producer: Counter[str] = field(default_factory=Counter)
    messages: list[pulsar.Message] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def wait_first(self) -> float:
        """When the first message arrived."""
        self.wait_for(1)
        return self.arrivals[0][0]

    def wait_for(self, count: int) -> None:
        """Return when so many messages have arrived."""
        wait_for(lambda: len(self.arrivals) >= count, evidence=lambda: f"{len(self.arrivals)} of {count} messages")

    def _watch(self) -> None:
        while not self._ended.is_set():
            try:
                message = self.consumer.receive(100)
            except pulsar.Timeout:
                continue
            self.arrivals.append((time.monotonic(), 1))
            self.by_producer[message.properties()["producer"]] += 1
            self.messages.append(message)
            self.consumer.acknowledge(message)
