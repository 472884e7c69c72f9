"""Entries of which parts are still to come."""

import tracemalloc

from limiter.limiter import Entry, Stream, StreamName
from proxy.budgets import Budget, Claim, Pool, Share, SharedBudget
from proxy.session.data_path import HeldMemory, PartialEntry


def _collecting(holdings: HeldMemory, size: int) -> PartialEntry:
    stream = Stream(StreamName("publish", "t", "n", "topic", 1), (), lambda _stream, _entry: None)
    return PartialEntry(stream, Entry(b"a" * 1000, 1, size, 0, 0), holdings)


def test_parts_are_memory_until_the_entry_is_whole_and_stop_nobody() -> None:
    budget = SharedBudget(3000, lambda _tenant, _is_over, _held: None, lambda: None)
    turns: list[bool] = []
    holdings = HeldMemory(Budget(100, turns.append), Share(budget, turns.append), Claim(Pool(10**9, 10**9), ""))
    collecting = _collecting(holdings, 4000)
    collecting.add(b"b" * 2000)
    assert (budget.used, budget.memory) == (0, 3000)
    assert collecting.end().frame == b"a" * 1000 + b"b" * 2000
    assert budget.memory == 0
    assert not turns
    assert not holdings.is_any


def test_an_entry_that_comes_byte_by_byte_takes_no_more_than_is_counted() -> None:
    pool = Pool(10**9, 10**9)
    budget = SharedBudget(10**9, lambda _tenant, _is_over, _held: None, lambda: None)
    holdings = HeldMemory(Budget(100, lambda _: None), Share(budget, lambda _: None), Claim(pool, ""))
    collecting = _collecting(holdings, 101_000)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(100_000):
            collecting.add(bytes((number & 0xFF,)))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert pool.used == 101_000
    assert after - before < 1.5 * pool.used
