"""The sum over a fleet, by planted lines of its members: no Spark."""

from datetime import timedelta
from itertools import chain
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compliance.figures.facts import LossFacts
from compliance.judging.facts import ClockStepFacts, FleetGapFacts, LinePlace
from compliance.judging.fleets import CutOff, FleetNotes, MemberClock, fleet_notes, member_clocks, sums_of
from compliance.judging.verdict import judge_fleets, judge_overall
from tests.compliance.judging.facts_made import END, facts, run_fact
from tests.compliance.judging.pure import micros
from tests.compliance.planted import BEGIN, PlantedLog

RATE, BURST = 100.0, 10.0
SLACK = 0.1 * RATE + 0.5 + 1e-6 * RATE
IN_FRONT = FleetNotes({("any", "boot"): "front"})


def member(name: str, passed: list[int], share: float, begin: int = 0, **more: Any) -> PlantedLog:
    """A member with a line for each second."""
    log = PlantedLog(proxy_id=name, topic="t", **({"boot_id": more.pop("boot_id")} if "boot_id" in more else {}))
    for second, count in enumerate(passed, begin):
        log.second = second
        log.shared(count, share, **more)
    return log


def rows(
    logs: list[PlantedLog], notes: FleetNotes = IN_FRONT, late_us: dict[str, int] | None = None
) -> list[dict[str, Any]]:
    """Lines as the worker has them, by the common clock as far as it is known; clocks of proxies may be ahead."""
    ahead = late_us or {}
    made = []
    for line in chain.from_iterable(log.lines for log in logs):
        fields = {name: getattr(line, name) for name in line.__struct_fields__}
        behind_us = notes.behind_us((line.proxy_id, line.boot_id))
        start_us = micros(line.start) + ahead.get(line.proxy_id, 0) + behind_us
        place = {"file": "a.jsonl", "line": line.seq + 1}
        made.append(fields | place | {"start_us": start_us, "end_us": start_us + round(line.duration_ms * 1e3)})
    return sorted(made, key=lambda row: (row["start_us"], row["proxy_id"], row["seq"]))


def one_sum(logs: list[PlantedLog], notes: FleetNotes = IN_FRONT, **more: Any) -> Any:
    [sum_] = sums_of(rows(logs, notes, **more), notes)
    return sum_


def verdict(sum_: Any, **made_of: Any) -> Any:
    runs = [run_fact(proxy_id=proxy_id, boot_id=boot_id) for proxy_id, boot_id in sum_.members]
    [fleet_verdict] = judge_fleets(facts(**({"runs": runs, "fleet_sums": [sum_]} | made_of)))
    return fleet_verdict


def test_members_that_pass_no_more_than_one_limit_hold_it():
    sum_ = one_sum([member("a", [60, *[50] * 9], 0.5), member("b", [50] * 10, 0.5)])
    assert (sum_.fleet, sum_.unit, sum_.limit, sum_.burst, sum_.judged_s) == ("front", "messages", 100, 10, 10)
    assert sum_.members == [("a", "boot-1"), ("b", "boot-1")]
    # The burst passed at once: of two members' entries and what clocks hide nothing is used.
    assert (sum_.entries, sum_.slack) == (2, pytest.approx(SLACK))
    assert sum_.excess == pytest.approx(-2 - SLACK)
    assert (sum_.passed, sum_.allowed) == (110, pytest.approx(112 + SLACK))
    assert (sum_.start, sum_.end) == (BEGIN, BEGIN + timedelta(seconds=1))
    assert (sum_.demand_s, sum_.demand_share) == (10, pytest.approx(1.01))
    assert (verdict(sum_).verdict, verdict(sum_).why) == ("held", "")


