"""A limit in mode `observe` holds nobody, and says what it would have held."""

from collections.abc import Callable
from typing import Any

from accesslog.record import LimitLine
from tests.proxy.conversation import NOTHING, World, consumer, publisher
from tests.proxy.wire import TOPIC, flow, message, messages, send, sends

Make = Callable[..., World]


def observed(messages: int = 10, **more: Any) -> dict[str, Any]:
    return {"topics": {TOPIC: {"publish": {"messages": messages, "mode": "observe", **more}}}}


def would_hold(world: World) -> int:
    (stream,) = world.engine.registry.live()
    assert stream.observed is not None
    return stream.observed.usage.held_messages


def test_everything_passes_at_once(make_world: Make) -> None:
    world = make_world(limits=observed(1))
    client, broker = publisher(world)
    client >> sends(50)
    broker << sends(50)
    client >> send(50)
    broker << send(50)
    assert would_hold(world) == 50, "all but the first"


def test_what_would_have_been_held_is_counted_as_time_passes(make_world: Make) -> None:
    world = make_world(limits=observed(10))
    client, _ = publisher(world)
    client >> sends(11)
    (stream,) = world.engine.registry.live()
    assert stream.observed is not None
    assert (stream.observed.usage.passed_messages, stream.observed.usage.held_messages) == (1, 10)
    world.advance(0.55)
    assert (stream.observed.usage.passed_messages, stream.observed.usage.held_messages) == (6, 5)
    world.advance(0.55)
    assert stream.observed.usage.held_messages == 0
    assert round(stream.observed.usage.throttled.read(world.clock.now) / 1e9, 2) == 1


def test_the_log_has_a_line_for_the_limit_with_its_mode(make_world: Make) -> None:
    world = make_world(limits=observed(10))
    client, _ = publisher(world)
    client >> sends(11)
    world.advance(2)
    lines = world.lines(LimitLine)
    assert {line.mode for line in lines} == {"observe"}
    assert sum(line.passed_messages for line in lines) == 11
    assert round(sum(line.throttled_ms for line in lines), -1) == 1000


def test_beside_an_enforced_limit_it_sees_what_that_lets_pass(make_world: Make) -> None:
    limits = {**observed(5), "tenants": {"acme": {"publish": {"messages": 10}}}}
    world = make_world(limits=limits)
    client, broker = publisher(world)
    client >> sends(11)
    broker << send(0)
    (stream,) = world.engine.registry.live()
    assert stream.observed is not None
    assert stream.observed.usage.offered_messages == 1
    world.advance(1.01)
    broker << sends(10, start=1)
    assert stream.observed.usage.offered_messages == 11
    assert stream.observed.usage.held_messages == 5


def test_more_than_a_connection_may_hold_is_not_played(make_world: Make) -> None:
    """Enforcing would stop reading there, so that the rest would come later, and otherwise."""
    world = make_world(limits=observed(1), publish={"hold_connection": 1000})
    client, broker = publisher(world)
    client >> sends(100)
    broker << sends(100)
    (stream,) = world.engine.registry.live()
    assert stream.observed is not None
    usage = stream.observed.usage
    assert usage.held_messages + usage.dropped_messages + usage.passed_messages == 100
    assert 0 < usage.held_size <= 1000


def test_deliveries_can_be_observed_too(make_world: Make) -> None:
    world = make_world(limits={"each_topic": {"dispatch": {"messages": 1, "mode": "observe"}}})
    client, broker = consumer(world)
    client >> flow(1000)
    broker << flow(1000)
    broker >> messages(5)
    client << messages(5)
    broker >> message(5)
    client << message(5)
    assert would_hold(world) == 5, "all but the first"


def test_deliveries_counted_by_entry_are_observed_by_entry(make_world: Make) -> None:
    """dispatchThrottlingOnBatchMessageEnabled: an entry of 50 messages takes one token, as where it is enforced."""
    world = make_world(
        limits={"each_topic": {"dispatch": {"messages": 10, "mode": "observe"}}},
        dispatch={"dispatchThrottlingOnBatchMessageEnabled": True},
    )
    client, broker = consumer(world)
    client >> flow(1000)
    broker << flow(1000)
    batches = [message(number, messages=50) for number in range(11)]
    broker >> batches
    client << batches
    assert would_hold(world) == 500, "all but the first"
    world.advance(0.1)
    assert would_hold(world) == 450, "ten entries a second"


def test_switched_to_enforce_the_limit_goes_on_where_its_bucket_stood(make_world: Make) -> None:
    world = make_world(limits=observed(10))
    client, broker = publisher(world)
    client >> sends(3)
    broker << sends(3)
    enforce = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 10}}}})
    world.engine.registry.policies = enforce.engine.registry.policies
    world.loop.run(world.engine.policies_changed)
    client >> send(3)
    broker << NOTHING
    world.advance(0.1)
    broker << send(3)
