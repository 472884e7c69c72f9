"""`/readyz`: the proxy accepts clients, and a broker has answered since the start."""

import asyncio
from pathlib import Path

from protocol.pulsar_pb2 import AuthenticationError, AuthorizationError, CommandError
from proxy.admin.readiness import BrokerHealth, Readiness
from proxy.admin.shared_work import MOST_WAITING
from proxy.degraded import DegradedStates
from tests.proxy.conversation import World
from tests.proxy.identity.keys import token_files
from tests.proxy.wire import body, connected, error

NEVER = "no broker has answered since the start"
SILENT = "broker pulsar://127.0.0.1:6651 does not answer: time over"


class Probed:
    """The readiness of a process, and what its parts are told."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.changes = 0
        self.brokers = BrokerHealth(world.engine, self._changed)
        self.states = DegradedStates(announced=[self.brokers.degraded], clock=world.loop.time)
        self.readiness = Readiness(world.engine, self.brokers, states=self.states)
        self.readiness.is_accepting = True

    def ask(self) -> "asyncio.Task[str | None]":
        async def answer() -> str | None:
            await self.readiness.fresh()
            return self.readiness.problem()

        task: asyncio.Task[str | None] = self.world.loop.run(lambda: self.world.loop.create_task(answer()))
        return task

    def _changed(self) -> None:
        self.changes += 1


def test_it_is_ready_when_the_broker_answers_whatever_it_says(world: World) -> None:
    for answer in (connected(), error(2**64 - 1, CommandError().error, "who are you")):
        asked = Probed(world).ask()
        broker = world.dialled()
        assert broker.heard_names() == ["CONNECT"]
        assert not asked.done()
        broker >> answer
        assert asked.result() is None
        assert broker.is_gone


def test_it_is_not_ready_while_it_does_not_accept(world: World) -> None:
    probed = Probed(world)
    probed.readiness.is_accepting = False
    assert probed.ask().result() == "not accepting connections"
    assert world.dials == []


def test_a_broker_that_closes_is_none(world: World) -> None:
    asked = Probed(world).ask()
    world.dialled().half_close()
    assert asked.result() == f"broker pulsar://127.0.0.1:6651 closed the connection without an answer; {NEVER}"


def test_a_broker_that_cannot_be_reached_is_told(world: World) -> None:
    world.broker_answers = False
    asked = Probed(world).ask()
    world.refuse(ConnectionRefusedError("nobody listens there"))
    assert asked.result() == f"broker pulsar://127.0.0.1:6651 does not answer: nobody listens there; {NEVER}"


def test_a_broker_that_keeps_silent_is_told(world: World) -> None:
    asked = Probed(world).ask()
    world.advance(3.1)
    assert asked.result() == f"{SILENT}; {NEVER}"
    assert world.dialled().is_gone


def test_a_broker_that_does_not_accept_sluice_s_own_credentials_is_told(tmp_path: Path) -> None:
    world = World(authentication=token_files(tmp_path))
    for kind, problem in (
        (AuthenticationError, "does not accept Sluice's own credentials (authentication.broker)"),
        (AuthorizationError, None),
    ):
        asked = Probed(world).ask()
        broker = world.dialled()
        (frame,) = broker.heard()
        assert body(frame).auth_data == (tmp_path / "sluice.token").read_bytes()
        broker >> error(2**64 - 1, kind, "no")
        answer = asked.result()
        assert answer == (None if problem is None else f"broker pulsar://127.0.0.1:6651 {problem}; {NEVER}")
    world.close()


def test_all_who_ask_share_one_look_at_a_broker_that_hangs(world: World) -> None:
    probed = Probed(world)
    asked = [probed.ask() for _ in range(400)]
    assert len(world.dials) == 1
    assert sum(each.done() for each in asked) == 400 - MOST_WAITING
    assert asked[-1].result() == NEVER
    world.advance(3.1)
    assert {each.result() for each in asked[:MOST_WAITING]} == {f"{SILENT}; {NEVER}"}
    assert probed.ask().result() == f"{SILENT}; {NEVER}"
    assert len(world.dials) == 1
    world.dialled()
    world.advance(1.1)
    later = [probed.ask() for _ in range(400)]
    assert len(world.dials) == 2
    assert later[-1].result() == f"{SILENT}; {NEVER}", "what was last known"
    world.dialled() >> connected()
    assert {each.result() for each in later[:MOST_WAITING]} == {None}
    assert probed.ask().result() is None
    assert len(world.dials) == 2


def test_outage_after_the_first_answer_is_degraded_and_ready(world: World) -> None:
    probed = Probed(world)
    asked = probed.ask()
    world.dialled() >> connected()
    assert asked.result() is None
    assert probed.states.now() == []
    world.advance(5.1)
    world.broker_answers = False
    asked = probed.ask()
    world.refuse(ConnectionRefusedError("nobody listens there"))
    assert asked.result() is None
    (degraded,) = probed.states.now()
    assert degraded.state.cause == "broker_unreachable"
    assert "pulsar://127.0.0.1:6651 does not answer: nobody listens there" in degraded.state.reason
    assert probed.changes == 1


def test_outage_is_over_by_itself_when_a_broker_answers(world: World) -> None:
    probed = Probed(world)
    world.broker_answers = False
    world.loop.run(probed.brokers.look)
    world.refuse(ConnectionRefusedError("nobody listens there"))
    assert probed.changes == 1
    world.broker_answers = True
    world.advance(5.1)
    world.dialled() >> connected()
    assert (probed.changes, probed.states.now(), probed.readiness.problem()) == (2, [], None)
    dials = len(world.dials)
    world.advance(60)
    assert len(world.dials) == dials, "brokers that answer are asked on request alone"


def test_outage_that_is_chosen_makes_it_not_ready(make_world) -> None:
    world = make_world(admin_access={"not_ready_when": ["broker_unreachable"]})
    probed = Probed(world)
    asked = probed.ask()
    world.dialled() >> connected()
    assert asked.result() is None
    world.advance(5.1)
    world.broker_answers = False
    asked = probed.ask()
    world.refuse(ConnectionRefusedError("nobody listens there"))
    problem = asked.result()
    assert problem is not None
    assert problem.startswith("broker_unreachable: no client can connect: broker pulsar://127.0.0.1:6651")


def test_probe_waits_a_moment_for_brokers_that_have_answered(world: World) -> None:
    probed = Probed(world)
    asked = probed.ask()
    world.dialled() >> connected()
    assert asked.done()
    world.advance(5.1)
    asked = probed.ask()
    world.advance(0.4)
    assert not asked.done()
    world.advance(0.2)
    assert asked.result() is None, "a probe that is late would count as not ready"
    assert probed.states.now() == []
    world.advance(3)
    assert [each.state.cause for each in probed.states.now()] == ["broker_unreachable"]
    probed.brokers.stop()


def test_stopped_looks_ask_no_more(world: World) -> None:
    probed = Probed(world)
    world.broker_answers = False
    world.loop.run(probed.brokers.look)
    world.refuse(ConnectionRefusedError("nobody listens there"))
    probed.brokers.stop()
    world.advance(60)
    world.loop.run(probed.brokers.look)
    assert len(world.dials) == 1


def test_a_look_asks_each_broker_and_says_which_answers(make_world) -> None:
    world = make_world(broker=["pulsar://127.0.0.1:6651", "pulsar://127.0.0.1:6652"])
    probed = Probed(world)
    world.loop.run(probed.brokers.look)
    world.dialled().half_close()
    world.dialled() >> connected()
    world.loop.run(probed.brokers.look)
    up = {"pulsar://127.0.0.1:6651": 0, "pulsar://127.0.0.1:6652": 1}
    assert world.counters.broker_up == up
    assert list(world.counters.broker_round_trip_ns) == ["pulsar://127.0.0.1:6652"]
    assert (probed.readiness.problem(), probed.states.now()) == (None, [])
    assert len(world.dials) == 2, "the second look is less than 5 s later"


def test_brokers_of_a_reload_are_asked_at_once(world: World) -> None:
    probed = Probed(world)
    world.loop.run(probed.brokers.look)
    world.dialled() >> connected()
    world.engine.take_brokers(world.config.model_copy(update={"broker": (world.config.broker[0]._replace(port=6652),)}))
    world.loop.run(probed.brokers.brokers_changed)
    assert len(world.dials) == 2
    world.dialled().half_close()
    assert world.counters.broker_up == {"pulsar://127.0.0.1:6652": 0}
    assert probed.readiness.problem() is None, "all replicas take the same reload at once"
    assert [each.state.cause for each in probed.states.now()] == ["broker_unreachable"]
    probed.brokers.stop()