def test_shares_above_the_whole_are_a_violation():
    """The coordinator is forged or wrong: from the fourth second on both have four fifths."""
    logs = [member(name, [50, 50, 50], 0.5) for name in "ab"]
    for log in logs:
        log.lines += member(log.proxy_id, [80] * 5, 0.8, begin=3).lines
    sum_ = one_sum(logs)
    assert sum_.passed == 5 * 160
    assert sum_.allowed == pytest.approx(BURST + 5 * RATE + 2 + SLACK)
    assert (sum_.start, sum_.end) == (BEGIN + timedelta(seconds=3), BEGIN + timedelta(seconds=8))
    fleet_verdict = verdict(sum_)
    assert fleet_verdict.verdict == "violated"
    assert fleet_verdict.why == f"clocks that differ by {0.1 + sum_.excess / RATE:.3g} s would explain it"
    assert judge_overall(facts(), [], [fleet_verdict]).verdict == "violated"


def test_a_percent_too_much_is_found_when_it_has_lasted():
    short, long = (one_sum([member(name, [51, 50] * half, 0.5) for name in "ab"]) for half in (5, 60))
    assert verdict(short).verdict == "held"
    assert verdict(long).verdict == "violated"
    assert long.excess == pytest.approx(120 - BURST - 2 - SLACK, abs=1.1)


def test_members_that_join_leave_and_crash_hold_it():
    """A share goes over only when it is free: b comes in the 4th second, a is killed in the 8th, and its second run
    begins in the 11th."""
    logs = [
        member("a", [100, 100, 100], 1.0),
        member("a", [50] * 4, 0.5, begin=3),
        member("b", [1], 0.0, begin=3),
        member("b", [50] * 6, 0.5, begin=4),
        member("b", [100], 1.0, begin=10),
        member("b", [50] * 3, 0.5, begin=11),
        member("a", [1, 50, 50], 0.5, begin=11, boot_id="boot-2"),
    ]
    sum_ = one_sum(logs)
    assert sum_.excess <= -2
    runs = [run_fact(proxy_id="a", boot_id="boot-1", ended=False, is_cut_off=True, is_lossy=True)]
    runs += [run_fact(proxy_id=name, boot_id=boot) for name, boot in (("a", "boot-2"), ("b", "boot-1"))]
    loss = LossFacts(
        proxy_id="a", of_boot="boot-1", cause="killed", detail="", lost_lines=None, lost_from=END, lost_until=END
    )
    fleet_verdict = verdict(sum_, runs=runs, losses=[loss])
    assert (fleet_verdict.verdict, fleet_verdict.killed) == ("held", 1)
    full = msgspec.structs.replace(loss, cause="disk")
    assert verdict(sum_, runs=runs, losses=[full]).verdict == "unknown"


def test_a_debt_dies_with_its_run_and_each_restart_may_leave_one():
    """Each run passes one large entry with its first token, and is killed."""
    logs = [
        member("a", [20], 0.0, begin=second, boot_id=f"b{second:02}", passed_entries=1, largest_entry_messages=20)
        for second in range(20)
    ]
    steady = member("b", [100] * 20, 1.0)
    sum_ = one_sum([*logs, steady])
    # 2,400 passed in 20 s: twenty entries of twenty are allowed, the last one still owed, and one of b.
    assert sum_.excess == pytest.approx(-BURST - SLACK - 1)


@pytest.mark.parametrize(("ahead_s", "expected"), [(0.0, "held"), (0.05, "held"), (0.9, "violated")])
def test_clocks_that_are_a_little_apart_accuse_nobody(ahead_s, expected):
    """All of the limit goes from one member to the other each second, and one clock is ahead."""
    first_log, other = (PlantedLog(proxy_id=name, topic="t") for name in "ab")
    for second in range(20):
        for log, has_all in ((first_log, second % 2 == 0), (other, second % 2 == 1)):
            log.second = second
            log.shared(100 if has_all else 0, float(has_all))
    sum_ = one_sum([first_log, other], late_us={"a": round(ahead_s * 1e6)})
    assert verdict(sum_).verdict == expected
    assert sum_.clock_s < 1
    step = ClockStepFacts(
        proxy_id="a",
        boot_id="boot-1",
        size_s=-0.9,
        first=BEGIN,
        last=END,
        line=LinePlace(file="a.jsonl", seq=1),
    )
    stepped = verdict(sum_, clock_steps=[step])
    assert stepped.verdict == ("held" if expected == "held" else "unknown")
    assert ("clocks of members were stepped by 0.9 s" in stepped.why) == (expected == "violated")


