"""The rows about deliveries: a backlog lies at the broker, and consumers of a peer drain it in this process."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from secrets import token_bytes

from bench.harness import BenchError, Figure, Goal, Row, jain, percentile
from bench.limits.publisher import PacedLane
from bench.limits.trial import (
    BURST_S,
    EVEN,
    EVENNESS,
    FREE_PENDING,
    FREE_RATE,
    GROUP_LIMIT,
    LOW,
    MESSAGE_BYTES,
    NOTICED,
    PEERS,
    SETTLED_S,
    SLACK_S,
    LaneOrder,
    LimitsRow,
    Times,
    TimeSpan,
    TrialStage,
    by_turns,
    count_between,
    evenness,
    longest_gap,
    noticed,
    per_second,
    spaces,
)
from loadgen.load.clients import Clients, Record, SharedConsumer
from loadgen.load.offering import Lane, MessageOrigin, Sender, Settle
from loadgen.load.payload import RUN_BYTES, read_payload
from loadgen.load.results import RateLine, max_excess

SUBSCRIPTION = "drain"
TICK_S = 0.005
FILL_S = 60.0
"""Longest wait until a backlog is stored."""
FIRST_S = 20.0
"""Longest wait for the first delivery."""
BEYOND_S = 0.3
"""Seconds of listening after the measured time."""

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
    """The messages that the consumers got.

    Attributes:
        complete_at: When all consumers were there (`time.monotonic`).
        by_consumer: Times of arrival at each consumer, ascending.
        stood: Spans, longer than a tick, in which this process was stopped and read nothing, ascending.
    """

    complete_at: float = 0.0
    by_consumer: list[list[Arrival]] = field(default_factory=list)
    stood: list[TimeSpan] = field(default_factory=list)

    @property
    def times(self) -> list[float]:
        """All arrival times, ascending."""
        return sorted(at for arrivals in self.by_consumer for at, _ in arrivals)

    @property
    def longest_pause_s(self) -> float:
        """The longest standstill of this process, seconds."""
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
    """Let the consumers drain the backlog, for `seconds` from the first delivery on.

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
        # copied, as deliveries while the clients leave one by one do not count
        return Drained(complete_at, [list(arrivals) for arrivals in arrived], stood)


def stand_by(is_over: Callable[[float], bool]) -> list[TimeSpan]:
    """Look every 5 ms whether it is over; return the spans by which that came more than 5 ms too late."""
    late: list[TimeSpan] = []
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


MORE_S = 4
"""Seconds' worth that is left of a backlog at the end, also when the first second brings twice the limit."""
_GAP_MS = 20


def gap_figure(limit: int) -> Figure:
    """Make the figure of the longest time without a delivery, although messages are there."""
    name = f"longest time without a delivery (one is due every {1000 / limit:g} ms)"
    return Figure("gap", name, " ms", 0, (Goal("≤", _GAP_MS),))


PAUSE = Figure("pause", "longest standstill of the consumer", " ms", 0)
BACKLOG = (*EVENNESS, gap_figure(EVEN), PAUSE)


def backlog_row(*, quick: bool) -> LimitsRow:
    """The row; quick: four seconds instead of twelve."""
    seconds = 4 if quick else 12
    load = f"a backlog drained at {EVEN}/s by one consumer, {seconds} s"
    return Row("backlog", load, BACKLOG, by_turns(partial(_measure_backlog, seconds)), PEERS, rounds=1 if quick else 3)


def drain_alone(stage: TrialStage, limit: int, seconds: int) -> Drained:
    """Let one consumer drain a backlog under a limit."""
    topic = stage.dispatch_topic(limit).name
    fill(stage.broker_url, [BrokerBacklog(topic, limit * (seconds + MORE_S))])
    return drain(stage, [SharedConsumer("one", topic, SUBSCRIPTION)], seconds)


