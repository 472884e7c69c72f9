from hypothesis import given
from hypothesis import strategies as st

from limiter.stream import Stream, StreamName
from limiter.wait_queue import WaitQueue


def some_stream() -> Stream:
    return Stream(StreamName("publish", "t", "n", "x", 1), (), lambda entry: None)


def test_whose_entry_would_be_done_first_goes_first() -> None:
    queue, slow, fast = WaitQueue(), some_stream(), some_stream()
    queue.add(slow, (10, 0))
    queue.add(fast, (9, 1))
    assert queue.first() is fast


def test_of_two_equal_places_the_earlier_goes_first() -> None:
    queue, early, late = WaitQueue(), some_stream(), some_stream()
    queue.add(late, (5, 1))
    queue.add(early, (5, 0))
    assert queue.first() is early


def test_virtual_time_never_goes_back() -> None:
    queue = WaitQueue()
    queue.went((7, 0))
    queue.went((3, 1))
    assert queue.virtual_time == 7


def test_before_all_means_before_every_waiter_or_being_the_first() -> None:
    queue = WaitQueue()
    assert queue.is_before_all((10**9, 0))
    queue.add(some_stream(), (5, 3))
    assert queue.is_before_all((5, 3))
    assert queue.is_before_all((4, 9))
    assert not queue.is_before_all((5, 4))


@given(times=st.lists(st.integers(0, 20), max_size=30), order=st.randoms(use_true_random=False))
def test_the_first_is_always_the_least_place_whatever_comes_and_goes(times, order) -> None:
    queue = WaitQueue()
    places = {some_stream(): (time, number) for number, time in enumerate(times)}
    for stream, place in places.items():
        queue.add(stream, place)
    leaving = list(places)
    order.shuffle(leaving)
    for stream in leaving:
        assert len(queue) == len(places)
        assert queue.first() is min(places, key=lambda one: places[one])
        queue.remove(stream, places.pop(stream))
    assert not queue


STEPS = st.lists(st.one_of(st.integers(0, 20), st.just("first"), st.integers(-5, -1)), max_size=200)


@given(steps=STEPS)
def test_who_comes_anew_has_his_place_among_those_who_are_left(steps) -> None:
    queue, places = WaitQueue(), dict[Stream, tuple[int, int]]()
    for number, step in enumerate(steps):
        waiting = sorted(places, key=lambda one: places[one])
        if isinstance(step, int) and step >= 0:
            stream = some_stream()
            places[stream] = (step, number)
            queue.add(stream, places[stream])
        elif waiting:
            goes = waiting[0 if isinstance(step, str) else step % len(waiting)]
            queue.remove(goes, places.pop(goes))
        assert len(queue) == len(places)
        assert not places or queue.first() is min(places, key=lambda one: places[one])
        assert queue.is_before_all((10, number + 1)) == all((10, number + 1) <= place for place in places.values())
