"""The one-pass queue against one that moves message by message."""

import random
from fractions import Fraction

import pytest

from compliance.figures.what_if import Proposal, like, replay_facts
from tests.compliance.planted import PlantedLog, frame, topic_of

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


def test_the_largest_backlog_is_that_of_a_bucket_and_a_queue(spark):
    logs = [random_log(seed) for seed in range(25)]
    proposal = Proposal(level="topic", messages=50.0, burst_messages=30.0)
    found = {row.proxy_id: row.backlog_messages for row in replayed(spark, logs, proposal)}
    expected = {log.proxy_id: float(largest_backlog(log, 50, 30)) for log in logs}
    assert any(expected.values())
    # The trial fills and drains in turn: at most one step's worth of the limit lies between the two.
    assert found == pytest.approx(expected, abs=0.51)


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
    found = {row.name: row for row in rows}
    narrow, wide, by_bytes, waited = (found[log.topic] for log in logs)
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
    one = Proposal(level="topic", name="*/c_d", messages=1e6)
    rows = {(row.proposal, row.name): row for row in replayed(spark, [log], whole, one)}
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
    found = {(row.level, row.name): row.offered_messages for row in replayed(spark, [log], *proposals)}
    assert found == {("resource_group", "gold"): 150, ("address", "2001:db8::/64"): 350, ("address", "127.0.0.1"): 250}