def _measure_backlog(seconds: int, stage: TrialStage) -> dict[str, float]:
    drained = drain_alone(stage, EVEN, seconds)
    figures = backlog(drained.times, drained.stood, seconds)
    return figures | {"pause": drained.longest_pause_s * 1000}


def backlog(times: Sequence[float], stood: Sequence[TimeSpan], seconds: int) -> dict[str, float]:
    """The figures of one trial.

    Args:
        times: Arrivals, ascending.
        stood: In which spans the consumer stood still.
        seconds: How many are looked at, from the first arrival.
    """
    return evenness(times, seconds) | {"gap": longest_gap(times, seconds, stood) * 1000}


GAP_LIMIT = 100

GAP = (
    gap_figure(GAP_LIMIT),
    Figure("p99", "p99 of the times between deliveries", " ms", 1),
    Figure("p50", "p50 of them", " ms", 1),
    PAUSE,
)


def gap_row(*, quick: bool) -> LimitsRow:
    """The row; quick: three seconds instead of ten."""
    seconds = 3 if quick else 10
    load = f"a backlog drained at {GAP_LIMIT}/s by one consumer, {seconds} s"
    return Row("gap", load, GAP, by_turns(partial(_measure_gap, seconds)), PEERS, rounds=1 if quick else 3)


def _measure_gap(seconds: int, stage: TrialStage) -> dict[str, float]:
    drained = drain_alone(stage, GAP_LIMIT, seconds)
    return gap(drained.times, drained.stood, seconds) | {"pause": drained.longest_pause_s * 1000}


def gap(times: Sequence[float], stood: Sequence[TimeSpan], seconds: float) -> dict[str, float]:
    """The figures of one trial; the arguments are those of `backlog.samples`."""
    between = [space * 1000 for space in spaces(times, seconds)]
    return {
        "gap": longest_gap(times, seconds, stood) * 1000,
        "p99": percentile(between, 0.99),
        "p50": percentile(between, 0.5),
    }


BATCHES_LIMIT = 100
BATCH = 50
BATCHES_QUEUE = 1000
BATCHES_COUNT = 4000
"""More than a receiver queue at once and another one for its debt."""

BATCHES = (
    Figure("first", "first second", " x limit", 2, (Goal("≤", 1.1 + (BATCH - 1) / BATCHES_LIMIT),)),
    Figure("mean", "mean of all seconds", " x limit", 2),
    Figure(
        "excess",
        f"most above {BATCHES_LIMIT * BURST_S:g} + {BATCHES_LIMIT} · t + one batch, in any interval",
        goals=(Goal("≤", BATCHES_LIMIT * SLACK_S + 1),),
    ),
    Figure(
        "silence", f"longest silence (a batch is due every {BATCH / BATCHES_LIMIT:g} s)", " s", 2, (Goal("≤", 0.6),)
    ),
)


def batches_row(*, quick: bool) -> LimitsRow:
    """The row; quick: three seconds instead of ten."""
    seconds = 3 if quick else 10
    load = f"a backlog of batches of {BATCH} drained at {BATCHES_LIMIT}/s, receiver queue {BATCHES_QUEUE}, {seconds} s"
    return Row("batches", load, BATCHES, by_turns(partial(_measure_batches, seconds)), PEERS, rounds=1)


def _measure_batches(seconds: int, stage: TrialStage) -> dict[str, float]:
    topic = stage.dispatch_topic(BATCHES_LIMIT).name
    fill(stage.broker_url, [BrokerBacklog(topic, BATCHES_COUNT, batch=BATCH)])
    return batches(drain(stage, [SharedConsumer("one", topic, SUBSCRIPTION, BATCHES_QUEUE)], seconds).times, seconds)


def batches(times: Sequence[float], seconds: int) -> dict[str, float]:
    """The figures of one trial: what arrived (ascending), and how many seconds are looked at from the first arrival."""
    counts = per_second(times, seconds)
    return {
        "first": counts[0] / BATCHES_LIMIT,
        "mean": sum(counts) / seconds / BATCHES_LIMIT,
        "excess": max_excess(times, RateLine(BATCHES_LIMIT, BATCHES_LIMIT * BURST_S, entry=BATCH)),
        "silence": longest_gap(times, seconds),
    }


