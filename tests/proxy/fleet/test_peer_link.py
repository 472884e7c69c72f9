"""Peers over real sockets on loopback, and strangers that dial them."""

import asyncio
import errno
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
import trustme
from structlog.testing import capture_logs

from fleet.messages import MOST_MESSAGE
from protocol.endpoint import Endpoint
from proxy.config.model import ConfigError
from proxy.config.sections import FleetTls
from proxy.fleet import peer_link
from proxy.fleet.link import MOST_ERROR, PeerStatus
from proxy.fleet.peer_link import FleetPeers, PeerLink, PeerTls
from proxy.tls.certificates import PeerCertificates
from tests.proxy.fleet.defect import Defect, errors_told
from tests.proxy.fleet.heard import Heard
from tests.proxy.rereading import read_again
from tests.waiting import until

LEASE_S = 0.4


def _free() -> Endpoint:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return Endpoint("pulsar", "127.0.0.1", found.getsockname()[1])


class Member(Heard):
    """A peer that remembers what it was told."""

    def __init__(
        self,
        order: tuple[Endpoint, ...],
        own: Endpoint,
        tls: PeerTls | None = None,
        lease_s: float = LEASE_S,
    ) -> None:
        super().__init__()
        self.own = own
        self.link = PeerLink(FleetPeers("f", order, own, own, lease_s, tls), self.callbacks)


@pytest.fixture
async def at_end() -> AsyncIterator[AsyncExitStack]:
    """What a test undoes, though it fails."""
    async with AsyncExitStack() as calls:
        yield calls


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
    await until(lambda: first.link.state == "leading" and all(each.link.state == "following" for each in others))
    assert all(each.link.report(each.own.address.encode()) for each in members)
    assert first.link.grant(b"g" * MOST_MESSAGE)
    assert not others[0].link.grant(b"not leading")
    await until(lambda: len(first.reports) == 3 and all(each.grants for each in members))
    assert sorted(first.reports) == sorted(each.own.address.encode() for each in members)
    assert {grant for each in members for grant in each.grants} == {b"g" * MOST_MESSAGE}
    assert first.asked
    assert first.turns == ["lead"]


