"""Arrivals, demand, the line of a limiter, and the document of all of them."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.load.offering import Lane, MessageOrigin, Settle, TopicOffer
from loadgen.load.payload import HEADER_BYTES, Stamp, make_payload
from loadgen.load.results import (
    Arrivals,
    Books,
    Faults,
    RateLine,
    Use,
    document,
    histogram,
    loaded_spans,
    max_excess,
    use_of,
)
from loadgen.load.scenario import PromisedLimit, Steady, TopicLoad

RUN = b"this run"


def message(producer: int, sequence: int, run: bytes = RUN) -> bytes:
    return make_payload(Stamp(run, producer, sequence), HEADER_BYTES + 8)


def arrived(*messages: bytes) -> Arrivals:
    arrivals = Arrivals(RUN, [0, 1])
    for at, payload in enumerate(messages):
        arrivals.record(float(at), payload)
    return arrivals


def test_two_producers_each_in_order_are_without_fault() -> None:
    arrivals = arrived(message(0, 0), message(1, 0), message(0, 1), message(1, 1))
    assert (arrivals.distinct, list(arrivals.times), arrivals.faults) == (4, [0, 1, 2, 3], Faults())


def test_a_repetition_is_an_arrival_and_a_duplicate() -> None:
    arrivals = arrived(message(0, 0), message(0, 0))
    assert (arrivals.distinct, len(arrivals.times), arrivals.faults) == (1, 2, Faults(duplicates=1))


def test_a_message_behind_a_later_one_is_out_of_order() -> None:
    assert arrived(message(0, 1), message(0, 0)).faults == Faults(out_of_order=1)


def test_a_late_message_that_comes_again_is_late_once_and_a_duplicate_once() -> None:
    arrivals = arrived(message(0, 2), message(0, 0), message(0, 0))
    assert arrivals.faults == Faults(out_of_order=1, duplicates=1)


@pytest.mark.parametrize(
    ("payload", "faults"),
    [
        (b"from somebody else", Faults(foreign=1)),
        (message(0, 0, run=b"last run"), Faults(foreign=1)),
        (message(7, 0), Faults(misplaced=1)),
        (message(0, 0)[:-1] + b"!", Faults(damaged=1)),
    ],
)
def test_what_is_not_this_topics_message_is_no_arrival(payload: bytes, faults: Faults) -> None:
    arrivals = arrived(payload)
    assert (len(arrivals.times), arrivals.distinct, arrivals.faults) == (0, 0, faults)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20))))
def test_distinct_and_duplicates_make_up_all_arrivals(messages: list[tuple[int, int]]) -> None:
    arrivals = arrived(*(message(*numbers) for numbers in messages))
    assert arrivals.distinct == len(set(messages))
    assert arrivals.distinct + arrivals.faults.duplicates == len(arrivals.times) == len(messages)


def test_the_histogram_counts_tenths_of_seconds_from_the_start() -> None:
    assert histogram([10.0, 10.05, 10.15, 10.35], 10.0) == [2, 1, 0, 1]


def test_what_arrives_before_the_start_is_in_the_first_bucket() -> None:
    assert histogram([9.0, 10.05], 10.0) == [2]


def test_no_arrival_gives_no_histogram() -> None:
    assert histogram([], 10.0) == []


def test_a_span_reaches_from_the_first_to_the_last_sample_at_or_above_the_threshold() -> None:
    samples = [(0.0, 0), (1.0, 5), (2.0, 9), (3.0, 5), (4.0, 4), (5.0, 7), (6.0, 7)]
    assert loaded_spans(samples, 5) == [(1.0, 3.0), (5.0, 6.0)]


def test_no_demand_gives_no_span() -> None:
    assert loaded_spans([(0.0, 1), (1.0, 1)], 2) == []


@given(st.lists(st.integers(0, 10), max_size=50), st.integers(1, 10))
def test_spans_are_ordered_and_apart(waiting: list[int], threshold: int) -> None:
    spans = loaded_spans(enumerate(map(int, waiting)), threshold)
    edges = [edge for span in spans for edge in span]
    assert edges == sorted(edges)
    assert sum(end - begin + 1 for begin, end in spans) == sum(count >= threshold for count in waiting)


def test_only_arrivals_inside_the_spans_count() -> None:
    times = [n / 10 for n in range(100)]
    assert use_of(10, [(1.0, 3.0), (5.0, 6.0)], times) == Use(3.0, 30, 1.0)


def test_a_limit_nobody_wanted_has_no_share() -> None:
    assert use_of(10, [], [1.0, 2.0]).share is None


def test_a_limit_that_passes_half_has_half_a_share() -> None:
    assert use_of(20, [(0.0, 5.0)], [n / 10 for n in range(100)]).share == 0.5


TIMES = st.lists(st.integers(0, 5_000).map(lambda ms: ms / 1000), max_size=60).map(sorted)
LINES = st.builds(RateLine, rate=st.floats(0.1, 1000), burst=st.floats(0, 100), entry=st.floats(0, 10))


def by_definition(times: list[float], line: RateLine) -> float:
    """Every interval that begins and ends at an arrival, counted one by one."""
    worst = -math.inf
    for first in times:
        for last in times:
            inside = sum(1 for at in times if first <= at <= last)
            if first <= last:
                worst = max(worst, inside - line.rate * (last - first))
    return worst - line.burst - line.entry


@given(times=TIMES, line=LINES)
def test_one_pass_finds_what_the_definition_says(times: list[float], line: RateLine) -> None:
    assert max_excess(times, line) == pytest.approx(by_definition(times, line), abs=1e-6)


@given(times=TIMES, line=LINES, shift=st.floats(0, 1e5))
def test_only_the_distances_in_time_matter(times: list[float], line: RateLine, shift: float) -> None:
    shifted = [at + shift for at in times]
    assert max_excess(shifted, line) == pytest.approx(max_excess(times, line), abs=1e-3)


def test_a_burst_and_one_entry_are_within_the_line() -> None:
    assert max_excess([1.0] * 51, RateLine(rate=500, burst=50)) == 0


def test_one_message_more_is_one_above_it() -> None:
    assert max_excess([1.0] * 52, RateLine(rate=500, burst=50)) == 1


def test_a_second_burst_after_a_steady_stream_is_found() -> None:
    """The bucket was empty at second 1: ten messages at once then are nine above the line."""
    steady = [n / 100 for n in range(101)]
    assert max_excess([*steady, *[1.0] * 10], RateLine(rate=100, burst=1)) == pytest.approx(9)


def test_nothing_arrived_is_never_above() -> None:
    assert max_excess([], RateLine(rate=1, burst=1)) == -math.inf


RUN = b"this run"
TOPIC = "persistent://t/n/x"
LIMIT = PromisedLimit(name="x", topics=[TOPIC], messages=100, burst=10)


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
    lane = Lane(MessageOrigin(RUN, 0, 40, 1000), wire, lambda: next(ticks))
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
    (limit,) = document(both, [PromisedLimit(name="both", topics=[TOPIC, other], messages=100, burst=10)])["limits"]
    assert (limit["max_excess_messages"], limit["loaded_s"]) == (5, 1)


def test_without_a_receiving_end_no_limit_is_judged() -> None:
    book = books([])
    book.arrivals = None
    result = document(book, [LIMIT])
    assert (result["verified"], result["limits"], "received" in topic(result)) == (False, [], False)
