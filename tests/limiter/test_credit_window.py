"""What all consumers of one limiter may have under way."""

from math import log

from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.permits import IDLE_HORIZONS, LEAST_PART, RULES, CreditAccount, CreditWindow, InFlight, Permits, horizon_of
from limiter.token_bucket import rate
from tests.examples import examples
from tests.limiter.asking import Asking, idle_at

ACTS = st.lists(
    st.tuples(st.sampled_from(["open", "ask", "arrive", "pass", "close"]), st.integers(0, 40), st.integers(1, 3000)),
    max_size=120,
)


def most_ever(horizon: int, consumers: int) -> float:
    """As the window says; beside an entry of each and one more."""
    return horizon * (1 + IDLE_HORIZONS + consumers / LEAST_PART)


@settings(max_examples=examples(200), deadline=None)
@given(horizon=st.integers(1, 500), acts=ACTS, entry=st.integers(1, 100))
def test_what_is_under_way_stays_within_its_bound(horizon: int, acts: list[tuple[str, int, int]], entry: int) -> None:
    """The broker sends entries of one size; the number that comes for the first permits is unknown before."""
    window = CreditWindow(horizon)
    consumers: list[Asking] = []
    was_idle = False
    for act, index, number in acts:
        if act == "open":
            consumers.append(Asking(window, rules=RULES))
            consumers[-1].ask(number)
        elif consumers:
            chosen = consumers[index % len(consumers)]
            if act == "ask":
                chosen.ask(number)
            elif act == "arrive" and chosen.permits.at_broker > 0:
                chosen.arrive(entry)
            elif act == "pass":
                chosen.pass_one()
            elif act == "close":
                consumers.remove(chosen)
                chosen.permits.close()
        n = len(consumers)
        idle = idle_at(window, (consumer.permits for consumer in consumers))
        assert window.under_way + idle <= most_ever(horizon, n) + (n + 1) * entry
        was_idle |= idle > 0
        assert was_idle or window.under_way <= horizon * (2 + log(max(1, n))) + (n + 1) * entry


@settings(max_examples=examples(200), deadline=None)
@given(horizon=st.integers(1, 500), acts=ACTS)
def test_permits_at_the_broker_are_bounded_whatever_its_entries_hold(
    horizon: int, acts: list[tuple[str, int, int]]
) -> None:
    """Each of them lets it send one entry at most: so what may come is bounded as well."""
    window = CreditWindow(horizon)
    consumers = [Asking(window, rules=RULES) for _ in range(4)]
    was_idle = False
    for act, index, number in acts:
        chosen = consumers[index % 4]
        if act in {"open", "ask"}:
            chosen.ask(number)
        elif act == "arrive" and chosen.permits.at_broker > 0:
            chosen.arrive(number)
        else:
            chosen.pass_one()
        was_idle |= idle_at(window, (consumer.permits for consumer in consumers)) > 0
        permits = sum(max(0, consumer.permits.at_broker) for consumer in consumers)
        assert permits <= most_ever(horizon, 4) + 5
        assert was_idle or permits <= horizon * (2 + log(4)) + 5


def test_the_horizon_is_a_fifth_of_a_second_and_at_least_one_message() -> None:
    assert horizon_of(rate(1000)) == 200
    assert horizon_of(rate(1)) == 1
    assert horizon_of(rate(60, 60 * 10**9)) == 1
    assert horizon_of(rate(1000, 10**8)) == 1000


def test_a_consumer_is_idle_after_two_horizons_for_others() -> None:
    window = CreditWindow(20)
    idle, active = Asking(window), Asking(window)
    idle.ask(20)
    active.ask(1000)
    assert (window.under_way, idle_at(window, [idle.permits])) == (20 + 10, 0)
    while window.under_way > 20:
        active.receive_all()
    assert active.granted <= 2 * 20 + 20
    assert (idle_at(window, [idle.permits]), window.room()) == (20, 0), "the other has a whole horizon now"
    idle.receive(1)
    assert (window.under_way, idle_at(window, [idle.permits])) == (19 + 20, 0)


def test_a_consumer_is_idle_after_eight_round_trips_of_others() -> None:
    """What came does not add up with the trips."""
    window = CreditWindow(1000)
    idle, active = Asking(window), Asking(window)
    idle.ask(20)
    amounts = []
    for _ in range(8):
        active.ask(100)
        active.receive_all()
        amounts.append(idle_at(window, [idle.permits]))
    assert amounts == [0] * 7 + [20]


def test_what_idle_consumers_have_counts_beyond_its_bound() -> None:
    window, consumers = CreditWindow(320), list[Permits]()
    for _ in range(20):
        each = Asking(window)
        consumers.append(each.permits)
        each.ask(10**6)
        for _ in range(20):
            each.receive_all()
    beyond = idle_at(window, consumers) + window.under_way
    assert 5 * 320 <= beyond <= 320 * (5 + 20 / 32) + 21
    late = Asking(window)
    late.ask(10**6)
    for _ in range(20):
        late.receive_all()
    assert late.permits.at_broker == 320 // 32, "6 ms of the limit, at least"


def test_a_consumer_with_a_first_permit_leaves_the_line() -> None:
    """The held entries came before the consumer was limited, when their sizes were not counted."""
    window, consumer = CreditWindow(200), Asking(rules=RULES)
    consumer.ask(1)
    consumer.arrive(50)
    consumer.permits.rewire((window,))
    consumer.ask(100)
    assert (consumer.permits.at_broker, consumer.permits.asked) == (1, 50)
    assert (list(window.asking), window.unsure) == ([], {consumer.permits})
    consumer.receive(50)
    assert consumer.permits.asked == 0


def test_a_consumer_that_is_served_is_never_idle() -> None:
    window = CreditWindow(10)
    served, other = Asking(window), Asking(window)
    other.ask(1)
    served.ask(5)
    for _ in range(60):
        served.receive(1)
        served.ask(1)
        assert idle_at(window, [served.permits]) == 0
    assert idle_at(window, [other.permits]) == 1


def test_active_consumers_keep_a_part_when_idle_ones_used_all() -> None:
    window = CreditWindow(100 * LEAST_PART)

    def with_permits(permits: int) -> CreditAccount:
        under_way = InFlight(RULES)
        under_way.learn(1, 1, 1)
        under_way.at_broker = permits
        return window.join(Asking().permits, under_way)

    idle = with_permits(2 * IDLE_HORIZONS * window.horizon)
    window._turn(idle, is_idle=True)
    for _ in range(3):
        with_permits(1)
    assert window.fair_share() == 100 // 4
