"""The one-pass queue against one that moves message by message."""

import random
from datetime import timedelta
from fractions import Fraction

import msgspec
import pytest

from compliance.figures.what_if import MemberLines, Proposal, like, replay_facts
from compliance.judging.clocks import with_axis
from compliance.judging.fleets import FleetNotes, MemberClock, of_members
from tests.compliance.planted import BEGIN, PlantedLog, frame, topic_of

pytestmark = pytest.mark.spark


def random_log(seed):
    chance = random.Random(seed)
    log = PlantedLog(proxy_id=f"random-{seed:02}", topic=topic_of(f"random-{seed:02}"))
    for _ in range(chance.randrange(2, 40)):
        log.second += chance.choice((0, 0, 0, 4))
        log.interval(0, offered=chance.choice((0, 20, 50, 120, 200)), limit_messages=None)
        log.second += 1
    return log


def largest_backlog(log, rate, burst):
    """By trial of a bucket that fills and a queue that empties, in steps of 10 ms."""
    tokens, queue, most, now = Fraction(burst), Fraction(0), Fraction(0), None
    for line in log.lines:
        start, end = line.start.timestamp(), line.end.timestamp()
        idle_s = 0 if now is None else round(start - now)
        tokens += rate * idle_s
        tokens, queue = drained(tokens, queue, burst)
        for _ in range(100):
            queue += Fraction(line.offered_messages, 100)
            tokens += Fraction(rate, 100)
            tokens, queue = drained(tokens, queue, burst)
        most, now = max(most, queue), end
    return most


def drained(tokens, queue, burst):
    passed = min(tokens, queue)
    return min(tokens - passed, Fraction(burst)), queue - passed


def replayed(spark, logs, *proposals):
    return replay_facts(frame(spark, logs, "interval"), list(proposals)).collect()


@pytest.mark.slow
def test_the_largest_backlog_is_that_of_a_bucket_and_a_queue(spark):
    logs = [random_log(seed) for seed in range(25)]
    proposal = Proposal(level="topic", messages=50.0, burst_messages=30.0)
    backlogs = {row.proxy_id: row.backlog_messages for row in replayed(spark, logs, proposal)}
    expected = {log.proxy_id: float(largest_backlog(log, 50, 30)) for log in logs}
    assert any(expected.values())
    # The trial fills and drains in turn: at most one step's worth of the limit lies between the two.
    assert backlogs == pytest.approx(expected, abs=0.51)


def steady(name, **more):
    log = PlantedLog(name, topic=topic_of(name))
    for _ in range(10):
        log.interval(100, **more)
        log.beat()
    return log


def test_what_would_have_waited_and_for_how_long_is_told_of_each_proposal(spark):
    """Each log has a proposal of its own, as its name: narrow, wide, by bytes, and held back already."""
    logs = [steady("narrow"), steady("wide"), steady("bytes"), steady("waited", throttled_ms=800.0)]
    of = [log.topic for log in logs]
    rows = replayed(
        spark,
        logs,
        Proposal(level="topic", name=of[0], messages=50.0, burst_messages=50.0),
        Proposal(level="topic", name=of[1], messages=100.0),
        Proposal(level="topic", name=of[2], messages=1e6, bytes=5000.0, burst_bytes=5000.0),
        Proposal(level="topic", name=of[3], messages=1e6),
    )
    assert len(rows) == len(logs)
    replays = {row.name: row for row in rows}
    narrow, wide, by_bytes, waited = (replays[log.topic] for log in logs)
    assert (narrow.offered_messages, narrow.held_messages) == (1000, 900)
    # 50 a second are left over from the second second on.
    assert (narrow.backlog_messages, narrow.delay_max_ms, narrow.left_ms) == (450, 9000, 9000)
    assert narrow.delay_p50_ms == pytest.approx(4500, abs=501)
    assert (narrow.first_at, narrow.queued_s) == ("2026-11-21T11:29:01.000000Z", 9)
    assert (wide.held_messages, wide.delay_p99_ms, wide.delay_max_ms, wide.first_at) == (0, 0, 0, None)
    # The bucket that binds is the one that counts.
    assert by_bytes.delay_max_ms == 9000
    assert (waited.censored_s, waited.limit_now_messages) == (pytest.approx(8), 100)


