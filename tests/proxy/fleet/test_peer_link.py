"""FleetPeers over real sockets on loopback, and strangers that dial them."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from fleet.messages import MOST_MESSAGE
from protocol.endpoint import Endpoint
from proxy.fleet.link import Callbacks
from proxy.fleet.peer_link import FleetPeers, PeerLink


def _free() -> Endpoint:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return Endpoint("pulsar", "127.0.0.1", found.getsockname()[1])


class Member:
    """A peer that remembers what it was told."""

    def __init__(self, order: tuple[Endpoint, ...], own: Endpoint) -> None:
        self.reports: list[bytes] = []
        self.grants: list[bytes] = []
        self.turns: list[str] = []
        self.confirmed = 0
        callbacks = Callbacks(
            self.reports.append,
            self.grants.append,
            lambda: self.turns.append("lead"),
            lambda: self.turns.append("unlead"),
            self._confirm,
        )
        self.own = own
        self.link = PeerLink(FleetPeers("f", order, own, own, lease_s=0.2), callbacks)

    def _confirm(self, asked: int) -> None:
        assert asked > 0
        self.confirmed += 1


async def _until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - sockets' own time
            await asyncio.sleep(0.01)


@pytest.fixture
async def members() -> AsyncIterator[list[Member]]:
    order = tuple(_free() for _ in range(3))
    found = [Member(order, each) for each in order]
    for each in found:
        await each.link.start()
    yield found
    for each in found:
        await each.link.stop()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_reports_reach_the_coordinator_and_grants_all(members: list[Member]) -> None:
    first, *others = members
    await _until(lambda: first.link.state == "leading" and all(each.link.state == "following" for each in others))
    assert all(each.link.report(each.own.address.encode()) for each in members)
    assert first.link.grant(b"g" * MOST_MESSAGE)
    assert not others[0].link.grant(b"not leading")
    await _until(lambda: len(first.reports) == 3 and all(each.grants for each in members))
    assert sorted(first.reports) == sorted(each.own.address.encode() for each in members)
    assert {grant for each in members for grant in each.grants} == {b"g" * MOST_MESSAGE}
    assert first.confirmed
    assert first.turns == ["lead"]


async def test_another_one_leads_when_the_first_stops(members: list[Member]) -> None:
    first, second, _ = members
    await _until(lambda: first.link.state == "leading")
    await first.link.stop()
    assert first.turns == ["lead", "unlead"]
    await _until(lambda: second.link.state == "leading")


async def test_too_large_a_message_is_not_sent(members: list[Member]) -> None:
    first = members[0]
    await _until(lambda: first.link.state == "leading")
    assert not first.link.grant(b"g" * (MOST_MESSAGE + 1))
    assert first.link.counts.dropped["oversized"] == 1


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff\x01",
        b"\x00\x00\x00\x05\x01nobo",
        b"\x00\x00\x00\x05\x04abcd",
        b"\x00\x00\x00\x00\x01",
    ],
)
async def test_strangers_are_left_and_counted(members: list[Member], said: bytes) -> None:
    first = members[0]
    reader, writer = await asyncio.open_connection(first.own.host, first.own.port)
    writer.write(said)
    async with asyncio.timeout(5):
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
    writer.close()
    await _until(lambda: first.link.counts.dropped["foreign"] == 1)


async def test_connections_of_strangers_are_bounded(members: list[Member]) -> None:
    first, *others = members
    await _until(lambda: first.link.state == "leading" and all(each.link.state == "following" for each in others))
    dialled = [await asyncio.open_connection(first.own.host, first.own.port) for _ in range(20)]
    await _until(lambda: first.link.counts.dropped["foreign"] == 16)  # six in all, of which two are the peers'
    for _, writer in dialled:
        writer.transport.abort()
