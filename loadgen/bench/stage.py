"""Where measurements take place: both ends, and the peers that run."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from typing import Generic, TypeVar

from loadgen.bench import client, proc
from loadgen.bench.native import Native
from loadgen.bench.peers.plan import Peer, Plan, running
from loadgen.bench.sink import Sink

Result = TypeVar("Result")
_LOOK_S = 0.1
_AT_REST = 0.02
"""Of a core: more than any peer needs that has nothing to do."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What a measurement needs.

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
    sink: Sink
    peers: Mapping[str, Peer]
    plans: Mapping[str, Plan]
    seconds: float
    folder: Path
    real: Callable[[Plan], Peer] | None = None

    def producers(self, port: int, count: int, streams: int = 1) -> tuple[list[socket], list[socket]]:
        """So many connections through a peer, each with its producers on a topic of its own: both ends of all."""
        return self._opened(count, lambda topic: client.producer(topic, port, streams))

    def consumers(self, port: int, count: int) -> tuple[list[socket], list[socket]]:
        """So many connections through a peer, each with a consumer of a topic of its own: both ends of all."""
        return self._opened(count, lambda topic: client.consumer(topic, port))

    def started(self, plan: Plan) -> AbstractContextManager[Peer]:
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
        """Whether it has ended."""
        return not self._thread.is_alive()

    @property
    def result(self) -> Result:
        """What it gave."""
        return self._found[0]


class CpuClock:
    """CPU seconds and wake-ups of a process, from the moment of its making on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = proc.used(pid)

    def read(self) -> proc.Used:
        """So far."""
        now = proc.used(self._pid)
        return proc.Used(now.cpu_s - self._before.cpu_s, now.wake_ups - self._before.wake_ups)


def settle(pid: int, most_s: float = 10.0) -> None:
    """Wait until a process and its children have nothing to do, or are gone, but no longer than so many seconds.

    What it does behind one measurement, as for thousands of connections that have ended, is not to be part of the next.
    """
    over = time.monotonic() + most_s
    with suppress(OSError):
        while time.monotonic() < over:
            clocks = [CpuClock(one) for one in (pid, *proc.children(pid))]
            time.sleep(_LOOK_S)
            if sum(clock.read().cpu_s for clock in clocks) <= _AT_REST * _LOOK_S:
                return


def close_all(connections: Sequence[socket]) -> None:
    """Close them."""
    for connection in connections:
        connection.close()
