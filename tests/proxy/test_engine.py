"""What all sessions of a process share."""

from collections.abc import Callable

from limiter.policies import Policies
from proxy.config import Config
from proxy.engine import Engine
from proxy.observe.counters import Counters
from tests.proxy.conversation import World, publisher
from tests.proxy.wire import TOPIC, sends

Make = Callable[..., World]


class Session:
    """Notes what it is told of the process's budget; may fill it again."""

    def __init__(self, fill: Callable[[], None] = lambda: None) -> None:
        self.is_paused = False
        self._fill = fill

    def hold_process_turned(self, is_full: bool) -> None:  # noqa: FBT001 - as Throttleable has it
        self.is_paused = is_full
        if not is_full:
            self._fill()


def make_engine() -> Engine:
    config = Config.model_validate({"publish": {"hold_total": 100}})
    return Engine(config, Policies(), Counters(), lambda: None)


def test_everybody_hears_that_the_budget_is_full_and_that_it_has_room() -> None:
    engine = make_engine()
    sessions = [Session(), Session()]
    engine.sessions.update(sessions)
    engine.held.take(100)
    assert all(session.is_paused for session in sessions)
    engine.held.give(50)
    assert not any(session.is_paused for session in sessions)


def test_whoever_fills_it_again_pauses_everybody_again() -> None:
    engine = make_engine()
    sessions = [Session(lambda: engine.held.take(60)) for _ in range(5)]
    engine.sessions.update(sessions)
    engine.held.take(100)
    engine.held.give(60)
    assert engine.held.is_full
    assert all(session.is_paused for session in sessions)


def test_the_configured_broker_is_the_one_that_clients_may_reach() -> None:
    engine = Engine(Config(), Policies(), Counters(), lambda: None)
    assert engine.broker == ("127.0.0.1", 6651)
    assert engine.lookups.limit == Config().max_lookups_in_flight


def test_changed_policies_reach_the_streams_that_are_open(make_world: Make) -> None:
    world = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}}}})
    client, broker = publisher(world)
    client >> sends(3)
    broker.heard()
    world.engine.registry.policies.topics.clear()
    world.loop.run(world.engine.policies_changed)
    broker << sends(2, start=1)