async def test_why_a_peer_is_not_reached_is_told_of_each_until_it_is(
    members: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = members
    await until(lambda: all(one.is_dialled and one.dials for each in members for one in each.link.peer_states()))
    assert first.link.peer_states() == [PeerStatus(each.own.address, True, True, "") for each in (second, third)]
    await third.link.stop()
    await until(lambda: "refused" in first.link.peer_states()[1].last_error.lower())
    one, other = first.link.peer_states()
    assert (one.is_dialled, one.dials, one.last_error) == (True, True, "")
    assert (other.is_dialled, other.dials) == (False, False)
    monkeypatch.setattr(first.link._outlets[third.own.address], "last_error", "x" * 10_000)
    assert len(first.link.peer_states()[1].last_error) == MOST_ERROR
    await third.link.start()
    await until(lambda: first.link.peer_states()[1] == PeerStatus(third.own.address, True, True, ""))


async def test_peers_are_dialled_again_within_a_lease(monkeypatch: pytest.MonkeyPatch, at_end: AsyncExitStack) -> None:
    asked: list[tuple[int, float]] = []

    def without_a_pause(attempt: int, most_s: float) -> float:
        asked.append((attempt, most_s))
        return 0.0

    monkeypatch.setattr(peer_link, "backoff", without_a_pause)
    order = _free(), _free(), _free()
    member = Member(order, order[0])
    at_end.push_async_callback(member.link.stop)
    await member.link.start()
    await until(lambda: max(asked, default=(0, 0.0))[0] > 20)
    assert {most for _, most in asked} == {LEASE_S}


async def test_another_one_leads_when_the_first_stops(members: list[Member]) -> None:
    first, second, _ = members
    await until(lambda: first.link.state == "leading")
    await first.link.stop()
    assert first.turns == ["lead", "unlead"]
    await until(lambda: second.link.state == "leading")


async def test_too_large_a_message_is_not_sent(members: list[Member]) -> None:
    first = members[0]
    await until(lambda: first.link.state == "leading")
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
    await until(lambda: first.link.counts.dropped["foreign"] == 1)


async def test_lists_of_peers_that_differ_are_told(at_end: AsyncExitStack) -> None:
    one, two, three = (_free() for _ in range(3))
    with capture_logs() as logs:
        for each in (Member((one, two), one), Member((two, one), two), Member((three, two), three)):
            await each.link.start()
            at_end.push_async_callback(each.link.stop)
        await until(lambda: len(logs) >= 3)
    said = [(log["event"].split(":")[1], log.get("peer"), log.get("dials")) for log in logs]
    assert len(said) == 3
    assert set(said) == {
        (" a peer has another list of `peers`", one.address, None),
        (" a peer has another list of `peers`", two.address, None),
        (" a proxy that is not one of `peers` dials", None, three.address),
    }


async def test_connections_of_strangers_are_bounded(members: list[Member]) -> None:
    first, *others = members
    await until(lambda: first.link.state == "leading" and all(each.link.state == "following" for each in others))
    dialled = [await asyncio.open_connection(first.own.host, first.own.port) for _ in range(20)]
    await until(lambda: first.link.counts.dropped["foreign"] == 16)  # six in all, of which two are the peers'
    assert {first.link.report(b"r"), *(each.link.report(b"r") for each in others)} == {True}
    await until(lambda: len(first.reports) == 3)
    for _, writer in dialled:
        writer.transport.abort()
    await until(lambda: first.link.counts.dropped["foreign"] == 20)


async def test_peers_come_though_strangers_have_taken_all_room(at_end: AsyncExitStack) -> None:
    order = tuple(_free() for _ in range(3))
    first, *others = [Member(order, each) for each in order]
    for each in (first, *others):
        at_end.push_async_callback(each.link.stop)
    await first.link.start()
    for _ in range(20):
        _, writer = await asyncio.open_connection(first.own.host, first.own.port)
        at_end.callback(writer.close)
    await until(lambda: first.link.counts.dropped["foreign"] == 14)
    for each in others:
        await each.link.start()
    await until(lambda: first.link.state == "leading" and all(each.link.state == "following" for each in others))


async def test_a_peer_that_reads_nothing_loses_the_oldest_grants_and_no_votes(
    monkeypatch: pytest.MonkeyPatch, at_end: AsyncExitStack
) -> None:
    monkeypatch.setattr(peer_link, "SILENT_S", 3)  # on a busy machine, what is sent below takes a while
    accepted: list[asyncio.StreamWriter] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined] # it reads, too
        accepted.append(writer)
        at_end.callback(writer.close)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    at_end.callback(server.close)
    own, deaf = _free(), Endpoint("pulsar", *server.sockets[0].getsockname())
    member = Member((own, deaf), own, lease_s=3600)  # no pings: on a busy machine, some would wait with the vote
    at_end.push_async_callback(member.link.stop)
    await member.link.start()
    outlet = member.link._outlets[deaf.address]
    await until(lambda: outlet.is_open)
    for number in range(30):
        assert outlet.put(peer_link._GRANT, bytes([number]) * MOST_MESSAGE)
        assert outlet._unsent <= peer_link.MOST_UNSENT
        await asyncio.sleep(0)
    dropped = member.link.counts.dropped["slow"]
    assert 30 - 4 - 16 <= dropped <= 27  # 3 wait; the system's own buffers hold some
    assert outlet.put(peer_link._VOTE, bytes(8))
    assert outlet._next() == peer_link._framed(peer_link._VOTE, bytes(8))  # before all grants
    await until(lambda: len(accepted) == 2)  # it took nothing for so long: dialled anew, with nothing left of before
    assert outlet._unsent == 0


