"""A bounded number of held bytes, shared by tenants."""

import weakref
from collections.abc import Callable, Iterator

from hypothesis import given
from hypothesis import strategies as st

from proxy.budgets import Share, SharedBudget


class Holder:
    """One direction of a connection: what it is told, and what it holds in the order in which it took it."""

    def __init__(self, budget: SharedBudget) -> None:
        self.told: list[bool] = []
        self.held: list[tuple[str, int]] = []
        self.share = Share(budget, self.told.append)

    @property
    def held_bytes(self) -> int:
        return sum(size for _, size in self.held)

    @property
    def is_paused(self) -> bool:
        return bool(self.told) and self.told[-1]

    def take(self, tenant: str, size: int) -> None:
        self.held.append((tenant, size))
        self.share.take(tenant, size)

    def give_one(self) -> None:
        self.share.give(*self.held.pop(0))


class Rig:
    """A budget that notes who goes over and comes back; its pool is two thirds of the limit."""

    def __init__(self, pool: int = 1000, in_slices: Callable[[Iterator[None]], None] | None = None) -> None:
        self.turns: list[tuple[str, bool]] = []
        self.budget = SharedBudget(pool * 3 // 2, self._turned, lambda: None, in_slices)

    def _turned(self, tenant: str, is_over: bool, _held: int) -> None:  # noqa: FBT001 - as the budget tells it
        self.turns.append((tenant, is_over))

    def holder(self) -> Holder:
        return Holder(self.budget)


def test_one_tenant_alone_gets_half() -> None:
    rig = Rig()
    holder = rig.holder()
    holder.take("a", 499)
    assert not holder.is_paused
    holder.take("a", 1)
    assert holder.is_paused
    assert rig.turns == [("a", True)]


def test_step_tells_one_share_and_a_taking_share_knows_at_once() -> None:
    slices = list[Iterator[None]]()
    rig = Rig(1000, slices.append)
    holders = [rig.holder() for _ in range(100)]
    for holder in holders:
        holder.take("a", 5)
    assert rig.turns == [("a", True)]
    assert [holder.is_paused for holder in holders] == [False] * 99 + [True]
    holders[7].take("a", 5)
    assert holders[7].is_paused
    for step, _ in enumerate(slices[0], 1):
        assert sum(holder.is_paused for holder in holders[:step]) == step
        assert sum(holder.is_paused for holder in holders[step:]) <= 2
    assert all(holder.is_paused for holder in holders)


def test_a_share_is_told_as_it_is_then() -> None:
    slices = list[Iterator[None]]()
    rig = Rig(1000, slices.append)
    first, second = rig.holder(), rig.holder()
    first.take("a", 250)
    second.take("a", 250)
    while first.held or second.held:
        (first if first.held else second).give_one()
    assert rig.turns == [("a", True), ("a", False)]
    for each in slices:
        for _ in each:
            pass
    assert not first.is_paused
    assert not second.is_paused


def test_the_most_that_was_there_at_once_is_remembered() -> None:
    rig = Rig()
    holder = rig.holder()
    holder.take("a", 100)
    holder.share.set_aside(50)
    holder.give_one()
    assert (rig.budget.memory, rig.budget.most) == (50, 150)


def test_what_is_set_aside_leaves_less_free_for_all() -> None:
    rig = Rig()
    reader, other, holder = rig.holder(), rig.holder(), rig.holder()
    other.take("b", 100)
    reader.share.set_aside(200)
    holder.take("a", 349)
    assert not holder.is_paused, "700 - 349 are free"
    holder.take("a", 1)
    assert holder.is_paused
    assert not reader.told
    assert (rig.budget.used, rig.budget.memory) == (450, 650)
    reader.share.set_aside(-200)
    assert rig.budget.memory == 450


def test_it_is_read_again_when_it_holds_half_of_what_is_free() -> None:
    rig = Rig()
    holder = rig.holder()
    for _ in range(50):
        holder.take("a", 10)
    while holder.is_paused:
        holder.give_one()
    assert rig.budget.used == 330
    assert rig.turns == [("a", True), ("a", False)]


def test_greedy_tenants_get_equal_shares_and_leave_one_for_who_comes_next() -> None:
    rig = Rig(5000)
    holders = {tenant: rig.holder() for tenant in "abcd"}
    for _ in range(5000):
        for tenant, holder in holders.items():
            if not holder.is_paused:
                holder.take(tenant, 1)
    assert all(1000 <= holder.held_bytes <= 1001 for holder in holders.values())
    newcomer = rig.holder()
    newcomer.take("e", 400)
    assert not newcomer.is_paused


def test_only_those_are_paused_who_hold_something_of_a_tenant_that_is_over() -> None:
    rig = Rig()
    greedy, also, other, idle = (rig.holder() for _ in range(4))
    also.take("a", 10)
    other.take("b", 10)
    greedy.take("a", 900)
    assert (greedy.is_paused, also.is_paused, other.is_paused, idle.is_paused) == (True, True, False, False)
    also.give_one()
    assert not also.is_paused, "it holds nothing any more, and is read although its tenant is still over"
    assert greedy.is_paused


def test_who_begins_to_hold_later_is_paused_too() -> None:
    rig = Rig()
    greedy, late = rig.holder(), rig.holder()
    greedy.take("a", 600)
    late.take("a", 1)
    assert late.is_paused


def test_two_tenants_over_on_one_connection_are_both_waited_for() -> None:
    rig = Rig()
    shared, a, b = rig.holder(), rig.holder(), rig.holder()
    shared.take("a", 1)
    shared.take("b", 1)
    a.take("a", 500)
    b.take("b", 490)
    assert shared.told == [True, True]
    a.give_one()
    assert shared.is_paused
    b.give_one()
    assert not shared.is_paused


def test_a_tenant_whose_own_limit_is_the_slowest_goes_on_when_others_make_room() -> None:
    """Judged only at its own gives, it would stand for as long as its next message takes, an hour perhaps."""
    rig = Rig()
    slow, greedy, other = rig.holder(), rig.holder(), rig.holder()
    for _ in range(24):
        greedy.take("greedy", 25)
    other.take("other", 125)
    slow.take("slow", 260)
    assert slow.is_paused
    while slow.is_paused:
        greedy.give_one()
    assert 480 - 94 - 25 < rig.budget.used <= 480, "free are 520, a sixteenth of the limit and an entry at most"


def test_tenant_below_an_equal_share_is_not_over_in_a_full_pool() -> None:
    """Connections that stop at once may have filled it with a large entry each, and their own limit may be slow."""
    rig = Rig()
    greedy = [rig.holder() for _ in range(16)]
    for holder in greedy:
        holder.take("greedy", 100)
    victim = rig.holder()
    victim.take("victim", 332)
    assert all(holder.is_paused for holder in greedy)
    assert not victim.is_paused
    victim.take("victim", 1)
    assert victim.is_paused


def test_nothing_is_kept_of_a_tenant_that_holds_nothing() -> None:
    rig = Rig(10)
    holder = rig.holder()
    for number in range(100):
        holder.take(f"tenant-{number}", 20)
        assert rig.budget.is_over(f"tenant-{number}")
        holder.give_one()
        assert not rig.budget.is_over(f"tenant-{number}")
    assert not holder.is_paused
    assert not rig.budget._accounts
    assert not rig.budget._over


def test_who_takes_again_while_it_is_told_that_it_may_is_told_how_it_stands_then() -> None:
    """A connection that goes on finds frames that it had read already."""
    budget = SharedBudget(100, lambda _tenant, _is_over, _held: None, lambda: None)
    turns: list[tuple[str, bool]] = []

    def first_turned(is_over: bool) -> None:  # noqa: FBT001 - the new state
        turns.append(("first", is_over))
        if not is_over:
            first.take("a", 80)

    first = Share(budget, first_turned)
    second = Share(budget, lambda is_over: turns.append(("second", is_over)))
    first.take("a", 40)
    second.take("a", 10)
    turns.clear()
    first.give("a", 39)
    assert budget.used == 91
    assert turns[0] == ("first", False)
    assert dict(turns) == {"first": True, "second": True}


STEPS = st.lists(
    st.tuples(
        st.integers(0, 5),  # holder
        st.sampled_from(["take", "take", "give"]),
        st.sampled_from(["a", "b", "c"]),
        st.integers(1, 40),
    ),
    max_size=120,
)


@given(STEPS, st.integers(1, 200))
def test_only_holders_of_tenants_over_the_bound_are_paused(steps: list[tuple[int, str, str, int]], limit: int) -> None:
    """Readers take only while they are not paused, as relays do."""
    rig = Rig(limit)
    holders = [rig.holder() for _ in range(6)]
    for number, action, tenant, size in steps:
        holder = holders[number]
        if action == "give" and holder.held:
            holder.give_one()
        elif action == "take" and not holder.is_paused:
            holder.take(tenant, size)
        assert rig.budget.used == sum(each.held_bytes for each in holders)
        assert rig.budget.used < rig.budget.limit + 40 * len(holders)
        for each in holders:
            assert each.is_paused == any(rig.budget.is_over(owner) for owner, _ in each.held)
        holding = {owner for each in holders for owner, _ in each.held}
        assert holding >= {owner for owner in "abc" if rig.budget.is_over(owner)}
    for holder in holders:
        while holder.held:
            holder.give_one()
    assert rig.budget.used == 0
    assert not any(holder.is_paused for holder in holders)
    for owner in "abc":
        turns = [is_over for tenant, is_over in rig.turns if tenant == owner]
        assert turns == [True, False] * (len(turns) // 2)


@given(STEPS)
def test_nobody_stays_stopped_once_there_is_plenty_of_room(steps: list[tuple[int, str, str, int]]) -> None:
    """All others give everything back: who holds less than a quarter of the limit is read."""
    rig = Rig(100)
    holders = [rig.holder() for _ in range(6)]
    for number, action, tenant, size in steps:
        if action == "give" and holders[number].held:
            holders[number].give_one()
        elif action == "take" and not holders[number].is_paused:
            holders[number].take(tenant, size)
    first = holders[0]
    for holder in holders[1:]:
        while holder.held:
            holder.give_one()
    if rig.budget.used <= 25:
        assert not first.is_paused


def test_a_share_that_has_been_used_is_gone_when_nobody_has_it_any_more() -> None:
    """Were what it remembers of a tenant to know it, both would be gone only with a search for such circles."""

    class Told:
        def __call__(self, _is_over: bool) -> None: ...  # noqa: FBT001 - as a budget tells it

    listener = Told()
    share = Share(Rig().budget, listener)
    known = weakref.ref(listener)
    share.take("t", 5)
    share.give("t", 5)
    del listener, share
    assert known() is None
