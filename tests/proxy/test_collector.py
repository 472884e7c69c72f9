import asyncio
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from proxy.bulk import let_go
from proxy.counters import Counters
from proxy.runtime import MANY, MOST_SEARCHED, NEWCOMERS, Searches, keep_for_ever, paused_collector
from proxy.slices import Slices, Work


def test_it_is_paused_inside_and_goes_on_after_whatever_happens() -> None:
    assert gc.isenabled()
    with paused_collector():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), paused_collector():
        raise KeyError
    assert gc.isenabled()


def test_one_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with paused_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_it_is_paused_until_the_last_of_those_who_overlap_is_through() -> None:
    first, second = paused_collector(), paused_collector()
    with ExitStack() as ending:
        with first:
            ending.enter_context(second)
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_goes_on_however_threads_come_and_go() -> None:
    def pause_often() -> None:
        for _ in range(2000):
            with paused_collector():
                assert not gc.isenabled()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as threads:
            done = [threads.submit(pause_often) for _ in range(2)]
    finally:
        sys.setswitchinterval(interval)
    assert [each.result() for each in done] == [None, None]
    assert gc.isenabled()


def test_what_is_kept_for_ever_is_not_searched_any_more() -> None:
    kept: list[list[int]] = [[] for _ in range(1000)]
    try:
        keep_for_ever()
        searched = {id(instance) for instance in gc.get_objects()}
        assert gc.get_freeze_count() >= len(kept)
        assert not searched & {id(each) for each in kept}
    finally:
        gc.unfreeze()


def test_what_is_let_go_is_freed_one_by_one_however_deep() -> None:
    inner = {"x": 1}
    tree = {"a": {"b": inner, "c": [2]}, "d": 3}
    let_go(tree)
    assert (tree, inner) == ({}, {})


def test_objects_built_in_a_pause_are_not_searched_at_its_end() -> None:
    try:
        with paused_collector():
            kept: list[list[int]] = [[] for _ in range(2 * MANY)]
        assert gc.get_count()[0] < MANY
        assert gc.get_freeze_count() >= len(kept)
    finally:
        gc.unfreeze()


class Watched:
    """Searches of a rule, with the loop in the test's hands; what Python searched meanwhile.

    Attributes:
        looked_at: Objects that each search had to look at, at least.
    """

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.searched: list[int] = []
        self.looked_at: list[int] = []
        self.kept: list[list[list[int]]] = []
        self.rule = Searches(self.soon.append)

    def newcomers(self, count: int) -> None:
        """So many come, and are searched."""
        self.kept.append([[] for _ in range(count)])
        gc.collect(0)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        def note(phase: str, info: dict[str, int]) -> None:
            if phase == "start":
                self.searched.append(info["generation"])
                self.looked_at.append(sum(len(gc.get_objects(each)) for each in range(info["generation"] + 1)))

        with self.rule.at_work():
            gc.callbacks.append(note)
            try:
                yield
            finally:
                gc.callbacks.remove(note)
                gc.unfreeze()


def test_of_a_crowd_the_youngest_are_searched_in_small_parts_and_none_twice() -> None:
    before, watched = gc.get_threshold(), Watched()
    gc.collect()
    with watched.at_work():
        kept: list[list[int]] = [[] for _ in range(20 * NEWCOMERS)]
    assert len(kept) == 20 * NEWCOMERS
    assert set(watched.searched) == {0}
    assert 15 <= len(watched.searched) <= 20
    assert gc.get_threshold() == before


def test_survivors_are_searched_once_more_in_their_own_turn() -> None:
    watched = Watched()
    gc.collect()
    with watched.at_work():
        watched.newcomers(MANY - 500)
        assert watched.soon == []
        watched.newcomers(100 * NEWCOMERS)
        (search,) = watched.soon
        assert 2 not in watched.searched, "nothing waits for it that is being done now"
        search()
    assert 2 in watched.searched


def test_search_looks_only_at_new_objects_however_many_there_are() -> None:
    """As many objects as 10,000 connections have, which come by and by."""
    watched, kept = Watched(), list[list[list[int]]]()
    gc.collect()
    gc.freeze()
    with watched.at_work():
        for _ in range(400):
            kept.append([[] for _ in range(NEWCOMERS)])
            while watched.soon:
                watched.soon.pop()()
    assert watched.searched.count(2) >= 10
    assert max(watched.looked_at) <= 2 * MANY


class Old(list[list[int]]):
    """Objects of earlier searches, each freed for a new one by `replace`: Python's count does not grow."""

    def replace(self, begin: int, end: int) -> list[list[int]]:
        new = list[list[int]]()
        for position in range(begin, end):
            self[position] = []
            new.append(self[position])
        return new


def test_searches_are_small_while_as_many_objects_go_as_come() -> None:
    """12,000 producers that are reset and opened again are 100,000 objects."""
    watched, counters, loop = Watched(), Counters(), asyncio.new_event_loop()
    slices, old = Slices(counters), Old([] for _ in range(10 * MANY))
    slices.after_work(watched.rule.search_youngest)

    def replacing() -> Iterator[None]:
        for begin in range(0, len(old), 20):
            old.replace(begin, begin + 20)
            yield
            while watched.soon:
                watched.soon.pop()()

    gc.collect()
    gc.freeze()
    with watched.at_work():
        loop.run_until_complete(slices.done(Work.COMMANDS, replacing()))
        gc.collect(0)
    loop.close()
    assert sum(watched.looked_at) >= 10 * MANY
    assert max(watched.looked_at) <= MOST_SEARCHED
    assert watched.searched.count(2) >= 5


def test_objects_are_exempt_if_a_search_would_look_at_too_many() -> None:
    watched, old = Watched(), Old([] for _ in range(2 * MOST_SEARCHED))
    gc.collect()
    gc.freeze()
    with watched.at_work():
        old.replace(0, len(old))
        gc.collect(0)
        old.replace(0, len(old))
        gc.collect()
    assert max(watched.looked_at) <= MOST_SEARCHED


def test_a_cycle_that_outlived_the_small_searches_is_freed_by_that_of_all() -> None:
    watched = Watched()
    gc.collect()
    gc.freeze()
    with watched.at_work():
        ring: list[object] = []
        ring.append(ring)
        gone = weakref.ref(_Knot(ring))
        ring.append(gone())
        gc.collect(0)
        del ring
        gc.collect(0)
        assert gone() is not None
        watched.newcomers(MANY)
        watched.soon.pop()()
    assert gone() is None


class _Knot:
    def __init__(self, ring: list[object]) -> None:
        ring.append(self)
