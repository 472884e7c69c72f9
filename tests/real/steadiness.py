"""Whether a limit is kept, at the receiving end, and used, by the access log."""

from collections import defaultdict
from datetime import datetime

from accesslog.record import IntervalLine
from bench.harness import jain
from compliance.judging.facts import Judged
from tests.compliance.judging.pure import Key, verdicts
from tests.compliance.real_log import assert_kept, lines_so_far
from tests.real.arrivals import Arrival, Line
from tests.real.metrics import counted
from tests.real.sluice_process import SluiceProcess
from tests.waiting import wait_for

WAITED_S = 1.0
"""A limit on which something waited for less says nothing."""
WAITING = {"publish": 0.99, "dispatch": 0.8}
"""The part of an interval in which a stream that asks for more than its share waits. A consumer does not wait while its
next entry is on the way from the broker."""
FEWEST_INTERVALS = 4
"""An interval has some entries of each stream: by how many a share is off, fewer intervals do not tell."""
SURPLUS_S = 0.02
"""So many seconds' worth a bucket keeps for what wakes late, beyond its burst."""


def assert_never_above(arrivals: list[Arrival], line: Line, begun: float, *later: tuple[float, float]) -> None:
    """At no time have more arrived since `begun`, from the very first second on; see `Line.excess_since`."""
    assert line.excess_since(begun, arrivals, *later) <= 0, f"above {line}"


def assert_used(sluice: SluiceProcess, direction: str, level: str, name: str = "") -> None:
    """Something waited on the limit, and got all that the limit owed: by the access log, and but for late timers.

    Arrivals cannot tell that: where the machine is busy otherwise, timers ring late, and a bucket that is full earns
    nothing meanwhile. The log has what the limit kept back and for how long a token was there, the metrics how late
    timers rang.
    """
    judged = wait_until_waited(sluice, (direction, level, name))
    assert_kept(judged, name)
    assert judged.entitlement is not None
    assert judged.entitlement.late_s <= counted(sluice, "sluice_loop_lag_seconds_total")


def wait_until_waited(sluice: SluiceProcess, limit: Key) -> Judged:
    """The limit's verdict, once the log tells of WAITED_S in which something waited on it."""
    by_limit: dict[Key, Judged] = {}

    def has_waited() -> bool:
        by_limit.update(verdicts(lines_so_far(sluice.access_log)))
        owed = by_limit[limit].entitlement if limit in by_limit else None
        return owed is not None and owed.whole_waited_s >= WAITED_S

    wait_for(has_waited, evidence=lambda: f"nothing waited on {limit}; limits: {[*by_limit]}", pause_s=0.2)
    return by_limit[limit]


def held_messages(sluice: SluiceProcess, topic: str, passed: int) -> int:
    """How many of a topic's messages were held at all, once the log tells that so many passed."""
    lines: list[IntervalLine] = []

    def has_passed() -> bool:
        lines[:] = [line for line in lines_so_far(sluice.access_log) if isinstance(line, IntervalLine)]
        lines[:] = [line for line in lines if line.topic == topic]
        return sum(line.passed_messages for line in lines) >= passed

    wait_for(has_passed, evidence=lambda: lines, pause_s=0.2)
    assert sum(line.passed_messages for line in lines) == passed
    return sum(sum(line.delay_hist) for line in lines)


def in_bytes(arrivals: list[Arrival], entry_bytes: int) -> list[Arrival]:
    """The same for a limit in bytes."""
    return [(at, messages * entry_bytes) for at, messages in arrivals]


def evenness(sluice: SluiceProcess, direction: str, *topics: str) -> float:
    """Jain's index of what each stream of these topics passed while all of them waited, by intervals of the log.

    It is 1 where a busy machine has not let all of them ask for more than their share in enough intervals.
    """
    intervals: defaultdict[datetime, dict[tuple[int, int], IntervalLine]] = defaultdict(dict)
    for line in lines_so_far(sluice.access_log):
        if isinstance(line, IntervalLine) and line.direction == direction and line.topic in topics:
            intervals[line.end][line.connection_id, line.stream_id] = line
    most = max(map(len, intervals.values()))
    whole = [
        lines
        for lines in intervals.values()
        if len(lines) == most
        and all(line.throttled_ms >= WAITING[direction] * line.duration_ms for line in lines.values())
    ]
    if len(whole) < FEWEST_INTERVALS:
        return 1
    return jain([sum(lines[stream].passed_messages for lines in whole) for stream in whole[0]])