def test_a_member_that_is_cut_off_is_named_with_what_it_kept_and_is_not_in_the_sum():
    """Of two members one keeps a twentieth of an equal part, and the other has all."""
    logs = [member("a", [50] * 3, 0.5), member("b", [50] * 3, 0.5)]
    logs += [member("a", [100] * 4, 1.0, begin=5), member("b", [3, 2, 3, 2], 0.025, begin=5)]
    away = {("b", "boot-1"): [CutOff(micros(BEGIN) + 5_000_000, 2**62, 2)]}
    sum_ = one_sum(logs, FleetNotes({}, away))
    [cut_off] = sum_.cut_off
    assert (cut_off.proxy_id, cut_off.seconds, cut_off.share, cut_off.passed) == ("b", 4, 0.025, 10)
    assert sum_.excess <= -BURST
    assert verdict(sum_).verdict == "held"
    assert one_sum(logs).excess == pytest.approx(sum_.excess + 10)


def test_a_proxy_without_the_fleet_is_named_and_is_not_in_the_sum():
    alone = PlantedLog(proxy_id="c", topic="t")
    for second in range(2, 5):
        alone.second = second
        alone.limit(100)
    late = PlantedLog(proxy_id="d", topic="t", second=200)
    late.limit(100)
    bytes_only = PlantedLog(proxy_id="e", topic="t", second=3)
    bytes_only.limit(100, rate=None, limit_bytes=1e6, burst_bytes=1e6)
    sum_ = one_sum([member("a", [50] * 6, 0.5), member("b", [50] * 6, 0.5), alone, late, bytes_only])
    [outside] = sum_.outside
    assert (outside.proxy_id, outside.passed) == ("c", 300)
    assert (outside.first, outside.last) == (BEGIN + timedelta(seconds=2), BEGIN + timedelta(seconds=5))
    assert verdict(sum_).verdict == "held"
    assert sums_of(rows([alone]), IN_FRONT) == []


def test_a_hundred_members_and_outsiders_are_named():
    cut_off, alone = [member(f"b{number:03}", [1], 0.01) for number in range(101)], list[PlantedLog]()
    for number in range(101):
        alone.append(PlantedLog(proxy_id=f"c{number:03}", topic="t"))
        alone[-1].limit(10)
    for log in (cut_off[0], alone[0]):
        log.second = 1
    cut_off[0].shared(3, 0.01)
    alone[0].limit(30)
    away = {(f"b{number:03}", "boot-1"): [CutOff(micros(BEGIN), 2**62, 102)] for number in range(101)}
    sum_ = one_sum([member("a", [50] * 2, 0.5), *cut_off, *alone], FleetNotes({}, away))
    assert [(proxy.proxy_id, proxy.passed) for proxy in sum_.cut_off[:2]] == [("b000", 4), ("b001", 1)]
    assert [(proxy.proxy_id, proxy.passed) for proxy in sum_.outside[:2]] == [("c000", 40), ("c001", 10)]
    assert len(sum_.cut_off) == len(sum_.outside) == 100


def test_two_fleets_are_two_sums_and_who_does_not_say_is_of_the_only_one():
    logs = [member("a", [100] * 3, 1.0), member("b", [100] * 3, 1.0)]
    both = FleetNotes({("a", "boot-1"): "front", ("b", "boot-1"): "back"})
    assert [(sum_.fleet, sum_.excess < 0) for sum_ in sums_of(rows(logs), both)] == [("front", True), ("back", True)]
    assert one_sum(logs, FleetNotes({("a", "boot-1"): "front"})).fleet == "front"


