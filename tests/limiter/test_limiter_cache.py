"""The table of limiters: who is made, changed, replaced and forgotten."""

from collections import Counter
from sys import getsizeof

import pytest

from limiter import registry
from limiter.limiter import Scope, Stream, StreamName
from limiter.policies import InForce
from limiter.registry import FEW_DEBTS, LIMITER_MEMORY, LOOKED_AT, LimiterCache
from limiter.relative_rates import RelativeLimits
from limiter.token_bucket import NANOS_PER_SECOND, Limit, Published, rate

TOPIC = "persistent://t/n/x"
SCOPE = Scope("dispatch", "topic", TOPIC, "t", "n")
TEN = Limit(rate(10))


@pytest.fixture
def kept() -> Counter[str]:
    """Bytes by the address that they are kept for."""
    return Counter()


@pytest.fixture
def limiters(kept: Counter[str]) -> LimiterCache:
    def count(address: str, more: int) -> None:
        kept[address] += more

    return LimiterCache(RelativeLimits(), lambda _limiter, _now: None, count)


def cache_of(most_debts: int) -> LimiterCache:
    return LimiterCache(RelativeLimits(), lambda *_: None, lambda *_: None, most_debts)


def put(limiters: LimiterCache, limit: Limit, source: str = "topic file", now: int = 0):
    return limiters.put(InForce(SCOPE, limit, source), TOPIC, "192.0.2.1", now)


def put_named(limiters: LimiterCache, name: str, address: str = "192.0.2.1", limit: Limit = TEN):
    return limiters.put(InForce(SCOPE._replace(name=name), limit, ""), TOPIC, address, 0)


def test_what_applies_to_two_streams_is_one_limiter(limiters: LimiterCache) -> None:
    assert put(limiters, TEN) is put(limiters, TEN)
    assert list(limiters.by_scope) == [SCOPE]


def test_a_new_value_keeps_the_limiter_and_wakes_its_streams(limiters: LimiterCache) -> None:
    limiter = put(limiters, TEN)
    limiter.streams.add(Stream(StreamName("dispatch", "t", "n", TOPIC, 1), (limiter,), lambda _stream, _entry: None))
    assert put(limiters, Limit(rate(20)), "topic rest") is limiter
    assert (limiter.limit, limiter.source) == (Limit(rate(20)), "topic rest")
    assert list(limiters.take_tuned()) == [limiter]
    assert not limiters.take_tuned(), "once is enough"


def test_nobody_is_woken_where_nobody_is_or_nothing_is_another(limiters: LimiterCache) -> None:
    limiter = put(limiters, TEN)
    put(limiters, Limit(rate(20)))
    assert not limiters.tuned
    limiter.streams.add(Stream(StreamName("dispatch", "t", "n", TOPIC, 1), (limiter,), lambda _stream, _entry: None))
    put(limiters, Limit(rate(20)))
    assert not limiters.tuned


def test_a_newly_observed_limit_keeps_its_tokens(
    limiters: LimiterCache,
) -> None:
    enforced = put(limiters, TEN)
    enforced.charge(1, 0, 0)
    observed = put(limiters, Limit(rate(10), mode="observe"))
    assert observed is not enforced
    assert limiters.by_scope == {SCOPE: observed}
    assert not observed.is_open(0), "the burst of 10/s is one message, which was taken"


def test_a_dispatch_limit_keeps_one_credit_window_per_unit(
    limiters: LimiterCache,
) -> None:
    (of_messages,) = put(limiters, TEN).windows
    both = put(limiters, Limit(rate(100), rate(1000))).windows
    assert [window.unit for window in both] == ["messages", "bytes"]
    assert both[0] is of_messages
    assert [window.horizon for window in both] == [20, 200]
    assert put(limiters, Limit(rate(100), mode="observe")).windows == (), "what is only observed asks for nothing less"


def test_a_measured_value_is_put_in_force_with_its_meter(limiters: LimiterCache) -> None:
    relative = put(limiters, Limit(rate(10), published=Published()))
    assert limiters.retune({SCOPE: Limit(rate(1010), published=Published(10_000))}, NANOS_PER_SECOND) == [relative]
    assert relative.limit.messages == rate(1010)
    assert relative.windows[0].horizon == 202