async def test_pings_and_votes_for_a_peer_that_reads_nothing_are_bounded() -> None:
    own, other = _free(), _free()
    outlet = peer_link._Outlet(Member((own, other), own).link, other)
    outlet.is_open = True
    for number in range(100):
        assert outlet.put(peer_link._PING, bytes([number]))
    assert [outlet._next()[-1] for _ in range(peer_link.MOST_BALLOTS)] == list(range(84, 100))
    assert outlet._next() == b""


async def test_a_peer_that_says_nothing_more_is_left(monkeypatch: pytest.MonkeyPatch, at_end: AsyncExitStack) -> None:
    monkeypatch.setattr(peer_link, "SILENT_S", 0.1)
    own, other = _free(), _free()
    member = Member((own, other), own)
    at_end.push_async_callback(member.link.stop)
    await member.link.start()
    reader, writer = await asyncio.open_connection(own.host, own.port)
    at_end.callback(writer.close)
    writer.write(peer_link._framed(peer_link._HELLO, f"f\n{other.address}".encode()))
    writer.write(b"\0\0\0\x09\x03half")  # half a vote
    began = time.monotonic()
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    assert 0.2 < time.monotonic() - began < 5


async def test_the_system_ends_connections_with_peers_that_are_gone(members: list[Member]) -> None:
    first, second, _ = members
    await until(lambda: first.link.state == "leading" and second.link.state == "following")
    opened: list[int] = []
    setting = peer_link._bound_silence

    def look(writer: asyncio.StreamWriter) -> None:
        setting(writer)
        found = writer.get_extra_info("socket")
        opened.append(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peer_link, "_bound_silence", look)
        for task in list(second.link._inlets):
            task.cancel()
        await until(lambda: opened)
    assert set(opened) == {5000}


class Contexts(NamedTuple):
    server: ssl.SSLContext
    client: ssl.SSLContext


class Authority:
    """Certificates that one authority has signed, for both ends of a connection."""

    def __init__(self) -> None:
        self.ca = trustme.CA()

    def contexts(self, trusted: "Authority", *, shows: bool = True, until: datetime | None = None) -> Contexts:
        """What a member has that trusts an authority: as a server, and as a client that shows a certificate or none."""
        server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        leaf = self.ca.issue_cert("127.0.0.1", not_after=until)
        leaf.configure_cert(server)
        server.verify_mode = ssl.CERT_REQUIRED
        for each in (server, client):
            trusted.ca.configure_trust(each)
        if shows:
            leaf.configure_cert(client)
        return Contexts(server, client)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
async def secured(authority: Authority) -> AsyncIterator[list[Member]]:
    order = tuple(_free() for _ in range(3))
    found = [Member(order, each, authority.contexts(authority)) for each in order]
    for each in found[:2]:
        await each.link.start()
    yield found
    for each in found:
        await each.link.stop()
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


async def test_peers_with_certificates_of_the_fleets_authority_find_each_other(secured: list[Member]) -> None:
    first, *others = secured
    await others[1].link.start()
    await until(lambda: first.link.state == "leading" and all(each.link.state == "following" for each in others))
    assert others[1].link.report(b"r" * MOST_MESSAGE)
    await until(lambda: first.reports == [b"r" * MOST_MESSAGE])
    assert first.link.counts.dropped["foreign"] == 0


