"""Both processes of a takeover, explored exhaustively: all orders of their steps, with kills and delays up to a bound.

The course of either process is the real one (`Handover`, `Successor`), as is the limit that they share. The model is
the connection between them, and the time: a message that is awaited may come late, and a process may hang.
"""

import os
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import pytest
from structlog.testing import capture_logs

from limiter.handing import HandedLimits, HandedShare
from limiter.limiter import Limiter, Scope, Stream, StreamName
from limiter.restart import FirstBalances
from limiter.token_bucket import WHOLE
from proxy.server import Sockets
from proxy.takeover import ENDS, GONE, SERVES, SILENT_S, Handover, SocketLink, Successor, TakeoverError
from tests.limiter.world import limiter

NOW: Final = 10**12
LEFT: Final = "left"
"""A message: all is left."""
Choice = tuple[str, str]
"""What happens next, and to which process."""
Path = tuple[Choice, ...]
OPTIONAL: Final = {"kill", "hang", "stop", "late"}
MOST: Final = {"kill": 2, "hang": 1, "stop": 1, "late": 2}
"""How often each may happen in a course."""


@dataclass
class Step:
    """A step of a process that waits for its turn: something is done, or (`do` is None) a message is awaited.

    Args:
        do: What is done.
        patience_s: How long a message is awaited.
    """

    do: Callable[[], None] | None = None
    patience_s: float = 0.0

    def __await__(self) -> Generator["Step", bytes, bytes]:
        return (yield self)


class ModelProcess:
    """A process, and its end of the connection to the other one; it is `TakeoverLink`, `Predecessor`, `OtherProcess`.

    Attributes:
        inbox: The messages that it has not read.
        history: What has come of its steps.
        sent: The words that it has sent.
    """

    def __init__(self, name: str, world: "World") -> None:
        self.name = name
        self.is_alive = True
        self.accepts = self.listens = self.hangs = self.is_leaving = False
        self.inbox = deque[Any]()
        self.history: list[str] = []
        self.sent: list[bytes] = []
        self.limits: HandedLimits | None = None
        self.limiters: dict[Scope, Limiter] = {}
        self.has_whole = False
        self.left: FirstBalances | None = None
        self._world = world
        self._course: Coroutine[Step, bytes, object] | None = None
        self.waits_for: Step | None = None

    @property
    def other(self) -> "ModelProcess":
        return self._world.new if self is self._world.old else self._world.old

    @property
    def share(self) -> int:
        if not self.is_alive:
            return 0
        return sum(each.shares[0] for each in self.limiters.values()) if self.limiters else WHOLE * self.has_whole

    # ---- its course

    def begin(self, course: Coroutine[Step, bytes, object]) -> None:
        self._course = course
        self.go_on(None)

    def go_on(self, heard: bytes | Exception | None) -> None:
        """Go on with what has come of the step."""
        self.history.append(repr(heard))
        assert self._course is not None
        try:
            if isinstance(heard, Exception):
                self.waits_for = self._course.throw(heard)
            else:
                self.waits_for = self._course.send(cast("bytes", heard))
        except StopIteration:
            self.waits_for = None
            self.inbox.clear()  # its connection is closed

    def end(self) -> None:
        self.is_alive, self.waits_for = False, None

    def close(self) -> None:
        """As a link: its end is that of the process; what the new one has of the old process is closed then."""
        self._world.is_released = True

    def stop(self) -> None:
        """End the course, which has not come to its end."""
        if self._course is not None:
            self._course.close()

    # ---- the connection

    def post(self, message: object) -> None:
        if self.other.is_alive:
            self.other.inbox.append(message)

    async def send(self, message: bytes) -> None:
        def do() -> None:
            self.sent.append(message)
            if not self.other.is_alive:
                raise BrokenPipeError
            self.post(message)

        await Step(do)

    async def hear(self, patience_s: float) -> bytes:
        return await Step(patience_s=patience_s)

    async def offer(self, _sockets: Sockets) -> None:
        await Step(self._world.offered)

    async def open(self) -> None:
        pass

    def beat(self) -> None:
        self._world.has_beaten = True
        self.post(b"b")

    def ask(self, scope: Scope, waiting: int) -> None:
        self.post((scope, waiting))

    def hand(self, handed: HandedShare) -> None:
        self.post(handed)

    def take(self, message: object) -> bool:
        """Take a message about limits; return False for another one."""
        match message:
            case HandedShare() if self.limits is not None:
                self.limits.received(message, NOW)
            case (HandedShare() as share, str()) if self.limits is not None:
                self.limits.left(share, NOW)
            case (Scope() as scope, int(waiting)) if self.limits is not None:
                self.limits.asked(scope, waiting, NOW)
            case FirstBalances():
                self.left = message
            case _:
                return isinstance(message, tuple)
        self.history.append(repr(message))
        return True

    # ---- the running process

    async def lend(self) -> Sockets:
        await Step(lambda: None)
        return Sockets()

    async def give(self) -> None:
        def do() -> None:
            self.accepts = False
            self.share_limits(has_all=True)

        await Step(do)

    async def take_back(self) -> None:
        def do() -> None:
            self.keep_all()
            self.accepts, self.is_leaving = True, False
            assert self.listens

        await Step(do)

    def leave(self) -> None:
        assert not self.accepts
        self.is_leaving = True

    async def release(self) -> None:
        def do() -> None:
            self.listens = False
            self.keep_all()

        await Step(do)

    # ---- the limit

    def share_limits(self, *, has_all: bool) -> None:
        self.limits = HandedLimits(self.limiters, FirstBalances(), self, _ignored, _ignored, has_all=has_all)

    def serve_client(self) -> None:
        made = limiter(10, burst=20, now=NOW)
        self.limiters[made.scope] = made
        made.streams.add(Stream(StreamName("publish", "t", "t/n", "n", 1), (), _ignored))
        if self.limits is not None:
            self.limits.made(made, NOW)

    def client_leaves(self) -> None:
        for each in self.limiters.values():
            each.streams.clear()
            if self.limits is not None:
                self.limits.rested(each, NOW)

    def keep_all(self) -> None:
        if self.limits is not None:
            for _ in self.limits.over(lambda: NOW, None, is_orderly=self.left is not None):
                pass
            self.limits = None

    def leave_all(self) -> None:
        """Leave all that it has, and end."""
        if self.left is not None:
            self.keep_all()
        if self.limits is not None:
            for share in self.limits.leave(lambda: NOW):
                self.post((share, LEFT))
            self.post(FirstBalances())
            self.post(ENDS)
        self.end()


