"""What the product's own scheduler would have logged: anything happens to it, second by second."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from compliance.judging.lines import BUCKETS, Line, StreamsLine
from limiter.activity import ActivityJournal
from limiter.limiter import Entry, Limiter, Scope, Stream, StreamName
from limiter.scheduler import Scheduler
from limiter.token_bucket import NANOS_PER_SECOND, Limit, Rate, rate
from proxy.observe.counter_snapshot import CounterSnapshot
from proxy.observe.totals import NamespaceTotals
from tests.limiter.emptied import emptied
from tests.limiter.world import Alarms

Item = Line | StreamsLine
MS = 1_000_000
START_US = 1_700_000_000_000_000
NAMES = {"topic": ("a", "b"), "namespace": ("n",), "tenant": ("t",)}


def per_second(limit_rate: Rate | None) -> float | None:
    return None if limit_rate is None else limit_rate.per_second


@dataclass
class SchedulerLog:
    """A scheduler, its clock and alarms, and the lines that it wrote so far.

    Args:
        late_ms: Timers ring late by up to so much.
        chance: What is drawn from.
    """

    chance: Random
    late_ms: int = 0
    make: Callable[..., Scheduler] = Scheduler
    now: int = 0
    items: dict[tuple[str, str], list[Item]] = field(default_factory=dict)
    changes: list[int] = field(default_factory=list)
    changed_us: list[int] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)
    """Numbers and times of the heartbeats that may be behind lines."""

    def __post_init__(self) -> None:
        self.alarms = Alarms()
        self.journal = ActivityJournal()
        self.scheduler = self.make(self.alarms.wake_at, self.journal)
        self.tally = CounterSnapshot(NamespaceTotals())
        self.limiters: dict[tuple[str, str], Limiter] = {}
        self.streams: list[Stream] = []
        self.ended = 0
        self.began: dict[Scope, int] = {}
        self.seq = 0
        self.numbers = 0
        self.interval = NANOS_PER_SECOND
        self.due = self.interval
        self.offered: dict[Stream, tuple[int, int]] = {}

    # ---- what happens

    def limiter(self, level: str, name: str, limit: Limit) -> Limiter:
        scope = Scope("publish", level, name, "t", "n")
        made = self.limiters[level, name] = Limiter(scope, limit, level, self.now)
        return made

    def open(self, *chain: Limiter, by_entry: bool = False) -> Stream:
        self.numbers += 1
        name = StreamName("publish", "t", "n", chain[-1].scope.name if chain else "x", self.numbers)
        stream = Stream(name, chain, lambda _stream, _entry: None, by_entry=by_entry)
        self.scheduler.join(stream)
        self.streams.append(stream)
        return stream

    def close(self, stream: Stream) -> None:
        self.scheduler.leave(stream, self.now)
        self.streams.remove(stream)

    def offer(self, stream: Stream, messages: int, size: int) -> None:
        charged = stream.charged(1, messages)
        if self.chance.random() < 0.5 and self.scheduler.admit(stream, charged, size, self.now):
            self.scheduler.count_admitted(stream, 1, messages, size, messages, size)
            return
        self.scheduler.count_offered(stream, 1, messages, size)
        if not self.scheduler.pass_entry(stream, messages, size, self.now):
            self.scheduler.hold(stream, Entry(b"", messages, size, size, self.now, charged=charged), self.now)

    def retune(self, limiter: Limiter, limit: Limit) -> None:
        """A change ends the lines that are under way."""
        self.change()
        limiter.retune(limit, limiter.scope.level, self.now)
        self.scheduler.serve(limiter, self.now)

    def advance(self, span_ns: int) -> None:
        end = self.now + span_ns
        while self.now < end:
            until = min(end, self.due)
            self._ring_until(until)
            self.now = max(self.now, until)
            if self.now >= self.due:
                self.write()
                self.due += self.interval

    def _ring_until(self, until: int) -> None:
        while (alarm := self.alarms.next_before(until)) is not None:
            at, limiter = alarm
            late = self.chance.randrange(self.late_ms * MS) if self.late_ms and at > self.now else 0
            if late and at + late > until:
                late = max(0, until - at)
            self.now = max(self.now, at + late)
            self.scheduler.serve(limiter, self.now)

    # ---- what is written

    def change(self) -> None:
        """Limits are about to be others: lines end, and one tells of it."""
        self.write()
        self.changes.append(self.seq)
        self.changed_us.append(START_US + self.now // 1000)
        self.seq += 1

    def write(self) -> None:
        streams, limiters = emptied(self.journal)
        taken = [(stream, self.tally.of_stream(self.tally.take_stream(stream, self.now))) for stream in streams]
        tallies = [(limiter, self.tally.of_limiter(self.tally.take_limiter(limiter, self.now))) for limiter in limiters]
        self.tally.end()
        for limiter, fields in tallies:
            span = self.began.get(limiter.scope, self.ended), self.now
            key = limiter.scope.level, limiter.scope.name
            members = [(stream, counts) for stream, counts in taken if limiter in stream.chain]
            if members:
                self._add(key, self._streams(limiter, members, span))
            self._add(key, self._line(limiter, fields, span))
        self.ended = self.now
        self.began.clear()
        self.ends.append((self.seq, START_US + self.now // 1000))
        self.seq += 1

    def _add(self, key: tuple[str, str], item: Item) -> None:
        self.items.setdefault(key, []).append(item)

    def _head(self, span: tuple[int, int]) -> dict[str, Any]:
        at = START_US + span[0] // 1000, START_US + span[1] // 1000
        self.seq += 1
        seconds = (span[1] - span[0]) / 1e9
        return {"seq": self.seq - 1, "place": ("a.jsonl", self.seq), "at_us": at, "wall_us": at, "duration_s": seconds}

    def _streams(
        self, limiter: Limiter, members: list[tuple[Stream, dict[str, Any]]], span: tuple[int, int]
    ) -> StreamsLine:
        def counted(counts: dict[str, Any], unit: str) -> int:
            return int(counts.get(f"charged_{unit}", counts[f"passed_{unit}"]))

        charged_messages, charged_bytes = (sum(counted(counts, unit) for _, counts in members) for unit in BUCKETS[:2])
        messages, size = (sum(int(counts[f"passed_{unit}"]) for _, counts in members) for unit in BUCKETS[:2])
        charged, crossed = (charged_messages, charged_bytes), (messages, size)
        by_entry = any(stream.by_entry for stream, _ in members)
        largest = tuple(
            max(counted(counts, unit) - max(0, counts["passed_entries"] - 1) for _, counts in members)
            for unit in BUCKETS[:2]
        )
        alone = [counts["throttled_ms"] for stream, counts in members if len(stream.chain) == 1]
        named = [counts["throttled_ms"] for stream, counts in members if stream.last_reason == limiter.scope.level]
        crossing = [(stream, counts["throttled_ms"]) for stream, counts in members if len(stream.chain) > 1]
        elsewhere = [waited for stream, waited in crossing if stream.last_reason != limiter.scope.level]
        return StreamsLine(
            **self._head(span),
            passed=charged if by_entry else crossed,
            crossing_wait_s=sum(waited for _, waited in crossing) / 1e3,
            elsewhere_wait_s=sum(elsewhere) / 1e3,
            largest=(largest[0], largest[1]),
            only_wait_s=max(alone, default=0.0) / 1e3,
            named_wait_s=max(named, default=0.0) / 1e3,
            limit=self._said(limiter, members, max),
            least_limit=self._said(limiter, members, min),
            members=len(members),
            is_alone=all(len(stream.chain) == 1 for stream, _ in members),
            largest_offered=(self._largest(members, "messages"), self._largest(members, "bytes")),
            starving=self._starving(limiter, members, span),
        )

    def _said(
        self, limiter: Limiter, members: list[tuple[Stream, dict[str, Any]]], which: Callable[..., float | None]
    ) -> tuple[float | None, float | None]:
        """The limiter's value by the lines of streams of which it is the lowest, of equal ones the outermost."""
        amounts: tuple[list[float], list[float]] = ([], [])
        for stream, _ in members:
            limits = [(link.limit.messages, link.limit.size) for link in stream.chain if not link.is_observed]
            for unit in range(2):
                values = [per_second(limit[unit]) for limit in limits]
                least = min((value for value in values if value is not None), default=None)
                if least is None:
                    continue
                lowest = next(
                    link for link, value in zip(self._enforced(stream), values, strict=True) if value == least
                )
                amounts[unit].extend([least] if lowest is limiter else [])
                break
        return which(amounts[0], default=None), which(amounts[1], default=None)

    @staticmethod
    def _enforced(stream: Stream) -> list[Limiter]:
        return [limiter for limiter in stream.chain if not limiter.is_observed]

    @staticmethod
    def _largest(members: list[tuple[Stream, dict[str, Any]]], unit: str) -> int:
        return max(int(counts[f"offered_{unit}"] - max(0, counts["offered_entries"] - 1)) for _, counts in members)

    def _starving(
        self, limiter: Limiter, members: list[tuple[Stream, dict[str, Any]]], span: tuple[int, int]
    ) -> tuple[str, tuple[int, int], tuple[int, int], bool] | None:
        waiting = [
            (
                counts["passed_messages"],
                counts["passed_bytes"],
                stream.held[0].since,
                stream.name.stream_id,
                stream,
                counts,
            )
            for stream, counts in members
            if stream.last_reason == limiter.scope.level
            and counts["throttled_ms"] * MS >= span[1] - span[0]
            and (len(stream.chain) == 1 or not counts["passed_entries"])
            and stream.held
        ]
        if not waiting:
            return None
        messages, size, _, number, stream, counts = min(waiting, key=lambda waiter: waiter[:4])
        held = counts["held_messages"], counts["held_bytes"]
        return str(number), held, (messages, size), len(stream.chain) == 1

    def _line(self, limiter: Limiter, fields: dict[str, Any], span: tuple[int, int]) -> Line:
        limit = limiter.limit
        rates = (limit.messages, limit.size, limit.peak_messages, limit.peak_size)
        return Line(
            **self._head(span),
            source=limiter.source,
            mode=limit.mode,
            rates=tuple(map(per_second, rates)),
            bursts=tuple(None if limit_rate is None else float(limit_rate.burst) for limit_rate in rates),
            published=(None, None),
            passed=(fields["passed_messages"], fields["passed_bytes"]),
            largest=(fields["largest_entry_messages"], fields["largest_entry_bytes"]),
            waited_s=fields["throttled_ms"] / 1e3,
            idle_s=fields["idle_ms"] / 1e3,
            reserved_s=fields.get("reserved_ms", 0.0) / 1e3,
            recovered_s=fields.get("recovered_ms", 0.0) / 1e3,
            tokens=tuple(fields.get(f"tokens_{name}") for name in BUCKETS),
            overflow=tuple(fields.get(f"overflow_{name}", 0.0) for name in BUCKETS),
            began=tuple(fields.get(f"began_{name}") for name in BUCKETS),
        )