def test_all_streams_of_a_name_are_one_and_names_are_matched_by_stars(spark):
    log = PlantedLog()
    for topic in ("a", "b", "c_d"):
        log.interval(100, topic=f"persistent://acme/orders/{topic}")
    log.interval(100, tenant="other", namespace="x", topic="persistent://other/x/a")
    whole = Proposal(level="namespace", name="acme/*", messages=200.0, burst_messages=1.0)
    proposal = Proposal(level="topic", name="*/c_d", messages=1e6)
    rows = {(row.proposal, row.name): row for row in replayed(spark, [log], whole, proposal)}
    assert set(rows) == {(0, "acme/orders"), (1, "persistent://acme/orders/c_d")}
    assert rows[0, "acme/orders"].offered_messages == 300
    assert rows[0, "acme/orders"].backlog_messages == 99


def test_signs_that_sql_would_take_for_wildcards_stand_for_themselves():
    assert like("a_b%c*") == "a\\_b\\%c%"


def test_limits_of_resource_groups_and_of_networks_are_replayed_over_their_streams(spark):
    log = PlantedLog()
    for _ in range(5):
        log.interval(30, resource_group="gold", client_address="[2001:db8::7]:1", client_network="2001:db8::/64")
        log.interval(40, client_address="[2001:db8::8]:1", client_network="2001:db8::/64")
        log.interval(50)
        log.second += 1
    proposals = (Proposal(level="resource_group", messages=1000.0), Proposal(level="address", messages=1000.0))
    messages = {(row.level, row.name): row.offered_messages for row in replayed(spark, [log], *proposals)}
    assert messages == {
        ("resource_group", "gold"): 150,
        ("address", "2001:db8::/64"): 350,
        ("address", "127.0.0.1"): 250,
    }


# ---- limits that fleets would share


def member(name, offered, begin=BEGIN, **more):
    """A member that is offered so much in each of ten seconds, with a quarter of a tenant's limit of 1,000."""
    log = PlantedLog(proxy_id=name, topic=topic_of(name), begin=begin)
    for _ in range(10):
        log.interval(offered, limit_level="tenant", limit_messages=250.0, **more)
        log.shared(offered, 0.25, rate=1000.0, level="tenant", name="acme")
        log.second += 1
    return log


def replayed_together(spark, logs, *proposals, fleets=None, **more):
    notes = FleetNotes(fleets or {(log.proxy_id, "boot-1"): "front" for log in logs}, **more)
    lines = {kind: with_axis(frame(spark, logs, kind), {}) for kind in ("interval", "limit")}
    of_fleets = MemberLines(*(of_members(of_kind, notes) for of_kind in lines.values()))
    rows = replay_facts(lines["interval"], list(proposals), of_fleets).collect()
    return sorted(rows, key=lambda row: (row.proposal, row.proxy_id, row.fleet, row.name))


def test_members_of_a_fleet_share_a_proposed_limit_and_wait_together(spark):
    """Each of four members would have had room in a limit of 400/s of its own."""
    logs = [member(f"p{number}", 250, throttled_ms=500.0) for number in range(4)]
    [row] = replayed_together(spark, logs, Proposal(level="tenant", messages=400.0))
    assert (row.proxy_id, row.fleet, row.members, row.name) == ("", "front", 4, "acme")
    assert (row.offered_messages, row.offered_bytes, row.held_messages) == (10_000, 1_000_000, 10_000)
    # 600 a second are left over, but for the burst of 40.
    assert (row.backlog_messages, row.delay_max_ms, row.left_ms) == (5960, 14_900, 14_900)
    assert row.delay_p50_ms == pytest.approx((4.5 * 600 + 300 - 40) / 0.4, abs=751)
    assert (row.queued_s, row.first_at) == (10, "2026-11-21T11:29:00.000000Z")
    assert (row.censored_s, row.limit_now_messages, row.limit_now_bytes) == (pytest.approx(5), 1000, None)


