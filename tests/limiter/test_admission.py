"""Bounds on who is let in: exact, bounded, and nothing is taken by who is refused."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiter.admission import (
    Buckets,
    ConcurrencyLimit,
    KeyedBuckets,
    ProvisionalLimit,
    SharedPlaces,
    Slot,
    take_all,
)
from limiter.token_bucket import NANOS_PER_SECOND, Rate

FIVE_PER_30_S = Rate(5, 30 * NANOS_PER_SECOND, 5)
KEYS = st.sampled_from("abc")


def admitted(buckets: KeyedBuckets, key: str, now: int) -> bool:
    return take_all([(buckets, key)], now) is None


def test_five_come_in_at_once_and_then_one_each_six_seconds() -> None:
    """Pulsar's own example: 5 subscribes per 30 s."""
    buckets = KeyedBuckets(FIVE_PER_30_S, Buckets())
    tries = [second for second in range(31) for _ in range(6) if admitted(buckets, "a", second * NANOS_PER_SECOND)]
    assert tries == [0, 0, 0, 0, 0, 6, 12, 18, 24, 30]


def test_hundred_at_once_are_five() -> None:
    buckets = KeyedBuckets(FIVE_PER_30_S, Buckets())
    assert sum(admitted(buckets, "a", 0) for _ in range(100)) == 5
    assert sum(admitted(buckets, "b", 0) for _ in range(100)) == 5, "each key has its own"


@given(
    steps=st.lists(st.tuples(KEYS, st.integers(0, 20 * NANOS_PER_SECOND)), max_size=200),
    tokens=st.integers(1, 7),
)
def test_in_no_interval_more_of_one_key_come_in_than_burst_and_rate(steps: list[tuple[str, int]], tokens: int) -> None:
    rate = Rate(tokens, 30 * NANOS_PER_SECOND, tokens)
    buckets, now = KeyedBuckets(rate, Buckets()), 0
    came: dict[str, list[int]] = {key: [] for key in "abc"}
    for key, pause in steps:
        now += pause
        if admitted(buckets, key, now):
            came[key].append(now)
    for times in came.values():
        for first, begin in enumerate(times):
            for last in range(first, len(times)):
                assert (last - first + 1 - rate.burst) * rate.period_ns <= rate.tokens * (times[last] - begin)


@given(
    steps=st.lists(st.tuples(st.integers(0, 30), st.integers(0, NANOS_PER_SECOND)), max_size=200),
    most=st.integers(1, 10),
)
def test_never_more_keys_are_remembered_than_allowed(steps: list[tuple[int, int]], most: int) -> None:
    known, now = Buckets(most), 0
    buckets = KeyedBuckets(Rate(2, NANOS_PER_SECOND, 2), known)
    for key, pause in steps:
        now += pause
        admitted(buckets, str(key), now)
        assert len(known) <= most


def test_idle_keys_are_forgotten_long_before_the_table_is_full() -> None:
    known = Buckets()
    buckets = KeyedBuckets(Rate(2, NANOS_PER_SECOND, 2), known)
    for number in range(1000):
        admitted(buckets, str(number), number * NANOS_PER_SECOND)
    assert len(known) <= 2


def test_of_keys_in_use_the_one_used_longest_ago_is_forgotten() -> None:
    known = Buckets(most_keys=2)
    buckets = KeyedBuckets(FIVE_PER_30_S, known)
    for key in ("old", "new"):
        for _ in range(5):
            assert admitted(buckets, key, 0)
    admitted(buckets, "third", 1)
    assert admitted(buckets, "old", 1)
    assert len(known) == 2


def per_30_s(tokens: int) -> Rate:
    return Rate(tokens, 30 * NANOS_PER_SECOND, tokens)


def come_in(known: Buckets, rate: Rate, now: int, since: int = 0) -> int:
    """How many of 100 are let in at once."""
    return sum(admitted(KeyedBuckets(rate, known, since), "a", now) for _ in range(100))


def test_a_raised_rate_lets_in_at_once_what_it_was_raised_by() -> None:
    known = Buckets()
    assert come_in(known, per_30_s(2), 0) == 2
    assert come_in(known, per_30_s(5), 1) == 3
    assert come_in(known, per_30_s(5), 6 * NANOS_PER_SECOND) == 1


def test_a_lowered_rate_gives_nothing() -> None:
    known = Buckets()
    assert come_in(known, per_30_s(5), 0) == 5
    assert come_in(known, per_30_s(2), 1) == 0
    assert come_in(known, per_30_s(2), 16 * NANOS_PER_SECOND) == 1


def test_a_raised_rate_counts_from_its_change_without_requests() -> None:
    known, day = Buckets(), Rate(1, 86_400 * NANOS_PER_SECOND, 1)
    assert come_in(known, day, 0) == 1
    assert come_in(known, per_30_s(1), 40 * NANOS_PER_SECOND, since=5 * NANOS_PER_SECOND) == 1


def test_a_lowered_rate_leaves_no_more_than_its_own_burst() -> None:
    known = Buckets()
    assert admitted(KeyedBuckets(per_30_s(5), known), "a", 0)
    assert come_in(known, per_30_s(2), 10 * NANOS_PER_SECOND, since=NANOS_PER_SECOND) == 2