@pytest.mark.parametrize("case", ["another authority", "no certificate", "expired"])
async def test_one_without_a_certificate_of_the_authority_takes_no_part(
    secured: list[Member], authority: Authority, case: str, at_end: AsyncExitStack
) -> None:
    first, second, third = secured
    of = authority if case == "expired" else Authority()
    ends_at = datetime.now(UTC) - timedelta(minutes=1) if case == "expired" else None
    contexts = of.contexts(authority, shows=case != "no certificate", until=ends_at)
    intruder = Member(third.link.peers.order, third.own, contexts)
    at_end.push_async_callback(intruder.link.stop)
    with capture_logs() as logs:
        await intruder.link.start()
        await until(lambda: first.link.state == "leading" and second.link.state == "following")
        await until(lambda: first.link.counts.dropped["foreign"] >= 2 and second.link.counts.dropped["foreign"] >= 2)
    told = [log for log in logs if "give each member a certificate that is in force" in log["event"]]
    why = {"no certificate": "did not return a certificate", "expired": "has expired", "another authority": "issuer"}
    assert {log["by"] for log in told} == {"127.0.0.1"}
    assert len(told) == 2, "each ten seconds at most, in each of the two"
    assert all(why[case] in log["error"] for log in told)
    assert not intruder.turns
    await until(lambda: first.link.grant(b"g"))
    await until(lambda: second.grants)
    assert intruder.grants == []
    assert set(first.link._inlets.values()) <= {"", second.own.address}
    await until(lambda: "its log says why" in intruder.link.problem)
    assert first.link.problem == ""


def _written(folder: Path, authority: Authority) -> FleetTls:
    """A new certificate of an authority, and what names its files."""
    leaf = authority.ca.issue_cert("127.0.0.1")
    leaf.private_key_and_cert_chain_pem.write_to_path(folder / "own.pem")
    authority.ca.cert_pem.write_to_path(folder / "ca.pem")
    return FleetTls(certificate=folder / "own.pem", key=folder / "own.pem", ca=folder / "ca.pem")


async def test_new_certificates_and_another_authority_are_for_new_connections(
    authority: Authority, tmp_path: Path, at_end: AsyncExitStack
) -> None:
    order, newer = tuple(_free() for _ in range(2)), Authority()
    tls = PeerCertificates(_written(tmp_path, authority))
    (before, *_) = tls.expiries()
    first, second = (Member(order, each, tls) for each in order)
    for each in (first, second):
        at_end.push_async_callback(each.link.stop)
        await each.link.start()
    await until(lambda: first.link.state == "leading" and second.link.state == "following")
    _written(tmp_path, newer)
    read_again(tls)()
    (now, *others) = tls.expiries()
    assert (now.key, now.serial != before.serial) == ("fleet.tls.certificate", True)
    assert [each.key for each in others] == ["fleet.tls.ca"]
    assert first.link.state == "leading", "open connections go on"
    for task in list(first.link._inlets):
        task.cancel()
    await until(lambda: first.link.counts.reconnects + second.link.counts.reconnects > 0)
    await until(lambda: first.link.state == "leading" and second.link.state == "following")
    (tmp_path / "own.pem").write_text("half of one")
    with pytest.raises(ConfigError, match=r"fleet\.tls\.certificate"):
        read_again(tls)
    assert tls.expiries()[0] == now


def test_no_tls_session_of_peers_is_resumed(authority: Authority, tmp_path: Path) -> None:
    """Else a certificate would count when it has expired."""
    tls = PeerCertificates(_written(tmp_path, authority))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = tls.server.wrap_bio(to_server, to_client, server_side=True)
    client = tls.client.wrap_bio(to_client, to_server)
    for each in (client, server, client, server, client):
        with suppress(ssl.SSLWantReadError):
            each.do_handshake()
    with pytest.raises(ssl.SSLWantReadError):
        client.read(1)
    assert client.version() == "TLSv1.3"
    assert client.session is None or not client.session.has_ticket


async def test_who_dials_as_another_peer_takes_its_place_and_that_is_told(members: list[Member]) -> None:
    first, second, third = members
    await until(lambda: first.link.state == "leading" and second.link.state == third.link.state == "following")
    with capture_logs() as logs:
        for _ in range(3):
            _, writer = await asyncio.open_connection(first.own.host, first.own.port)
            writer.write(peer_link._framed(1, second.link.hello) + peer_link._framed(4, b"forged"))
            await until(lambda: b"forged" in first.reports)
            first.reports.clear()
            writer.transport.abort()
            await until(lambda: second.link.report(b"r"))
            await until(lambda: b"r" in first.reports)
    told = [log for log in logs if "no two of them have one address" in log["event"]]
    assert [log["peer"] for log in told] == [second.own.address]  # not more often than each ten seconds
    assert first.turns == ["lead"]