def test_full_limiters_without_streams_are_forgotten_if_many(
    limiters: LimiterCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "KEPT", 0)
    made = [put_named(limiters, name) for name in "abc"]
    made[1].charge(1, 0, 0)
    assert limiters.rest(made, 0) == [made[0], made[2]]
    assert list(limiters.by_scope.values()) == [made[1]], "what is owed is not forgiven"


def test_some_without_streams_are_kept_for_those_who_come_again(limiters: LimiterCache) -> None:
    limiter = put(limiters, TEN)
    assert limiters.rest([limiter], 0) == []
    assert put(limiters, TEN) is limiter


def test_a_limiter_counts_for_its_client_as_memory_then_as_debt(
    limiters: LimiterCache, kept: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "KEPT", 0)
    limiter = put(limiters, TEN)
    put_named(limiters, SCOPE.name, "192.0.2.2")
    size = LIMITER_MEMORY + 4 * getsizeof(SCOPE.name)
    assert (kept["192.0.2.1"], kept["192.0.2.2"], limiters.debts) == (size, 0, 0), "one is kept once"
    limiter.charge(1000, 0, 0)
    limiters.rest([limiter], 0)
    limiters.rest([limiter], 0)
    assert (kept["192.0.2.1"], limiters.debts) == (0, size)
    limiters.rest([limiter], 10**12)
    assert (limiters.debts, limiters.by_scope) == (0, {})


def test_one_without_streams_is_kept_for_whoever_takes_it_up(limiters: LimiterCache, kept: Counter[str]) -> None:
    limiters.rest([put(limiters, TEN)], 0)
    size = limiters.debts
    put_named(limiters, SCOPE.name, "192.0.2.2")
    assert (kept, limiters.debts) == ({"192.0.2.1": 0, "192.0.2.2": size}, 0)


def owe(limiters: LimiterCache, number: int, address: str) -> None:
    limiter = put_named(limiters, str(number), address)
    limiter.charge(1000, 0, 0)
    limiters.rest([limiter], 0)


def test_an_address_with_too_many_debts_may_open_no_more_streams() -> None:
    limiters, shares = cache_of(20 * FEW_DEBTS), list[float]()
    for address in "abc":
        before = limiters.debts
        while not limiters.owes_too_much(address):
            owe(limiters, len(limiters.by_scope), address)
        shares.append((limiters.debts - before) / (20 * FEW_DEBTS))
    assert [round(share, 1) for share in shares] == [0.5, 0.3, 0.1]
    assert not limiters.owes_too_much("d")
    assert limiters.forgiven == 0


def test_small_debtors_may_open_more_streams() -> None:
    limiters = cache_of(3 * FEW_DEBTS)
    for number in range(100):
        owe(limiters, number, "greedy")
    owe(limiters, 1000, "neighbour")
    assert limiters.owes_too_much("greedy")
    assert not limiters.owes_too_much("neighbour")
    assert limiters.debts <= 3 * FEW_DEBTS
    assert limiters.forgiven == 101 - len(limiters.by_scope) > 0
    assert put_named(limiters, "1000", "neighbour").is_open(0) is False, "its debt is still there"


def test_debts_stay_however_many_there_are(limiters: LimiterCache) -> None:
    first = put(limiters, TEN)
    first.charge(1000, 0, 0)
    limiters.rest([first], 0)
    for number in range(2000):
        owe(limiters, number, "192.0.2.2")
    assert put(limiters, TEN) is first


def test_room_is_made_by_forgetting_full_ones_and_not_by_forgiving(limiters: LimiterCache) -> None:
    made = [put_named(limiters, str(number)) for number in range(100)]
    for owing in made[::2]:
        owing.charge(1000, 0, 0)
    limiters.rest(made, 0)
    forgotten = [limiter for _ in range(20) for limiter in limiters.make_room(0)]
    assert forgotten == made[1::2]
    assert list(limiters.by_scope.values()) == made[::2]
    assert limiters.make_room(0) == []


def test_who_is_refused_costs_few_looks(limiters: LimiterCache) -> None:
    limiters.rest([put_named(limiters, str(number)) for number in range(100)], 0)
    assert len(limiters.make_room(0)) == LOOKED_AT
