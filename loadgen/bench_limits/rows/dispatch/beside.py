"""A consumer without backlog shares its connection with one that is held: what does it notice?"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from secrets import token_bytes

from loadgen.bench_limits.drain import BEYOND_S, SUBSCRIPTION, Backlog, fill, stand_by
from loadgen.bench_limits.figures import Figure, Samples
from loadgen.bench_limits.measures import count_between
from loadgen.bench_limits.orders import MESSAGE_BYTES, LaneOrder
from loadgen.bench_limits.publisher import PacedLane
from loadgen.bench_limits.rows.beside import LIMIT, NOTICED, PENDING, RATE, Times, noticed
from loadgen.bench_limits.rows.row import Row, by_turns
from loadgen.bench_limits.trial import Stage
from loadgen.load.clients import Clients, SharedConsumer
from loadgen.load.offering import Lane, Origin, Sender, Settle
from loadgen.load.payload import RUN_BYTES, read_payload

HELD_BACKLOG = 1000

FIGURES = (*NOTICED, Figure("held", f"A's rate, of {LIMIT}/s", " %", 0))


class NotedSender:
    """Notes when each message is sent; a `Sender`."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self.sent: list[float] = []
        """By the message's sequence."""

    def send(self, payload: bytes, settle: Settle) -> None:
        """See `offering.Sender`."""
        self.sent.append(time.monotonic())
        self._sender.send(payload, settle)


class SteadyPublisher:
    """Publishes to the topic at `RATE` until second `end_s`; second 0 is when it is made.

    Attributes:
        began: Second 0 (`time.monotonic`).
        sent: When each message was sent (the same), by its sequence.
    """

    def __init__(self, clients: Clients, topic: str, end_s: float) -> None:
        sender = NotedSender(clients.sender("publishing", topic, PENDING))
        self.sent = sender.sent
        lane = Lane(Origin(token_bytes(RUN_BYTES), 0, MESSAGE_BYTES, PENDING), sender, time.monotonic)
        order = LaneOrder(client="publishing", topic=topic, index=0, end_s=end_s, rate=RATE, pending=PENDING)
        self._paced = PacedLane(order, lane)
        self.began = time.monotonic()

    def go_on_until(self, at_s: float) -> None:
        """Publish what is due until `at_s`."""
        stand_by(self._is_over(at_s))

    def _is_over(self, at_s: float) -> Callable[[float], bool]:
        def is_over(now: float) -> bool:
            self._paced.offer_due(now - self.began)
            return now > self.began + at_s

        return is_over


def row(*, quick: bool) -> Row:
    """The row; quick: seconds instead of ten."""
    times = Times(1, 2, 3, 5) if quick else Times(1, 5, 6, 14)
    seconds = times.end - times.beside
    load = f"one connection: consumer A held at {LIMIT}/s, consumer B caught up at {RATE}/s, {seconds:g} s"
    return Row("beside", load, FIGURES, by_turns(partial(_measure, times)), rounds=1 if quick else 3)


def _measure(times: Times, stage: Stage) -> Samples:
    held, free = stage.dispatch_topic(LIMIT).name, stage.dispatch_topic().name
    fill(stage.broker_url, [Backlog(held, HELD_BACKLOG)])
    arrived: dict[int, float] = {}
    held_times: list[float] = []
    consumer = partial(SharedConsumer, "shared", subscription=SUBSCRIPTION)
    with Clients(stage.broker_url) as publishing, Clients(stage.peer.service_url) as consuming:
        consuming.consume(consumer(topic=free), lambda body: arrived.update({_sequence(body): time.monotonic()}))
        publisher = SteadyPublisher(publishing, free, times.end)
        publisher.go_on_until(times.held)
        consuming.consume(consumer(topic=held), lambda _body: held_times.append(time.monotonic()))
        publisher.go_on_until(times.end + BEYOND_S)
        began = publisher.began
        found = samples(
            times,
            [at - began for at in publisher.sent],
            {number: at - began for number, at in arrived.copy().items()},
        )
    beside = count_between(held_times, began + times.beside, began + times.end)
    return found | {"held": [100 * beside / (LIMIT * (times.end - times.beside))]}


def _sequence(payload: bytes) -> int:
    return read_payload(payload).sequence


def samples(times: Times, sent: Sequence[float], arrived: Mapping[int, float]) -> Samples:
    """The figures of one trial.

    Args:
        times: Its spans.
        sent: When each message was sent, seconds from the begin, by its sequence.
        arrived: When it arrived, by the same; what is not in it never did.
    """

    def latencies_ms(begin: float, end: float) -> list[float]:
        return [(arrived.get(number, inf) - at) * 1000 for number, at in enumerate(sent) if begin <= at < end]

    alone, beside = latencies_ms(times.alone, times.held), latencies_ms(times.beside, times.end)
    in_time = count_between(sorted(arrived.values()), times.beside, times.end)
    return noticed(times, alone, beside, in_time)
