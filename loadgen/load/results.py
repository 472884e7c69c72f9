"""The results of a run: arrivals compared with the messages offered and with the limits, as `--out` writes them.

A limiter promises, for every interval [t0, t1]: messages <= burst + rate * (t1 - t0) + one entry. `max_excess` is the
largest amount, over all intervals, by which the messages exceed that. Only intervals that begin and end at an arrival
matter, and with S the running count, the messages from i to j exceed rate * time by

    (S[j] - rate * t[j]) - (S[i-1] - rate * t[i])

so that one pass with the least right-hand part seen so far finds the largest (as one finds the largest drawdown).

Demand is what clients have on its way without a receipt. While it stays above a threshold, nothing but the limit can
be the reason for waiting, so the receiving end must see the limit's rate (P7).
"""

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from heapq import merge
from itertools import pairwise
from typing import Any

from loadgen.load.offering import TopicOffer
from loadgen.load.payload import DamagedError, NotOursError, read_payload
from loadgen.load.scenario import PromisedLimit

BUCKETS_PER_S = 10


@dataclass(slots=True)
class Faults:
    """Counts of messages that should not have arrived, or not like this; all zero when all is well."""

    duplicates: int = 0
    out_of_order: int = 0
    """First arrivals behind a later message of the same producer."""
    damaged: int = 0
    misplaced: int = 0
    """Messages of this run that belong to another topic."""
    foreign: int = 0
    """Messages that this run did not send."""


class Arrivals:
    """Takes down the messages that arrive on one topic. One thread records; others may read the counts.

    Args:
        run: What the payloads of this run carry.
        producers: Indices of the producers that publish to this topic.
    """

    def __init__(self, run: bytes, producers: Collection[int]) -> None:
        self._run = run
        self._seen = {producer: bytearray() for producer in producers}
        self.faults = Faults()
        self.distinct = 0
        self.times = array("d")
        """When each message of this run arrived, repetitions included, seconds."""

    def record(self, at: float, payload: bytes) -> None:
        """Take down a message that arrived at `at` seconds (of any monotonic clock)."""
        try:
            stamp = read_payload(payload)
        except NotOursError:
            self.faults.foreign += 1
            return
        except DamagedError:
            self.faults.damaged += 1
            return
        if stamp.run != self._run:
            self.faults.foreign += 1
        elif stamp.producer not in self._seen:
            self.faults.misplaced += 1
        else:
            self.times.append(at)
            self._tick_off(self._seen[stamp.producer], stamp.sequence)

    def _tick_off(self, seen: bytearray, sequence: int) -> None:
        if sequence >= len(seen):
            seen.extend(bytes(sequence + 1 - len(seen)))
        elif seen[sequence]:
            self.faults.duplicates += 1
            return
        else:
            self.faults.out_of_order += 1
        seen[sequence] = 1
        self.distinct += 1


def histogram(times: Sequence[float], start: float) -> list[int]:
    """Arrivals in each tenth of a second since `start`; the last bucket holds the last arrival."""
    if not times:
        return []
    counts = [0] * (max(0, int((max(times) - start) * BUCKETS_PER_S)) + 1)
    for at in times:
        counts[max(0, int((at - start) * BUCKETS_PER_S))] += 1
    return counts


@dataclass(frozen=True, slots=True)
class RateLine:
    """The line that a limiter promises: burst in messages, and messages per second."""

    rate: float
    burst: float
    entry: float = 1.0
    """Messages in the largest entry: an entry is indivisible and may overshoot."""


def max_excess(times: Sequence[float], line: RateLine) -> float:
    """Messages above the line in the worst interval; negative if it was never reached, minus infinity without arrivals.

    Args:
        times: When each message arrived, seconds, ascending.
        line: The promise.
    """
    worst, lowest = -math.inf, math.inf
    for index, at in enumerate(times):
        earned = line.rate * at
        lowest = min(lowest, index - earned)
        worst = max(worst, index + 1 - earned - lowest)
    return worst - line.burst - line.entry


TimeSpan = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Use:
    """The use of a limit while it was wanted."""

    loaded_s: float
    """How long there was demand, seconds."""
    messages: int
    """Arrivals in that time."""
    share: float | None
    """Arrivals divided by what the limit grants in that time; None if there was never demand."""


def loaded_spans(samples: Iterable[tuple[float, int]], threshold: float) -> list[TimeSpan]:
    """Spans in which every sample was at or above `threshold`.

    Args:
        samples: Time in seconds, ascending, and messages on their way then.
        threshold: Messages.
    """
    spans: list[TimeSpan] = []
    begin: float | None = None
    last = 0.0
    for at, waiting in samples:
        if waiting >= threshold:
            begin, last = (at if begin is None else begin), at
        elif begin is not None:
            spans.append((begin, last))
            begin = None
    if begin is not None:
        spans.append((begin, last))
    return spans