def test_a_quota_that_falls_or_rises_is_judged_by_what_is_in_force():
    logs = []
    for name in "ab":
        for begin, rate in ((0, 1000.0), (3, 100.0), (6, 5000.0)):
            logs.append(member(name, [round(rate / 2)] * 3, 0.5, begin=begin, rate=rate))
    assert one_sum(logs).excess <= -2
    # One goes on with the old value.
    logs[1] = member("a", [500] * 3, 0.5, begin=3, rate=100.0)
    sum_ = one_sum(logs)
    assert verdict(sum_).verdict == "violated"
    assert (sum_.start, sum_.end) == (BEGIN + timedelta(seconds=3), BEGIN + timedelta(seconds=6))


@pytest.mark.parametrize(
    ("made_of", "why"),
    [
        ({"fleet_gaps": [FleetGapFacts(fleet="front", at=BEGIN, members=3, logs=2)]}, "had 3 members at 11:29:00"),
        ({"runs": [run_fact(proxy_id="a", boot_id="boot-1", missing=2)]}, "lines of a, run boot-1, are missing"),
        ({"runs": [run_fact(proxy_id="a", boot_id="boot-1", malformed=1)]}, "cannot be read"),
        ({"runs": []}, "the coverage of the log of a, run boot-1, is not known"),
        ({"unread": 1}, "files of the log's folder were not read"),
    ],
)
def test_missing_logs_leave_the_sum_unknown_and_excuse_nothing(made_of, why):
    sum_ = one_sum([member("a", [50] * 3, 1.0)])
    fleet_verdict = verdict(sum_, **made_of)
    assert fleet_verdict.verdict == "unknown"
    assert why in fleet_verdict.why
    assert judge_overall(facts(), [], [fleet_verdict]).verdict == "unknown"
    over = one_sum([member("a", [500] * 3, 1.0)])
    assert verdict(over, **made_of).verdict == "violated"


class Turn:
    """A row of `share_turns`."""

    def __init__(self, at_s: float, proxy_id: str = "a", members: int = 2, *, is_away: bool = False) -> None:
        self.proxy_id, self.boot_id, self.fleet = proxy_id, "b", "front"
        self.at_us = micros(BEGIN) + round(at_s * 1e6)
        self.members, self.is_away = members, is_away


SECOND = 1_000_000
TEN_SECONDS = micros(BEGIN), micros(BEGIN) + 10 * SECOND


