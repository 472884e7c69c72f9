import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter import registry
from limiter.activity import ActivityReader
from limiter.levels import Setting
from limiter.limiter import Limiter, Stream, StreamName
from limiter.policies import Change, Policies, Value
from limiter.registry import SLICE, Registry, windows_of
from limiter.token_bucket import Direction, Limit, rate
from protocol.topic_name import parse_topic
from tests.limiter.standing import stated
from tests.limiter.world import World

SECOND = 1_000_000_000


def value(messages: int | None = None, size: int | None = None) -> Value:
    return Value(Limit(rate(messages) if messages else None, rate(size) if size else None), "file")


class Place(World):
    """A world whose streams are limited by policies: each topic of t/n at 10 messages a second."""

    def __init__(self, own: Value | None = None, total: Value | None = None, direction: Direction = "publish") -> None:
        super().__init__()
        self.direction: Direction = direction
        self.policies = Policies()
        self.set(own or value(10), total)
        self.registry = Registry(self.policies, self.scheduler, self.observer)

    def set(self, own: Value | None, total: Value | None = None) -> None:
        self.policies.put(self.direction, Setting.TOPIC_OF_NAMESPACE, "t/n", own)
        self.policies.put(self.direction, Setting.NAMESPACE, "t/n", total)

    def open(self, topic: str = "x") -> Stream:
        stream = self.stream()
        stream.name = StreamName(self.direction, "t", "n", topic, 1)
        self.registry.open(stream, parse_topic(f"t/n/{topic}"), self.clock.now)
        return stream

    def apply(self) -> None:
        self.registry.apply(self.clock.now)

    def consumer(self, topic: str = "x") -> tuple[Stream, list[int]]:
        stream, granted = self.open(topic), list[int]()
        self.registry.meter(stream, granted.append)
        return stream, granted


def limiter_of(stream: Stream) -> Limiter:
    (limiter,) = stream.chain
    return limiter


def test_streams_of_one_topic_share_its_limiter() -> None:
    place = Place()
    assert place.open().chain == place.open().chain
    assert place.open("y").chain != place.open().chain


def test_partitions_have_limiters_of_their_own() -> None:
    place = Place()
    assert limiter_of(place.open("x-partition-0")) is not limiter_of(place.open("x-partition-1"))


def test_a_total_is_one_limiter_for_all_topics_and_stands_first() -> None:
    place = Place(total=value(100))
    x, y = place.open("x"), place.open("y")
    assert x.chain[0] is y.chain[0]
    assert x.chain[1] is not y.chain[1]
    assert place.registry.live() == [x, y]


def test_a_system_topic_has_no_limit() -> None:
    assert Place(total=value(1)).open("__change_events").chain == ()


def test_a_reconnect_finds_the_same_debt() -> None:
    place = Place()
    first = place.open()
    place.offer(first, 1000, 1)
    place.registry.close(first, place.clock.now)
    place.run(50)
    again = place.open()
    assert not place.offer(again, 1, 1)
    assert limiter_of(again).wait_ns(place.clock.now) == 50 * SECOND, "1000 messages, 1 of burst: 100 s in all"


def test_closing_gives_back_what_was_held_and_lets_others_go() -> None:
    place = Place()
    first, second = place.open(), place.open()
    place.offer(first, 1, 1)
    place.offer(first, 1, 300)
    place.offer(first, 1, 50)
    place.offer(second, 1, 1)
    assert sum(entry.memory for entry in place.registry.close(first, 0)) == 350
    assert not first.is_open
    assert place.registry.close(first, 0) == []
    place.run(0.1)
    assert place.messages_of(second) == 1


def test_a_changed_value_wakes_who_may_go() -> None:
    """Pulsar lets a producer sit out its old pause."""
    place = Place(value(1))
    stream = place.open()
    place.offer(stream, 1, 1)
    for _ in range(300):
        place.offer(stream, 1, 1)
    place.set(value(1000))
    place.apply()
    place.run(0.32)
    assert place.messages_of(stream) == 301


def test_a_lifted_limit_lets_everything_go_at_once() -> None:
    place = Place(value(1), value(1))
    streams = [place.open(topic) for topic in "xyxy"]
    for stream in streams * 3:
        place.offer(stream, 100, 1)
    place.set(None)
    place.apply()
    assert not any(stream.held or stream.chain for stream in streams)
    assert [place.messages_of(stream) for stream in streams] == [300] * 4


