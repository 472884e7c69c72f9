"""Memory that came free goes back to the system."""

from contextlib import nullcontext

from proxy.budgets import Share, SharedBudget
from proxy.counters import Counters
from proxy.runtime import PIECE_S, WHILE_S, Heap, give_back_memory
from proxy.session.transport import TransportContext
from proxy.slices import Slices
from tests.proxy.manual_loop import ManualLoop


def test_a_while_after_the_first_came_free_all_is_given_back_once(loop: ManualLoop) -> None:
    given: list[float] = []
    heap = Heap(nullcontext, lambda: given.append(loop.time()))
    loop.run(heap.freed)
    loop.advance(WHILE_S - 1)
    loop.run(heap.freed)
    assert given == []
    loop.advance(10 * WHILE_S)
    assert given == [WHILE_S]
    assert loop.timers == []


def test_what_comes_free_later_is_given_back_too(loop: ManualLoop) -> None:
    given: list[float] = []
    heap = Heap(nullcontext, lambda: given.append(loop.time()))
    loop.run(heap.freed)
    loop.advance(2 * WHILE_S)
    loop.run(heap.freed)
    loop.advance(2 * WHILE_S)
    assert given == [WHILE_S, 3 * WHILE_S]


def test_what_cannot_be_given_back_once_may_be_the_next_time(loop: ManualLoop) -> None:
    given: list[float] = []

    def give_back() -> None:
        given.append(loop.time())
        raise OSError

    heap = Heap(nullcontext, give_back)
    for _ in range(2):
        loop.run(heap.freed)
        loop.advance(WHILE_S)
    assert given == [WHILE_S, 2 * WHILE_S]


def test_what_comes_free_for_long_is_given_back_in_pieces(loop: ManualLoop) -> None:
    given: list[float] = []
    heap = Heap(nullcontext, lambda: given.append(loop.time()), lambda: loop.time() < 3 * PIECE_S)
    for _ in range(2):
        loop.run(heap.freeing)
    loop.advance(WHILE_S)
    assert [round(at, 3) for at in given] == [PIECE_S, 2 * PIECE_S, 0.3]
    assert loop.timers == []


def test_what_all_connections_share_gives_back_to_the_system() -> None:
    assert TransportContext(Counters(), Slices(Counters())).heap._give_back is give_back_memory


def _told_of(limit: int) -> tuple[SharedBudget, Share, list[int]]:
    freed_at: list[int] = []
    budget = SharedBudget(limit, lambda *_turn: None, lambda: freed_at.append(budget.memory))
    return budget, Share(budget, lambda _is_over: None), freed_at


def test_each_time_that_much_less_is_held_it_is_told() -> None:
    mib = 1024 * 1024
    _, share, freed_at = _told_of(100 * mib)
    for _ in range(9):
        share.take("a", mib)
    for _ in range(9):
        share.give("a", mib)
    assert freed_at == [5 * mib, mib]
    share.set_aside(4 * mib)
    assert freed_at == [5 * mib, mib]
    share.set_aside(-4 * mib)
    assert freed_at == [5 * mib, mib, 0]


def test_of_a_small_budget_a_sixteenth_is_much() -> None:
    _, share, freed_at = _told_of(1600)
    share.take("a", 107)
    share.give("a", 99)
    assert freed_at == []
    share.give("a", 1)
    assert freed_at == [7]