@given(
    steps=st.lists(st.tuples(st.integers(1, 7), st.integers(0, 20 * NANOS_PER_SECOND)), min_size=2, max_size=60),
)
def test_changes_of_rates_admit_at_most_the_highest_rate(
    steps: list[tuple[int, int]],
) -> None:
    known, now, came = Buckets(), 0, 0
    rates = [per_30_s(tokens) for tokens, _ in steps]
    raised = sum(max(0, after.burst - before.burst) for before, after in pairwise(rates))
    for rate, (_, pause) in zip(rates, steps, strict=True):
        now += pause
        came += come_in(known, rate, now, since=now)
    most = max(rates, key=lambda rate: rate.tokens)
    assert (came - rates[0].burst - raised) * most.period_ns <= most.tokens * now


@given(steps=st.lists(st.tuples(KEYS, st.booleans()), max_size=300), most=st.integers(1, 4))
def test_places_are_exact_and_forgotten_when_free(steps: list[tuple[str, bool]], most: int) -> None:
    places, inside = ConcurrencyLimit(most), Counter[str]()
    for key, comes in steps:
        if comes:
            was_admitted = take_all([(places, key)], 0) is None
            assert was_admitted == (inside[key] < most)
            inside[key] += was_admitted
        elif inside[key]:
            places.give_back(key)
            inside[key] -= 1
        assert len(places) == len(+inside)


def test_a_place_that_nobody_took_cannot_be_given_back() -> None:
    places = ConcurrencyLimit(1)
    places.take("a", 0)
    places.give_back("a")
    with pytest.raises(ValueError, match="'a'"):
        places.give_back("a")


def test_who_is_refused_by_one_bound_took_nothing_of_the_others() -> None:
    buckets, places = KeyedBuckets(FIVE_PER_30_S, Buckets()), ConcurrencyLimit(1)
    asked: list[tuple[KeyedBuckets | ConcurrencyLimit, str]] = [(buckets, "a"), (places, "a")]
    assert take_all(asked, 0) is None
    for _ in range(50):
        assert take_all(asked, 0) is places
    places.give_back("a")
    assert sum(admitted(buckets, "a", 0) for _ in range(10)) == 4


def test_without_a_bound_everybody_comes_in() -> None:
    assert take_all([], 0) is None


SOURCES = st.sampled_from("xyz")


@given(
    steps=st.lists(st.tuples(st.sampled_from(("come", "accept", "go")), KEYS, SOURCES), max_size=300),
    most=st.integers(1, 6),
)
def test_provisional_places_of_a_source_are_at_most_free_ones(steps: list[tuple[str, str, str]], most: int) -> None:
    places, has = ProvisionalLimit(most), dict[tuple[str, str], list[tuple[Slot, bool]]]()
    for step, key, source in steps:
        mine = has.setdefault((key, source), [])
        free = most - sum(len(those) for (other, _), those in has.items() if other == key)
        provisional = [slot for slot, is_accepted in mine if not is_accepted]
        if step == "come":
            is_admitted = take_all([(places, (key, source))], 0) is None
            assert is_admitted == (len(provisional) < free)
            if is_admitted:
                mine.append((places.place((key, source)), False))
        elif step == "accept" and provisional:
            provisional[0].accepted()
            provisional[0].accepted()
            has[key, source] = [(slot, is_accepted or slot is provisional[0]) for slot, is_accepted in mine]
        elif step == "go" and mine:
            mine.pop(0)[0].give_back()
        assert places.sources == sum(any(not is_accepted for _, is_accepted in those) for those in has.values())
        assert len(places) == len({key for (key, _), those in has.items() if those})
    for those in has.values():
        for slot, _ in those:
            slot.give_back()
    assert (len(places), places.sources) == (0, 0)


def test_an_unaccepted_source_leaves_places_to_each_other_one() -> None:
    places = ProvisionalLimit(20)
    assert [_come(places, source, 200) for source in ("a", "b", "c")] == [10, 5, 3]


def test_who_is_accepted_gets_all_places_one_after_the_other() -> None:
    places = ProvisionalLimit(20)
    for _ in range(20):
        assert take_all([(places, ("t", "a"))], 0) is None
        places.place(("t", "a")).accepted()
    assert take_all([(places, ("t", "b"))], 0) is places


def _come(places: ProvisionalLimit, source: str, times: int) -> int:
    return sum(take_all([(places, ("t", source))], 0) is None for _ in range(times))


def test_one_key_cannot_take_all_shared_places_and_no_key_more_than_there_are() -> None:
    places = SharedPlaces(100)
    greedy = _taken(places, "a", 200)
    others = [_taken(places, key, 200) for key in "bc"]
    assert (greedy, others) == (90, [10, 0])
    places.give_back("a")
    assert _taken(places, "a", 5) == 0, "what came free is for others"
    assert _taken(places, "c", 5) == 1


def test_a_key_with_few_places_gets_one_of_the_last_places() -> None:
    places = SharedPlaces(9)
    assert _taken(places, "a", 20) == 9


def _taken(places: SharedPlaces, key: str, times: int) -> int:
    count = 0
    for _ in range(times):
        if places.admits(key, 0):
            places.take(key, 0)
            count += 1
    return count