async def test_a_peer_that_floods_leaves_others_their_turn(members: list[Member]) -> None:
    first, second, third = members
    await until(lambda: first.link.state == "leading" and second.link.state == third.link.state == "following")
    await second.link.stop()  # else it dials again, and ends this
    _, writer = await asyncio.open_connection(first.own.host, first.own.port)
    frames, most = 5000, 0
    writer.write(peer_link._framed(1, second.link.hello) + peer_link._framed(4, b"x") * frames)
    async with asyncio.timeout(10):
        while len(first.reports) < frames:
            before = len(first.reports)
            await asyncio.sleep(0)
            most = max(most, len(first.reports) - before)
    assert most <= 2
    writer.transport.abort()


async def test_handshakes_that_do_not_begin_are_bounded_and_end(
    secured: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_link, "HELLO_S", 0.5)
    first, second, _ = secured
    await until(lambda: first.link.state == "leading" and second.link.state == "following")
    dialled = [await asyncio.open_connection(first.own.host, first.own.port) for _ in range(20)]
    await until(lambda: first.link.counts.dropped["foreign"] >= 15)  # six in all, of which one is the peer's
    assert len(first.link._inlets) <= 6
    await until(lambda: first.link.counts.dropped["foreign"] == 20)
    await until(lambda: first.link.state == "leading" and second.link.state == "following")
    for _, writer in dialled:
        writer.transport.abort()


async def test_where_nobody_can_be_accepted_it_is_tried_again(
    members: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_link, "_AFTER_FAILURE_S", 0.1)
    first = members[0]
    await until(lambda: first.link.state == "leading")
    listening = first.link._sockets[0]

    class Full:
        """A listening socket of a process that has no more files."""

        accepts = 0

        def fileno(self) -> int:
            return listening.fileno()

        def accept(self) -> None:
            Full.accepts += 1
            raise OSError(errno.EMFILE, "Too many open files")

    asyncio.get_running_loop().remove_reader(listening)
    first.link._accept(cast("socket.socket", Full()))
    assert "Too many open files" in first.link.last_error
    assert all("Too many open files" in peer.last_error for peer in first.link.peer_states() if not peer.dials)
    _, writer = await asyncio.open_connection(first.own.host, first.own.port)
    await until(lambda: Full.accepts == 3)  # each 0.1 s, not as often as the loop turns
    asyncio.get_running_loop().remove_reader(listening)
    asyncio.get_running_loop().add_reader(listening, first.link._accept, listening)
    writer.close()
    await until(lambda: first.link.counts.dropped["foreign"] == 1)


@pytest.mark.parametrize(
    ("owner", "name"),
    [(peer_link._Outlet, "_serve"), (peer_link, "backoff"), (PeerLink, "_look"), (PeerLink, "_reported")],
)
async def test_a_defect_is_told_and_counted_and_the_link_goes_on(
    members: list[Member], monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    first, second, third = members
    await until(lambda: first.link.state == "leading" and second.link.state == third.link.state == "following")
    defect = Defect(owner, name)
    defect.plant(monkeypatch)
    with capture_logs() as logs:
        for task in list(second.link._inlets):
            task.cancel()  # so that outlets dial again
        second.link.report(b"r")
        await until(lambda: defect.is_over)
        await until(lambda: all(one.is_dialled and one.dials for each in members for one in each.link.peer_states()))
        await until(lambda: [each.link.state for each in members].count("leading") == 1)
        first.reports.clear()
        await until(lambda: second.link.report(b"r") and any(each.reports for each in members))
    (told,) = errors_told(logs)
    assert "defect of Sluice" in told
    assert sum(each.link.counts.defects for each in members) == 1