def test_lines_of_shares_tell_the_fleet_and_who_was_cut_off():
    turns = [Turn(0), Turn(3, is_away=True), Turn(4, is_away=True, members=5), Turn(6), Turn(9, is_away=True)]
    notes, gaps = fleet_notes(turns, {("a", "b"): TEN_SECONDS, ("c", "b"): TEN_SECONDS}, fleets={("c", "b"): "front"})
    assert notes.fleet(("a", "b")) == notes.fleet(("x", "y")) == "front"
    spells = [(after - micros(BEGIN)) // SECOND for spell in notes.away_us["a", "b"] for after in spell[:2]]
    assert spells[:3] == [3, 6, 9]
    assert spells[3] > 10**9
    moments = [(micros(BEGIN) + second * SECOND, micros(BEGIN) + (second + 1) * SECOND) for second in range(12)]
    assert [n for n, at in enumerate(moments) if notes.cut_off(("a", "b"), *at)] == [3, 4, 5, 9, 10, 11]
    # One that is back may use what it had until its grants are in force.
    back = [n for n, at in enumerate(moments) if notes.cut_off(("a", "b"), *at, 2_000_000)]
    assert back == [3, 4, 5, 6, 7, 9, 10, 11]
    # A member that is cut off has only the number that it heard before.
    assert gaps == []


def missed(members, lives, beside=(), clocks=None):
    """The members that a heard of, and the logs that there are, in the worst moment; of runs that name the fleet."""
    of_runs = {
        (name, boot): (micros(BEGIN) + first * SECOND, micros(BEGIN) + last * SECOND)
        for name, boot, first, last in lives
    }
    fleets = {run: "front" for run in of_runs if run not in beside}
    _, gaps = fleet_notes([Turn(1, members=members)], of_runs, clocks, fleets)
    return [(gap.members, gap.logs) for gap in gaps]


def test_a_member_without_a_log_is_missed():
    both = [("a", "b", 0, 600), ("c", "b", 0, 600)]
    assert missed(2, both) == []
    assert missed(3, both) == [(3, 2)]
    unrelated = ("d", "b", 0, 600)
    assert missed(3, [*both, unrelated]) == []
    assert missed(3, [*both, unrelated], beside=[("d", "b")]) == [(3, 2)]


def test_a_restarted_member_is_one():
    restarted = [("a", "b", 0, 600), ("c", "b1", 0, 300), ("c", "b2", 301, 600)]
    assert missed(2, restarted) == []
    assert missed(3, restarted) == [(3, 2)]
    alone = [("a", "b", 0, 600), ("a", "b0", -300, -1)]
    assert missed(2, alone) == [(2, 1)]


@pytest.mark.parametrize("ahead_s", [-60, 60, 3600])
def test_clock_known_to_be_ahead_makes_no_member_missing(ahead_s):
    lives = [("a", "b", 0, 600), ("c", "b", ahead_s, 600 + ahead_s)]
    clocks = {("a", "b"): MemberClock(0, 0), ("c", "b"): MemberClock(-ahead_s * SECOND, 1000)}
    assert missed(2, lives, clocks=clocks) == []
    assert missed(3, lives, clocks=clocks) == [(3, 2)]


@pytest.mark.parametrize(("share", "expected"), [(0.5, "held"), (0.025, "held"), (1.0, "violated"), (0.51, "violated")])
def test_a_member_that_is_cut_off_keeps_an_equal_part_at_most(share, expected):
    """Of two members, the one that is cut off for 30 s passes its share; the other has the whole meanwhile."""
    logs = [member("a", [50] * 5, 0.5), member("b", [50] * 5, 0.5)]
    logs += [member("a", [100] * 30, 1.0, begin=5), member("b", [round(100 * share)] * 30, share, begin=5)]
    away = {("b", "boot-1"): [CutOff(micros(BEGIN) + 5 * SECOND, 2**62, 2)]}
    fleet_verdict = verdict(one_sum(logs, FleetNotes({}, away)))
    assert fleet_verdict.verdict == expected
    assert ("b was cut off and took" in fleet_verdict.why) == (expected == "violated")


@st.composite
def logs_of_a_fleet(draw):
    """Up to three members, each with lines one behind the other: begin, end and what passed."""
    logs = []
    for _ in range(draw(st.integers(1, 3))):
        at, lines = draw(st.integers(0, 3)), []
        for _ in range(draw(st.integers(1, 5))):
            start = at + draw(st.integers(0, 2))
            at = start + draw(st.integers(0, 4))
            lines.append((start, at, draw(st.integers(0, 40))))
        logs.append(lines)
    return logs


@given(logs_of_a_fleet())
def test_one_pass_finds_what_a_trial_of_all_intervals_finds(logs):
    made = []
    for name, lines in zip("abc", logs, strict=False):
        log = PlantedLog(proxy_id=name, topic="t")
        for start, end, passed in lines:
            log.second = start
            log.shared(passed, 0.5, rate=10.0, duration_ms=1000.0 * (end - start), largest_entry_messages=0)
        made.append(log)
    flat = [line for lines in logs for line in lines]
    worst = max(
        sum(passed for start, end, passed in flat if a <= start and end <= b)
        # What spans all of an interval hides so much.
        - sum(passed for start, end, passed in flat if start < a and b < end)
        - 10.0 * (b - a)
        for a in {line[0] for line in flat}
        for b in {line[1] for line in flat}
        if a < b or (a == b and any(start == end == a for start, end, _ in flat))
    )
    assert one_sum(made).excess == pytest.approx(worst - BURST - 1 - 0.5 - 1e-5)


def taking_turns(passed: int = 100) -> list[PlantedLog]:
    """All of the limit goes from one member to the other each second."""
    logs = [PlantedLog(proxy_id=name, topic="t") for name in "ab"]
    for second in range(20):
        for number, log in enumerate(logs):
            log.second = second
            log.shared(passed if second % 2 == number else 0, float(second % 2 == number))
    return logs


def clocks(ahead_s: float, within_s: float) -> FleetNotes:
    """a's clock is ahead, as it has measured it; the coordinator is b."""
    measured = {("a", "boot-1"): (-ahead_s, within_s), ("b", "boot-1"): (0.0, 0.0)}
    of = {run: MemberClock(round(behind * 1e6), round(within * 1e6)) for run, (behind, within) in measured.items()}
    return FleetNotes({("any", "boot"): "front"}, clocks=of)


@pytest.mark.parametrize("ahead_s", [-3000.7, -0.9, 0.3, 5.0])
def test_members_lines_are_compared_by_one_measured_clock(ahead_s):
    late = {"a": round(ahead_s * 1e6)}
    known = clocks(ahead_s, 0.01)
    sum_ = one_sum(taking_turns(), known, late_us=late)
    assert (sum_.excess, sum_.judged_s) == (pytest.approx(one_sum(taking_turns()).excess), 20)
    assert (sum_.corrected_s, sum_.uncertain_s) == (pytest.approx(abs(ahead_s)), 0)
    assert verdict(sum_).verdict == "held"
    logs = [member(name, [50, 50, 80, 80, 80], 0.5) for name in "ab"]
    apart = one_sum(logs, known, late_us=late)
    assert apart.excess == pytest.approx(one_sum(logs).excess)
    besides = f", beyond the {abs(ahead_s):.3g} s that are known and corrected"
    assert verdict(apart).why == f"clocks that differ by {0.1 + apart.clock_s:.3g} s would explain it{besides}"


@pytest.mark.parametrize(("within_s", "expected"), [(0.02, "violated"), (0.5, "unknown")])
def test_an_excess_that_inexact_clocks_explain_is_unknown(within_s, expected):
    sum_ = one_sum(taking_turns(), clocks(0.0, within_s), late_us={"a": 400_000})
    assert 0.1 < sum_.clock_s < 0.4
    assert sum_.uncertain_s == pytest.approx(max(0, within_s - 0.1))
    fleet_verdict = verdict(sum_)
    assert fleet_verdict.verdict == expected
    assert ("know theirs to within 0.5 s only" in fleet_verdict.why) == (expected == "unknown")
    worse = one_sum([member(name, [80] * 4, 0.5) for name in "ab"], clocks(0.0, within_s))
    assert worse.clock_s > 1
    assert verdict(worse).verdict == "violated"


class Measured:
    """A row of `share_clocks`."""

    def __init__(self, proxy_id: str, epoch: int, ahead_s: float, within_s: float) -> None:
        self.proxy_id, self.boot_id, self.fleet, self.epoch = proxy_id, "boot", "front", epoch
        self.least_us, self.most_us = round((ahead_s - within_s) * 1e6), round((ahead_s + within_s) * 1e6)


def test_clocks_under_different_coordinators_meet_through_others():
    """The second coordinator's clock is 10 s ahead of the first one's."""
    rows = [
        Measured("a", 1, 1.0, 0.01),
        Measured("b", 1, -2.0, 0.02),
        Measured("c", 1, 0.0, 0.5),
        Measured("b", 2, 8.0, 0.03),
        Measured("c", 2, 10.4, 0.01),
        Measured("d", 2, 12.0, 0.04),
        Measured("e", 3, 7.0, 0.02),  # nobody else has followed that one
    ]
    offsets = {run: (clock.behind_us / 1e6, clock.within_us / 1e6) for run, clock in member_clocks(rows).items()}
    assert offsets == {
        ("a", "boot"): (1.0, 0.01),
        ("b", "boot"): (-2.0, 0.02),
        ("c", "boot"): (pytest.approx(0.4), pytest.approx(0.06)),
        ("d", "boot"): (pytest.approx(2.0), pytest.approx(0.09)),
        ("e", "boot"): (7.0, 0.02),
    }
    assert member_clocks([]) == {}
