"""The new process of a takeover, while the one before drains: one that hangs is killed, and no other."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from proxy import takeover
from proxy.server import Sockets
from proxy.takeover import ENDS, READY, SocketLink, Successor, TakeoverError


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


@pytest.mark.parametrize("last", [b"", ENDS], ids=["of an earlier version", "that has left all limits"])
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


async def test_process_without_its_word_is_given_up(before: Before, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "GO_S", 0.0)
    with pytest.raises(TakeoverError, match="no answer"):
        await before.successor.ready()
    assert await before.link.hear(60) == READY
