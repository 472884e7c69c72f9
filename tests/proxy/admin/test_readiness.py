"""`/readyz`: the proxy accepts clients, and the broker answers."""

import asyncio
from pathlib import Path

from protocol.pulsar_pb2 import AuthenticationError, AuthorizationError, CommandError
from proxy.admin.app import Readiness
from proxy.admin.shared_work import MOST_WAITING
from tests.proxy.conversation import World
from tests.proxy.identity.keys import token_files
from tests.proxy.wire import body, connected, error


def ask(world: World, *, is_accepting: bool = True) -> "asyncio.Task[str | None]":
    readiness = Readiness(world.engine)
    readiness.is_accepting = is_accepting
    task: asyncio.Task[str | None] = world.loop.run(lambda: world.loop.create_task(readiness.problem()))
    return task


def test_it_is_ready_when_the_broker_answers_whatever_it_says(world: World) -> None:
    for answer in (connected(), error(2**64 - 1, CommandError().error, "who are you")):
        asked = ask(world)
        broker = world.dialled()
        assert broker.heard_names() == ["CONNECT"]
        assert not asked.done()
        broker >> answer
        assert asked.result() is None
        assert broker.is_gone


def test_it_is_not_ready_while_it_does_not_accept(world: World) -> None:
    assert ask(world, is_accepting=False).result() == "not accepting connections"
    assert world.dials == []


def test_a_broker_that_closes_is_none(world: World) -> None:
    asked = ask(world)
    world.dialled().half_close()
    assert asked.result() == "broker pulsar://127.0.0.1:6651 closed the connection without an answer"


def test_a_broker_that_cannot_be_reached_is_told(world: World) -> None:
    world.broker_answers = False
    asked = ask(world)
    world.refuse(ConnectionRefusedError("nobody listens there"))
    assert asked.result() == "broker pulsar://127.0.0.1:6651 does not answer: nobody listens there"


def test_a_broker_that_keeps_silent_is_told(world: World) -> None:
    asked = ask(world)
    world.advance(3.1)
    assert asked.result() == "broker pulsar://127.0.0.1:6651 does not answer: time over"
    assert world.dialled().is_gone


def test_a_broker_that_does_not_accept_sluice_s_own_credentials_is_told(tmp_path: Path) -> None:
    world = World(authentication=token_files(tmp_path))
    for kind, problem in (
        (AuthenticationError, "does not accept Sluice's own credentials (authentication.broker)"),
        (AuthorizationError, None),
    ):
        asked = ask(world)
        broker = world.dialled()
        (frame,) = broker.heard()
        assert body(frame).auth_data == (tmp_path / "sluice.token").read_bytes()
        broker >> error(2**64 - 1, kind, "no")
        found = asked.result()
        assert found == (None if problem is None else f"broker pulsar://127.0.0.1:6651 {problem}")
    world.close()


def test_all_who_ask_share_one_probe_of_a_broker_that_hangs(world: World) -> None:
    readiness = Readiness(world.engine)
    readiness.is_accepting = True

    def ask_again() -> "asyncio.Task[str | None]":
        task: asyncio.Task[str | None] = world.loop.run(lambda: world.loop.create_task(readiness.problem()))
        return task

    asked = [ask_again() for _ in range(400)]
    assert len(world.dials) == 1
    assert sum(each.done() for each in asked) == 400 - MOST_WAITING
    assert asked[-1].result() == "the broker has not answered yet, and too many callers wait for its answer"
    world.advance(3.1)
    problem = "broker pulsar://127.0.0.1:6651 does not answer: time over"
    assert {each.result() for each in asked[:MOST_WAITING]} == {problem}
    assert ask_again().result() == problem
    assert len(world.dials) == 1
    world.dialled()
    world.advance(1.1)
    later = [ask_again() for _ in range(400)]
    assert len(world.dials) == 2
    assert later[-1].result() == problem, "what was last known"
    world.dialled() >> connected()
    assert {each.result() for each in later[:MOST_WAITING]} == {None}
    assert ask_again().result() is None
    assert len(world.dials) == 2


def test_a_look_asks_each_broker_and_says_which_answers(make_world) -> None:
    world = make_world(broker=["pulsar://127.0.0.1:6651", "pulsar://127.0.0.1:6652"])
    readiness = Readiness(world.engine)
    readiness.is_accepting = True
    world.loop.run(readiness.look)
    world.dialled().half_close()
    world.dialled() >> connected()
    world.loop.run(readiness.look)
    up = {"pulsar://127.0.0.1:6651": 0, "pulsar://127.0.0.1:6652": 1}
    assert world.counters.broker_up == up
    assert list(world.counters.broker_round_trip_ns) == ["pulsar://127.0.0.1:6652"]
    assert world.counters.ready == 1
    assert len(world.dials) == 2, "the second look is less than 5 s later"
