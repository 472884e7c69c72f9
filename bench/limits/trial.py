"""One trial: fresh topics at a peer, a receiving end at the broker itself, publishers in a process of their own.

The publishing process reads a `TrialOrder` and writes a `Result`, both as JSON files. The measures of arrival times and
latencies, and the figures that several rows share, are at the end.
"""

import itertools
import json
import math
import secrets
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import TypeVar

import msgspec

from adminrest.client import AdminClient
from bench.harness import (
    BenchError,
    Figure,
    Found,
    Goal,
    Progress,
    Row,
    Sample,
    in_rounds,
    last_line,
    percentile,
)
from loadgen.load.clients import Clients
from loadgen.load.payload import RUN_BYTES, read_payload
from loadgen.load.results import RateLine, max_excess
from loadgen.real.process import TetheredProcess, free_ports, wait_until
from loadgen.real.standalone import StandaloneBroker

TENANT = "bench"
OWN, SLUICE = "broker's own", "through Sluice"
PEERS = (OWN, SLUICE)
READY_TIMEOUT_S = 30.0
GROUP = "bench"
"""The resource group's name; the broker and Sluice have one each."""
GROUP_LIMIT = 100
"""Messages a second that the group may deliver in all."""
_GROUPED_BY_SLUICE = "grouped-by-sluice"
WARM_UP_S = 3.0
WARM_UP_DRAIN_S = 10.0
POLL_S = 0.005
START_S = 60.0
"""Longest wait for the publishers to be connected and warm."""
END_S = 30.0
"""Longest wait for their result beyond what their order takes."""
QUIET_S = 0.3
"""How long is listened on after the last receipt."""

_numbers = itertools.count(1)
Content = TypeVar("Content")
MESSAGE_BYTES = 100
GREEDY = 20_000.0
"""Messages per second offered by a lane that wants all it can get; its pending queue is what bounds it."""


class LaneOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A span of time in which one producer offers messages; lanes of one client and topic share the producer."""

    client: str
    """Lanes that name the same share a client, hence a connection."""
    topic: str
    index: int
    """The number in the lane's messages, by which the receiving end assigns them to lanes."""
    begin_s: float = 0.0
    end_s: float
    rate: float = GREEDY
    pending: int = 200
    """Messages without receipt at most."""
    most: int | None = None
    """Messages in all."""
    batch: int = 1
    """Messages in a batch; 1: no batching."""


class TrialOrder(msgspec.Struct, frozen=True):
    """The load of one trial."""

    service_url: str
    run: bytes
    """The mark in the payloads of this trial."""
    lanes: list[LaneOrder]
    drain_s: float
    """Longest wait for outstanding receipts at the end, seconds."""


class LaneResult(msgspec.Struct, frozen=True):
    """The fate of a lane's messages, as the sending end saw it."""

    index: int
    latencies: list[float]
    """Seconds from offer to receipt, one for each receipt."""
    unsettled: int
    errors: dict[str, int]


class Result(msgspec.Struct, frozen=True):
    """The report of a publishing process at its end."""

    lanes: list[LaneResult]
    longest_pause_s: float
    """The longest pause between two rounds over its lanes, which are due every 5 ms: the machine's disturbance."""


def order_file(folder: Path) -> Path:
    """Name the file of the order."""
    return folder / "order.json"


def began_file(folder: Path) -> Path:
    """Return the file that appears when all producers are there; it holds second 0 (`time.monotonic`)."""
    return folder / "began.json"


def result_file(folder: Path) -> Path:
    """Return the file of the results, which appears at the end."""
    return folder / "result.json"


def write(path: Path, content: object) -> None:
    """Write a file as JSON so that readers see it whole or not at all."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_bytes(msgspec.json.encode(content))
    unfinished.replace(path)


def read(path: Path, kind: type[Content]) -> Content:
    """Read what `write` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=kind)


# ---- The two that are measured


@dataclass(frozen=True, slots=True)
class Peer:
    """The limiting side: a real broker by itself, or Sluice in front of the same broker.

    Attributes:
        name: For the table.
        service_url: Where its clients connect.
        limits: Where limits are set.
        grouped: The namespace that is attached to its resource group.
    """

    name: str
    service_url: str
    limits: AdminClient
    grouped: str


@dataclass(frozen=True, slots=True)
class TrialTopic:
    """A topic, alone in its namespace unless it is of a resource group."""

    namespace: str
    local: str = "t"

    @property
    def name(self) -> str:
        """The topic's full name."""
        return f"persistent://{TENANT}/{self.namespace}/{self.local}"


