"""A fleet's link by topics, with a real broker: who coordinates, and what becomes of it when it stops or moves."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator

import pytest

from fleet.messages import MOST_MESSAGE
from loadgen.real.standalone import StandaloneBroker
from protocol.endpoint import BROKERS
from proxy.brokers.dialing import BrokerDialer
from proxy.brokers.targets import Targets
from proxy.config.model import Config
from proxy.counters import Counters
from proxy.fleet.topic_link import Membership, TopicLink
from proxy.tls.certificates import Certificates
from tests.proxy.fleet.heard import Heard
from tests.real.pulsar_rest import PulsarRest
from tests.waiting import until

pytestmark = pytest.mark.real


class Member(Heard):
    """A link that remembers what it was told."""

    def __init__(self, service_url: str, name: str, lease_s: float) -> None:
        super().__init__()
        broker = BROKERS.parse(service_url)
        certificates = Certificates(Config(broker=service_url))
        dialer = BrokerDialer(Targets([broker]), certificates, Counters(), sends_proxy_header=False)
        self.link = TopicLink(dialer, Membership("public/default", "links", name, lease_s), self.callbacks)


def _leading(members: list[Member]) -> list[Member]:
    return [each for each in members if each.link.state == "leading"]


def _stands(members: list[Member]) -> bool:
    return len(_leading(members)) == 1 and all(each.link.state != "connecting" for each in members)


@pytest.fixture
async def members(real_broker: StandaloneBroker, request: pytest.FixtureRequest) -> AsyncIterator[list[Member]]:
    """Three of them. The parameter is the leases, in seconds: of the first, which coordinates, and of the others."""
    first_s, others_s = getattr(request, "param", (10, 10))
    leases = {"a": first_s, "b": others_s, "c": others_s}
    members = [Member(real_broker.service_url, *lease) for lease in leases.items()]
    for each in members:
        await each.link.start()
        await until(lambda: members[0].turns)
    await until(lambda: _stands(members) or members[0].turns[1:])
    yield members
    for each in members:
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


@pytest.mark.parametrize("members", [(1, 600)], indirect=True)
async def test_a_coordinator_that_grants_nothing_gives_access_up(members: list[Member]) -> None:
    """By itself: the members that wait would wait for ten minutes before they fence it out."""
    silent, *others = members
    await until(lambda: silent.turns == ["lead", "unlead"])
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
        self.lines: list[str] = []
        self.reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode().strip())

    @property
    def is_leading(self) -> bool:
        return self.lines.count("leads") > self.lines.count("leads no more")


@pytest.fixture
async def processes(real_broker: StandaloneBroker, request: pytest.FixtureRequest) -> AsyncIterator[list[Process]]:
    """Three members whose lease is the parameter: seconds."""
    processes = []
    for name in ("a", "b", "c"):
        command = (sys.executable, "-m", "tests.real.fleet_member", real_broker.service_url, name, str(request.param))
        processes.append(Process(name, await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)))
    try:
        await until(lambda: all(_hears(processes, each) for each in processes))
        yield processes
    finally:
        for each in processes:
            if each.process.returncode is None:
                each.process.kill()
            await each.process.wait()
            await each.reading


def _hears(processes: list[Process], process: Process) -> bool:
    return any(f"hears {each.name}" in process.lines for each in processes if each.is_leading)


@pytest.mark.parametrize("processes", [600], indirect=True)
async def test_next_member_leads_when_the_coordinator_is_killed(processes: list[Process]) -> None:
    """At once: a member that waits would wait for 15 minutes before it takes access."""
    first = next(each for each in processes if each.is_leading)
    others = [each for each in processes if each is not first]
    first.process.kill()
    await until(lambda: any(each.is_leading for each in others))
    assert sum(each.is_leading for each in others) == 1
    assert not any("leads no more" in each.lines for each in others)


@pytest.mark.parametrize("processes", [2], indirect=True)
async def test_frozen_coordinator_is_fenced_out_and_not_heard_again(processes: list[Process]) -> None:
    first = next(each for each in processes if each.is_leading)
    others = [each for each in processes if each is not first]
    first.process.send_signal(signal.SIGSTOP)

    def followed() -> Process | None:
        """The one that leads and both hear: if both lose patience at the same moment, one fences out the other."""
        heard = (each for each in others if all(f"hears {each.name}" in process.lines for process in others))
        return next((each for each in heard if each.is_leading), None)

    def follows() -> bool:
        """Whether the first one follows the one that leads now: on a slow machine that may have changed once more."""
        leader = followed()
        return leader is not None and {"leads no more", f"hears {leader.name}"} <= set(first.lines)

    await until(followed)
    first.process.send_signal(signal.SIGCONT)
    await until(follows)
    assert all(each.lines.count(f"hears {first.name}") == 1 for each in others)
    assert not first.is_leading
