"""The stage of measurements: both ends, the peers that run, a real broker for rows that want one; the rounds."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from types import TracebackType
from typing import Generic, Self, TypeVar

from adminrest.client import AdminError
from loadgen.bench import meters, wire
from loadgen.bench.harness import BenchError, Row, Sample
from loadgen.bench.native import Native
from loadgen.bench.proxies import PeerPlan, RunningPeer, running
from loadgen.bench.wire import LoopbackSink
from loadgen.real.jars import RealPulsarError
from loadgen.real.standalone import StandaloneBroker


class RealBroker:
    """Starts when the first peer is asked for, and ends with all of them at the end of the block.

    Args:
        folder: For everybody's files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._port: int | None = None
        self._peers: dict[str, RunningPeer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def peer(self, plan: PeerPlan) -> RunningPeer:
        """The peer that has the real broker behind it; it goes on running, for a JVM is slow at first.

        Raises:
            BenchError: If the broker or the peer cannot be had.
        """
        if plan.name not in self._peers:
            self._peers[plan.name] = self._stack.enter_context(running(plan, self._folder, self._broker()))
        return self._peers[plan.name]

    def _broker(self) -> int:
        if self._port is None:
            try:
                broker = self._stack.enter_context(StandaloneBroker(self._folder / "broker"))
            except RealPulsarError as error:
                raise BenchError(f"no real broker: {str(error).splitlines()[0]}") from error
            self._port = broker.service_port
        return self._port


Result = TypeVar("Result")
_LOOK_S = 0.1
_AT_REST = 0.02
"""Of a core: more than any peer needs that has nothing to do."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The surroundings of a measurement.

    Attributes:
        native: What sends and receives.
        sink: The broker behind all peers.
        peers: Those that run all the time, by name.
        plans: How these were started.
        seconds: How long each measurement sends.
        folder: For peers that are started for one measurement.
        real: Gives a peer that has a real broker behind it, by its plan; None if none is wanted.
    """

    native: Native
    sink: LoopbackSink
    peers: Mapping[str, RunningPeer]
    plans: Mapping[str, PeerPlan]
    seconds: float
    folder: Path
    real: Callable[[PeerPlan], RunningPeer] | None = None

    def producers(self, port: int, count: int, streams: int = 1) -> tuple[list[socket], list[socket]]:
        """Open connections through a peer, each with producers on a topic of its own; returns both ends."""
        return self._opened(count, lambda topic: wire.open_producer(topic, port, streams))

    def consumers(self, port: int, count: int) -> tuple[list[socket], list[socket]]:
        """Open connections through a peer, each with a consumer of a topic of its own; returns both ends."""
        return self._opened(count, lambda topic: wire.open_consumer(topic, port))

    def started(self, plan: PeerPlan) -> AbstractContextManager[RunningPeer]:
        """A peer for one measurement."""
        return running(plan, self.folder, self.sink.port)

    def _opened(self, count: int, opened: Callable[[str], socket]) -> tuple[list[socket], list[socket]]:
        here, there = [], []
        for number in range(count):
            here.append(opened(f"persistent://public/default/bench-{number:03}"))
            there.append(self.sink.opened())
            here[-1].settimeout(None)
        return here, there


class Beside(Generic[Result]):
    """Runs something in a thread while the block runs; `result` is there behind it."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work = work
        self._found: list[Result] = []
        self._thread = threading.Thread(target=lambda: self._found.append(self._work()), daemon=True)

    def __enter__(self) -> "Beside[Result]":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    @property
    def is_done(self) -> bool:
        """Whether the work has ended."""
        return not self._thread.is_alive()

    @property
    def result(self) -> Result:
        """The result of the work."""
        return self._found[0]


class CpuClock:
    """CPU seconds and wake-ups of a process, from the moment of its making on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = meters.used(pid)

    def read(self) -> meters.Used:
        """Read what was used since the clock was started."""
        now = meters.used(self._pid)
        return meters.Used(now.cpu_s - self._before.cpu_s, now.wake_ups - self._before.wake_ups)


def settle(pid: int, most_s: float = 10.0) -> None:
    """Wait until a process and its children have nothing to do, or are gone, but no longer than so many seconds.

    What it does behind one measurement, as for thousands of connections that have ended, is not to be part of the next.
    """
    over = time.monotonic() + most_s
    with suppress(OSError):
        while time.monotonic() < over:
            clocks = [CpuClock(one) for one in (pid, *meters.children(pid))]
            time.sleep(_LOOK_S)
            if sum(clock.read().cpu_s for clock in clocks) <= _AT_REST * _LOOK_S:
                return


def close_all(connections: Sequence[socket]) -> None:
    """Close them."""
    for connection in connections:
        connection.close()


DataRow = Row[Callable[[Stage, str], Sample]]
"""A row of the data path: one measurement of the peer with this name."""
Progress = Callable[[str], None]
Measured = dict[str, list[Sample | None]]


def measure(rows: Sequence[DataRow], stage: Stage, rounds: int, progress: Progress) -> dict[str, Measured]:
    """Measure each row; returns the samples by row name. A measurement that failed is told, and None."""
    return {row.name: _measure_row(row, stage, rounds, progress) for row in rows}


def _measure_row(row: DataRow, stage: Stage, rounds: int, progress: Progress) -> Measured:
    names = [name for name in row.peers if name in stage.plans]
    found: Measured = {name: [] for name in names}
    # round 0 is for the peers to become warm in, but where the row says how often it is measured
    for number in range(1 if row.rounds else 0, (row.rounds or rounds) + 1):
        # by turns, so that what the machine does beside this reaches all
        samples = {name: _one(row, stage, name, progress) for name in _rotated(names, number)}
        for name in names if number > 0 else []:
            found[name].append(samples[name])
            progress(f"{row.name}, {number}: {name}: {row.told([samples[name]])}")
    return found


def _rotated(names: Sequence[str], by: int) -> list[str]:
    """Who begins is another one in each round: whoever comes last finds the machine as the others leave it."""
    turn = by % len(names)
    return [*names[turn:], *names[:turn]]


def _one(row: DataRow, stage: Stage, name: str, progress: Progress) -> Sample | None:
    try:
        return row.measure(stage, name)
    except (BenchError, AdminError, OSError, ZeroDivisionError) as error:
        progress(f"{row.name}: {name} failed: {error or type(error).__name__}")
        return None
    finally:
        if name in stage.peers:
            settle(stage.peers[name].pid)
