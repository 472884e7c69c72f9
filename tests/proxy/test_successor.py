"""The new process of a takeover, while the one before drains: one that hangs is killed, and no other."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import cast
from unittest.mock import MagicMock

import pytest

from limiter.levels import Setting
from loadgen.real.process import free_port
from proxy import takeover
from proxy.policies.keys import PolicyKey, PolicyKind, Principal, rate_key
from proxy.policies.service import MOST_BODY
from proxy.policies.store import StoredChange
from proxy.server import Sockets
from proxy.takeover import ENDS, GO, READY, SocketLink, Successor, TakeoverError


class Before:
    """A process that is said to be the one before, and the test's end of the connection to it."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", "input()"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.link = SocketLink(ours)
        self.successor = Successor(theirs, Sockets(), os.pidfd_open(self.process.pid))

    async def open(self) -> None:
        await self.link.open()
        await self.successor.link.open()


@pytest.fixture
async def before() -> AsyncIterator[Before]:
    before = Before()
    yield before
    before.link.close()
    before.successor.link.close()
    await asyncio.sleep(0)
    before.process.kill()
    before.process.communicate()


async def test_process_that_hangs_while_it_drains_is_killed(before: Before, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "SILENT_S", 0.01)
    monkeypatch.setattr(takeover, "_LAST_LOOK_S", 0.01)
    await before.open()
    serving = asyncio.get_running_loop().create_task(before.successor.serves())
    before.link.beat()
    assert await asyncio.to_thread(before.process.wait, 60) < 0
    before.link.close()
    await serving
    assert before.successor.is_alone


@pytest.mark.parametrize("last", [b"", ENDS], ids=["without a sign of life", "that has left all limits"])
async def test_silent_process_is_awaited(before: Before, monkeypatch: pytest.MonkeyPatch, last: bytes) -> None:
    monkeypatch.setattr(takeover, "SILENT_S", 0.0)
    signalled = list[int]()
    monkeypatch.setattr("proxy.takeover.signal.pidfd_send_signal", lambda _, number: signalled.append(number))
    await before.open()
    serving = asyncio.get_running_loop().create_task(before.successor.serves())
    if last:
        before.link.beat()
        await before.link.send(last)
    for _ in range(10):
        await asyncio.sleep(0)
    before.link.close()
    await serving
    assert signalled == []


async def test_socket_that_is_not_taken_is_shut(before: Before) -> None:
    """The process before has a descriptor of it as well."""
    with socket.create_server(("127.0.0.1", free_port())) as running, socket.create_server(("127.0.0.1", 0)) as kept:
        before.successor.sockets.by_name["listen a"] = [running.dup()]
        await before.link.send(GO)
        await before.successor.ready()
        socket.create_connection(kept.getsockname(), 60).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(running.getsockname(), 60)
        running.listen()
        socket.create_connection(running.getsockname(), 60).close()


async def test_socket_of_the_service_manager_stays_open(before: Before) -> None:
    with socket.create_server(("127.0.0.1", 0)) as running:
        before.successor.sockets.add(Sockets({"listen a": [running.dup()]}, {"listen a"}))
        await before.link.send(GO)
        await before.successor.ready()
        socket.create_connection(running.getsockname(), 60).close()


async def test_changes_of_policies_reach_the_process_before(before: Before) -> None:
    await before.open()
    followed = list[tuple[StoredChange, Principal]]()
    before.link.share(MagicMock(), lambda *change: followed.append(change))
    author, body = Principal("ann", "10.0.0.1"), "\N{GRINNING FACE}" * MOST_BODY
    large = StoredChange(PolicyKey(PolicyKind.BLOCK, "", "x" * 4200), body, body, "[]")
    small = StoredChange(rate_key("publish", Setting.TENANT, "acme"), "1", None)
    link = before.successor.link
    later = StoredChange(PolicyKey(cast("PolicyKind", "quota"), "", "of a later version"), None, "1")
    assert [link.change(change, author) for change in (small, later, large, small)] == [True] * 4
    await link.send(ENDS)
    assert await before.link.hear(60) == ENDS
    assert followed == [(small, author), (large, author), (small, author)]


async def test_change_without_room_is_not_sent(before: Before) -> None:
    link, author = before.successor.link, Principal("ann", "")
    change = StoredChange(rate_key("publish", Setting.TENANT, "acme"), None, "x" * MOST_BODY)
    assert not link.change(change, author), "there is no connection yet"
    await before.open()
    assert sum(link.change(change, author) for _ in range(1000)) < 100
    long = StoredChange(change.key, None, "x" * 1_000_000)
    assert not link.change(long, author)


async def test_process_without_its_word_is_given_up(before: Before, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "GO_S", 0.0)
    with pytest.raises(TakeoverError, match="no answer"):
        await before.successor.ready()
    assert await before.link.hear(60) == READY
