import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from proxy.bulk import let_go
from proxy.runtime import MANY, NEWCOMERS, Searches, keep_for_ever, paused_collector


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
        searched = {id(found) for found in gc.get_objects()}
        assert gc.get_freeze_count() >= len(kept)
        assert not searched & {id(each) for each in kept}
    finally:
        gc.unfreeze()


def test_what_is_let_go_is_freed_one_by_one_however_deep() -> None:
    inner = {"x": 1}
    tree = {"a": {"b": inner, "c": [2]}, "d": 3}
    let_go(tree)
    assert (tree, inner) == ({}, {})


def test_what_was_built_while_it_was_paused_is_not_searched_at_its_end() -> None:
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
        self.rule = Searches(self.soon.append)

    def newcomers(self, searches: int) -> None:
        """As many as the rule lets come before it has all searched."""
        for _ in range(searches):
            self.rule._searched("start", {"generation": 0})
            self.rule._searched("stop", {"generation": 0})

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


def test_what_outlived_is_searched_once_more_in_a_turn_of_its_own() -> None:
    watched = Watched()
    with watched.at_work():
        watched.newcomers(MANY // NEWCOMERS - 1)
        assert watched.soon == []
        watched.newcomers(100)
        (search,) = watched.soon
        assert 2 not in watched.searched, "nothing waits for it that is being done now"
        search()
    assert 2 in watched.searched


def test_no_search_looks_at_more_than_is_new_however_much_there_is() -> None:
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


def test_a_cycle_that_outlived_the_small_searches_is_freed_by_that_of_all() -> None:
    watched = Watched()
    with watched.at_work():
        ring: list[object] = []
        ring.append(ring)
        gone = weakref.ref(_Knot(ring))
        ring.append(gone())
        gc.collect(0)
        del ring
        gc.collect(0)
        assert gone() is not None
        watched.newcomers(MANY // NEWCOMERS)
        watched.soon.pop()()
    assert gone() is None


class _Knot:
    def __init__(self, ring: list[object]) -> None:
        ring.append(self)