def test_a_new_limit_holds_live_streams() -> None:
    place = Place()
    place.set(None)
    stream = place.open()
    assert place.offer(stream, 10**6, 1)
    place.set(value(10))
    place.apply()
    assert place.offer(stream, 1, 1), "it begins with its burst"
    assert not place.offer(stream, 1, 1)


def test_a_limit_set_twice_is_not_full_again() -> None:
    place = Place()
    stream = place.open()
    place.offer(stream, 100, 1)
    wait = limiter_of(stream).wait_ns(0)
    place.set(None)
    place.apply()
    place.set(value(10))
    place.apply()
    assert limiter_of(stream).wait_ns(0) == wait


def test_applying_what_is_in_force_changes_nothing() -> None:
    place = Place(total=value(5))
    streams = [place.open("x"), place.open("x")]
    for stream in streams * 4:
        place.offer(stream, 2, 1)
    before = [(stream.chain, stream.waits_on, stated(stream), len(stream.held)) for stream in streams]
    place.apply()
    assert [(s.chain, s.waits_on, stated(s), len(s.held)) for s in streams] == before


def test_idle_limiters_are_forgotten_and_those_in_debt_or_in_use_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    monkeypatch.setattr(registry, "KEPT", 8)
    used = limiter_of(place.open("used"))
    indebted = place.open("indebted")
    place.offer(indebted, 10**6, 1)
    place.registry.close(indebted, 0)
    for number in range(100):
        place.registry.close(place.open(f"x{number}"), place.clock.now)
    assert len(place.registry.limiters) <= 8 + 2
    assert limiter_of(place.open("used")) is used
    assert limiter_of(place.open("indebted")) is limiter_of(indebted)


def test_a_limiter_that_is_forgotten_tells_the_journal_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    place, reported = Place(value(100)), list[object]()
    monkeypatch.setattr(registry, "KEPT", 0)
    place.journal.read_by(ActivityReader(on_early=reported.append))
    stream = place.open("x")
    own = limiter_of(stream)
    place.offer(stream, 1, 1)
    place.registry.close(stream, place.clock.now)
    place.run(1)
    for number in range(4):
        place.registry.close(place.open(f"y{number}"), place.clock.now)
    assert reported == [own]
    assert own not in place.registry.limiters.values()


def test_a_sweep_never_forgets_a_limiter_that_is_just_being_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The total was made, swept as idle while the topic's limiter was made, and so made twice: twice the limit."""
    place = Place(total=value(100))
    monkeypatch.setattr(registry, "KEPT", 0)
    x, y = place.open("x"), place.open("y")
    assert x.chain[0] is y.chain[0]
    assert set(x.chain) | set(y.chain) <= set(place.registry.limiters.values())


def test_new_total_reaches_all_streams_during_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    monkeypatch.setattr(registry, "KEPT", 0)
    streams = [place.open(topic) for topic in "uvwxyz"]
    place.set(value(20), value(100))
    place.apply()
    assert len({stream.chain[0] for stream in streams}) == 1


@settings(max_examples=50)
@given(steps=st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.integers(0, 2)), max_size=120))
def test_the_table_stays_bounded_and_every_topic_has_one_limiter(steps: list[tuple[int, bool, int]]) -> None:
    place = Place(total=value(50))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "KEPT", 0)
        for topic, opens, seconds in steps:
            place.run(seconds)
            if opens:
                place.offer(place.open(f"x{topic}"), 2, 1)
            elif place.registry.live():
                place.registry.close(place.registry.live()[topic % len(place.registry.live())], place.clock.now)
            live = {limiter for stream in place.registry.live() for limiter in stream.chain}
            assert live <= set(place.registry.limiters.values())
            assert len({limiter.scope for limiter in live}) == len(live)
            assert len(place.registry.limiters) <= 42, "as many as there are topics, and the total"


def test_consumers_are_metered_only_while_a_limit_holds() -> None:
    place = Place(value(100), direction="dispatch")
    stream, granted = place.consumer()
    assert stream.permits is not None
    stream.permits.ask(1000)
    stream.permits.crossed(1, 1, 50)
    assert stream.permits.at_broker == 20
    place.set(value(500))
    place.apply()
    assert limiter_of(stream).windows == stream.permits.windows
    assert stream.permits.at_broker == 100, "the horizon follows the value"
    place.set(value(500, size=50_000))
    place.apply()
    assert [(window.unit, window.horizon) for window in windows_of(stream.chain)] == [
        ("messages", 100),
        ("bytes", 10_000),
    ]
    place.set(value(size=1_000_000))
    place.apply()
    assert [window.unit for window in stream.permits.windows] == ["bytes"]
    place.policies.clear()
    place.apply()
    assert sum(granted) == 1000


