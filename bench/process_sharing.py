"""The row of two processes that share a limit: how evenly, and how soon a newcomer or a survivor has its part."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from socket import MSG_WAITALL, socket

from adminrest.client import AdminClient, AdminError
from bench import meters
from bench.data_path import wire
from bench.data_path.native import Live
from bench.data_path.proxies import RunningPeer, sluice_plan
from bench.data_path.stage import DataRow, Stage, beside, close_all
from bench.harness import BenchError, Figure, Goal, Row, Sample, jain
from loadgen.real.process import wait_until

CYCLE_S, LEASE_S = 0.25, 2.0
"""The defaults of `fleet.cycle` and `fleet.lease`."""
RATE = 4000
STREAMS = 8
"""Of each process."""
FIGURES = (
    Figure("jain", "Jain's index over all streams", digits=4, goals=(Goal("≥", 0.98),)),
    Figure("used", "passed, of the limit", " %", digits=1),
    Figure("first", "a newcomer's first entry", " ms", digits=1, goals=(Goal("≤", 5),)),
    Figure("part", "until a newcomer passes its part", " s", digits=2, goals=(Goal("≤", 2 * CYCLE_S),)),
    Figure("killed", "until the other passes all, after a kill", " s", digits=2, goals=(Goal("≤", LEASE_S),)),
)
_LIMITS = {"tenants": {"public": {"publish": {"messages": RATE}}}}
_FRAME = wire.send_frame(100).frame
_MOST_OPENED = 100
_ENOUGH = 0.95
"""Of a rate: a window in which so much passed has it."""
_READY_S = 60.0
_SETTLED_S = 8 * CYCLE_S
_DIVIDED_S = 2 * LEASE_S
"""A new coordinator divides only what members bring, for so long (docs/fleet.md)."""
_LOOK_S = 0.005

Look = tuple[float, list[int]]
"""When it was looked, and the frames of each connection until then."""


@dataclass(frozen=True, slots=True)
class ConnectionEnds:
    """Both ends of connections, a producer on each: the clients' and the broker's."""

    here: list[socket]
    there: list[socket]

    def __add__(self, other: "ConnectionEnds") -> "ConnectionEnds":
        return ConnectionEnds(self.here + other.here, self.there + other.there)

    def __getitem__(self, at: slice) -> "ConnectionEnds":
        return ConnectionEnds(self.here[at], self.there[at])

    def close(self) -> None:
        """Close all."""
        close_all(self.here)
        close_all(self.there)


def sharing_row(name: str) -> DataRow:
    """Make the row, of one peer: two processes that are started for it."""
    text = f"{STREAMS} streams of each process want more than their part of one tenant's {RATE:,} msg/s"
    return Row("sharing", text, FIGURES, _measure, (name,))


def soonest(looks: Sequence[Look], rate: float, window_s: float = CYCLE_S) -> float | None:
    """Return the seconds from the first look to the begin of the first window in which a rate passes; None: never.

    Args:
        looks: In the order of time.
        rate: Frames a second, of all connections together.
        window_s: A window lasts at least so long.
    """
    end = 0
    for at, before in looks:
        while end < len(looks) and looks[end][0] < at + window_s:
            end += 1
        if end == len(looks):
            return None
        until, after = looks[end]
        if (sum(after) - sum(before)) / (until - at) >= _ENOUGH * rate:
            return at - looks[0][0]
    return None


def _measure(stage: Stage, _name: str) -> Sample:
    with stage.started(sluice_plan(_LIMITS, processes=2, proxy_id="sharing")) as peer:
        formed(peer, 2)
        return {**_evenly(stage, peer), **_newcomer(stage, peer), **_killed(stage, peer)}


def formed(peer: RunningPeer, processes: int) -> None:
    """Wait until the processes of a peer share limits with each other.

    Raises:
        BenchError: If they do not in time.
    """

    def members() -> float:
        try:
            return meters.scrape(peer.spare_port).values.get("sluice_fleet_members", 0)
        except AdminError:
            return 0

    if not wait_until(lambda: members() == processes, _READY_S):
        raise BenchError(f"the {processes} processes have not formed their fleet within {_READY_S:g} s")


def _evenly(stage: Stage, peer: RunningPeer) -> Sample:
    first, second = _opened(stage, peer, STREAMS, STREAMS)
    with _passing(stage, first + second, _DIVIDED_S + _SETTLED_S + stage.seconds) as live:
        time.sleep(_DIVIDED_S + _SETTLED_S)
        looks = _look(live, stage.seconds)
    (begun, before), (ended, after) = looks[0], looks[-1]
    passed = [late - early for early, late in zip(before, after, strict=True)]
    return {"jain": jain(passed), "used": sum(passed) / (ended - begun) / RATE * 100}


def _newcomer(stage: Stage, peer: RunningPeer) -> Sample:
    """One process has had the whole limit for some cycles; then streams of the other want their part."""
    first, second = _opened(stage, peer, STREAMS, STREAMS + 1)
    alone, others = second[:1], second[1:]
    with _passing(stage, first, 2 * _SETTLED_S + CYCLE_S):
        time.sleep(_SETTLED_S)
        begun = time.monotonic()
        alone.here[0].sendall(_FRAME)
        alone.there[0].recv(len(_FRAME), MSG_WAITALL)
        took_s = time.monotonic() - begun
        with _passing(stage, others, _SETTLED_S) as live:
            looks = _look(live, _SETTLED_S)
    alone.close()
    return {"first": took_s * 1e3, "part": _found("a newcomer's part", looks, RATE / 2)}


def _killed(stage: Stage, peer: RunningPeer) -> Sample:
    first, second = _opened(stage, peer, STREAMS, STREAMS)
    with _passing(stage, first + second, 2 * _SETTLED_S + LEASE_S) as live:
        time.sleep(_SETTLED_S)
        os.kill(meters.children(peer.pid)[-1], signal.SIGKILL)
        looks = _look(live, LEASE_S + _SETTLED_S)
    return {"killed": _found("the whole limit after a kill", looks, RATE)}


def _opened(stage: Stage, peer: RunningPeer, *wanted: int) -> list[ConnectionEnds]:
    """Open connections until each process has as many as wanted: the kernel chooses the process."""
    opened = [ConnectionEnds([], []) for _ in wanted]
    for number in range(_MOST_OPENED):
        if all(len(ends.here) >= count for ends, count in zip(opened, wanted, strict=True)):
            for ends, count in zip(opened, wanted, strict=True):
                ends[count:].close()
            return [ends[:count] for ends, count in zip(opened, wanted, strict=True)]
        topic = f"persistent://public/default/bench-{number:03}"
        connection = ConnectionEnds([wire.open_producer(topic, peer.port)], [stage.sink.opened()])
        connection.here[0].settimeout(None)
        index = 0 if _has(peer.spare_port, topic) else 1
        opened[index] += connection
    raise BenchError(f"of {_MOST_OPENED} connections the kernel gave one process too few")


def _has(admin_port: int, topic: str) -> bool:
    streams = AdminClient(f"http://127.0.0.1:{admin_port}").get_json("/sluice/streams")["streams"]
    return any(stream["topic"] == topic for stream in streams)


@contextmanager
def _passing(stage: Stage, ends: ConnectionEnds, seconds: float) -> Iterator[Live]:
    """While the block runs, all connections offer as much as they can, and what arrives is counted."""
    live, chunk = Live(len(ends.there)), wire.many(_FRAME)
    with ExitStack() as stack:
        stack.callback(close_all, ends.there)
        stack.enter_context(beside(lambda: stage.native.receive(ends.there, live=live, frame_size=len(_FRAME))))
        stack.enter_context(beside(lambda: stage.native.send_for(ends.here, chunk, len(_FRAME), seconds)))
        yield live


def _look(live: Live, seconds: float) -> list[Look]:
    looks, end = [(time.monotonic(), list(live.counts))], time.monotonic() + seconds
    while looks[-1][0] < end:
        time.sleep(_LOOK_S)
        looks.append((time.monotonic(), list(live.counts)))
    return looks


def _found(subject: str, looks: Sequence[Look], rate: float) -> float:
    if (seconds := soonest(looks, rate)) is None:
        raise BenchError(f"{subject} was not passed within {looks[-1][0] - looks[0][0]:.1f} s")
    return seconds