UNIT = 100
"""Bytes of the unit in which deliveries are counted."""
SMALL, LARGE = UNIT, 50_000
MANY, FEW = 1000, 230
SIZES_LIMIT = 1_000_000
KB = 1000

SIZES = (
    Figure("first", "first second", " x limit", 2, (Goal("≤", 1.1 + LARGE / SIZES_LIMIT),)),
    Figure("worst", "most in a second", " x limit", 2, (Goal("≤", 1.1 + LARGE / SIZES_LIMIT),)),
    Figure("mean", "mean from second 3 on", " x limit", 3, (Goal("≥", 0.99),)),
    Figure(
        "excess",
        f"most above {SIZES_LIMIT * BURST_S / KB:g} KB + {SIZES_LIMIT // KB:,} KB · t + a large one, any interval",
        " KB",
        goals=(Goal("≤", (SIZES_LIMIT * SLACK_S + LARGE) / KB),),
    ),
)


def sizes_row(*, quick: bool) -> LimitsRow:
    """The row; quick: four seconds instead of ten."""
    seconds = 4 if quick else 10
    load = f"{SIZES_LIMIT // KB:,} KB/s: {MANY:,} messages of {SMALL} B, then such of {LARGE // KB} KB, {seconds} s"
    return Row("sizes", load, SIZES, by_turns(partial(_measure_sizes, seconds)), PEERS, rounds=1)


def _measure_sizes(seconds: int, stage: TrialStage) -> dict[str, float]:
    topic = stage.dispatch_topic(size=SIZES_LIMIT).name
    fill(stage.broker_url, [BrokerBacklog(topic, MANY, SMALL), BrokerBacklog(topic, FEW, LARGE)])
    drained = drain(stage, [SharedConsumer("one", topic, SUBSCRIPTION)], seconds)
    return sizes(drained.by_consumer[0], seconds)