def test_publishing_has_no_meter() -> None:
    assert windows_of(Place().open().chain) == ()


def test_a_consumers_permits_are_free_when_it_closes() -> None:
    place = Place(value(100), direction="dispatch")
    first, _ = place.consumer()
    second, _ = place.consumer()
    for consumer in (first, second):
        assert consumer.permits is not None
        consumer.permits.ask(1000)
        consumer.permits.crossed(1, 1, 50)
    assert second.permits is not None
    assert second.permits.at_broker == 10, "the first one has the whole horizon, so this is its share beyond"
    place.registry.close(first, 0)
    assert second.permits.at_broker == 20


def test_a_limiter_that_was_replaced_before_its_tuning_stays_out() -> None:
    """A namespace of many topics gets another value, is only observed, and holds again, faster than they follow."""
    place = Place(value(5))
    streams = [place.open(f"x{number}") for number in range(250)]
    old = {limiter_of(stream) for stream in streams}

    def change(limit: Limit, *, only_tunes: bool) -> None:
        place.set(Value(limit, "file"))
        changed = Change("publish", Setting.TOPIC_OF_NAMESPACE, "t/n", only_tunes=only_tunes)
        place.registry.change([changed], place.clock.now)

    change(Limit(rate(6)), only_tunes=True)
    change(Limit(rate(7), mode="observe"), only_tunes=False)
    streams += [place.open(f"x{number}") for number in range(250)]
    assert [limiter for limiter in old & {*place.registry._to_tune} if limiter not in place.registry.limiters.values()]
    change(Limit(rate(8)), only_tunes=False)
    while place.registry.is_changing:
        place.registry.go_on(place.clock.now)

    assert {limiter_of(stream) for stream in streams} == set(place.registry.limiters.values())
    assert all(limiter_of(stream).limit == Limit(rate(8)) for stream in streams)
    assert not any(limiter.streams for limiter in old - set(place.registry.limiters.values()))


def test_levels_are_those_in_force_until_a_change_is_followed() -> None:
    place = Place(value(5))
    streams = [place.open(f"x{number}") for number in range(2 * SLICE)]
    revision = place.registry.revision
    place.registry.policies.put("publish", Setting.NAMESPACE, "t/n", value(9))
    place.registry.change([Change("publish", Setting.NAMESPACE, "t/n")], place.clock.now)
    assert place.registry.is_changing
    levels = [place.registry.levels_of(stream) for stream in streams]
    assert levels == [[limiter.scope.level for limiter in stream.chain] for stream in streams]
    followed = sum(len(of_stream) == 2 for of_stream in levels)
    assert 0 < followed < SLICE
    assert place.registry.revision > revision
    while place.registry.is_changing:
        place.registry.go_on(place.clock.now)
    assert {tuple(place.registry.levels_of(stream)) for stream in streams} == {("namespace", "topic")}


def test_a_newcomer_during_a_removal_leaves_no_stale_window() -> None:
    place = Place(own=value(10, 1000), direction="dispatch")
    before, _ = place.consumer()
    place.set(value(10))
    # Its turn has not come yet when another consumer finds the new value.
    place.registry._to_tune[limiter_of(before)] = None
    other, _ = place.consumer()
    place.registry.go_on(place.clock.now)
    assert [window.unit for window in windows_of(before.chain)] == ["messages"]
    assert [stream.permits.windows for stream in (before, other) if stream.permits] == [windows_of(before.chain)] * 2


@pytest.mark.parametrize("count", [10, 49, 50, 51, 60])
def test_limit_taken_back_beside_another_change_is_outdated(count: int) -> None:
    """However many steps the earlier change takes of the turn in which the limit is taken back."""
    place, nothing = Place(), Value(Limit(), "rest")
    place.policies.put("publish", Setting.TENANT, "zeta", value(5))
    place.registry.apply(0)

    def opened(tenant: str, number: int) -> Stream:
        topic, stream = parse_topic(f"{tenant}/shop/{number}"), place.stream()
        stream.name = StreamName("publish", tenant, "shop", topic.full, number)
        place.registry.open(stream, topic, 0)
        return stream

    for number in range(count):
        opened("acme", number)
    own = limiter_of(opened("zeta", 0))
    for name, after in (("acme", value(7)), ("zeta", nothing)):
        place.policies.put("publish", Setting.TENANT, name, after)
        place.registry.change([Change("publish", Setting.TENANT, name)], 0)
    while place.registry.is_changing:
        place.registry.go_on(0)
    assert own.scope in place.registry.limiters
    assert place.registry.is_outdated(own.scope)