def jittered(log, chance):
    """The same lines, each a few milliseconds late; lines of a run still begin where the one before ended."""
    late = [timedelta(milliseconds=chance.randrange(30)) for _ in range(log.second + 1)]
    places = [round((line.start - log.begin).total_seconds()) for line in log.lines]
    log.lines = [
        msgspec.structs.replace(
            line,
            start=line.start + late[place],
            end=line.end + late[place + 1],
            duration_ms=1000.0 + (late[place + 1] - late[place]) / timedelta(milliseconds=1),
        )
        for line, place in zip(log.lines, places, strict=True)
    ]
    return log


def test_a_demand_below_the_proposed_limit_waits_for_nothing(spark):
    """One member begins half a second after the others, and the clock of one is twenty seconds ahead."""
    chance = random.Random(1)
    begins = [BEGIN, BEGIN, BEGIN + timedelta(seconds=0.5), BEGIN + timedelta(seconds=20)]
    logs = [jittered(member(f"p{number}", 240, begin), chance) for number, begin in enumerate(begins)]
    proposals = [Proposal(level="tenant", messages=rate, burst_messages=1.0) for rate in (1000.0, 480.0)]
    clocks = {("p3", "boot-1"): MemberClock(-20_000_000, 0)}
    wide, narrow = replayed_together(spark, logs, *proposals, clocks=clocks)
    assert (wide.offered_messages, wide.held_messages, wide.delay_max_ms, wide.members) == (9600, 0, 0, 4)
    # When three of them are through, the half of a second of the fourth has not arrived.
    assert narrow.backlog_messages == pytest.approx(9600 - 120 - 480 * 10, abs=30)
    assert narrow.left_ms == pytest.approx(1e3 * (9600 - 480 * 10.5) / 480, abs=60)


def test_messages_that_are_few_are_shared_out_over_the_seconds_of_their_line(spark):
    """One message of a member in a minute is part of a message in each second."""
    logs = [PlantedLog(proxy_id=name, topic="t") for name in "ab"]
    for log in logs:
        log.interval(30, end=BEGIN + timedelta(seconds=60), duration_ms=60_000.0)
    [row] = replayed_together(spark, logs, Proposal(level="topic", messages=0.5, burst_messages=1.0))
    assert (row.offered_messages, row.backlog_messages, row.held_messages) == (60, pytest.approx(29), 58)
    assert row.delay_p50_ms == pytest.approx(1e3 * (30 * 0.5 - 1) / 0.5, abs=1001)


def test_levels_that_no_fleet_shares_proxies_without_one_and_other_fleets_are_apart(spark):
    logs = [member(f"p{number}", 100) for number in range(4)]
    fleets = {("p0", "boot-1"): "front", ("p1", "boot-1"): "front", ("p2", "boot-1"): "back"}
    proposals = Proposal(level="tenant", messages=150.0), Proposal(level="proxy", messages=150.0)
    rows = replayed_together(spark, logs, *proposals, fleets=fleets)
    assert [(row.proposal, row.proxy_id, row.fleet, row.members, row.offered_messages) for row in rows] == [
        (0, "", "back", 1, 1000),
        (0, "", "front", 2, 2000),
        (0, "p3", "", 0, 1000),
        *((1, f"p{number}", "", 0, 1000) for number in range(4)),
    ]
    assert [row.proxy_id or row.fleet for row in rows if row.held_messages] == ["front"]
    [only] = [row for row in replayed_together(spark, logs[:1], proposals[1]) if row.limit_now_messages]
    assert (only.proxy_id, only.limit_now_messages) == ("p0", 250)


def test_the_lowest_limit_of_any_level_counts_as_the_limit_then(spark):
    logs = [member(f"p{number}", 50) for number in range(2)]
    logs[0].limit(50, rate=80.0)
    logs[1].limit(50, rate=30.0, mode="observe")
    rows = replayed_together(
        spark, logs, Proposal(level="tenant", messages=90.0), Proposal(level="topic", messages=90.0)
    )
    assert [(row.name, row.limit_now_messages) for row in rows] == [
        ("acme", 80),
        (logs[0].topic, 80),
        (logs[1].topic, 1000),
    ]