def sizes(arrivals: Sequence[Arrival], seconds: int) -> dict[str, float]:
    """The figures of one trial: what arrived (ascending), and how many seconds are looked at from the first arrival."""
    times = [at for at, size in arrivals for _ in range(size // UNIT)]
    limit = SIZES_LIMIT / UNIT
    counts = per_second(times, seconds)
    settled = counts[SETTLED_S:]
    excess = max_excess(times, RateLine(limit, limit * BURST_S, LARGE / UNIT))
    return {
        "first": counts[0] / limit,
        "worst": max(counts) / limit,
        "mean": sum(settled) / len(settled) / limit,
        "excess": excess * UNIT / KB,
    }


TOPICS = 2
GROUP_COUNT = 2500
"""Messages in each topic."""
LEAST_S = 2
"""Seconds. A backlog that is drained sooner has no second after the first to measure."""

GROUP_FIGURES = (
    Figure("first", "first second", " x limit", 2, (Goal("≤", 1.1),)),
    Figure("mean", "mean while there was a backlog", " x limit", 3, (Goal("≤", 1.02),)),
    Figure("settled", "the same from the second second on", " x limit", 3, (Goal("≥", 0.99),)),
)


def group_row(*, quick: bool) -> LimitsRow:
    """The row; quick: three seconds instead of ten."""
    seconds = 3 if quick else 10
    load = f"a resource group of {GROUP_LIMIT}/s: {TOPICS} backlogs of {GROUP_COUNT:,} drained at once, {seconds} s"
    return Row("group", load, GROUP_FIGURES, by_turns(partial(_measure_group, seconds)), PEERS, rounds=1)


def _measure_group(seconds: int, stage: TrialStage) -> dict[str, float]:
    topics = [stage.grouped_topic().name for _ in range(TOPICS)]
    fill(stage.broker_url, [BrokerBacklog(topic, GROUP_COUNT) for topic in topics])
    drained = drain(stage, [SharedConsumer(topic, topic, SUBSCRIPTION) for topic in topics], seconds)
    return group(drained.times, seconds)


def group(times: Sequence[float], seconds: int) -> dict[str, float]:
    """The figures of one trial: what arrived (ascending), and how many seconds are looked at from the first arrival.

    Less than a second counts as a second, so that no rate is shown that never lasted.
    """
    if not times:
        return {"first": 0.0, "mean": 0.0, "settled": 0.0}
    begin, is_drained = times[0], len(times) == TOPICS * GROUP_COUNT
    lasted = max(1.0, times[-1] - begin) if is_drained else seconds
    looked_at = [at for at in times if is_drained or at < begin + seconds]
    settled = [at for at in looked_at if at >= begin + 1]
    return {
        "first": per_second(times, 1)[0] / GROUP_LIMIT,
        "mean": len(looked_at) / lasted / GROUP_LIMIT,
        **({"settled": len(settled) / (lasted - 1) / GROUP_LIMIT} if lasted >= LEAST_S else {}),
    }


TWENTY_LIMIT = 50
CONSUMERS = 20
TWENTY_QUEUE = 10

TWENTY = (
    Figure("jain", "Jain's index of the twenty, once all are there", digits=3, goals=(Goal("≥", 0.99),)),
    Figure("least", "share of the one that got least, of an equal share", " %", 0),
    Figure("most", "share of the one that got most", " %", 0),
    Figure("mean", "mean from the second second on", " x limit", 3, (Goal("≥", 0.99),)),
)


def twenty_row(*, quick: bool) -> LimitsRow:
    """The row; quick: four seconds instead of twelve."""
    seconds = 4 if quick else 12
    clients = f"{CONSUMERS} clients of one subscription, receiver queue {TWENTY_QUEUE}"
    load = f"a backlog drained at {TWENTY_LIMIT}/s by {clients}, {seconds} s"
    return Row("twenty", load, TWENTY, by_turns(partial(_measure_twenty, seconds)), PEERS, rounds=1)


def _measure_twenty(seconds: int, stage: TrialStage) -> dict[str, float]:
    topic = stage.dispatch_topic(TWENTY_LIMIT).name
    fill(stage.broker_url, [BrokerBacklog(topic, TWENTY_LIMIT * (seconds + MORE_S))])
    consumers = [SharedConsumer(f"c{number}", topic, SUBSCRIPTION, TWENTY_QUEUE) for number in range(CONSUMERS)]
    drained = drain(stage, consumers, seconds)
    return twenty([[at for at, _ in arrivals] for arrivals in drained.by_consumer], drained.complete_at, seconds)


def twenty(by_consumer: Sequence[Sequence[float]], complete_at: float, seconds: float) -> dict[str, float]:
    """The figures of one trial.

    Args:
        by_consumer: Arrivals of each, ascending.
        complete_at: When all consumers had connected.
        seconds: The number of seconds that count, from the first arrival; the burst is in the first.
    """
    begin = min((times[0] for times in by_consumer if times), default=0.0)
    shares = [count_between(times, max(begin, complete_at), begin + seconds) for times in by_consumer]
    settled = sum(count_between(times, begin + 1, begin + seconds) for times in by_consumer)
    equal = sum(shares) / len(shares) or 1.0
    return {
        "jain": jain(shares),
        "least": 100 * min(shares) / equal,
        "most": 100 * max(shares) / equal,
        "mean": settled / (seconds - 1) / TWENTY_LIMIT,
    }


HELD_BACKLOG = 1000

BESIDE_FIGURES = (*NOTICED, Figure("held", f"A's rate, of {LOW}/s", " %", 0))


class NotedSender:
    """Notes when each message is sent; a `Sender`."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self.sent: list[float] = []
        """By the message's sequence."""

    def send(self, payload: bytes, settle: Settle) -> None:
        """Note the time, and send as `offering.Sender.send` says."""
        self.sent.append(time.monotonic())
        self._sender.send(payload, settle)


class SteadyPublisher:
    """Publishes to the topic at `FREE_RATE` until second `end_s`; second 0 is when it is made.

    Attributes:
        began: Second 0 (`time.monotonic`).
        sent: When each message was sent (the same), by its sequence.
    """

    def __init__(self, clients: Clients, topic: str, end_s: float) -> None:
        sender = NotedSender(clients.sender("publishing", topic, FREE_PENDING))
        self.sent = sender.sent
        lane = Lane(MessageOrigin(token_bytes(RUN_BYTES), 0, MESSAGE_BYTES, FREE_PENDING), sender, time.monotonic)
        order = LaneOrder(client="publishing", topic=topic, index=0, end_s=end_s, rate=FREE_RATE, pending=FREE_PENDING)
        self._paced = PacedLane(order, lane)
        self.began = time.monotonic()

    def go_on_until(self, at_s: float) -> None:
        """Publish the messages that are due until `at_s`."""
        stand_by(self._is_over(at_s))

    def _is_over(self, at_s: float) -> Callable[[float], bool]:
        def is_over(now: float) -> bool:
            self._paced.offer_due(now - self.began)
            return now > self.began + at_s

        return is_over


def beside_row(*, quick: bool) -> LimitsRow:
    """The row; quick: seconds instead of ten."""
    times = Times(1, 2, 3, 5) if quick else Times(1, 5, 6, 14)
    seconds = times.end - times.beside
    load = f"one connection: consumer A held at {LOW}/s, consumer B caught up at {FREE_RATE}/s, {seconds:g} s"
    return Row(
        "beside", load, BESIDE_FIGURES, by_turns(partial(_measure_beside, times)), PEERS, rounds=1 if quick else 3
    )


def _measure_beside(times: Times, stage: TrialStage) -> dict[str, float]:
    held, free = stage.dispatch_topic(LOW).name, stage.dispatch_topic().name
    fill(stage.broker_url, [BrokerBacklog(held, HELD_BACKLOG)])
    arrived: dict[int, float] = {}
    held_times: list[float] = []
    consumer = partial(SharedConsumer, "shared", subscription=SUBSCRIPTION)
    with Clients(stage.broker_url) as publishing, Clients(stage.peer.service_url) as consuming:
        consuming.consume(
            consumer(topic=free), lambda body: arrived.update({read_payload(body).sequence: time.monotonic()})
        )
        publisher = SteadyPublisher(publishing, free, times.end)
        publisher.go_on_until(times.held)
        consuming.consume(consumer(topic=held), lambda _body: held_times.append(time.monotonic()))
        publisher.go_on_until(times.end + BEYOND_S)
        began = publisher.began
        figures = beside(
            times,
            [at - began for at in publisher.sent],
            {number: at - began for number, at in arrived.copy().items()},
        )
    of_held = count_between(held_times, began + times.beside, began + times.end)
    return figures | {"held": 100 * of_held / (LOW * (times.end - times.beside))}


def beside(times: Times, sent: Sequence[float], arrived: Mapping[int, float]) -> dict[str, float]:
    """The figures of one trial.

    Args:
        times: Its spans.
        sent: When each message was sent, seconds from the begin, by its sequence.
        arrived: When it arrived, by its sequence; lost messages are missing.
    """

    def latencies_ms(begin: float, end: float) -> list[float]:
        return [(arrived.get(number, inf) - at) * 1000 for number, at in enumerate(sent) if begin <= at < end]

    alone, beside = latencies_ms(times.alone, times.held), latencies_ms(times.beside, times.end)
    in_time = count_between(sorted(arrived.values()), times.beside, times.end)
    return noticed(times, alone, beside, in_time)


ROWS = (backlog_row, gap_row, batches_row, sizes_row, group_row, twenty_row, beside_row)
"""The makers of the section's rows, in its order."""
