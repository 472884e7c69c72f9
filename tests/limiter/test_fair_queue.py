from hypothesis import example, given
from hypothesis import strategies as st

from limiter.limiter import MOST_COUNTED, FairQueue, FinishTag, Stream, StreamName
from tests.limiter.standing import tag_of
from tests.limiter.world import limiter

_LIMITER = limiter(1)


def some_place(time: int, number: int) -> FinishTag:
    stream = Stream(StreamName("publish", "t", "n", "x", 1), (), lambda _stream, _entry: None)
    return tag_of(stream, _LIMITER, time, number)


def test_whose_entry_would_be_done_first_goes_first() -> None:
    queue, slow, fast = FairQueue(), some_place(10, 0), some_place(9, 1)
    queue.add(slow)
    queue.add(fast)
    assert queue.first() is fast.stream


def test_of_two_equal_places_the_earlier_goes_first() -> None:
    queue, early, late = FairQueue(), some_place(5, 0), some_place(5, 1)
    queue.add(late)
    queue.add(early)
    assert queue.first() is early.stream


def test_virtual_time_never_goes_back() -> None:
    queue = FairQueue()
    queue.went(some_place(7, 0))
    queue.went(some_place(3, 1))
    assert queue.virtual_time == 7


def test_before_all_means_before_every_waiter_or_being_the_first() -> None:
    queue, first = FairQueue(), some_place(5, 3)
    assert queue.is_before_all(some_place(10**9, 0))
    queue.add(first)
    assert queue.is_before_all(first)
    assert queue.is_before_all(some_place(4, 9))
    assert not queue.is_before_all(some_place(5, 4))


def test_what_many_hold_is_estimated_by_what_the_first_of_them_do() -> None:
    queue, first, after = FairQueue(), some_place(0, 0).stream, some_place(0, 0).stream
    first.usage.held_messages, first.usage.held_size = 3, 50
    for number in range(MOST_COUNTED):
        queue.add(tag_of(first, _LIMITER, 0, number))
    assert queue.held() == (3 * MOST_COUNTED, 50 * MOST_COUNTED)
    for number in range(500):
        queue.add(tag_of(after, _LIMITER, 1, number))
    assert queue.held() == (3 * (MOST_COUNTED + 500), 50 * (MOST_COUNTED + 500))


@given(times=st.lists(st.integers(0, 20), max_size=30), order=st.randoms(use_true_random=False))
def test_the_first_tag_is_always_the_least(times, order) -> None:
    queue = FairQueue()
    places = [some_place(time, number) for number, time in enumerate(times)]
    for place in places:
        queue.add(place)
    order.shuffle(places)
    while places:
        assert len(queue) == len(places)
        assert queue.first() is min(places, key=_order).stream
        queue.remove(places.pop())
    assert not queue


STEPS = st.lists(st.one_of(st.integers(0, 9), st.sampled_from(["first", "turn"]), st.integers(-5, -1)), max_size=200)
"""A stream comes with this time; the first one goes, or that many from the end; or the tags change to the opposite."""


@example(steps=[5, 9, 8, 0, 5, "first", "first", 4, 2, -4])  # a gap that a search would read as part of the row
@example(steps=[2, 2, 2, 2, "first", 1, 0])
@example(steps=[1, 2, 3, 4, 5, "first", "turn"])
@given(steps=STEPS)
def test_who_comes_anew_has_his_place_among_those_who_are_left(steps) -> None:
    queue, places = FairQueue(), list[FinishTag]()
    for number, step in enumerate(steps):
        places.sort(key=_order)
        if isinstance(step, int) and step >= 0:
            places.append(some_place(step, number))
            queue.add(places[-1])
        elif step == "turn":
            for place in places:
                place.time = 9 - place.time
            queue.reorder()
        elif places:
            queue.remove(places.pop(0 if isinstance(step, str) else step % len(places)))
        newcomer = some_place(10, number + 1)
        assert len(queue) == len(places)
        assert not places or queue.first() is min(places, key=_order).stream
        assert len(queue._row) <= max(2 * len(places) - 1, 0), "who has gone is not kept for long"
        assert queue.is_before_all(newcomer) == all(_order(newcomer) <= _order(place) for place in places)


def _order(place: FinishTag) -> tuple[int, int]:
    return place.time, place.number
