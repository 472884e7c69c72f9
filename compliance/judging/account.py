"""The replay of one limiter's lines: the amount that it may pass, the amount that it owes, and its balances.

The module takes and returns plain values. Its rules are in docs/compliance.md.

    stretches   lines of the limiter and of its streams that overlap in time belong together: most often one and one
    Account.add for each stretch, in this order:
        1. values       streams name the value that the limiter's line has
        2. passed       streams' sums equal the limiter's count; else streams have a replay of their own from here on
        3. waits        streams waited no longer than the limiter says
        4. step         the events between the line before and this one that change balances: time, changes, holes
        5. containment  `room`: the most that an exact bucket could hold. Passing more than that and one entry is too
                        much (containment.py)
        6. starvation   a stream waits and gets next to nothing, while others get much
        7. entitlement  `least` and `most` that each bucket holds: while a stream waits it holds less than a token, or
                        tokens were kept back. The shortfall of each line is summed over ten seconds and the day
                        (entitlement.py)
        8. books        the balance at the end of the line, against the balance that the replay computes
    Account.close   the worst window of each bucket, the worst ten seconds, minutes, and contradictions

A line has the amount that passed in its span, without the times. So `least` and `most` are bounds; they are equal where
the line has the bucket's balance at its end.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from compliance.excerpt import MARGIN_US
from compliance.judging.change_watch import ChangeWatch
from compliance.judging.containment import ContainmentReplay
from compliance.judging.entitlement import BalanceBounds, OwedSums, WaitedLine, rounding_of
from compliance.judging.facts import DoubtFacts, Judged, KeptFacts, LastLine, Minute, Spelling, moment
from compliance.judging.lines import (
    BUCKETS,
    CONTIGUOUS_S,
    CONTIGUOUS_US,
    LATE_S,
    ROUNDING,
    SAME_WAIT_S,
    Line,
    RunNotes,
    Step,
    StreamsLine,
    in_force,
    place_of,
)
from compliance.judging.starvation import StarvationWatch
from compliance.schema import OBSERVED, REJECTING

_NO_STEP = Step()
_NOT_MADE = (None,) * len(BUCKETS)
"""A line has no balance of a limiter that was made before it."""
_NUMBER = attrgetter("seq")


class LimiterAccount:
    """The whole replay of one limiter in one run.

    Args:
        limiter: The fields of a `LimiterRunKey`.
        notes: The notes of its run.
    """

    def __init__(self, limiter: Mapping[str, Any], notes: RunNotes) -> None:
        self._limiter = limiter
        self._notes = notes
        self._over = [ContainmentReplay(bucket % 2, bucket > 1, "limiter") for bucket in range(len(BUCKETS))]
        self._moved: dict[int, float] = {}
        """By bucket, the tokens that came from another process, or went to it, at the begin of the line."""
        self._streams = [ContainmentReplay(unit, is_peak=False, basis="streams") for unit in range(2)]
        self._held = [BalanceBounds(bucket) for bucket in range(len(BUCKETS))]
        self._value: tuple[object, ...] = ()
        self._on: list[BalanceBounds] = []
        """Balances of the buckets that are in force in the line."""
        self._owing = OwedSums()
        self._before: Line | None = None
        self._until_us: int | None = None
        self._changes = ChangeWatch(notes.values)
        self._starvation = StarvationWatch(has_begin=notes.has_begin)
        self._has_streams = self._differs = self._is_named = False
        self._unclaimed: Line | None = None
        """The first line with an amount, if no stream has a line up to then."""
        self._unclaimed_messages = 0
        self._grant_s = LATE_S
        self._refused: tuple[Line, float] | None = None
        """The last line, if it refused something, and the seconds that it hides."""
        self._minutes: dict[int, Minute] = {}
        self._when_over, self._when_short = Spelling(), Spelling()
        self._doubts: dict[str, DoubtFacts] = {}

    # ---- in

    def begin_day(self) -> None:
        """Forget what was found in the lines before a day; each bucket goes on with its balance."""
        for over, held in zip(self._over, self._held, strict=True):
            over.begin_day(held.logged)
        for streams in self._streams:
            streams.begin_day(None)
        self._owing.begin_day()
        self._unclaimed, self._unclaimed_messages = None, 0
        self._minutes, self._doubts = {}, {}
        self._when_over, self._when_short = Spelling(), Spelling()

    def add(self, lines: Sequence[Line], streams: Sequence[StreamsLine]) -> None:
        """Replay one stretch of time: most often one line of the limiter, and the streams of its span."""
        if not lines:
            self._without_lines(streams)
            return
        if streams:
            self._has_streams = True
            self._look_at_values(lines, streams)
        passed = _sums(lines)
        is_in_force = all(line.is_in_force for line in lines)
        amounts = self._by_streams(lines, streams, passed) if self._has_streams and is_in_force else passed
        denied_s = self._denied(lines, streams) if streams and is_in_force else 0.0
        until_us = lines[0].at_us[1]
        for each in lines:
            line = self._as_long_as_it_may_be(each)
            for text in self._changes.contradicted(line, self._before):
                self._doubt("change", text, (line,))
            # The lesser amount of the two accounts counts as served.
            served = tuple(map(min, line.passed, amounts)) if amounts != passed and len(lines) == 1 else line.passed
            step = self._step(line)
            self._tune(line, step)
            over = False
            for held in self._on:
                unit = held.unit
                replay = self._over[held.bucket]
                over = replay.add(line, line.duration_s, line.passed[unit], line.largest[unit]) or over
            if self._differs:
                is_last = each is lines[-1]
                over = self._replay_streams(line, step, amounts if is_last else (0, 0), streams) or over
            starved_s = 0.0
            if starved := self._starvation.look(line, streams, self._before):
                self._doubt("starved", starved, (*streams, line))
                starved_s = line.duration_s
            self._count(line, over=over, short=self._serve(line, served, denied_s, starved_s, streams))
            self._go_on_from(line)
            until_us = max(until_us, line.at_us[1])
        self._until_us = until_us

    def _by_streams(
        self, lines: Sequence[Line], streams: Sequence[StreamsLine], passed: tuple[int, int]
    ) -> tuple[int, int]:
        """Return the amounts that streams passed by their own lines; note where the limiter's differ."""
        amounts = _sums(streams)
        if amounts != passed:
            differing = [
                (BUCKETS[unit], amounts[unit], passed[unit])
                for unit in range(2)
                if amounts[unit] != passed[unit] and any(line.rates[unit] is not None for line in lines)
            ]
            if differing:
                self._differ(lines, streams, differing)
        return amounts

    def _as_long_as_it_may_be(self, line: Line) -> Line:
        """Return a line without the part that it claims of the time before: no line begins before the last one ends."""
        if self._before is None or line.at_us[0] >= self._before.at_us[1] - CONTIGUOUS_US:
            return line
        begin_us = min(self._before.at_us[1], line.at_us[1])
        lasts_s = (line.at_us[1] - begin_us) / 1e6
        times = {"at_us": (begin_us, line.at_us[1]), "duration_s": lasts_s, "waited_s": min(line.waited_s, lasts_s)}
        return msgspec.structs.replace(line, **times)

    def _go_on_from(self, line: Line) -> None:
        self._before = line
        if not self._has_streams and line.is_in_force and any(line.passed) and not self._notes.is_in_tail(line):
            self._unclaimed = self._unclaimed or line
            self._unclaimed_messages += line.passed[0]
        if not line.is_waited_through:
            self._grant_s = LATE_S

    def _look_at_values(self, lines: Sequence[Line], streams: Sequence[StreamsLine]) -> None:
        """Compare the limit that streams' lines name with the limiter's own, unless it has just changed."""
        for stream in streams:
            self._starvation.came(stream)
            own, (least, most) = lines[0].rates, (stream.least_limit, stream.limit)
            is_same = least == most and most[0] in {None, own[0]} and most[1] in {None, own[1]}
            if is_same and len(lines) == 1 and lines[0].mode != OBSERVED:
                continue
            if self._before is None or self._notes.changes_between(self._before.seq, lines[-1].seq):
                continue
            if self._notes.has_change(stream):
                continue
            several: tuple[Line | StreamsLine, ...] = (stream, *lines)
            is_calm = not any(self._notes.is_after_change(near) for near in several)
            for unit, pair in enumerate(zip(most, least, strict=True)):
                for limit in pair:
                    if limit is not None and not any(_has_limit(line, unit, limit, is_calm=is_calm) for line in lines):
                        value = in_force(lines[0], unit)[0]
                        text = (
                            f"by its streams' lines {limit:,.6g} {BUCKETS[unit]}/s are in force, and by its own line "
                        )
                        self._doubt("value", text + ("none" if value is None else f"{value:,.6g}"), (stream, *lines))

    def close(self) -> Judged:
        """Return the verdict's facts: windows, amounts owed, minutes, contradictions."""
        if self._before and self._owing.is_perhaps_short:
            self._doubt_reserved(self._before)
        if self._unclaimed is not None:
            text = f"it passed {self._unclaimed_messages:,} messages before any stream under it has a line"
            self._doubt("no streams", text, (self._unclaimed,))
        last = self._before
        windows = [replay.facts(self._limiter) for replay in (*self._over, *self._streams)]
        minutes = self._minutes.values()
        kept = KeptFacts(
            **self._limiter,
            lines=sum(minute.lines for minute in minutes),
            judged_s=sum(minute.judged_s for minute in minutes),
            waited_s=sum(minute.waited_s for minute in minutes),
            over=self._when_over.spells(),
            short=self._when_short.spells(),
        )
        return Judged(
            windows=[window for window in windows if window is not None],
            entitlement=self._owing.facts(self._limiter),
            doubts=list(self._doubts.values()),
            kept=kept,
            minutes=self._minutes,
            last=None if last is None else LastLine(last.at_us[1], last.source),
        )

    # ---- containment

    def _step(self, line: Line) -> Step:
        before = self._before
        if before is None:
            is_known = self._notes.has_begin and not self._notes.is_torn(-1, line.seq)
            changes = self._notes.changes_between(-1, line.seq)
            return Step(is_unknown=not is_known, is_unsettled=changes > 0, is_hidden=changes > 1)
        gap_s = (line.at_us[0] - before.at_us[1]) / 1e6
        gap_s = gap_s if gap_s > CONTIGUOUS_S else 0.0
        was, now = before.published, line.published
        is_relative = now != (None, None)
        follows = (is_relative and was not in ((None, None), now)) or before.shares != line.shares
        # Between its lines a relative limit may have been anything, and so may a share.
        is_moving = is_relative or line.shares != (None, None)
        changes = self._notes.changes_between(before.seq, line.seq) + int(is_moving and gap_s > 0)
        is_unknown = self._notes.is_torn(before.seq, line.seq) or before.mode == OBSERVED
        if not (gap_s or follows or changes or is_unknown):
            return _NO_STEP
        is_hidden = changes > 1 or (changes > 0 and gap_s > 0)
        late_s = self._notes.late_s(before.seq, line)
        if changes and not is_unknown and self._adds_up(before, line, gap_s):
            return Step(gap_s, adds_up=True)
        return Step(gap_s, changes > 0, is_hidden, is_unknown, follows, late_s)

    def _adds_up(self, before: Line, line: Line, gap_s: float) -> bool:
        """Return whether changes between two lines were of other limits: then each bucket's balance goes on."""
        if (before.mode, before.rates, before.bursts) != (line.mode, line.rates, line.bursts):
            return False
        for bucket, rate in enumerate(line.rates):
            if rate is None:
                continue
            balance, now = before.tokens[bucket], line.tokens[bucket]
            if balance is None or now is None:
                return False
            taken = line.passed[bucket % 2] + line.overflow[bucket]
            if abs(balance + rate * (gap_s + line.duration_s) - taken - now) > rounding_of(rate):
                return False
        return True

    def _tune(self, line: Line, step: Step) -> None:
        """Bring the buckets to the begin of a line."""
        value = line.mode, line.rates, line.bursts
        self._moved = {}
        if value == self._value and step is _NO_STEP and line.began == _NOT_MADE:
            for held in self._on:
                held.go_on()
            return
        if value != self._value:
            self._value = value
            self._on = [held for held in self._held if None not in in_force(line, held.bucket)]
            for held in self._held:
                if held not in self._on:
                    held.is_on, held.logged, self._over[held.bucket].is_on = False, None, False
        for held in self._on:
            bucket = held.bucket
            rate, burst, began = line.rates[bucket], line.bursts[bucket], line.began[bucket]
            if began is not None and held.logged is not None and not step.gap_s:
                self._moved[bucket] = began - held.logged
            self._over[bucket].tune(rate, burst, step, self._moved.get(bucket))
            held.tune(rate, burst, step, began)

    def _replay_streams(self, line: Line, step: Step, amounts: tuple[int, int], streams: Sequence[StreamsLine]) -> bool:
        is_over = False
        for unit, over in enumerate(self._streams):
            largest = (
                max([line.largest[unit], *(stream.largest[unit] for stream in streams)])
                if amounts != line.passed
                else (line.largest[unit])
            )
            over.tune(*in_force(line, unit), step, self._moved.get(unit))
            is_over = over.add(line, line.duration_s, amounts[unit], largest) or is_over
        return is_over

    def _without_lines(self, streams: Sequence[StreamsLine]) -> None:
        """Replay streams that name the limit and passed something in a span in which the limiter has no line."""
        for stream in streams:
            if not any(stream.passed) and stream.named_wait_s <= 0:
                continue
            valued = [self._limit_by_streams(stream, unit) for unit in range(2)]
            gap_s = max(0.0, (stream.at_us[0] - self._until_us) / 1e6) if self._until_us is not None else 0.0
            limited = [unit for unit in range(2) if valued[unit][0]] or ([0] if stream.passed[0] else [])
            self._differ([], [stream], [(BUCKETS[unit], stream.passed[unit], 0) for unit in limited])
            for unit, over in enumerate(self._streams):
                over.tune(*valued[unit], Step(gap_s))
                over.add(stream, stream.duration_s, stream.passed[unit], stream.largest[unit])
            self._until_us = max(self._until_us or 0, stream.at_us[1])

    def _limit_by_streams(self, streams: StreamsLine, unit: int) -> tuple[float | None, float | None]:
        """Return rate and burst by streams' lines; where no line has the burst, a second's worth."""
        line = self._before
        if line is not None and line.is_in_force and streams.limit[unit] in (None, line.rates[unit]):
            return line.rates[unit], line.bursts[unit]
        rate = streams.limit[unit]
        return rate, None if rate is None else max(rate, 1.0)

    def _differ(
        self, lines: Sequence[Line], streams: Sequence[StreamsLine], numbers: list[tuple[str, int, int]]
    ) -> None:
        if not self._differs:
            self._differs = True
            for own, other in zip(self._streams, self._over, strict=False):
                own.go_on_from(other)
        if not lines and all(map(self._notes.is_in_tail, streams)):
            return
        kind = "no lines" if not lines else "streams"
        says = "has no line" if not lines else "passed {:,} by its own line"
        parts = [
            f"its streams passed {theirs:,} {unit}, and it " + says.format(own) for unit, theirs, own in numbers
        ] or ["a stream waited on it, and it has no line"]
        self._doubt(kind, "; ".join(parts), (*streams, *lines))

    # ---- entitlement

    def _denied(self, lines: Sequence[Line], streams: Sequence[StreamsLine]) -> float:
        """Return the seconds that a stream waited by its own line, and that the limiter's line lacks."""
        waited_s = alone = named = 0.0
        for line in lines:
            waited_s += line.waited_s
        for stream in streams:
            alone, named = max(alone, stream.only_wait_s), max(named, stream.named_wait_s)
        # A wait may begin at the very end of a line, but then it goes on in the next one.
        is_named, self._is_named = self._is_named, waited_s <= 0 and named > SAME_WAIT_S
        theirs = alone if alone > waited_s + SAME_WAIT_S else named if is_named and self._is_named else 0.0
        if theirs <= waited_s + SAME_WAIT_S:
            return 0.0
        text = f"a stream waited {theirs:.3f} s on it, and its own line has waits of {waited_s:.3f} s"
        self._doubt("waits", text, (*streams, *lines))
        return theirs - waited_s

    def _serve(
        self,
        line: Line,
        served: tuple[int, ...],
        denied_s: float,
        starved_s: float,
        streams: Sequence[StreamsLine],
    ) -> float | None:
        """Replay a line; None if no stream waited, else the seconds waited in a window of ten with a shortfall.

        Args:
            line: The line.
            served: Amounts that it passed, by the account that has less.
            denied_s: Seconds waited that the line lacks.
            starved_s: Wait of a stream that starved.
            streams: The streams of its span.
        """
        on = self._on
        if not on:
            return None
        if line.rejected or self._refused:
            self._look_at_refusals(line, served)
        waited_s = min(line.waited_s + denied_s, line.duration_s)
        closed_s = max(0.0, waited_s - line.reserved_s - line.idle_s)
        lacking_s = self._lacking(line, served, closed_s) if closed_s > 0 else 0.0
        perhaps_s = self._perhaps_lacking(line, waited_s, streams) if line.reserved_s > 0 else 0.0
        vanished_s = 0.0
        for held in on:
            unit = held.unit
            least, most = held.after(line, served[unit], line.largest[unit], closed_s if len(on) == 1 else None)
            lost_s, text = held.settle(line, least, most)
            if text:
                self._doubt("books", text, (line,))
                vanished_s = max(vanished_s, lost_s)
        if waited_s <= 0:
            return None
        if line.lacks_share:
            waited = WaitedLine(line, served, waited_s, 0.0, 0.0, 0.0)
        else:
            unexplained_s = max(min(lacking_s + vanished_s, waited_s), starved_s)
            late_s = self._late(line) if line.idle_s > 0 else 0.0
            waited = WaitedLine(line, served, waited_s, unexplained_s, late_s, perhaps_s)
        is_short, is_perhaps_short = self._owing.add(waited)
        if is_perhaps_short and not is_short:
            self._doubt_reserved(line)
        return waited_s if is_short else 0.0

    def _doubt_reserved(self, line: Line) -> None:
        text = "tokens were reserved while a stream waited, by its own line"
        self._doubt("unconfirmed", f"{text}, and no other line confirms that", (line,))

    def _perhaps_lacking(self, line: Line, waited_s: float, streams: Sequence[StreamsLine]) -> float:
        """Return the further shortfall in seconds, if only reserved tokens count that the log confirms.

        Reserved tokens are for a stream that waits on another limit. Its wait is at least as long as the time reserved,
        and names the other limit if the time reserved goes on to the end of the line. Only an entry as large as the
        burst takes too much from a full bucket.
        """
        if line.reserved_s >= line.duration_s - CONTIGUOUS_S:
            confirmed_s = sum(stream.elsewhere_wait_s for stream in streams)
        else:
            confirmed_s = sum(stream.crossing_wait_s for stream in streams)
        doubtful_s = max(0.0, line.reserved_s - confirmed_s)
        if not any(self._starvation.largest_offered[held.unit] >= held.burst for held in self._on):
            full_s = waited_s - line.idle_s - sum(held.with_room_s(line) for held in self._on)
            doubtful_s = max(doubtful_s, min(line.reserved_s, full_s))
        return min(max(0.0, waited_s), doubtful_s)

    def _look_at_refusals(self, line: Line, served: tuple[int, ...]) -> None:
        """Doubt refusals while every bucket had a token and no stream waited.

        Refusals that may have come while the buckets had no room are unseen: the line lacks their times. A client that
        begins or ends within a line leaves the bucket full for a part of the time. So only a line between two others
        with refusals counts.
        """
        left = min(held.least - served[held.unit] for held in self._on)
        if line.rejected and line.waited_s <= 0 and left >= 1:
            text = f"it refused {line.rejected:,} messages, and always held at least {left:,.1f} tokens"
            self._doubt("refused", text, (line,))
        before, self._refused = self._refused, None
        if line.mode != REJECTING or not line.rejected:
            return
        goes_on = before is not None and line.at_us[0] - before[0].at_us[1] <= CONTIGUOUS_US
        if before is not None and goes_on and before[1] > 0:
            self._owing.hide(*before)
        full_s = min(line.overflow[held.bucket] / held.rate - held.gap_s for held in self._on)
        refused_s = max((line.rejected / held.rate for held in self._on if held.bucket == 0), default=inf)
        self._refused = line, min(full_s, refused_s) if goes_on else 0.0

    def _lacking(self, line: Line, served: tuple[int, ...], closed_s: float) -> float:
        """Return the seconds for which the limiter had tokens while a stream waited, beyond a late timer's time."""
        on = self._on
        hidden_s = min(LATE_S, closed_s, *[held.unspent_s(line) for held in on])
        if hidden_s > 0:
            self._owing.hide(line, hidden_s, on[0] if len(on) == 1 else None)
        if len(on) == 1:
            (held,) = on
            open_s = (held.least + held.owed_rate * closed_s - served[held.unit] - 1) / held.rate
        else:
            spans = [
                min(line.duration_s, max(0.0, (served[held.unit] - held.least + 1) / held.owed_rate)) for held in on
            ]
            shared_s = _shared_s(line, served, *on) if len(on) == 2 else 0.0
            open_s = closed_s - max(*spans, sum(spans) - shared_s)
        # A bucket that binds is not full: it has room for the tokens that it earns until the timer fires.
        without_s = closed_s - sum([held.with_room_s(line) for held in on])
        if without_s <= CONTIGUOUS_S:
            without_s = 0.0
        elif line.is_waited_through:
            # A late timer's time is granted once in each wait.
            granted_s = min(without_s, self._grant_s)
            self._grant_s -= granted_s
            without_s -= granted_s
        # A wait that is shorter than a timer may be late lacks nothing, whatever there is.
        return max(without_s, min(open_s, closed_s) - LATE_S)

    def _late(self, line: Line) -> float:
        """Return the seconds lost to lateness by the limiter's own line, less the seconds of standstills.

        Tokens that found room are not lost (`recovered_ms`). What overflows beyond the time in which no stream waited
        is, whatever the line says. More than a bucket has room for in one wait is believed, and does not show.
        """
        unwaited_s = line.duration_s - min(line.waited_s, line.duration_s)
        surely_s = min(line.overflow[held.bucket] / held.rate - held.gap_s for held in self._on) - unwaited_s
        recovered_s, in_a_wait_s = line.recovered_s, max(held.burst / held.rate for held in self._on)
        if recovered_s > in_a_wait_s:  # it had room for so much only if streams waited several times
            self._owing.hide(line, recovered_s - in_a_wait_s)
        lost_s = max(line.idle_s - recovered_s, surely_s, 0.0)
        late_s = min(line.idle_s, lost_s, *[held.lost_s(line) for held in self._on])
        still_s = min(late_s, self._notes.still_s(line))
        self._owing.still_s += still_s
        return late_s - still_s

    # ---- out

    def _count(self, line: Line, *, over: bool, short: float | None) -> None:
        is_judged = bool(self._on)
        if not is_judged and short is None:
            return
        number = line.wall_us[1] // 60_000_000
        minute = self._minutes.get(number)
        if minute is None:
            minute = self._minutes[number] = Minute()
        self._when_over.add(line.wall_us[0], line.duration_s, is_broken=over)
        self._when_short.add(line.wall_us[0], short or 0.0, is_broken=bool(short))
        if is_judged:
            minute.judged_s += line.duration_s
            minute.over_s += line.duration_s if over else 0.0
            minute.lines += 1
        if short is not None:
            minute.waited_s += min(line.waited_s, line.duration_s)
            minute.short_s += short

    def _doubt(self, kind: str, text: str, lines: Sequence[Line | StreamsLine]) -> None:
        """Keep the first contradiction of each kind, and how many there are."""
        doubt = self._doubts.get(kind)
        if doubt is not None:
            self._doubts[kind] = msgspec.structs.replace(doubt, times=doubt.times + 1)
            return
        times = [line.wall_us for line in lines]
        self._doubts[kind] = DoubtFacts(
            **self._limiter,
            what=kind,
            said=text,
            start=moment(min(start_us for start_us, _ in times)),
            end=moment(max(end_us for _, end_us in times)),
            first_line=place_of(min(lines, key=_NUMBER)),
            last_line=place_of(max(lines, key=_NUMBER)),
        )


