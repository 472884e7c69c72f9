"""The last hour of limits in use, minute by minute."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from proxy.observe import limit_history
from proxy.observe.limit_history import SAMPLES, STEP_S, LimitHistory
from tests.proxy.conversation import Peer, World, publisher
from tests.proxy.wire import producer, sends

Make = Callable[..., World]
LIMITS = {"tenants": {"acme": {"publish": {"messages": 1000, "bytes": "1MB"}}}}
TENANT = ("publish", "tenant", "acme")
BUSY, QUIET = "persistent://acme/shop/orders", "persistent://acme/shop/returns"


class Minutes:
    """A proxy whose limits are sampled each minute."""

    def __init__(self, make_world: Make, **settings: Any) -> None:
        self.world = make_world(**settings)
        self.world.advance(0.9)
        engine = self.world.engine
        self.history = LimitHistory(
            engine.registry.limiters, engine.journal, engine.slices, self.world.clock, lambda: 0.0
        )

    def minute(self, client: Peer | None = None, messages: int = 0, producer_id: int = 1, start: int = 0) -> None:
        """A minute in which some messages come, and the sample at its end: late in a second, in which they came."""
        self.world.advance(STEP_S - 0.5)
        if client is not None:
            client >> sends(messages, size=100, producer_id=producer_id, start=start)
        self.world.advance(0.5)
        for _ in self.history.sampling():
            pass

    def rates(self, name: tuple[str, str, str] = TENANT) -> list[float]:
        history = self.history.of(name)
        return [] if history is None else [round(sample.messages_per_s * STEP_S, 3) for sample in history[1]]


def test_limit_has_what_it_passed_in_each_minute(make_world: Make) -> None:
    minutes = Minutes(make_world, limits=LIMITS)
    client, _ = publisher(minutes.world)
    minutes.minute(client, 6)
    minutes.minute(client, 12, start=6)
    minutes.minute()
    assert minutes.rates() == [6, 12, 0]
    history = minutes.history.of(TENANT)
    assert history is not None
    assert history[0].tenant == "acme"
    first, second, _ = history[1]
    assert (first.ago_s, second.ago_s) == (120, 60)
    assert second.bytes_per_s == pytest.approx(20)
    assert second.use == pytest.approx(12 / 60 / 1000), "of messages, which are fuller"


def test_limit_is_sampled_late_in_a_second_of_each_minute(make_world: Make) -> None:
    minutes = Minutes(make_world, limits=LIMITS)
    minutes.world.loop.run(minutes.history.start)
    client, _ = publisher(minutes.world)
    client >> sends(3)
    minutes.world.advance(60.5)
    client >> sends(1, start=3)
    assert len(minutes.history) == 0
    minutes.world.advance(0.5)
    assert len(minutes.history) == 1
    minutes.world.loop.run(minutes.history.stop)
    assert len(minutes.history) == 1


def test_hour_is_kept_and_no_more(make_world: Make) -> None:
    minutes = Minutes(make_world, limits=LIMITS)
    client, _ = publisher(minutes.world)
    for number in range(SAMPLES + 5):
        minutes.minute(client, 1, start=number)
    assert minutes.rates() == [1] * SAMPLES
    minutes.world.advance(60)
    minutes.history._ends.append(minutes.world.clock())
    assert minutes.rates() == [1] * SAMPLES, "a sample that is being taken is not there yet"


def test_limit_whose_limiter_comes_back_goes_on(make_world: Make) -> None:
    minutes, later = Minutes(make_world, limits=LIMITS), make_world(limits=LIMITS)
    client, _ = publisher(minutes.world)
    of_later, _ = publisher(later)
    of_later >> sends(3)
    limiters = dict(minutes.world.engine.registry.limiters)
    minutes.history._limiters = limiters
    minutes.minute(client, 5)
    limiters.clear()
    minutes.minute()
    limiters.update(later.engine.registry.limiters)
    minutes.minute()
    assert minutes.rates() == [5, 0, 3]


def test_limit_that_passed_nothing_for_an_hour_is_forgotten(make_world: Make) -> None:
    minutes = Minutes(make_world, limits=LIMITS)
    client, _ = publisher(minutes.world)
    minutes.minute(client, 5)
    for _ in range(SAMPLES - 1):
        minutes.minute()
    assert len(minutes.history) == 1
    minutes.minute()
    assert len(minutes.history) == 0


def test_counts_of_an_unknown_time_make_no_sample(make_world: Make) -> None:
    minutes = Minutes(make_world, limits=LIMITS)
    minutes.minute()
    client, _ = publisher(minutes.world)
    client >> sends(7)
    minutes.history._sampled_at = minutes.world.clock() + 1  # as if it had been left out for lack of room
    minutes.minute(client, 1, start=7)
    assert minutes.rates() == []
    minutes.minute(client, 2, start=8)
    assert minutes.rates() == [2]


def test_room_is_for_limits_with_streams_before_others(make_world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_history, "MOST_LIMITS", 2)
    topics = {topic: {"publish": {"messages": 1000}} for topic in (BUSY, QUIET, f"{BUSY}-2")}
    minutes = Minutes(make_world, limits={"topics": topics})
    gone, _ = publisher(minutes.world, producer(2, QUIET))
    minutes.minute(gone, 1, producer_id=2)
    minutes.minute(gone, 1)
    assert len(minutes.history) == 2
    gone.leave()
    minutes.minute()
    client, _ = publisher(minutes.world, producer(2, f"{BUSY}-2"))
    minutes.minute(client, 1, producer_id=2)
    assert len(minutes.history) == 2
    assert minutes.history.of(("publish", "topic", QUIET)) is None, "it has no stream"


def test_limits_over_the_bound_are_counted(make_world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_history, "MOST_LIMITS", 1)
    topics = {topic: {"publish": {"messages": 1000}} for topic in (BUSY, QUIET)}
    minutes = Minutes(make_world, limits={"topics": topics})
    client, _ = publisher(minutes.world, producer(2, QUIET))
    client >> sends(1)
    client >> sends(1, producer_id=2)
    for _ in minutes.history.sampling():
        pass
    assert (len(minutes.history), minutes.history.left_out) == (1, 1)


def test_topics_of_one_tenant_leave_room_for_other_limits(make_world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_history, "MOST_LIMITS", 4)
    own, other = [f"{BUSY}-{number}" for number in range(6)], "persistent://other/shop/orders"
    topics = {topic: {"publish": {"messages": 1000}} for topic in (*own, other)}
    tenants = {"other": {"publish": {"messages": 1000}}}
    minutes = Minutes(make_world, limits={"topics": topics, "tenants": tenants})
    client, _ = publisher(minutes.world, *(producer(number + 2, topic) for number, topic in enumerate(own)))

    def send() -> None:
        for number in range(6):
            client >> sends(1, producer_id=number + 2)
        for _ in minutes.history.sampling():
            pass

    send()
    assert (len(minutes.history), minutes.history.left_out) == (4, 2)
    late, _ = publisher(minutes.world, producer(2, other))
    late >> sends(1, producer_id=2)
    minutes.world.advance(60)
    late >> sends(1, producer_id=2, start=1)
    send()
    kept = [minutes.history.of(("publish", "topic", topic)) is not None for topic in own]
    assert kept == [True, True, False, False, False, False]
    assert minutes.history.of(("publish", "tenant", "other")) is not None
    assert minutes.history.of(("publish", "topic", other)) is not None
    send()
    assert (len(minutes.history), minutes.history.left_out) == (4, 4), "a group with as many takes none"


def test_ring_takes_a_kilobyte(make_world: Make) -> None:
    minutes = Minutes(make_world, limits=LIMITS)
    client, _ = publisher(minutes.world)
    for number in range(SAMPLES + 5):
        minutes.minute(client, 1, start=number)
    (ring,) = minutes.history._rings.values()
    assert sys.getsizeof(ring) + sys.getsizeof(ring.samples) < 1100


def test_unit_of_work_looks_at_few_limits(make_world: Make) -> None:
    topics = {f"{BUSY}-{number}": {"publish": {"messages": 10}} for number in range(60)}
    minutes = Minutes(make_world, limits={"topics": topics})
    client, _ = publisher(minutes.world, *(producer(number + 2, f"{BUSY}-{number}") for number in range(60)))
    assert client
    assert len(list(minutes.history.sampling())) >= 6
