"""The course of a drain, explored with a clock moved by hand: every drain ends, and no connection is moved twice."""

from collections import deque
from collections.abc import Sequence
from itertools import combinations_with_replacement, count, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.drain import AGAIN_NS, LEAST_RATE, QUIET_NS, DrainOutcome, DrainPlan, DrainTimes, Phase

S = 1_000_000_000
TIMES = DrainTimes(delay=5 * S, period=20 * S, timeout=30 * S)


def never(_: int) -> bool:
    return False


def moving(*streams: int, times: DrainTimes = TIMES) -> DrainPlan[int]:
    """A plan that begins to move connections with so many streams, at the end of its delay."""
    plan = DrainPlan[int](times, 0, dict(enumerate(streams)).__getitem__, never)
    plan.look(times.delay, len(streams), 0)
    deque(plan.filling(range(len(streams)), times.delay), 0)
    return plan


def test_process_without_connections_is_drained_after_the_delay() -> None:
    plan = DrainPlan[int](TIMES, 0, lambda _: 1, never)
    plan.look(5 * S - 1, 0, 0)
    assert plan.phase is Phase.DELAYING
    plan.look(5 * S, 0, 0)
    assert (plan.phase, plan.outcome) == (Phase.DRAINED, DrainOutcome.MOVED)


def test_no_connection_is_due_before_the_delay_is_over() -> None:
    plan = DrainPlan[int](TIMES, 0, lambda _: 1, never)
    plan.look(5 * S - 1, 1, 0)
    assert plan.phase is Phase.DELAYING
    assert list(plan.due(5 * S)) == []


def test_connections_are_due_in_step_with_their_streams() -> None:
    plan = moving(*[10] * 200)
    due = [len(list(plan.due((5 + second) * S))) for second in range(21)]
    assert due == [1, *[10] * 19, 9]


def test_few_streams_take_less_than_the_period() -> None:
    plan = moving(*[1] * LEAST_RATE)
    assert len(list(plan.due(6 * S))) == LEAST_RATE


def test_connections_without_streams_are_due_after_all_others() -> None:
    plan = moving(0, 1, 0)
    assert list(plan.due(7 * S)) == [1]
    assert list(plan.due(20 * S)) == []
    plan.gone(1, 20 * S)
    assert list(plan.due(20 * S + QUIET_NS - 1)) == []
    assert list(plan.due(20 * S + QUIET_NS)) == [0, 2]


def test_connections_without_streams_are_due_when_time_is_short() -> None:
    plan = moving(0, 1)
    assert list(plan.due(28 * S)) == [1, 0]


def test_drain_is_over_when_no_client_has_come_for_a_while() -> None:
    plan = moving(1)
    assert list(plan.due(5 * S)) == [0]
    plan.look(6 * S, 1, 0)
    plan.look(6 * S + QUIET_NS - 1, 0, 1)
    assert plan.phase is Phase.MOVING
    plan.came([], 6 * S + QUIET_NS - 1)
    plan.look(6 * S + QUIET_NS, 0, 1)
    assert plan.outcome is DrainOutcome.MOVED


def test_those_that_come_back_leave_again_a_while_later() -> None:
    plan = DrainPlan[int](TIMES, 0, lambda connection: int(connection < 3), never)
    plan.look(5 * S, 1, 0)
    deque(plan.filling([0], 5 * S), 0)
    assert list(plan.due(5 * S)) == [0]
    plan.gone(0, 5 * S)
    plan.came([1, 3], 6 * S)
    assert list(plan.due(6 * S + AGAIN_NS - 1)) == []
    assert list(plan.due(7 * S)) == [1]
    assert list(plan.due(7 * S)) == []
    plan.gone(1, 7 * S)
    assert list(plan.due(7 * S + QUIET_NS)) == [3]


@pytest.mark.parametrize(("of_ten", "stay"), [(5, False), (10, True)], ids=["two addresses", "no other address"])
def test_drain_ends_early_only_if_all_clients_come_back(of_ten: int, stay: bool) -> None:  # noqa: FBT001
    plan = moving(*[1] * 100)
    came = count(100)
    plan._streams = lambda _: 1
    moves = 0
    for tenth in range(50, 280):
        now = tenth * S // 10
        plan.look(now, 1, moves)
        for connection in plan.due(now):
            plan.gone(connection, now)
            moves += 1
            if moves % 10 < of_ten:
                plan.came([next(came)], now)
        if plan.is_late(now):
            break
    assert (plan.is_late(now), tenth < 110) == (stay, stay), f"at {tenth}: it ends early where it is of no use"
    assert moves <= 250


