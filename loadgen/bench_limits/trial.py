"""One trial: fresh topics, a receiving end at the broker itself, publishers in a process of their own."""

import itertools
import secrets
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from loadgen.bench_limits.errors import BenchError
from loadgen.bench_limits.orders import (
    LaneOrder,
    LaneResult,
    Order,
    Result,
    began_file,
    order_file,
    read,
    result_file,
    write,
)
from loadgen.bench_limits.peers import Peer
from loadgen.bench_limits.rest import TENANT, Rest
from loadgen.load.clients import Clients
from loadgen.load.payload import RUN_BYTES, read_payload
from loadgen.real.process import TetheredProcess

POLL_S = 0.005
START_S = 60.0
"""Longest wait for the publishers to be connected and warm."""
END_S = 30.0
"""Longest wait for their result beyond what their order takes."""
QUIET_S = 0.3
"""How long is listened on after the last receipt."""

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic; it is alone in its namespace but for those of a resource group."""

    namespace: str
    local: str = "t"

    @property
    def name(self) -> str:
        """Its full name."""
        return f"persistent://{TENANT}/{self.namespace}/{self.local}"


@dataclass(slots=True)
class Trial:
    """A trial that goes on, and what both ends saw of it once it is over.

    Attributes:
        began: Second 0 (`time.monotonic`); all other times are seconds since then.
        arrivals: When a lane's messages arrived at the broker's consumer, ascending, by the lane's index.
        results: What the sending end saw, by the same.
        longest_pause_s: How long the publishing process stood still at most.
    """

    began: float = 0.0
    arrivals: dict[int, list[float]] = field(default_factory=dict)
    results: dict[int, LaneResult] = field(default_factory=dict)
    longest_pause_s: float = 0.0

    @property
    def now_s(self) -> float:
        """Seconds since second 0."""
        return time.monotonic() - self.began

    def wait_until(self, at_s: float) -> None:
        """Sleep until `at_s`."""
        time.sleep(max(0.0, at_s - self.now_s))


@dataclass(frozen=True, slots=True)
class Stage:
    """Where trials take place.

    Attributes:
        peer: Who limits.
        broker_url: The broker itself: where is received.
        broker: Its admin REST.
        folder: For the trials' files.
    """

    peer: Peer
    broker_url: str
    broker: Rest
    folder: Path

    def topic(self, messages: int | None) -> Topic:
        """A fresh topic that the peer limits to so many messages a second; None: that nobody limits."""
        topic = Topic(f"n{next(_numbers)}")
        self.broker.make_namespace(topic.namespace)
        if messages is not None:
            self.limit(topic, messages)
        return topic

    def limit(self, topic: Topic, messages: int) -> None:
        """Change the limit."""
        self.peer.limits.limit_publishing(topic.namespace, messages)

    def dispatch_topic(self, messages: int = -1, size: int = -1) -> Topic:
        """A fresh topic of which the peer delivers so many messages and bytes a second; -1: any number."""
        topic = self.topic(None)
        if max(messages, size) > 0:
            self.peer.limits.limit_dispatch(topic.namespace, messages, size)
        return topic

    def grouped_topic(self) -> Topic:
        """A fresh topic in the peer's resource group."""
        return Topic(self.peer.grouped, f"t{next(_numbers)}")

    @contextmanager
    def trial(self, lanes: Sequence[LaneOrder], drain_s: float) -> Iterator[Trial]:
        """Begin the lanes, give the trial while it goes on, and complete it once they have ended.

        Args:
            lanes: What is published.
            drain_s: Longest wait for outstanding receipts at the end, seconds.

        Raises:
            BenchError: If the publishers cannot begin, or do not end.
            ClientError: If nothing can be received at the broker.
        """
        folder = self.folder / f"trial-{next(_numbers)}"
        folder.mkdir()
        order = Order(self.peer.service_url, secrets.token_bytes(RUN_BYTES), list(lanes), drain_s)
        arrived: list[tuple[float, bytes]] = []
        trial = Trial()
        with Clients(self.broker_url) as receiving:
            receiving.subscribe({lane.topic: lambda body: arrived.append((time.monotonic(), body)) for lane in lanes})
            with _publishing(folder, order) as process:
                _await(process, began_file(folder), START_S)
                trial.began = read(began_file(folder), float)
                yield trial
                _await(process, result_file(folder), max(lane.end_s for lane in lanes) + drain_s + END_S)
            time.sleep(QUIET_S)
        result = read(result_file(folder), Result)
        trial.results = {lane.index: lane for lane in result.lanes}
        trial.longest_pause_s = result.longest_pause_s
        trial.arrivals = by_lane(arrived, order, trial.began)


def by_lane(arrived: Iterable[tuple[float, bytes]], order: Order, began: float) -> dict[int, list[float]]:
    """Seconds since `began` at which each lane's messages arrived; what no lane sent (warming up) is left out."""
    times: dict[int, list[float]] = {lane.index: [] for lane in order.lanes}
    for at, payload in arrived:
        stamp = read_payload(payload)
        if stamp.run == order.run and stamp.producer in times:
            times[stamp.producer].append(at - began)
    return times


@contextmanager
def _publishing(folder: Path, order: Order) -> Iterator[TetheredProcess]:
    write(order_file(folder), order)
    command = [sys.executable, "-m", "loadgen.bench_limits.publisher", str(folder)]
    process = TetheredProcess(command, folder / "publisher.log")
    try:
        yield process
    finally:
        process.kill()


def _await(process: TetheredProcess, file: Path, longest_s: float) -> None:
    deadline = time.monotonic() + longest_s
    while not file.exists():
        ended = process.exit_code is not None
        if (ended and not file.exists()) or time.monotonic() > deadline:
            said = process.last_lines().splitlines()[-1:] or ["they said nothing"]
            raise BenchError(f"the publishers {'ended early' if ended else 'do not get on'}: {said[0]}")
        time.sleep(POLL_S)