def _ignored(*_: object) -> None:
    """Of no interest."""


class World:
    """The two processes, from the moment in which the new one has connected."""

    def __init__(self) -> None:
        self.has_beaten = self.is_stopped = self.is_released = False
        self.left = dict(MOST)
        self.old, self.new = ModelProcess("old", self), ModelProcess("new", self)
        self.old.accepts = self.old.listens = self.old.has_whole = True
        self.old.serve_client()
        self._process = os.open(os.devnull, os.O_RDONLY)
        # Its link is put into its place: the sockets of a takeover are none here.
        self._successor = Successor(cast("Any", None), Sockets(), self._process)
        self._successor.link = cast("SocketLink", self.new)
        self.old.begin(Handover(self.old, self.old).run(_ignored))

    def offered(self) -> None:
        self.new.listens = True
        self.new.begin(self._new())

    async def _new(self) -> None:
        """As `Proxy.start` and `_share_until_alone` do."""
        new, successor = self.new, self._successor
        try:
            await successor.ready()
        except TakeoverError:
            new.end()
            return
        if not successor.is_alone:
            new.share_limits(has_all=False)
        new.accepts = new.has_whole = True
        new.serve_client()
        await successor.serves()
        new.keep_all()

    def killed_by_new(self, *_: object) -> None:
        assert self.old.hangs, "no process is killed that gives a sign of life"
        self.old.end()

    # ---- choices

    def choices(self) -> list[Choice]:
        return list(self._choices())

    def _choices(self) -> Iterator[Choice]:
        old, new = self.old, self.new
        for each in (old, new):
            if each.is_alive and not each.hangs and each.waits_for is not None:
                yield from self._of_step(each, each.waits_for)
            if each.is_alive and new.listens:
                yield from self._may("kill", each)
        if old.is_alive and not old.hangs and old.is_leaving:
            if old.limiters and any(each.streams for each in old.limiters.values()):
                yield "client leaves", "old"
            elif new.is_alive or old.limits is None:  # the end of the new one is heard in the same turn else
                yield "drained", "old"
        if old.is_alive and self.has_beaten and not self.is_stopped and not old.hangs:
            yield from self._may("hang", old)
        if new.is_alive and new.accepts and not old.hangs and SERVES in new.sent:
            yield from self._may("stop", new)

    def _may(self, event: str, process: ModelProcess) -> Iterator[Choice]:
        if self.left[event]:
            yield event, process.name

    def _of_step(self, process: ModelProcess, step: Step) -> Iterator[Choice]:
        is_watching = process is self.new and process.accepts
        has_come = bool(process.inbox) or not process.other.is_alive
        if step.do is not None or has_come:
            yield "go on", process.name
        elif is_watching and self.old.hangs and step.patience_s <= SILENT_S:
            yield "silence", process.name
        if step.do is None and step.patience_s < float("inf"):
            # A message comes late; or the process was frozen itself, and finds what has come meanwhile.
            is_frozen = is_watching and not self.old.hangs and step.patience_s == SILENT_S
            if is_frozen or (not is_watching and not has_come):
                yield from self._may("late", process)

    def take(self, choice: Choice) -> None:
        event, name = choice
        process = self.old if name == "old" else self.new
        if event in self.left:
            self.left[event] -= 1
        match event:
            case "go on":
                self._go_on(process)
            case "silence" | "late":
                if event == "late" and process is self.new and process.accepts and self.old.is_alive:
                    self.old.beat()
                process.go_on(TimeoutError())
            case "kill":
                process.end()
            case "hang":
                process.hangs = True
            case "client leaves":
                process.client_leaves()
            case "drained":
                process.leave_all()
            case "stop":
                self.is_stopped = True
                process.leave_all()
        self.check()

    def _go_on(self, process: ModelProcess) -> None:
        step = process.waits_for
        assert step is not None
        if step.do is not None:
            try:
                step.do()
            except OSError as error:
                process.go_on(error)
            else:
                process.go_on(None)
        elif not process.inbox:
            process.go_on(GONE)
        elif not process.take(process.inbox[0]):
            process.go_on(cast("bytes", process.inbox.popleft()))
        else:
            process.inbox.popleft()

    # ---- what holds

    def key(self) -> object:
        """Return what tells this state from others."""
        own = [
            (tuple(each.history), repr(list(each.inbox)), each.is_alive, each.hangs, each.is_leaving, each.share)
            for each in (self.old, self.new)
        ]
        return *own, tuple(self.left.values()), any(each.streams for each in self.old.limiters.values())

    def check(self) -> None:
        both = [each for each in (self.old, self.new) if each.is_alive]
        assert sum(each.accepts for each in both if not each.hangs) <= 1
        assert not both or self.is_stopped or any(each.listens for each in both), "no connection is refused"
        under_way = [message for each in both for message in each.inbox]
        left = [message[0] for message in under_way if isinstance(message, tuple) and message[-1] == LEFT]
        handed = [each.ppm for each in (*under_way, *left) if isinstance(each, HandedShare)]
        total = sum(each.share for each in both) + sum(handed)
        assert total <= WHOLE, "no token is with both"
        assert total == WHOLE or len(both) < 2, "no share is lost while both run"

    def check_end(self) -> None:
        """Check that one process serves at the end, with the whole limit.

        None does where both were stopped, or killed, or where one was killed when the other one had ended or hung.
        """
        alive = [each for each in (self.old, self.new) if each.is_alive]
        assert len(alive) <= 1
        serving = [each for each in alive if not each.hangs]
        if self.is_stopped or not serving:
            assert not serving
            assert self.is_stopped or self.left["kill"] < MOST["kill"]
        for each in serving:
            assert each.accepts
            assert each.share == WHOLE

    def close(self) -> None:
        for each in (self.old, self.new):
            each.stop()
        if not self.is_released:
            os.close(self._process)


def explored(path: Path) -> tuple[World, list[Choice]]:
    """Return the state after a path, and what may happen then; at an end, that one is checked."""
    world = World()
    with capture_logs(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("proxy.takeover.signal.pidfd_send_signal", world.killed_by_new)
        try:
            for choice in path:
                world.take(choice)
            choices = world.choices()
            if all(event in OPTIONAL for event, _ in choices):
                world.check_end()
        except AssertionError as error:
            raise AssertionError(f"{error}, after {path}") from error
    return world, choices


def test_every_order_of_steps_ends_with_one_process_that_serves() -> None:
    seen, paths, ends = set[object](), list[Path]([()]), Counter[tuple[bool, bool]]()
    while paths:
        path = paths.pop()
        world, choices = explored(path)
        if (key := world.key()) not in seen:
            seen.add(key)
            paths.extend((*path, choice) for choice in choices)
            if all(event in OPTIONAL for event, _ in choices):
                ends[world.old.is_alive, world.new.is_alive] += 1
        world.close()
    assert set(ends) == {(True, False), (False, True), (False, False)}
    assert len(seen) > 1000, len(seen)
