"""What the names of brokers resolve to."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.brokers.targets import Names, UnresolvedError
from proxy.runtime import RESOLVERS
from tests.manual_clock import ManualClock
from tests.proxy.manual_loop import ManualLoop


class Resolver(ManualLoop):
    """Keeps all that is asked until the test answers."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.asked: list[tuple[str, asyncio.Future[list[str]]]] = []

    async def getaddrinfo(self, host: Any, port: Any, **more: Any) -> Any:
        self.asked.append((host, self.create_future()))
        self.names[host] = await self.asked[-1][1]
        return await super().getaddrinfo(host, port, **more)

    def ask(self, names: Names, host: str, *, is_named: bool = True) -> "asyncio.Task[list[str]]":
        task: asyncio.Task[list[str]] = self.run(
            lambda: self.create_task(names.addresses(host, 6650, is_named=is_named))
        )
        return task

    def answer(self, number: int, *addresses: str) -> None:
        self.run(self.asked[number][1].set_result, list(addresses))

    def fail(self, number: int, error: Exception) -> None:
        self.run(self.asked[number][1].set_exception, error)


@pytest.fixture
def loop() -> Iterator[Resolver]:
    loop = Resolver()
    yield loop
    loop.settle()
    assert not loop.trouble
    loop.close()


def test_of_many_who_want_the_same_name_at_once_one_asks(loop: Resolver) -> None:
    names = Names()
    waiting = [loop.ask(names, "broker") for _ in range(1000)]
    assert [host for host, _ in loop.asked] == ["broker"]
    loop.answer(0, "192.0.2.1", "192.0.2.2")
    assert {tuple(task.result()) for task in waiting} == {("192.0.2.1", "192.0.2.2")}


def test_nothing_is_remembered(loop: Resolver) -> None:
    names = Names()
    loop.ask(names, "broker")
    loop.answer(0, "192.0.2.1")
    assert len(names) == 0
    later = loop.ask(names, "broker")
    loop.answer(1, "192.0.2.9")
    assert later.result() == ["192.0.2.9"]


def test_other_names_do_not_wait_for_it(loop: Resolver) -> None:
    names = Names()
    slow, quick = loop.ask(names, "slow"), loop.ask(names, "quick")
    loop.answer(1, "192.0.2.1")
    assert quick.result() == ["192.0.2.1"]
    assert not slow.done()
    loop.answer(0, "192.0.2.2")


@pytest.mark.parametrize("error", [OSError("no such name"), UnicodeError("no such name")])
def test_a_name_that_leads_nowhere_is_an_error_of_each_who_asked(loop: Resolver, error: Exception) -> None:
    names = Names()
    waiting = [loop.ask(names, "nowhere") for _ in range(2)]
    loop.fail(0, error)
    first, second = (task.exception() for task in waiting)
    assert isinstance(first, UnresolvedError)
    assert str(first) == str(second) == "no such name"
    assert first is not second, "or each who raises it would make it longer"
    assert len(names) == 0


def test_who_leaves_takes_the_answer_from_nobody(loop: Resolver) -> None:
    names = Names()
    leaves, stays = loop.ask(names, "broker"), loop.ask(names, "broker")
    loop.run(leaves.cancel)
    assert leaves.cancelled()
    loop.answer(0, "192.0.2.1")
    assert stays.result() == ["192.0.2.1"]


@pytest.mark.parametrize("fails", [False, True])
def test_an_answer_that_nobody_waits_for_any_more_is_forgotten(loop: Resolver, *, fails: bool) -> None:
    names = Names()
    loop.run(loop.ask(names, "broker").cancel)
    if fails:
        loop.fail(0, OSError("no such name"))
    else:
        loop.answer(0, "192.0.2.1")
    assert len(names) == 0


def test_names_that_clients_choose_leave_threads_to_those_of_brokers(loop: Resolver) -> None:
    names = Names()
    for number in range(40):
        loop.ask(names, f"chosen-{number}", is_named=False)
    assert len(loop.asked) < RESOLVERS / 2
    broker = loop.ask(names, "broker")
    assert loop.asked[-1][0] == "broker"
    loop.answer(len(loop.asked) - 1, "192.0.2.1")
    assert broker.result() == ["192.0.2.1"]
    for number in range(40):
        loop.answer(number + (number >= RESOLVERS // 4), "192.0.2.2")


def test_no_more_names_are_asked_for_than_there_are_threads(loop: Resolver) -> None:
    """What waits for a thread cannot be called back, and the process waits for it when it ends."""
    names = Names()
    waiting = [loop.ask(names, f"broker-{number}", is_named=number % 2 == 0) for number in range(100)]
    assert len(loop.asked) == RESOLVERS
    for number in range(100):
        loop.answer(number, f"192.0.2.{number}")
    assert all(task.result() for task in waiting)
    assert len(names) == 0


def test_who_gives_up_before_it_is_his_turn_is_not_asked_for(loop: Resolver) -> None:
    names = Names()
    waiting = [loop.ask(names, f"broker-{number}") for number in range(100)]
    for task in waiting[-90:]:
        loop.run(task.cancel)
    came_back = loop.ask(names, "broker-99")
    for number in range(11):
        loop.answer(number, "192.0.2.1")
    assert [host for host, _ in loop.asked] == [*(f"broker-{number}" for number in range(10)), "broker-99"]
    assert came_back.result() == ["192.0.2.1"]
    assert len(names) == 0
