"""A fleet's link by topics, with a real broker: who coordinates, and what becomes of it when it stops or moves."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator

import pytest

from fleet.messages import MOST_MESSAGE
from loadgen.real.standalone import StandaloneBroker
from proxy.brokers.dialing import BrokerDialer
from proxy.brokers.targets import BROKERS, Targets
from proxy.config.model import Config
from proxy.fleet.topic_link import SILENT_LEASES, Membership, TopicLink
from proxy.observe.counters import Counters
from proxy.tls.certificates import Certificates
from tests.proxy.fleet.heard import Heard
from tests.real.fleet_member import LEASE_S
from tests.real.pulsar_rest import PulsarRest
from tests.waiting import until

pytestmark = pytest.mark.real


class Member(Heard):
    """A link that remembers what it was told."""

    def __init__(self, service_url: str, name: str) -> None:
        super().__init__()
        broker = BROKERS.parse(service_url)
        certificates = Certificates(Config(broker=service_url))
        dialer = BrokerDialer(Targets([broker]), certificates, Counters(), names_clients=False)
        self.link = TopicLink((broker,), dialer, Membership("public/default", "links", name, 1.0), self.callbacks)


def _leading(members: list[Member]) -> list[Member]:
    return [each for each in members if each.link.state == "leading"]


def _stands(members: list[Member]) -> bool:
    return len(_leading(members)) == 1 and all(each.link.state != "connecting" for each in members)


@pytest.fixture
async def members(real_broker: StandaloneBroker) -> AsyncIterator[list[Member]]:
    found = [Member(real_broker.service_url, name) for name in ("a", "b", "c")]
    for each in found:
        await each.link.start()
    await until(lambda: _stands(found))
    yield found
    for each in found:
        await each.link.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def _pass_all(members: list[Member]) -> None:
    """Reports reach the one who leads, its grants reach all, and it is confirmed."""
    leader = _leading(members)[0]
    before = len(leader.asked)

    def told() -> bool:
        for each in members:
            each.link.report(b"r")
        leader.link.grant(b"g" * MOST_MESSAGE)
        return len(leader.reports) >= len(members) and all(each.grants for each in members)

    await until(told)
    await until(lambda: len(leader.asked) > before)
    assert all(each.asked == [] for each in members if "lead" not in each.turns)


async def test_one_leads_and_another_follows_it(members: list[Member]) -> None:
    await _pass_all(members)
    first = _leading(members)[0]
    await first.link.stop()
    assert first.turns[-1] == "unlead"
    others = [each for each in members if each is not first]
    await until(lambda: _stands(others))
    await _pass_all(others)


async def test_a_coordinator_that_grants_nothing_gives_access_up(members: list[Member]) -> None:
    silent = _leading(members)[0]
    others = [each for each in members if each is not silent]
    began = time.monotonic()
    await until(lambda: silent.turns[-1] == "unlead")
    assert time.monotonic() - began < 1.5  # a lease, and less than those who wait would have taken to fence it out
    await until(lambda: any(each.link.state == "leading" for each in others))


async def test_one_leads_again_when_the_topics_move(members: list[Member], rest: PulsarRest) -> None:
    former = _leading(members)[0]
    turns = len(former.turns)
    await asyncio.to_thread(rest.unload, "non-persistent://public/default/links-grants")
    await until(lambda: len(former.turns) > turns)
    assert former.turns[turns] == "unlead"
    await until(lambda: _stands(members))
    await _pass_all(members)


class Process:
    """A member in a process of its own."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.lines: list[tuple[float, str]] = []
        self.reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.decode().strip()))

    def told(self, line: str) -> list[float]:
        """When it told this."""
        return [at for at, each in self.lines if each == line]

    @property
    def is_leading(self) -> bool:
        return len(self.told("leads")) > len(self.told("leads no more"))


@pytest.fixture
async def processes(real_broker: StandaloneBroker) -> AsyncIterator[list[Process]]:
    found = []
    for name in ("a", "b", "c"):
        command = (sys.executable, "-m", "tests.real.fleet_member", real_broker.service_url, name)
        found.append(Process(name, await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)))
    try:
        await until(lambda: all(_hears(found, each) for each in found))
        yield found
    finally:
        for each in found:
            if each.process.returncode is None:
                each.process.kill()
            await each.process.wait()
            await each.reading


def _hears(processes: list[Process], one: Process) -> bool:
    return any(one.told(f"hears {each.name}") for each in processes if each.is_leading)


async def test_the_next_in_line_leads_when_the_coordinators_process_is_killed(processes: list[Process]) -> None:
    first = next(each for each in processes if each.is_leading)
    others = [each for each in processes if each is not first]
    killed = time.monotonic()
    first.process.kill()
    await until(lambda: any(each.is_leading for each in others))
    assert time.monotonic() - killed < SILENT_LEASES * LEASE_S  # sooner than one who waits would take access
    assert sum(each.is_leading for each in others) == 1
    assert not any(each.told("leads no more") for each in others)


async def test_a_frozen_coordinator_is_fenced_out_and_reaches_nobody_when_it_goes_on(processes: list[Process]) -> None:
    first = next(each for each in processes if each.is_leading)
    others = [each for each in processes if each is not first]
    frozen = time.monotonic()
    first.process.send_signal(signal.SIGSTOP)

    def followed() -> Process | None:
        """The one that leads and both hear: if both lose patience at the same moment, one fences out the other."""
        heard = (each for each in others if all(one.told(f"hears {each.name}") for one in others))
        return next((each for each in heard if each.is_leading), None)

    await until(followed)
    taken = min(at for each in others for at in each.told("leads")) - frozen
    assert SILENT_LEASES * LEASE_S - 1 < taken < 2 * SILENT_LEASES * LEASE_S + 1
    second = followed()
    assert second is not None
    gone_on = time.monotonic()
    first.process.send_signal(signal.SIGCONT)
    await until(lambda: first.told("leads no more") and first.told(f"hears {second.name}"))
    assert first.told("leads no more")[0] - gone_on < LEASE_S + 1
    assert all(len(each.told(f"hears {first.name}")) == 1 for each in others)
    assert second.is_leading
