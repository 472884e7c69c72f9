import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from proxy.collector import keep_for_ever, let_go, paused_collector, search_seldom


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


def test_a_crowd_of_newcomers_is_not_searched_at_every_step() -> None:
    searches: list[str] = []
    before = gc.get_threshold()

    def count(phase: str, _info: dict[str, int]) -> None:
        searches.append(phase)

    try:
        search_seldom()
        gc.collect()
        gc.callbacks.append(count)
        kept: list[list[int]] = [[] for _ in range(10_000)]
    finally:
        gc.callbacks.remove(count)
        gc.set_threshold(*before)
    assert len(kept) == 10_000
    assert searches == []