@dataclass(slots=True)
class Trial:
    """A running trial, and the results of both ends once it is over.

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
class TrialStage:
    """The surroundings of trials.

    Attributes:
        peer: Who limits.
        broker_url: The broker itself: where is received.
        broker: Its admin REST.
        folder: For the trials' files.
    """

    peer: Peer
    broker_url: str
    broker: AdminClient
    folder: Path

    def topic(self, messages: int | None) -> TrialTopic:
        """Return a new topic that the peer limits to `messages` a second; None: without a limit."""
        topic = TrialTopic(f"n{next(_numbers)}")
        self.broker.make_namespace(f"{TENANT}/{topic.namespace}")
        if messages is not None:
            self.limit(topic, messages)
        return topic

    def limit(self, topic: TrialTopic, messages: int) -> None:
        """Limit publishing to the topic, or change the limit."""
        rate = {"publishThrottlingRateInMsg": messages, "publishThrottlingRateInByte": -1}
        self._set(topic, "publishRate", rate)

    def dispatch_topic(self, messages: int = -1, size: int = -1) -> TrialTopic:
        """Return a new topic whose deliveries the peer limits to `messages` and `size` bytes a second; -1: no limit."""
        topic = self.topic(None)
        if max(messages, size) > 0:
            rate = {"dispatchThrottlingRateInMsg": messages, "dispatchThrottlingRateInByte": size}
            self._set(topic, "dispatchRate", {**rate, "ratePeriodInSecond": 1})
        return topic

    def publishers(self, topic: str) -> set[str]:
        """Return the connections of a topic's producers at the broker: address and since when."""
        publishers = self.broker.stats(topic)["publishers"]
        return {f"{publisher['address']} {publisher['connectedSince']}" for publisher in publishers}

    def grouped_topic(self) -> TrialTopic:
        """A fresh topic in the peer's resource group."""
        return TrialTopic(self.peer.grouped, f"t{next(_numbers)}")

    def _set(self, topic: TrialTopic, policy: str, rate: dict[str, int]) -> None:
        self.peer.limits.call("POST", f"/admin/v2/namespaces/{TENANT}/{topic.namespace}/{policy}", rate)

    @contextmanager
    def trial(self, lanes: Sequence[LaneOrder], drain_s: float) -> Iterator[Trial]:
        """Begin the lanes, give the trial while it goes on, and complete it once they have ended.

        Args:
            lanes: The lanes to publish.
            drain_s: Longest wait for outstanding receipts at the end, seconds.

        Raises:
            BenchError: If the publishers cannot begin, or do not end.
            ClientError: If nothing can be received at the broker.
        """
        folder = self.folder / f"trial-{next(_numbers)}"
        folder.mkdir()
        order = TrialOrder(self.peer.service_url, secrets.token_bytes(RUN_BYTES), list(lanes), drain_s)
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


def by_lane(arrived: Iterable[tuple[float, bytes]], order: TrialOrder, began: float) -> dict[int, list[float]]:
    """Return the seconds since `began` at which each lane's messages arrived; others (warming up) are left out."""
    times: dict[int, list[float]] = {lane.index: [] for lane in order.lanes}
    for at, payload in arrived:
        stamp = read_payload(payload)
        if stamp.run == order.run and stamp.producer in times:
            times[stamp.producer].append(at - began)
    return times


@contextmanager
def _publishing(folder: Path, order: TrialOrder) -> Iterator[TetheredProcess]:
    write(order_file(folder), order)
    command = [sys.executable, "-m", "bench.limits.publisher", str(folder)]
    process = TetheredProcess(command, folder / "publisher.log")
    try:
        yield process
    finally:
        process.kill()


def _await(process: TetheredProcess, file: Path, longest_s: float) -> None:
    wait_until(lambda: file.exists() or process.exit_code is not None, longest_s, POLL_S)
    if not file.exists():
        how = "do not get on" if process.exit_code is None else "ended early"
        lines = process.last_lines().splitlines()[-1:] or ["they said nothing"]
        raise BenchError(f"the publishers {how}: {lines[0]}")


# ---- Rows, and running them

Measure = Callable[[Sequence[TrialStage]], Sequence[Sequence[Sample]]]
"""Does a row's load once on each stage; the samples of each, in the same order."""
LimitsRow = Row[Measure]


def by_turns(measure: Callable[[TrialStage], Sample | list[Sample]]) -> Measure:
    """Measure one stage after the other, so that they do not take each other's processor."""

    def measure_each(stages: Sequence[TrialStage]) -> Sequence[Sequence[Sample]]:
        measurements = [measure(stage) for stage in stages]
        return [samples if isinstance(samples, list) else [samples] for samples in measurements]

    return measure_each


