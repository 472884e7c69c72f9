"""A fleet's link by topics, with a real broker: who coordinates, and what becomes of it when it stops or moves."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from fleet.messages import MOST_MESSAGE
from loadgen.real.standalone import StandaloneBroker
from proxy.brokers.dialing import BrokerDialer
from proxy.brokers.targets import BROKERS, Targets
from proxy.config.model import Config
from proxy.fleet.link import Callbacks
from proxy.fleet.topic_link import Membership, TopicLink
from proxy.observe.counters import Counters
from proxy.tls.certificates import Certificates
from tests.real.pulsar_rest import PulsarRest

pytestmark = pytest.mark.real


class Member:
    """A link that remembers what it was told."""

    def __init__(self, service_url: str, name: str) -> None:
        self.reports: list[bytes] = []
        self.grants: list[bytes] = []
        self.turns: list[str] = []
        self.confirmed = 0
        broker = BROKERS.parse(service_url)
        certificates = Certificates(Config(broker=service_url))
        dialer = BrokerDialer(Targets([broker]), certificates, Counters(), names_clients=False)
        callbacks = Callbacks(
            self.reports.append,
            self.grants.append,
            lambda: self.turns.append("lead"),
            lambda: self.turns.append("unlead"),
            self._confirm,
        )
        self.link = TopicLink((broker,), dialer, Membership("public/default", "links", name, 1.0), callbacks)

    def _confirm(self, asked: int) -> None:
        assert asked > 0
        self.confirmed += 1


async def _until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 - the broker's own time
            await asyncio.sleep(0.02)


def _leading(members: list[Member]) -> list[Member]:
    return [each for each in members if each.link.state == "leading"]


def _stands(members: list[Member]) -> bool:
    return len(_leading(members)) == 1 and all(each.link.state != "connecting" for each in members)


@pytest.fixture
async def members(real_broker: StandaloneBroker) -> AsyncIterator[list[Member]]:
    found = [Member(real_broker.service_url, name) for name in ("a", "b", "c")]
    for each in found:
        await each.link.start()
    await _until(lambda: _stands(found))
    yield found
    for each in found:
        await each.link.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def _pass_all(members: list[Member]) -> None:
    """Reports reach the one who leads, its grants reach all, and it is confirmed."""
    leader = _leading(members)[0]
    before = leader.confirmed

    def told() -> bool:
        for each in members:
            each.link.report(b"r")
        leader.link.grant(b"g" * MOST_MESSAGE)
        return len(leader.reports) >= len(members) and all(each.grants for each in members)

    await _until(told)
    await _until(lambda: leader.confirmed > before)
    assert all(each.confirmed == 0 for each in members if "lead" not in each.turns)


async def test_one_leads_and_another_follows_it(members: list[Member]) -> None:
    await _pass_all(members)
    first = _leading(members)[0]
    await first.link.stop()
    assert first.turns[-1] == "unlead"
    others = [each for each in members if each is not first]
    await _until(lambda: _stands(others))
    await _pass_all(others)


async def test_a_silent_coordinator_is_fenced_out(members: list[Member]) -> None:
    silent = _leading(members)[0]  # it grants nothing, as a process that is stopped
    others = [each for each in members if each is not silent]

    def another_one_grants() -> bool:
        return any(each.link.grant(b"g") for each in others) and all(each.grants for each in others)

    await _until(another_one_grants)
    silent.link.grant(b"late")  # as a process that goes on: the broker lets none through, and ends it
    await _until(lambda: silent.turns[-1] == "unlead")
    assert b"late" not in others[0].grants


async def test_one_leads_again_when_the_topics_move(members: list[Member], rest: PulsarRest) -> None:
    former = _leading(members)[0]
    turns = len(former.turns)
    await asyncio.to_thread(rest.unload, "non-persistent://public/default/links-grants")
    await _until(lambda: len(former.turns) > turns)
    assert former.turns[turns] == "unlead"
    await _until(lambda: _stands(members))
    await _pass_all(members)