# Bursts as the configuration's default has them, and larger ones: a smaller one no timer can use up.
RATES = [(1, 1), (7, 1), (19, 1), (100, 1), (1000, 1), (10**6, 1), (30, 60)]


def some_rate(chance: Random, most: int = 10**6) -> Rate:
    tokens, seconds = chance.choice([option for option in RATES if option[0] <= most])
    default = rate(tokens, seconds * NANOS_PER_SECOND)
    burst = default.burst * chance.choice((1, 1, 3, 40))
    return Rate(default.tokens, default.period_ns, burst)


def some_limit(chance: Random) -> Limit:
    messages = some_rate(chance) if chance.random() < 0.8 else None
    size = some_rate(chance) if messages is None or chance.random() < 0.3 else None
    peak = None
    if messages is not None and chance.random() < 0.15:
        peak = Rate(messages.tokens * 3, messages.period_ns, max(1, messages.burst // 2, messages.tokens * 3 // 50))
    return Limit(messages, size, peak)


def play(log: SchedulerLog, seconds: int, *, nested: bool = True) -> None:
    """Anything happens for so long."""
    chance = log.chance
    topics = [log.limiter("topic", name, some_limit(chance)) for name in NAMES["topic"]]
    totals = [log.limiter("namespace", "n", some_limit(chance))] if nested and chance.random() < 0.6 else []
    totals += [log.limiter("tenant", "t", some_limit(chance))] if nested and chance.random() < 0.3 else []
    by_entry = chance.random() < 0.2
    end = log.now + seconds * NANOS_PER_SECOND
    while log.now < end:
        draw = chance.random()
        if draw < 0.15 and len(log.streams) < 6:
            log.open(*reversed(totals), chance.choice(topics), by_entry=by_entry)
        elif draw < 0.2 and log.streams:
            log.close(chance.choice(log.streams))
        elif draw < 0.7 and log.streams:
            stream = chance.choice(log.streams)
            size = chance.choice((1, 10, 100, 5000)) if chance.random() < 0.5 else 1
            messages = chance.choice((1, 1, 1, 10, 100, 1000))
            for _ in range(chance.choice((1, 1, 5, 50))):
                log.offer(stream, messages, size * messages)
        elif draw < 0.73:
            limiter = chance.choice(list(log.limiters.values()))
            log.retune(limiter, some_limit(chance))
        else:
            log.advance(chance.choice((1, 30, 300, 1000, 3000)) * MS * chance.randrange(1, 1000) // 1000)
    log.write()