@contextmanager
def running(folder: Path) -> Iterator[tuple[TrialStage, TrialStage]]:
    """Run both stages, the broker's own and Sluice's, on free ports of loopback; at the end they are gone.

    Raises:
        BenchError: If Sluice does not start.
        RealPulsarError: If the broker does not.
    """
    with StandaloneBroker(folder / "broker") as broker, sluice(folder, broker.service_url) as limiting:
        rest = AdminClient(broker.admin_url)
        rest.make_tenant(TENANT)
        own = Peer(OWN, broker.service_url, rest, "grouped-by-broker")
        for peer in (own, limiting):
            rest.make_namespace(f"{TENANT}/{peer.grouped}")
        rest.call("PUT", f"/admin/v2/resourcegroups/{GROUP}", {"dispatchRateInMsgs": GROUP_LIMIT})
        rest.call("POST", f"/admin/v2/namespaces/{TENANT}/{own.grouped}/resourcegroup/{GROUP}")
        first, second = (TrialStage(peer, broker.service_url, rest, folder) for peer in (own, limiting))
        yield first, second


@contextmanager
def sluice(folder: Path, broker_url: str) -> Iterator[Peer]:
    """Sluice in front of that broker.

    Raises:
        BenchError: If it does not start.
    """
    config = folder / "sluice.yaml"
    group = {"dispatch": {"messages": GROUP_LIMIT}, "namespaces": [f"{TENANT}/{_GROUPED_BY_SLUICE}"]}
    config.write_text(json.dumps({"limits": {"resource_groups": {GROUP: group}}}))  # JSON is YAML
    listen, admin = (f"127.0.0.1:{port}" for port in free_ports(0, 0))
    command = [sys.executable, "-m", "sluice", "serve", "--config", str(config), "--listen", listen]
    command += ["--broker", broker_url, "--admin", admin, "--access-log", str(folder / "access-log")]
    process = TetheredProcess(command, folder / "sluice.log")
    try:
        rest = AdminClient(f"http://{admin}")
        await_ready(rest, process)
        yield Peer(SLUICE, f"pulsar://{listen}", rest, _GROUPED_BY_SLUICE)
    finally:
        process.stop()


def await_ready(rest: AdminClient, process: TetheredProcess) -> None:
    """Return when Sluice is ready.

    Raises:
        BenchError: If it ends, or is not ready in time.
    """
    wait_until(lambda: process.exit_code is not None or rest.is_ready(), READY_TIMEOUT_S)
    if process.exit_code is not None or not rest.is_ready():
        how = "is not ready in time" if process.exit_code is None else "ended"
        raise BenchError(f"sluice serve {how}: {last_line(process.last_lines())}")


def measure(rows: Sequence[LimitsRow], stages: Sequence[TrialStage], progress: Progress) -> Found:
    """Measure each row at the broker's own limits and through Sluice.

    Args:
        rows: What to measure.
        stages: Of both, running.
        progress: Gets a line for each round that is done.
    """

    def play(row: LimitsRow, _number: int) -> Mapping[str, Sequence[Sample]]:
        return {stage.peer.name: samples for stage, samples in zip(stages, row.measure(stages), strict=True)}

    return {row.name: in_rounds(row, 1, partial(play, row), progress) for row in rows}


def warm_up(stage: TrialStage) -> None:
    """Publish without a limit for a while: a broker that has just started is slow, and would be so in the first row."""
    lane = LaneOrder(client="warm-up", topic=stage.topic(None).name, index=0, end_s=WARM_UP_S)
    with stage.trial([lane], drain_s=WARM_UP_DRAIN_S):
        pass


# ---- Measures of arrival times and latencies

TimeSpan = tuple[float, float]
"""Begin and end."""


def count_between(times: Sequence[float], begin: float, end: float) -> int:
    """Count those of `times` (ascending) that lie in [begin, end)."""
    return bisect_left(times, end) - bisect_left(times, begin)


def per_second(times: Sequence[float], seconds: int) -> list[int]:
    """Count `times` (ascending) in each of the first seconds, which begin with the first time."""
    begin = times[0] if times else 0.0
    return [count_between(times, begin + second, begin + second + 1) for second in range(seconds)]


def worst_deviation(counts: Collection[float], limit: float) -> float:
    """Return the distance of the worst count from `limit`, as a part of the limit."""
    return max(abs(count / limit - 1) for count in counts)


def pair_means(counts: Sequence[float]) -> list[float]:
    """Mean of each two neighbouring counts."""
    return [(count + other) / 2 for count, other in pairwise(counts)]


