from datetime import timedelta

import msgspec
import pyarrow as pa
import pytest

from compliance.excerpt import WHOLE_LOG
from compliance.figures.facts import HeadroomFacts
from compliance.figures.limits import headroom_facts, use_of
from compliance.judging.fleets import FleetNotes, MemberClock, on_common_clock
from tests.compliance.arrow import limits_of
from tests.compliance.planted import BEGIN, PlantedLog


def days(peaks):
    """One ten-second line a day, in which that share of 100/s was used."""
    log = PlantedLog()
    for peak in peaks:
        head = log._head
        log.limit(int(1000 * peak), start=head["start"], end=head["start"] + timedelta(seconds=10), duration_ms=1e4)
        log.second += 86400
    return log


def headroom(log):
    [row] = shared_headroom([log])
    return row


def test_headroom_counts_steps_near_the_limit_and_names_the_peak():
    row = headroom(days([0.5, 0.79, 0.8, 0.95, 0.2]))
    assert (row.steps, row.near_steps, row.peak) == (5, 2, pytest.approx(0.95))
    assert row.peak_at == BEGIN + timedelta(days=3)
    assert row.typical == pytest.approx(0.79)


def test_a_straight_rise_has_its_slope_and_no_error():
    row = headroom(days([0.1, 0.2, 0.3, 0.4, 0.5]))
    assert (row.slope, row.now) == (pytest.approx(0.1), pytest.approx(0.5))
    assert row.slope_error == pytest.approx(0, abs=1e-6)


def test_the_error_of_a_slope_is_that_of_the_textbook():
    row = headroom(days([0.1, 0.3, 0.2, 0.4]))
    # x = 0…3, slope 0.08, residuals -0.03, 0.09, -0.09, 0.03 about the line: s² = 0.018 / 2, over Sxx = 5.
    assert row.slope == pytest.approx(0.08)
    assert row.slope_error == pytest.approx((0.018 / 2 / 5) ** 0.5)


def test_one_day_has_no_trend():
    row = headroom(days([0.5]))
    assert (row.days, row.slope, row.slope_error, row.now) == (1, None, None, None)


def test_the_fuller_of_the_two_buckets_counts():
    log = PlantedLog()
    log.limit(100, limit_bytes=5000.0, burst_bytes=500.0)
    assert headroom(log).peak == pytest.approx(2 / 10)


def line_of(log, passed, begin_s, lasts_s=1.0, **more):
    start = log.begin + timedelta(seconds=begin_s)
    log.limit(passed, start=start, end=start + timedelta(seconds=lasts_s), duration_ms=1e3 * lasts_s, **more)


def test_a_line_counts_in_each_ten_seconds_as_far_as_it_lies_in_them():
    log = PlantedLog()
    line_of(log, 3000, 0, lasts_s=30)
    line_of(log, 0, 30, lasts_s=10)
    row = headroom(log)
    assert (row.steps, row.near_steps, row.peak) == (4, 3, pytest.approx(1))


def test_lines_a_little_beside_a_step_make_it_no_fuller():
    log = PlantedLog()
    for second in range(10):
        line_of(log, 100, second + (-0.0004 if second in {0, 5} else 0.0008))
    line_of(log, 50, 9.9996)
    row = headroom(log)
    assert (row.steps, row.peak) == (2, pytest.approx(1, rel=1e-3))


def test_a_limit_of_less_than_a_message_in_ten_seconds_is_full_with_one():
    log = PlantedLog()
    line_of(log, 1, 0, rate=1 / 60)
    line_of(log, 3, 60, rate=1 / 60)
    row = headroom(log)
    assert (row.typical, row.peak) == (1, pytest.approx(3))


def test_limit_below_the_bytes_of_an_entry_is_full_with_one():
    log = PlantedLog()
    line_of(log, 1000, 0, rate=None, limit_bytes=100.0, burst_bytes=10.0, largest_entry_bytes=100_000)
    assert headroom(log).peak == pytest.approx(1)


# ---- limits that fleets share


def members(shares, passed, **more):
    """Logs of members with a share each that pass so much in each of ten seconds."""
    logs = []
    for number, (share, of_one) in enumerate(zip(shares, passed, strict=True)):
        log = PlantedLog(proxy_id=f"p{number}", topic="t", **more)
        for _ in range(10):
            log.shared(of_one, share)
            log.second += 1
        logs.append(log)
    return logs