def use_of(rate: float, spans: Sequence[TimeSpan], times: Sequence[float]) -> Use:
    """Return how much of `rate` messages/s the arrivals at `times` (ascending) make in `spans`."""
    loaded_s = sum(end - begin for begin, end in spans)
    messages = sum(bisect_left(times, end) - bisect_left(times, begin) for begin, end in spans)
    return Use(loaded_s, messages, messages / (rate * loaded_s) if loaded_s > 0 else None)


SLACK_S = 0.05
"""Seconds' worth of rate allowed for the machine's jitter between the limiter and the receiving end."""
DEMAND_S = 0.1
"""Seconds' worth of rate that must be on its way for a limit to count as wanted."""


@dataclass(slots=True)
class Books:
    """The records of a run at both ends; times are seconds of one monotonic clock."""

    offers: Mapping[str, TopicOffer]
    arrivals: Mapping[str, Arrivals] | None
    """By topic; None without a receiving end."""
    began: float = 0.0
    stopped_offering: float = 0.0
    samples: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    """Messages on their way by topic, sampled during the run."""


def document(books: Books, limits: Sequence[PromisedLimit]) -> dict[str, Any]:
    """The whole result."""
    topics = {name: _topic(books, name) for name in books.offers}
    return {
        "offering_s": round(books.stopped_offering - books.began, 3),
        "longest_pause_ms": _longest_pause_ms(books),
        "verified": books.arrivals is not None,
        "topics": topics,
        "limits": [_limit(books, books.arrivals, limit) for limit in limits] if books.arrivals else [],
        "faults": [text for name, topic in topics.items() for text in _faults(name, topic)],
    }


def _longest_pause_ms(books: Books) -> float:
    """How long the load generator itself stood still at most: its receiving end's times are no better than that."""
    times = [at for at, _ in books.samples]
    return round(max((later - earlier for earlier, later in pairwise(times)), default=0.0) * 1000, 1)


def counts(offer: TopicOffer) -> dict[str, Any]:
    """Return the sending end's counts of one topic."""
    offered = sum(lane.offered for lane in offer.lanes)
    errors: Counter[str] = sum((lane.errors for lane in offer.lanes), Counter())
    return {
        "wanted_messages": offer.wanted,
        "refused_by_client_queue": offer.refused_by_client_queue,
        "offered_messages": offered,
        "offered_bytes": offered * offer.load.message_bytes,
        "receipts": sum(lane.receipts for lane in offer.lanes),
        "errors": dict(errors),
        "unsettled": offer.on_their_way,
    }


def _topic(books: Books, name: str) -> dict[str, Any]:
    offer = books.offers[name]
    result = counts(offer) | {
        "pattern": offer.load.pattern.kind,
        "connection": offer.load.connection,
        "receipt_latency_ms": _latency(offer),
    }
    if books.arrivals is not None:
        arrivals = books.arrivals[name]
        result["received"] = {
            "messages": len(arrivals.times),
            "distinct": arrivals.distinct,
            "while_offering": sum(at <= books.stopped_offering for at in arrivals.times),
            **asdict(arrivals.faults),
            "arrivals_per_100ms": histogram(arrivals.times, books.began),
        }
    return result


def _limit(books: Books, arrivals: Mapping[str, Arrivals], limit: PromisedLimit) -> dict[str, Any]:
    times = list(merge(*(arrivals[topic].times for topic in limit.topics)))
    on_their_way = ((at, sum(waiting[topic] for topic in limit.topics)) for at, waiting in books.samples)
    use = use_of(limit.messages, loaded_spans(on_their_way, limit.messages * DEMAND_S), times)
    excess = max_excess(times, RateLine(limit.messages, limit.burst_messages)) if times else None
    return {
        "name": limit.name,
        "topics": limit.topics,
        "messages_per_s": limit.messages,
        "burst_messages": limit.burst_messages,
        "max_excess_messages": None if excess is None else round(excess, 3),
        "slack_messages": limit.messages * SLACK_S,
        "loaded_s": round(use.loaded_s, 3),
        "loaded_messages": use.messages,
        "share_of_limit": None if use.share is None else round(use.share, 5),
    }


def _latency(offer: TopicOffer) -> dict[str, float] | None:
    latencies = sorted(merge(*(sorted(lane.latencies) for lane in offer.lanes)))
    if not latencies:
        return None
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: round(latencies[int(part * (len(latencies) - 1))] * 1000, 2) for name, part in at.items()}


def _faults(name: str, topic: Mapping[str, Any]) -> list[str]:
    numbers = {"errors": sum(topic["errors"].values()), "messages without receipt": topic["unsettled"]}
    if received := topic.get("received"):
        kinds = ("duplicates", "out_of_order", "damaged", "misplaced", "foreign")
        numbers |= {kind.replace("_", " "): received[kind] for kind in kinds}
        numbers["receipts whose message did not arrive"] = max(0, topic["receipts"] - received["distinct"])
    return [f"{name}: {number} {fault}" for fault, number in numbers.items() if number]