def spaces(times: Sequence[float], seconds: float) -> list[float]:
    """The times between two arrivals each (ascending), of the seconds that begin with the first one."""
    looked_at = times[: bisect_left(times, times[0] + seconds)] if times else ()
    return [later - earlier for earlier, later in pairwise(looked_at)]


def longest_gap(times: Sequence[float], seconds: float, stood: Sequence[TimeSpan] = ()) -> float:
    """The longest time without an arrival in the seconds that begin with the first one; infinity without any.

    Args:
        times: Arrivals, ascending.
        seconds: The measured time, whose end ends the last gap.
        stood: Ascending spans that do not count, because this process was stopped.
    """
    if not times:
        return math.inf
    end = times[0] + seconds
    ends = [stood_end for _, stood_end in stood]
    gaps = pairwise([*times[: bisect_left(times, end)], end])
    return max(_less(gap, islice(stood, bisect_left(ends, gap[0]), None)) for gap in gaps)


def _less(gap: TimeSpan, stood: Iterable[TimeSpan]) -> float:
    """Return the length of the gap without the spans in it; no span ended before the gap begins."""
    begin, end = gap
    length = end - begin
    for stood_begin, stood_end in stood:
        if stood_begin >= end:
            break
        length -= min(end, stood_end) - max(begin, stood_begin)
    return length


# ---- Figures that several rows share

LOW = 10
FREE_RATE = 200
FREE_PENDING = 20_000
"""More than B ever has on its way: it offers at its pace, whatever comes back."""

NOTICED = (
    Figure("ratio", "B's p50 latency, beside ÷ alone", " x", 2, (Goal("≤", 1.2),)),
    Figure("p50_alone", "B's p50 alone", " ms", 2),
    Figure("p50_beside", "B's p50 beside A", " ms", 2),
    Figure("p99_alone", "B's p99 alone", " ms", 2),
    Figure("p99_beside", "B's p99 beside A", " ms", 2),
    Figure("rate", f"B's rate beside A, of {FREE_RATE}/s", " %", 1, (Goal("≥", 99),)),
)


@dataclass(frozen=True, slots=True)
class Times:
    """The begins of a trial's spans, seconds."""

    alone: float
    held: float
    """From here on A does all it can."""
    beside: float
    end: float


def noticed(times: Times, alone_ms: Sequence[float], beside_ms: Sequence[float], in_time: int) -> dict[str, float]:
    """Return the notice figures of one trial.

    Args:
        times: Its spans.
        alone_ms: B's latencies before A was there.
        beside_ms: Those beside A.
        in_time: B's messages that arrived beside A.
    """
    return {
        "ratio": percentile(beside_ms, 0.5) / percentile(alone_ms, 0.5),
        "p50_alone": percentile(alone_ms, 0.5),
        "p50_beside": percentile(beside_ms, 0.5),
        "p99_alone": percentile(alone_ms, 0.99),
        "p99_beside": percentile(beside_ms, 0.99),
        "rate": 100 * in_time / (FREE_RATE * (times.end - times.beside)),
    }


EVEN = 500
BURST_S = 0.1
"""Seconds' worth of the limit that the line of comparison allows at once."""
SLACK_S = 0.05
"""Seconds' worth that the machine may put together between the limiter and the receiving end."""
SETTLED_S = 2
"""Where the first seconds end."""

EVENNESS = (
    Figure("first", "first second", " x limit", 2, (Goal("≤", 1.1),)),
    Figure("worst", "worst second after that, off by", " %", 1),
    Figure("pair", "worst mean of two seconds, off by", " %", 1, (Goal("≤", 5),)),
    Figure("mean", "mean from second 3 on", " x limit", 3, (Goal("≥", 0.99),)),
    Figure(
        "excess", f"most above {EVEN * BURST_S:g} + {EVEN} · t, in any interval", goals=(Goal("≤", EVEN * SLACK_S + 1),)
    ),
)


def evenness(times: Sequence[float], seconds: int) -> dict[str, float]:
    """Return the evenness figures of one trial.

    Args:
        times: Arrivals, ascending.
        seconds: How many are looked at, from the first arrival.
    """
    counts = per_second(times, seconds)
    settled = counts[SETTLED_S:]
    return {
        "first": counts[0] / EVEN,
        "worst": worst_deviation(counts[1:], EVEN) * 100,
        "pair": worst_deviation(pair_means(counts[1:]), EVEN) * 100,
        "mean": sum(settled) / len(settled) / EVEN,
        "excess": max_excess(times, RateLine(EVEN, EVEN * BURST_S, entry=0)),
    }
