"""The course of a drain, explored with a clock moved by hand: every drain ends, and no connection is moved twice."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.drain import LEAST_RATE, MOST_QUIET_NS, QUIET_NS, DrainOutcome, DrainPlan, DrainTimes, Phase

S = 1_000_000_000
TIMES = DrainTimes(delay=5 * S, period=20 * S, timeout=30 * S)


def moving(*streams: int, times: DrainTimes = TIMES) -> DrainPlan[int]:
    """A plan that begins to move connections with so many streams, at the end of its delay."""
    plan = DrainPlan[int](times, 0)
    plan.look(times.delay, len(streams), 0)
    plan.fill(enumerate(streams), times.delay)
    return plan


def test_process_without_connections_is_drained_at_once() -> None:
    plan = DrainPlan[int](TIMES, 0)
    plan.look(0, 0, 0)
    assert (plan.phase, plan.outcome) == (Phase.DRAINED, DrainOutcome.MOVED)


def test_no_connection_is_due_before_the_delay_is_over() -> None:
    plan = DrainPlan[int](TIMES, 0)
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
    plan.came(7 * S)
    plan.look(7 * S + QUIET_NS - 1, 0, 1)
    assert plan.phase is Phase.MOVING
    plan.look(7 * S + QUIET_NS, 0, 1)
    assert plan.outcome is DrainOutcome.MOVED


def test_clients_that_keep_coming_are_awaited_for_a_bounded_time() -> None:
    plan = moving(*[1] * 100)
    plan.look(6 * S, 1, 99)
    plan.came(6 * S + MOST_QUIET_NS)
    plan.look(6 * S + MOST_QUIET_NS, 0, 100)
    assert plan.outcome is DrainOutcome.MOVED


def test_timeout_of_zero_drains_nothing() -> None:
    plan = DrainPlan[int](DrainTimes(5 * S, 20 * S, 0), 0)
    plan.look(0, 10, 0)
    assert plan.outcome is DrainOutcome.TIME_OVER


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 40 * S)), max_size=10),
    st.lists(st.integers(S // 4, 3 * S), min_size=1, max_size=4),
    st.tuples(st.integers(0, 6 * S), st.integers(0, 25 * S), st.integers(0, 9 * S)),
    st.sampled_from([0, 1]),
)
def test_every_drain_ends_and_moves_each_connection_once(
    clients: list[tuple[int, int]], steps: list[int], spans: tuple[int, int, int], coming: int
) -> None:
    delay, period, rest = spans
    times = DrainTimes(delay, period, delay + period + rest)
    plan = DrainPlan[int](times, 0)
    is_open, leaves_at = dict(enumerate(streams for streams, _ in clients)), dict[int, int]()
    due: list[int] = []
    now = moved = step = 0
    while True:
        was_moving = plan.phase is Phase.MOVING
        plan.look(now, len(is_open), moved)
        if plan.phase is Phase.DRAINED:
            break
        if plan.phase is Phase.MOVING and not was_moving:
            plan.fill(is_open.items(), now)
        for connection in plan.due(now):
            assert now >= delay
            due.append(connection)
            is_idle = not clients[connection][0]
            others = [each for each in is_open if clients[each][0]]
            assert not is_idle or not others or plan.is_late(now), "those for lookups are last"
            leaves_at[connection] = now + clients[connection][1]
        for connection in [each for each, at in leaves_at.items() if at <= now and each in is_open]:
            del is_open[connection]
            plan.gone(connection, now)
            moved += 1
            if coming:
                plan.came(now)
        assert len(due) == len(set(due)), "none is moved twice"
        now += steps[step % len(steps)]
        step += 1
        assert now <= times.timeout + MOST_QUIET_NS + 2 * max(steps), "every drain ends"
    assert (plan.outcome is DrainOutcome.MOVED) is (not is_open)
