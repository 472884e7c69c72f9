"""Entries of which parts are still to come."""

import tracemalloc

from limiter.stream import Entry, Stream, StreamName
from proxy.budget import Budget
from proxy.pool import Claim, Pool
from proxy.sessions.collecting import Collecting
from proxy.sessions.holdings import Holdings
from proxy.shared_budget import Share, SharedBudget

PARTS = 10_000


def _collecting() -> Collecting:
    budget = SharedBudget(10**9, lambda _tenant, _is_over, _held: None, lambda: None)
    holdings = Holdings(Budget(100, _ignore), Share(budget, _ignore), Claim(Pool(10**9, 10**9), ""))
    stream = Stream(StreamName("publish", "t", "n", "topic", 1), (), lambda _stream, _entry: None)
    return Collecting(stream, Entry(b"a" * 1000, 1, 4000, 0, 0), holdings)


def _ignore(_is_over: bool) -> None:  # noqa: FBT001 - as a budget calls it
    """Nobody is to be told."""


def test_small_parts_take_what_they_count() -> None:
    """A client may write two bytes at a time."""
    collecting = _collecting()
    tracemalloc.start()
    for number in range(PARTS):
        collecting.add(number.to_bytes(2, "big"))
    taken, _most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 2 * 2 * PARTS


def test_parts_are_memory_until_the_entry_is_whole_and_stop_nobody() -> None:
    budget = SharedBudget(3000, lambda _tenant, _is_over, _held: None, lambda: None)
    turns: list[bool] = []
    holdings = Holdings(Budget(100, turns.append), Share(budget, turns.append), Claim(Pool(10**9, 10**9), ""))
    stream = Stream(StreamName("publish", "t", "n", "topic", 1), (), lambda _stream, _entry: None)
    collecting = Collecting(stream, Entry(b"a" * 1000, 1, 4000, 0, 0), holdings)
    collecting.add(b"b" * 2000)
    assert (budget.used, budget.memory) == (0, 3000)
    assert collecting.end().frame == b"a" * 1000 + b"b" * 2000
    assert budget.memory == 0
    assert not turns
    assert not holdings.is_any
