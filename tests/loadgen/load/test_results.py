from typing import Any

import pytest

from loadgen.load.arrivals import Arrivals
from loadgen.load.offering import Lane, Origin, Settle, TopicOffer
from loadgen.load.results import Books, document
from loadgen.load.scenario import Limit, Steady, TopicLoad

RUN = b"this run"
TOPIC = "persistent://t/n/x"
LIMIT = Limit(name="x", topics=[TOPIC], messages=100, burst=10)


class Wire:
    """Gives a receipt (or an error) at once and keeps the payload for the receiving end."""

    def __init__(self, answer: str | None = "") -> None:
        self.answer = answer
        self.payloads: list[bytes] = []

    def send(self, payload: bytes, settle: Settle) -> None:
        self.payloads.append(payload)
        if self.answer is not None:
            settle(self.answer)


def books(arrive_at: list[float], answer: str | None = "", offered: int | None = None) -> Books:
    """One message for each arrival, or `offered` messages of which the first ones arrive."""
    wire, ticks = Wire(answer), iter(n / 1000 for n in range(10_000))
    lane = Lane(Origin(RUN, 0, 40, 1000), wire, lambda: next(ticks))
    for _ in arrive_at if offered is None else range(offered):
        lane.offer()
    offer = TopicOffer(TopicLoad(pattern=Steady(kind="steady", rate=1), message_bytes=40), [lane])
    arrivals = Arrivals(RUN, [0])
    for at, payload in zip(arrive_at, wire.payloads, strict=False):
        arrivals.record(at, payload)
    return Books({TOPIC: offer}, {TOPIC: arrivals}, began=0.0, stopped_offering=2.0)


def topic(result: dict[str, Any]) -> dict[str, Any]:
    counts: dict[str, Any] = result["topics"][TOPIC]
    return counts


def test_a_run_without_fault_says_so() -> None:
    result = document(books([0.1, 0.2, 2.5]), [])
    assert result["faults"] == []
    assert (topic(result)["offered_messages"], topic(result)["offered_bytes"], topic(result)["receipts"]) == (3, 120, 3)
    assert (topic(result)["received"]["distinct"], topic(result)["received"]["while_offering"]) == (3, 2)


@pytest.mark.parametrize(
    ("arrive_at", "answer", "offered", "fault"),
    [
        ([0.1], "", 2, "1 receipts whose message did not arrive"),
        ([0.1], "Timeout", 1, "1 errors"),
        ([0.1], None, 1, "1 messages without receipt"),
    ],
)
def test_each_fault_is_told_with_its_topic_and_number(
    arrive_at: list[float], answer: str | None, offered: int, fault: str
) -> None:
    assert document(books(arrive_at, answer, offered), [])["faults"] == [f"{TOPIC}: {fault}"]


def test_the_longest_time_between_two_samples_is_the_load_generators_own_pause() -> None:
    book = books([0.1])
    book.samples = [(at, {TOPIC: 0}) for at in (1.0, 1.005, 1.125, 1.13)]
    assert document(book, [])["longest_pause_ms"] == 120


def test_errors_are_told_by_name() -> None:
    assert topic(document(books([], "Timeout", 2), []))["errors"] == {"Timeout": 2}


def test_latency_is_told_in_milliseconds() -> None:
    assert topic(document(books([0.1, 0.2]), []))["receipt_latency_ms"] == {"p50": 1, "p99": 1, "max": 1}


def test_a_topic_without_receipts_has_no_latency() -> None:
    assert topic(document(books([]), []))["receipt_latency_ms"] is None


def test_a_limit_shows_how_far_the_worst_interval_is_from_its_line() -> None:
    (limit,) = document(books([1.0] * 15), [LIMIT])["limits"]
    assert (limit["max_excess_messages"], limit["slack_messages"], limit["share_of_limit"]) == (4, 5, None)


def test_a_limit_is_judged_by_what_arrived_while_it_was_wanted() -> None:
    book = books([n / 100 for n in range(200)])
    book.samples = [(n / 10, {TOPIC: 10 if n <= 10 else 9}) for n in range(20)]
    (limit,) = document(book, [LIMIT])["limits"]
    assert (limit["loaded_s"], limit["loaded_messages"], limit["share_of_limit"]) == (1, 100, 1)


def test_a_total_adds_its_topics_up() -> None:
    first, second = books([1.0] * 8), books([1.0] * 8)
    assert first.arrivals is not None
    assert second.arrivals is not None
    other = "persistent://t/n/y"
    both = Books(
        {TOPIC: first.offers[TOPIC], other: second.offers[TOPIC]},
        {TOPIC: first.arrivals[TOPIC], other: second.arrivals[TOPIC]},
        samples=[(1.0, {TOPIC: 4, other: 6}), (2.0, {TOPIC: 6, other: 4})],
    )
    (limit,) = document(both, [Limit(name="both", topics=[TOPIC, other], messages=100, burst=10)])["limits"]
    assert (limit["max_excess_messages"], limit["loaded_s"]) == (5, 1)


def test_without_a_receiving_end_no_limit_is_judged() -> None:
    book = books([])
    book.arrivals = None
    result = document(book, [LIMIT])
    assert (result["verified"], result["limits"], "received" in topic(result)) == (False, [], False)