def _shared_s(line: Line, taken: Sequence[int], messages: BalanceBounds, size: BalanceBounds) -> float:
    """Return the seconds for which the spans of the two buckets of messages and bytes overlap at the least.

    An entry closes one bucket after the other only for as long as the larger of its two debts takes. Entries that carry
    bytes have a message each.
    """
    if not taken[1] or not line.largest[1] or line.rates[0] is None or line.rates[1] is None:
        return 0.0
    return taken[1] * min(1 / size.rate, 1 / (line.largest[1] * messages.rate))


def _sums(lines: Sequence[Line | StreamsLine]) -> tuple[int, int]:
    if len(lines) == 1:
        return lines[0].passed
    return sum(line.passed[0] for line in lines), sum(line.passed[1] for line in lines)


def _has_limit(line: Line, unit: int, limit: float, *, is_calm: bool) -> bool:
    """Return whether a line has the limit that its streams name.

    A limit that follows a publish rate may have had other values. After a change any value is enough.
    """
    own = in_force(line, unit)[0]
    if own is None:
        return False
    return not is_calm or line.published[unit] is not None or abs(own - limit) <= ROUNDING * limit


class JudgedPart(NamedTuple):
    """The part of a limiter's log that is judged; microseconds since 1970.

    A stretch that crosses midnight is of the day in which it begins.

    Args:
        known_us: What begins earlier is looked at, and says nothing: changes before that time are not known.
        begin_us: What begins earlier, of the day before, only says what the buckets hold.
        end_us: What begins then or later is left out.
        until_us: What ends later is left out.
    """

    known_us: float = -inf
    begin_us: float = -inf
    end_us: float = inf
    until_us: float = inf


