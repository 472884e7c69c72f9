"""From the books of both ends to the document that `--out` writes (plain JSON; every count is a number of messages)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from heapq import merge
from itertools import pairwise
from typing import Any

from loadgen.load.arrivals import Arrivals, histogram
from loadgen.load.demand import loaded_spans, use_of
from loadgen.load.line import Line, max_excess
from loadgen.load.offering import TopicOffer
from loadgen.load.scenario import Limit

SLACK_S = 0.05
"""Seconds' worth of rate allowed for the machine's jitter between the limiter and the receiving end."""
DEMAND_S = 0.1
"""Seconds' worth of rate that must be on its way for a limit to count as wanted."""


@dataclass(slots=True)
class Books:
    """All that was taken down during a run; times are seconds of one monotonic clock."""

    offers: Mapping[str, TopicOffer]
    arrivals: Mapping[str, Arrivals] | None
    """By topic; None without a receiving end."""
    began: float = 0.0
    stopped_offering: float = 0.0
    samples: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    """What was on its way by topic, sampled on the way."""


def document(books: Books, limits: Sequence[Limit]) -> dict[str, Any]:
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
    """What the sending end counted on one topic."""
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


def _limit(books: Books, arrivals: Mapping[str, Arrivals], limit: Limit) -> dict[str, Any]:
    times = list(merge(*(arrivals[topic].times for topic in limit.topics)))
    on_their_way = ((at, sum(waiting[topic] for topic in limit.topics)) for at, waiting in books.samples)
    use = use_of(limit.messages, loaded_spans(on_their_way, limit.messages * DEMAND_S), times)
    excess = max_excess(times, Line(limit.messages, limit.burst_messages)) if times else None
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
    found = {"errors": sum(topic["errors"].values()), "messages without receipt": topic["unsettled"]}
    if received := topic.get("received"):
        kinds = ("duplicates", "out_of_order", "damaged", "misplaced", "foreign")
        found |= {kind.replace("_", " "): received[kind] for kind in kinds}
        found["receipts whose message did not arrive"] = max(0, topic["receipts"] - received["distinct"])
    return [f"{name}: {number} {what}" for what, number in found.items() if number]
