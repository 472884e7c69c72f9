import gc

import pytest

from proxy.collector import keep_for_ever, paused_collector


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


def test_what_is_kept_for_ever_is_not_searched_any_more() -> None:
    kept: list[list[int]] = [[] for _ in range(1000)]
    try:
        keep_for_ever()
        searched = {id(found) for found in gc.get_objects()}
        assert gc.get_freeze_count() >= len(kept)
        assert not searched & {id(each) for each in kept}
    finally:
        gc.unfreeze()
