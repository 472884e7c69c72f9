"""The course of a takeover, explored exhaustively: every message, end, silence and error at each step."""

from functools import partial
from itertools import product

import pytest

from proxy.server import Sockets
from proxy.takeover import ABORT, ENDS, GO, GONE, READY, SERVES, Handover, TakeoverStep

HEARD = (READY, SERVES, ENDS, GONE, b"?", TimeoutError(), OSError("reset"))
MAY_FAIL = ("offer", "go")


class Running:
    """The running process: what it has, by what it was asked to do."""

    def __init__(self) -> None:
        self.has_store = self.accepts = self.listens = True
        self.shares_limits = self.is_leaving = False

    async def lend(self) -> Sockets:
        assert self.has_store
        self.has_store = False
        return Sockets()

    async def give(self) -> None:
        assert not self.has_store, "the next process has the store before it serves"
        self.accepts, self.shares_limits = False, True

    async def take_back(self) -> None:
        assert self.listens, "the sockets are there until the process ends"
        self.has_store = self.accepts = True
        self.shares_limits = self.is_leaving = False

    def leave(self) -> None:
        assert not self.accepts
        assert self.shares_limits
        self.is_leaving = True

    async def release(self) -> None:
        assert self.is_leaving
        self.listens = self.shares_limits = False


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
            assert self._running.shares_limits
        self.went.append(message)

    async def open(self) -> None:
        assert self.went == [GO]

    def beat(self) -> None:
        assert self.went == [GO]

    async def hear(self, _patience_s: float) -> bytes:
        outcome = self._heard.pop(0) if self._heard else GONE
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, bytes)
        return outcome


@pytest.mark.parametrize("broken", ["", *MAY_FAIL])
async def test_every_course_ends_with_one_process_that_listens(broken: str) -> None:
    ends = set[TakeoverStep]()
    for heard in product(HEARD, repeat=4):
        running = Running()
        script = Script(running, heard, broken)
        handover = Handover(running, script)
        taken = list[bool]()
        ends_too = await handover.run(partial(taken.append, True))
        may_serve = heard[0] == READY and not broken
        word = 2 if isinstance(heard[1], TimeoutError) else 1  # one that is slow to serve is awaited
        serves = may_serve and heard[word] == SERVES
        last = next((each for each in heard[word + 1 :] if each in {ENDS, GONE} or isinstance(each, OSError)), GONE)
        assert bool(taken) == serves
        assert ends_too == (serves and last == ENDS)
        assert (GO in script.went) == may_serve
        assert running.is_leaving == ends_too
        assert running.listens == running.accepts == running.has_store == (not ends_too)
        assert not running.shares_limits
        ends.add(handover.step)
    assert ends == ({TakeoverStep.SERVING} if broken else {TakeoverStep.SERVING, TakeoverStep.LEAVING})


async def test_files_are_taken_back_when_a_process_given_up_has_ended() -> None:
    """It may be about to change the policy store: its start is slow, and its word comes too late."""
    running, left = Running(), list[int]()
    script = Script(running, (TimeoutError(), READY, GONE), "")
    take_back = running.take_back

    async def watched() -> None:
        left.append(len(script._heard))
        await take_back()

    running.take_back = watched  # type: ignore[method-assign]
    assert not await Handover(running, script).run(lambda: None)
    assert (script.went, left) == ([ABORT], [0])
