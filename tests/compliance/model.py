"""An independent limiter, message by message and in exact fractions, and what can go wrong with one or with its log.

Shares no code and no formula with the job: it decides in steps of a millisecond, the job sums whole lines.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fractions import Fraction
from functools import cache

from tests.compliance.planted import PlantedLog, topic_of, write_file

MS = 1000
GREEDY_S = 30
"""Length of the phase in the middle in which more is wanted than the limit allows, all the time."""


@dataclass
class Second:
    """What one line will say; `at_ms` is when it begins, since the run began."""

    at_ms: int
    duration_ms: int
    rate: int
    burst: int
    offered: int = 0
    passed: int = 0
    held: int = 0
    largest: int = 0
    waited_ms: int = 0


@dataclass
class Model:
    """One limiter, one stream; the bucket begins full."""

    rate: int
    burst: int
    tokens: Fraction = field(init=False)
    queue: list[int] = field(default_factory=list)
    at_ms: int = 0

    def __post_init__(self):
        self.tokens = Fraction(self.burst)

    def change(self, rate, burst):
        self.rate, self.burst = rate, burst
        self.tokens = min(self.tokens, Fraction(burst))

    def run(self, duration_ms, arrivals: Callable[[int], list[int]]):
        """Entries arrive by `arrivals(millisecond)`; one passes while there is a whole token, whatever its size."""
        line = Second(self.at_ms, duration_ms, self.rate, self.burst)
        for tick in range(duration_ms):
            came = arrivals(self.at_ms + tick)
            self.queue += came
            line.offered += sum(came)
            self.tokens = min(Fraction(self.burst), self.tokens + Fraction(self.rate, MS))
            while self.queue and self.tokens >= 1:
                entry = self.queue.pop(0)
                self.tokens -= entry
                line.passed += entry
                line.largest = max(line.largest, entry)
            line.waited_ms += bool(self.queue)
        line.held = sum(self.queue)
        self.at_ms += duration_ms
        return line


def worst_excess(lines, end):
    """Of all windows that end with that line, by trial: how much more passed than a full bucket and one entry allow.

    Where the value changes, what is at hand is clipped to the new burst; a debt stays in tokens where the rate rises,
    in seconds where it falls, and never longer than it was made for.
    """
    return max(_excess(lines[begin : end + 1]) for begin in range(end + 1))


def _excess(window):
    tokens, made, before = Fraction(window[0].burst), window[0].rate, window[0]
    paid_at = before.at_ms
    for line in window:
        if (line.rate, line.burst) != (before.rate, before.burst):
            made = before.rate if line.at_ms >= paid_at else made
            if tokens < 0:
                tokens *= Fraction(min(line.rate, made), min(before.rate, made))
            tokens = min(tokens, Fraction(line.burst))
            paid_at = line.at_ms + max(Fraction(0), -tokens * MS / line.rate)
        tokens = min(tokens, Fraction(line.burst)) + Fraction(line.rate * line.duration_ms, MS) - line.passed
        before = line
    return -tokens - window[-1].largest


def simulate(seed, largest_entry=1, change_at_ms=None):
    """The lines of `simulated`, to be changed at will, and the index."""
    lines, first_greedy = simulated(seed, largest_entry, change_at_ms)
    return [replace(line) for line in lines], first_greedy


@cache
def simulated(seed, largest_entry, change_at_ms):
    """Seconds of a day in small: some random traffic, then thirty greedy seconds, then some more.

    Returns the lines and the index of the first one of the greedy phase.
    """
    chance = random.Random(seed)
    rate = chance.randrange(60, 300)
    model = Model(rate, max(1, rate // chance.choice((2, 5, 10))))
    lines: list[Second] = []
    lines += [model.run(MS, traffic(chance, rate, largest_entry)) for _ in range(chance.randrange(4, 12))]
    first_greedy = len(lines)
    backlog = model.rate * (GREEDY_S + 5)
    flood = {model.at_ms: [largest_entry] * (backlog // largest_entry)}
    for _ in range(GREEDY_S):
        parts: tuple[int, ...] = (MS,)
        if change_at_ms is not None and model.at_ms == (first_greedy + 15) * MS:
            parts = (change_at_ms, MS - change_at_ms)
        for number, duration_ms in enumerate(parts):
            if number:
                model.change(model.rate // 2, max(1, model.burst // 2))
            lines.append(model.run(duration_ms, lambda tick: flood.get(tick, [])))
    model.queue.clear()
    lines += [model.run(MS, traffic(chance, rate, largest_entry)) for _ in range(chance.randrange(3, 8))]
    return lines, first_greedy


def traffic(chance, rate, largest_entry):
    """Idle, a trickle, or a burst at one moment of the second."""
    kind, moment = chance.choice(("idle", "trickle", "burst")), chance.randrange(MS)
    size = chance.randrange(1, largest_entry + 1)

    def arrivals(tick):
        if kind == "burst" and tick % MS == moment:
            return [size] * chance.randrange(1, max(2, 2 * rate // size))
        if kind == "trickle" and chance.random() < rate / MS / size / 2:
            return [size]
        return []

    return arrivals


def written(name, lines, *, clock_step=None, boot_id="boot-1", begin=None):
    """The lines of the log: stream, limiter and heartbeat for each second in which something happened.

    Args:
        name: Of the proxy.
        lines: What happened.
        clock_step: Index of the line within which the wall clock steps, and by how many seconds.
        boot_id: Which run.
        begin: When it began.
    """
    log = PlantedLog(proxy_id=name, topic=topic_of(name), boot_id=boot_id)
    log.begin = begin or log.begin
    origin = log.begin
    held = 0
    for index, line in enumerate(lines):
        dropped, held = held + line.offered - line.passed - line.held, line.held
        start = origin + timedelta(milliseconds=line.at_ms)
        if clock_step and index == clock_step[0]:
            origin += timedelta(seconds=clock_step[1])
            log.ahead_s = clock_step[1]
        end = origin + timedelta(milliseconds=line.at_ms + line.duration_ms)
        span = {"start": start, "end": end, "duration_ms": float(line.duration_ms)}
        is_busy = line.offered or line.passed or line.waited_ms
        if is_busy or dropped:
            limits = {"limit_messages": float(line.rate), "throttled_ms": float(line.waited_ms)}
            counts = {"offered": line.offered, "held_messages": held, "held_bytes": held * 100}
            counts |= {"dropped_messages": dropped, "dropped_bytes": dropped * 100}
            log.interval(line.passed, **span, **limits, **counts)
        if is_busy:
            entries = {"largest_entry_messages": line.largest, "largest_entry_bytes": line.largest * 100}
            limits = {"rate": float(line.rate), "burst_messages": float(line.burst)}
            log.limit(line.passed, **span, **limits, **entries, throttled_ms=float(line.waited_ms))
        log.beat(**span)
    log.lines[-1].last = True
    return log


def write_in_three(folder, log, *, without=()):
    """Three files, but for the ones that got lost."""
    lines = log.encoded()
    third = len(lines) // 3
    parts = (lines[:third], lines[third : 2 * third], lines[2 * third :])
    for number, part in enumerate(parts):
        if number not in without:
            write_file(folder, f"{log.proxy_id}-{log.boot_id}-{number}.jsonl{'.zst' if number == 1 else ''}", part)
