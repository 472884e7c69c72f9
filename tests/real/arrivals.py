"""When messages arrived at the receiving end, and whether that obeys a limit."""

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Self

import pulsar

from tests.real.probe import SLACK_S
from tests.waiting import wait_for

Arrival = tuple[float, int]
"""Monotonic seconds, messages of the entry that arrived."""


@dataclass(frozen=True)
class Line:
    """What a limiter may pass in any interval: `burst + rate * seconds + one entry`."""

    rate: float
    burst: float
    entry: int = 1

    def worst_excess(self, arrivals: list[Arrival], stall_s: float = 0.0, slack_s: float = SLACK_S) -> float:
        """How many messages above the line the worst interval is; at most 0 if none is above.

        `stall_s` is how long arrivals may have been kept from arriving (see `Probe`): what follows the first late
        one is then that much too near.

        The worst interval that ends at an arrival is the one that ended at the arrival before, extended, or it
        begins here: one pass sees all intervals.
        """
        worst, carried, before = float("-inf"), 0.0, None
        for at, messages in arrivals:
            waited = 0.0 if before is None else at - before
            carried = max(0.0, carried - self.rate * waited) + messages
            worst, before = max(worst, carried), at
        return worst - self.burst - self.entry - self.rate * (slack_s + stall_s)

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


def rate_over(arrivals: list[Arrival], begin: float, seconds: float, stall_s: float = 0.0) -> float:
    """Messages per second that arrived in [begin, begin + seconds), or would have but for a standstill."""
    return sum(messages for at, messages in arrivals if begin <= at < begin + seconds + stall_s) / seconds


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
        wait_for(lambda: len(self.arrivals) >= count, told=lambda: f"{len(self.arrivals)} of {count} messages")

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
