"""One relay with hands on everything around it: socket, pauses, clock and alarm."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from limiter.activity import ActivityJournal
from limiter.limiter import Limiter, Scope, Stream, StreamName
from limiter.scheduler import Scheduler
from limiter.token_bucket import Limit, rate
from protocol.frames import SEND, FrameCutter
from protocol.pulsar_pb2 import BaseCommand
from proxy.budgets import Budget, Claim, Pool, Share, SharedBudget
from proxy.counters import Counters
from proxy.session.data_path import DataPath, FrameWriter, HeldMemory
from proxy.session.transport import Bytes, PauseReason, ReadBuffer, Throttled
from tests.manual_clock import ManualClock
from tests.proxy.wire import body
from tests.proxy.written import Written

MAX_FRAME = 10_000
_BUFFER = ReadBuffer()


@dataclass
class Reading:
    """The socket's side of reading; counts what changes it, as a transport is paused once however often it is told."""

    is_paused: bool = False
    pauses: int = 0
    resumes: int = 0

    def pause_reading(self) -> None:
        self.pauses += not self.is_paused
        self.is_paused = True

    def resume_reading(self) -> None:
        self.resumes += self.is_paused
        self.is_paused = False


class _Taken(Written):
    """What is sent, the other peer takes.

    Attributes:
        soon: What is to go soon, if that waits until somebody calls `flush`.
    """

    def __init__(self, take: Callable[[Bytes], None]) -> None:
        super().__init__()
        self.soon: list[Bytes] | None = None
        self._take = take

    def write(self, part: Bytes) -> None:
        if self.soon:
            self.soon.append(part)
            self.flush()
        else:
            self._take(part)

    def write_soon(self, part: bytes) -> None:
        if self.soon is None:
            self._take(part)
        else:
            self.soon.append(part)

    def flush(self) -> None:
        if self.soon:
            parts, self.soon = self.soon, []
            self._take(b"".join(parts))


class Reasons(Throttled):
    """Notes what changes."""

    def __init__(self, ended: Callable[[PauseReason], None]) -> None:
        super().__init__()
        self.changes: list[tuple[PauseReason, bool]] = []
        self._ended = ended

    def yield_turn(self) -> None:
        """Nobody else is there."""

    def on_pause_reason(self, reason: PauseReason, is_added: bool) -> None:  # noqa: FBT001 - as its base has it
        self.changes.append((reason, is_added))

    def on_last_reason_gone(self, last: PauseReason) -> None:
        self._ended(last)


class RelayRig:
    """A relay whose streams 1, 2 … have `limits` messages a second (None: no limit).

    A CLOSE_PRODUCER waits behind what its producer holds, as in a session; every other command passes as it came.

    Attributes:
        sender: What is sent goes there.
        writes: How often something was written.
    """

    def __init__(self, limits: list[int | None], hold_limit: int = 10**9, kind: int = SEND) -> None:
        self.write_limit = 10**9
        """Bytes that the other peer takes before it must be asked to (`drain`)."""
        self.clock = ManualClock()
        self.wakes: dict[Limiter, int] = {}
        self.scheduler = Scheduler(self.wakes.__setitem__, ActivityJournal())
        self.written = bytearray()
        self.writes = 0
        self.sender = _Taken(self._take)
        self.outlet = FrameWriter(self.sender)
        self.reading = Reading()
        self.throttled = Reasons(self._read_on)
        self.budget = Budget(hold_limit, lambda is_full: self.throttle(PauseReason.HOLD_CONNECTION, on=is_full))
        self.counters = Counters()
        self.held = SharedBudget(10**9, lambda _tenant, _is_over, _held: None, lambda: None)
        share = Share(self.held, lambda is_over: self.throttle(PauseReason.HOLD_PROCESS, on=is_over))
        memory = HeldMemory(self.budget, share, Claim(Pool(10**9, 10**9), ""))
        self.relay = DataPath(
            kind,
            MAX_FRAME,
            self.throttled,
            self.outlet,
            memory,
            self.scheduler,
            self._handle,
            self.counters,
            self.clock,
        )
        self._unsent = 0
        self._socket: deque[bytes] = deque()
        self._cutter = FrameCutter(2**31)
        for owner, limit in enumerate(limits, start=1):
            self.open(owner, limit)

    def open(self, owner: int, limit: int | None) -> Stream:
        name = StreamName("publish", "t", "n", f"topic-{owner}", owner)
        chain: tuple[Limiter, ...] = ()
        if limit is not None:
            scope = Scope("publish", "topic", name.topic, "t", "n")
            chain = (Limiter(scope, Limit(rate(limit)), "test", self.clock()),)
        stream = self.relay.streams[owner] = Stream(name, chain, self.relay.release, is_accepted=True)
        self.scheduler.join(stream)
        return stream

    def feed(self, chunk: bytes) -> None:
        """The peer sends; it is read once nothing speaks against it."""
        self._socket.append(chunk)
        self._read()

    def throttle(self, reason: PauseReason, *, on: bool) -> None:
        if on:
            self.throttled.add_pause_reason(reason, self.reading)
        else:
            self.throttled.remove_pause_reason(reason)

    def drain(self) -> None:
        """The other peer takes what was written."""
        self._unsent = 0
        self.throttle(PauseReason.WRITE_BUFFER, on=False)
        self._read()

    def advance(self, seconds: float) -> None:
        """Let time pass; the alarm rings at each instant that the scheduler asked for."""
        target = self.clock.now + round(seconds * 1e9)
        while self.wakes and min(self.wakes.values()) <= target:
            limiter, at = min(self.wakes.items(), key=lambda wake: wake[1])
            del self.wakes[limiter]
            self.clock.now = max(self.clock.now, at)
            self.scheduler.serve(limiter, self.clock.now)
            self._read()
        self.clock.now = target

    def frames(self) -> list[bytes]:
        """Whole frames that came out since the last time."""
        data = bytes(self.written)
        self.written.clear()
        return list(self._cutter.feed(data))

    @property
    def is_idle(self) -> bool:
        return not self._socket and not self.relay.backlog and not self.wakes

    def _take(self, part: Bytes) -> None:
        self.writes += 1
        self.written += part
        self._unsent += len(part)
        if self._unsent > self.write_limit:
            self.throttle(PauseReason.WRITE_BUFFER, on=True)

    def _read(self) -> None:
        """What a transport does later, in the loop's next turn: never inside of what resumed it.

        Other bytes stand there afterwards, as when another connection was read.
        """
        while self._socket and not self.reading.is_paused:
            chunk = self._socket.popleft()
            place = _BUFFER.views[-1][: len(chunk)]
            place[:] = chunk
            self.relay.feed(_BUFFER.data, len(chunk))
            place[:] = bytes(len(chunk))

    def _read_on(self, _last: PauseReason) -> None:
        self.relay.resume()
        if not self.throttled.pause_reasons:
            self.reading.resume_reading()

    def _handle(self, kind: int, _command: bytes, frame: bytes) -> bytes | None:
        if kind == BaseCommand.CLOSE_PRODUCER:
            stream = self.relay.streams[body(frame).producer_id]
            if stream.held:
                self.relay.hold_behind(stream, frame)
                return None
        return frame