def test_client_that_greets_is_awaited() -> None:
    plan = DrainPlan[int](TIMES, 0, lambda _: 0, lambda connection: connection == 7)
    plan.look(5 * S, 1, 0)
    deque(plan.filling([], 5 * S), 0)
    plan.came([7], 6 * S)
    plan.look(6 * S + QUIET_NS - 1, 0, 1)
    plan.look(6 * S + QUIET_NS, 0, 1)
    assert plan.outcome is None
    deque(plan.due(6 * S + AGAIN_NS), 0)
    plan.look(6 * S + QUIET_NS, 0, 1)
    assert plan.outcome is DrainOutcome.MOVED


def test_timeout_of_zero_drains_nothing() -> None:
    plan = DrainPlan[int](DrainTimes(5 * S, 20 * S, 0), 0, lambda _: 1, never)
    plan.look(0, 10, 0)
    assert plan.outcome is DrainOutcome.TIME_OVER


Client = tuple[int, int, bool]
"""The number of its streams, the time that it takes to leave, and whether it comes back."""
_STREAMS, _TAKES, _SPANS = (0, 1, 60), (0, 3 * S, 40 * S), ((5 * S, 20 * S, 5 * S), (0, S, 2 * S), (S, 0, 0))


@pytest.mark.parametrize("spans", _SPANS, ids=["of the defaults", "of a takeover", "without a period"])
def test_every_drain_of_three_clients_ends_and_moves_each_once(spans: tuple[int, int, int]) -> None:
    kinds = list(product(_STREAMS, _TAKES, (False, True)))
    for number in range(4):
        for clients in combinations_with_replacement(kinds, number):
            check_drain(clients, [S // 2], spans)


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 40 * S), st.booleans()), max_size=10),
    st.lists(st.integers(S // 4, 3 * S), min_size=1, max_size=4),
    st.tuples(st.integers(0, 6 * S), st.integers(0, 25 * S), st.integers(0, 9 * S)),
)
def test_every_drain_ends_and_moves_each_connection_once(
    clients: list[Client], steps: list[int], spans: tuple[int, int, int]
) -> None:
    check_drain(clients, steps, spans)


def check_drain(clients: Sequence[Client], steps: Sequence[int], spans: tuple[int, int, int]) -> None:
    """Drain: some clients come back, by a connection that takes as long to leave, until time is short."""
    delay, period, rest = spans
    times = DrainTimes(delay, period, delay + period + rest)
    open_ones = dict(enumerate(clients))
    streams = {connection: count for connection, (count, _, _) in open_ones.items()}
    plan = DrainPlan[int](times, 0, streams.__getitem__, never)
    leaves_at = dict[int, int]()
    due: list[int] = []
    now = moved = step = 0
    while True:
        was_moving = plan.phase is Phase.MOVING
        plan.look(now, len(open_ones), moved)
        if plan.phase is Phase.DRAINED:
            break
        if plan.phase is Phase.MOVING and not was_moving:
            deque(plan.filling(open_ones, now), 0)
        for connection in plan.due(now):
            assert now >= delay
            due.append(connection)
            begun = [each for each in open_ones if streams[each] and each < len(clients)]
            assert streams[connection] or not begun or plan.is_late(now), "those for lookups are last"
            leaves_at[connection] = now + open_ones[connection][1]
        for connection in [each for each, at in leaves_at.items() if at <= now and each in open_ones]:
            client = open_ones.pop(connection)
            plan.gone(connection, now)
            moved += 1
            if client[2] and not plan.is_late(now):
                again = len(streams)
                streams[again] = client[0]
                open_ones[again] = client
                plan.came([again], now)
        assert len(due) == len(set(due)), "none is moved twice"
        now += steps[step % len(steps)]
        step += 1
        assert now <= times.timeout + QUIET_NS + 2 * max(steps), "every drain ends"
    assert (plan.outcome is DrainOutcome.MOVED) is (not open_ones)