ALL = JudgedPart()


def judged(
    limiter: Mapping[str, Any],
    notes: RunNotes,
    items: Iterable[Line | StreamsLine],
    part: JudgedPart = ALL,
) -> Judged:
    """Replay the lines of one limiter in one run, of a day or of another part of the log.

    Args:
        limiter: The fields of a `LimiterRunKey`.
        notes: Of the run.
        items: In the order of their begins.
        part: Which stretches count.
    """
    account = LimiterAccount(limiter, notes)
    is_before = is_within = is_past = False
    for lines, streams in stretches(items):
        first_us, last_us = (0, 0) if part is ALL else _span_us([*lines, *streams])
        if first_us < part.known_us:
            account = LimiterAccount(limiter, replace(notes, has_begin=False))
        elif first_us < part.begin_us and not is_within:
            if lines and not is_before:
                account, is_before = LimiterAccount(limiter, replace(notes, has_begin=False)), True
            account.add(lines, streams)
        elif first_us >= part.end_us:
            is_past = True
        elif last_us <= part.until_us and not (is_past and first_us >= part.end_us - MARGIN_US):
            # Where a wall clock steps back over midnight, what follows is of the new day, as far as that day reads it.
            if not is_within:
                account.begin_day()
                is_within = True
            account.add(lines, streams)
    if not is_within:
        account.begin_day()
    return account.close()


def _span_us(items: Sequence[Line | StreamsLine]) -> tuple[float, float]:
    return min(item.wall_us[0] for item in items), max(item.wall_us[1] for item in items)


def stretches(items: Iterable[Line | StreamsLine]) -> Iterable[tuple[list[Line], list[StreamsLine]]]:
    """Group lines that overlap in time: most often a line and the streams of its span."""
    lines: list[Line] = []
    streams: list[StreamsLine] = []
    start_us = end_us = 0
    for item in items:
        # A limiter that was made a moment before a change has a line at the very end of its streams' lines.
        begin_us, until_us = item.at_us
        is_within = begin_us < until_us <= end_us and not (lines and isinstance(item, Line))
        overlaps = begin_us < end_us - 1000 or is_within or item.at_us == (start_us, end_us)
        if (lines or streams) and not overlaps:
            yield sorted(lines, key=_NUMBER), streams
            lines, streams = [], []
        if not lines and not streams:
            start_us, end_us = item.at_us
        end_us = max(end_us, until_us)
        if isinstance(item, Line):
            lines.append(item)
        else:
            streams.append(item)
    if lines or streams:
        yield sorted(lines, key=_NUMBER), streams
