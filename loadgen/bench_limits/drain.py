"""Dispatch trials: a backlog lies at the broker, consumers of a peer drain it in this process."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from secrets import token_bytes

from loadgen.bench.harness import BenchError
from loadgen.bench_limits.measures import Span
from loadgen.bench_limits.trial import MESSAGE_BYTES, TrialStage
from loadgen.load.clients import Clients, Record, SharedConsumer
from loadgen.load.offering import Lane, MessageOrigin
from loadgen.load.payload import RUN_BYTES

SUBSCRIPTION = "drain"
TICK_S = 0.005
FILL_S = 60.0
"""Longest wait until a backlog is stored."""
FIRST_S = 20.0
"""Longest wait for the first delivery."""
BEYOND_S = 0.3
"""How long is listened on after what is looked at."""

Arrival = tuple[float, int]
"""When a message arrived (`time.monotonic`), and its bytes."""


@dataclass(frozen=True, slots=True)
class BrokerBacklog:
    """Messages that lie at the broker before anyone consumes.

    Attributes:
        topic: Full name.
        count: Messages.
        size: Bytes of each.
        batch: Messages in a batch; 1: no batching.
    """

    topic: str
    count: int
    size: int = MESSAGE_BYTES
    batch: int = 1


@dataclass(slots=True)
class Drained:
    """What the consumers got.

    Attributes:
        complete_at: When all consumers were there (`time.monotonic`).
        by_consumer: What arrived at each, ascending.
        stood: Spans, longer than a tick, in which this process stood still although it was to look at its consumers,
            ascending.
    """

    complete_at: float = 0.0
    by_consumer: list[list[Arrival]] = field(default_factory=list)
    stood: list[Span] = field(default_factory=list)

    @property
    def times(self) -> list[float]:
        """When anything arrived, ascending."""
        return sorted(at for arrivals in self.by_consumer for at, _ in arrivals)

    @property
    def longest_pause_s(self) -> float:
        """How long this process stood still at most."""
        return max((end - begin for begin, end in self.stood), default=0.0)


def fill(broker_url: str, backlogs: Sequence[BrokerBacklog]) -> None:
    """Store the backlogs one after the other at the broker itself, for the subscription that will be drained.

    Raises:
        BenchError: If not all is stored in time.
        ClientError: If the broker refuses.
    """
    with Clients(broker_url) as clients:
        for backlog in backlogs:
            clients.make_subscription(backlog.topic, SUBSCRIPTION)
        for backlog in backlogs:
            sender = clients.sender("filling", backlog.topic, backlog.count, backlog.batch)
            lane = Lane(MessageOrigin(token_bytes(RUN_BYTES), 0, backlog.size, backlog.count), sender, time.monotonic)
            _store(backlog, lane)


def _store(backlog: BrokerBacklog, lane: Lane) -> None:
    for _ in range(backlog.count):
        lane.offer()
    deadline = time.monotonic() + FILL_S
    while lane.on_their_way and time.monotonic() < deadline:
        time.sleep(TICK_S)
    if lane.receipts < backlog.count:
        raise BenchError(f"{backlog.topic}: only {lane.receipts} of {backlog.count} stored: {dict(lane.errors)}")


def drain(stage: TrialStage, consumers: Sequence[SharedConsumer], seconds: float) -> Drained:
    """Let the consumers drain what is there, for so many seconds from the first delivery on.

    Raises:
        BenchError: If nothing is delivered.
        ClientError: If the peer refuses a consumer.
    """
    arrived: list[list[Arrival]] = [[] for _ in consumers]
    with Clients(stage.peer.service_url) as clients:
        for consumer, arrivals in zip(consumers, arrived, strict=True):
            clients.consume(consumer, _noting(arrivals))
        complete_at = time.monotonic()

        def is_over(now: float) -> bool:
            first = min((arrivals[0][0] for arrivals in arrived if arrivals), default=None)
            if first is None and now > complete_at + FIRST_S:
                raise BenchError(f"{stage.peer.name}: nothing was delivered within {FIRST_S:g} s")
            return first is not None and now > first + seconds + BEYOND_S

        stood = stand_by(is_over)
        # copied: what comes while the clients leave one by one is no longer what all of them get
        return Drained(complete_at, [list(arrivals) for arrivals in arrived], stood)


def stand_by(is_over: Callable[[float], bool]) -> list[Span]:
    """Look every 5 ms whether it is over; the spans by which that came more than 5 ms too late."""
    late: list[Span] = []
    while True:
        due = time.monotonic() + TICK_S
        time.sleep(TICK_S)
        now = time.monotonic()
        if now > due + TICK_S:
            late.append((due, now))
        if is_over(now):
            return late


def _noting(arrivals: list[Arrival]) -> Record:
    return lambda payload: arrivals.append((time.monotonic(), len(payload)))