def use_by_day(lines):
    """The sums of each day, as the judging has them."""
    days = [use_of(day.of(lines)) for day in WHOLE_LOG.days([lines["start"]])]
    tables = {name: [day[name] for day in days] for name in ("use", "used")}
    for of_days in tables.values():
        of_days[:] = [table.append_column("day", pa.array([day] * len(table))) for day, table in enumerate(of_days)]
    return {name: pa.concat_tables(of_days) for name, of_days in tables.items()}


def shared_headroom(logs, fleets=(), **more):
    notes = FleetNotes({(proxy_id, "boot-1"): fleet for proxy_id, fleet in dict(fleets).items()}, **more)
    facts = headroom_facts(**use_by_day(on_common_clock(limits_of(*logs), notes))).to_pylist()
    rows = [msgspec.convert(row, HeadroomFacts) for row in facts]
    return sorted(rows, key=lambda row: (row.proxy_id, row.fleet))


def test_members_of_a_fleet_use_the_whole_limit_together():
    """Each uses all of its share, and both of them half of the limit."""
    logs = members([0.2, 0.3], [20, 30])
    [row] = shared_headroom(logs, {"p0": "front", "p1": "front"})
    assert (row.proxy_id, row.fleet, row.members) == ("", "front", 2)
    assert (row.direction, row.level, row.name) == ("publish", "topic", "t")
    assert (row.steps, row.near_steps, row.peak) == (1, 0, pytest.approx(0.5))


def test_message_without_a_share_is_a_hundredth_of_the_limit():
    [row] = shared_headroom(members([0.0, 0.0], [1, 0]), {"p0": "front"})
    assert row.peak == pytest.approx(0.01)


def test_two_fleets_are_not_added_up_and_a_proxy_without_one_has_its_own_row():
    alone = PlantedLog(proxy_id="p9", topic="t")
    line_of(alone, 90, 0)
    logs = [*members([0.2, 0.3, 0.5], [20, 30, 50]), alone]
    rows = shared_headroom(logs, {"p0": "back", "p1": "front", "p2": "front"})
    assert [(row.proxy_id, row.fleet, row.members, row.peak) for row in rows] == [
        ("", "back", 1, pytest.approx(0.2)),
        ("", "front", 2, pytest.approx(0.8)),
        ("p9", "", 0, pytest.approx(0.09)),
    ]


def test_runs_without_a_fleet_join_the_only_one_or_each_other():
    logs = members([0.2, 0.3, 0.5], [20, 30, 50])
    [row] = shared_headroom(logs, {"p0": "front"})
    assert (row.fleet, row.members, row.peak) == ("front", 3, pytest.approx(1))
    [nameless] = shared_headroom(logs)
    assert (nameless.proxy_id, nameless.fleet, nameless.members) == ("", "", 3)


def test_slow_limit_is_full_when_each_member_has_passed_an_entry():
    logs = members([0.5, 0.5], [0, 0])
    for log in logs:
        log.shared(1, 0.5, rate=1 / 60)
    assert shared_headroom(logs)[0].peak == pytest.approx(1)


def test_messages_of_one_member_and_bytes_of_another_are_not_added_up():
    of_bytes = {"limit_bytes": 5e5, "share_bytes": 0.5, "shared_bytes": 1e6}
    few, large = (PlantedLog(proxy_id=name, topic="t") for name in "ab")
    few.shared(300, 0.5, **of_bytes)
    large.shared(10, 0.5, passed_bytes=4_000_000, **of_bytes)
    [row] = shared_headroom([few, large])
    assert row.peak == pytest.approx(4.03 / 10)


def test_lines_of_members_are_put_by_one_clock():
    """One member's clock is twenty seconds ahead of the other's."""
    logs = members([0.4], [40]) + members([0.4], [40], begin=BEGIN + timedelta(seconds=20))
    logs[1].lines = [msgspec.structs.replace(line, proxy_id="p1") for line in logs[1].lines]
    clocks = {("p1", "boot-1"): MemberClock(-20_000_000, 0)}
    [row] = shared_headroom(logs, clocks=clocks)
    assert (row.steps, row.peak, row.peak_at) == (1, pytest.approx(0.8), BEGIN)
