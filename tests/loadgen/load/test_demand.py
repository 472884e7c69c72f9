from hypothesis import given
from hypothesis import strategies as st

from loadgen.load.demand import Use, loaded_spans, use_of


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
    assert sum(end - begin + 1 for begin, end in spans) == sum(one >= threshold for one in waiting)


def test_only_arrivals_inside_the_spans_count() -> None:
    times = [n / 10 for n in range(100)]
    assert use_of(10, [(1.0, 3.0), (5.0, 6.0)], times) == Use(3.0, 30, 1.0)


def test_a_limit_nobody_wanted_has_no_share() -> None:
    assert use_of(10, [], [1.0, 2.0]).share is None


def test_a_limit_that_passes_half_has_half_a_share() -> None:
    assert use_of(20, [(0.0, 5.0)], [n / 10 for n in range(100)]).share == 0.5
