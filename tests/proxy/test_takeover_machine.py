"""The course of a takeover, explored exhaustively: every message, end, silence and error at each step."""

from functools import partial
from itertools import product

import pytest

from proxy.server import Sockets
from proxy.takeover import GO, GONE, READY, SERVES, Handover, Step

HEARD = (READY, SERVES, GONE, b"?", TimeoutError(), OSError("reset"))
MAY_FAIL = ("offer", "go")


class Running:
    """The running process: what it has, by what it was asked to do."""

    def __init__(self) -> None:
        self.has_store = self.accepts = self.listens = True
        self.has_whole_limits = True
        self.is_leaving = self.has_ended = False

    async def lend(self) -> Sockets:
        assert self.has_store
        self.has_store = False
        return {}

    async def give(self) -> None:
        assert not self.has_store, "the next process has the store before it serves"
        self.accepts = self.has_whole_limits = False

    async def take_back(self) -> None:
        assert not self.is_leaving, "a process that leaves has no way back"
        self.has_store = self.accepts = self.has_whole_limits = True

    def leave(self) -> None:
        assert not self.accepts
        assert not self.has_whole_limits
        self.listens, self.is_leaving = False, True

    def end(self) -> None:
        assert self.is_leaving
        self.has_ended = True


class Script:
    """The connection to the new process: one outcome for each message, and the end after the last one."""

    def __init__(self, running: Running, heard: tuple[object, ...], broken: str) -> None:
        self.went = list[bytes]()
        self._running = running
        self._heard = list(heard)
        self._broken = broken

    async def offer(self, _sockets: Sockets) -> None:
        if self._broken == "offer":
            raise OSError("broken pipe")

    async def send(self, message: bytes) -> None:
        if self._broken == "go" and message == GO:
            raise OSError("broken pipe")
        if message == GO:
            assert not self._running.accepts
            assert not self._running.has_whole_limits
        self.went.append(message)

    async def hear(self, _patience_s: float) -> bytes:
        outcome = self._heard.pop(0) if self._heard else GONE
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, bytes)
        return outcome


@pytest.mark.parametrize("broken", ["", *MAY_FAIL])
async def test_every_course_ends_with_one_process_that_listens(broken: str) -> None:
    ends = set[Step]()
    for heard in product(HEARD, repeat=4):
        running = Running()
        script = Script(running, heard, broken)
        handover = Handover(running, script)
        taken = list[bool]()
        is_taken = await handover.run(partial(taken.append, True))
        may_serve = heard[0] == READY and not broken
        serves = may_serve and (heard[1] == SERVES or isinstance(heard[1], TimeoutError))
        assert is_taken == serves == bool(taken)
        assert (GO in script.went) == may_serve
        if serves:
            assert running.is_leaving
            assert running.has_ended, "the new process ended first, and the one after it has the whole of each limit"
            assert not running.listens
            assert not running.has_store
        else:
            assert running.listens
            assert running.accepts
            assert running.has_store
            assert running.has_whole_limits
            assert not running.is_leaving
        ends.add(handover.step)
    assert ends == ({Step.SERVING} if broken else {Step.SERVING, Step.LEAVING})
