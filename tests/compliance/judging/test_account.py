"""What one limiter's lines prove and what they do not: by hand, one situation a test, none of it on Spark."""

from datetime import timedelta

import pytest

from compliance.judging.lines import UNSEEN_S
from tests.compliance.judging.pure import deficit_s, denied_waits, doubts, excess, micros, replaced, verdicts
from tests.compliance.planted import BEGIN, TOPIC, PlantedLog

CHANGE_EVENTS = "persistent://acme/orders/__change_events"
HELD = {"throttled_ms": 1000.0, "reason": "topic", "reason_name": TOPIC}
CALM = {"throttled_ms": 0.0}


def judged(log, level="topic", name=TOPIC, **notes):
    return verdicts(log.lines, **notes)["publish", level, name]


def lines(*many, rate=100.0, **same):
    """A line of the limiter for each second: what passed, or that and other fields."""
    log = PlantedLog()
    for line in many:
        passed, more = line if isinstance(line, tuple) else (line, {})
        log.limit(passed, **({"rate": rate} | same | more))
        log.second += 1
    return log


# ---- containment


@pytest.mark.parametrize(("last", "is_over"), [(100, False), (102, True)])
def test_one_message_more_than_burst_rate_and_entry_is_one_too_many(last, is_over):
    assert (excess(judged(lines(110, 100, 100, last))) > 0) == is_over


def test_no_boundary_hides_a_burst_that_lies_across_it():
    assert excess(judged(lines(0, 110, 101, 0, **CALM))) < 0
    assert excess(judged(lines(0, 110, 110, 0, **CALM))) > 8


def test_an_entry_that_overdraws_the_bucket_is_paid_for_by_the_lines_behind_it():
    batch = {"largest_entry_messages": 30}
    assert excess(judged(lines((30, batch), 0, 0, (30, batch), rate=10.0, **CALM))) < 0
    assert excess(judged(lines((30, batch), 0, (41, batch), rate=10.0, **CALM))) > 0


def test_a_limit_that_flaps_between_two_values_is_one_window():
    flapping = [(110 + 9 * (second % 2), {"rate": 100.0 + second % 2}) for second in range(60)]
    result = judged(lines(*flapping))
    (worst,) = (window for window in result.windows if window.excess > 0)
    assert worst.passed - worst.allowed > 60 * 8
    fair = [(100 + second % 2 + 10 * (second == 0), {"rate": 100.0 + second % 2}) for second in range(60)]
    assert excess(judged(lines(*fair))) < 0


def test_a_debt_stays_in_seconds_where_the_rate_falls_and_in_tokens_where_it_rises():
    batch = {"largest_entry_messages": 1000}
    falls = lines((1000, {"rate": 100.0} | batch), (0, {"rate": 10.0}), (1000, {"rate": 10.0} | batch), **CALM)
    # Of 890 at 100/s 89 are left at 10/s, of which two seconds pay 20.
    assert excess(judged(falls)) == pytest.approx(69 - 0.5, abs=0.01)
    rises = lines((1000, {"rate": 10.0} | batch), (0, {"rate": 100.0}), (1000, {"rate": 100.0} | batch), **CALM)
    assert excess(judged(rises)) == pytest.approx(989 - 200 - 0.5, abs=0.01)


def test_nobody_is_owed_anything_of_a_limit_of_which_this_member_has_no_share():
    """Lines say a millionth then, of which nothing is earned: of bytes that would be what is lacking."""
    bytes_ = {"limit_messages": None, "burst_messages": None, "limit_bytes": 0.02, "burst_bytes": 1.0}
    first = {"passed_bytes": 73, "largest_entry_bytes": 73, "tokens_bytes": -72.0}
    for share, lacks in ((0.0, False), (1e-6, True)):
        more = bytes_ | {"share_bytes": share, "shared_bytes": 20_000.0, "idle_ms": 0.0, "throttled_ms": 1000.0}
        result = judged(lines((1, more | first), *[(0, more | {"tokens_bytes": -72.0})] * 20))
        assert (deficit_s(result) > 0) == lacks


def test_a_peak_is_judged_by_its_own_bucket():
    peak = {"burst_messages": 500.0, "peak_messages": 300.0, "peak_burst_messages": 30.0}
    assert excess(judged(lines((331, peak)))) < 0
    assert excess(judged(lines((332, peak)))) > 0


def test_what_is_only_observed_is_neither_kept_nor_broken():
    result = judged(lines((900, {"mode": "observe"}), (900, {"mode": "observe"})))
    assert (result.windows, result.entitlement, result.minutes) == ([], None, {})


@pytest.mark.parametrize("began", [0.0, -30.0, None])
def test_balance_at_the_begin_is_owed_no_burst(began):
    """After a restart a bucket is not full: its first line says so, and its stream waits without being owed more."""
    first = {"burst_messages": 500.0, "began_messages": began, "tokens_messages": 0.0, "idle_ms": 0.0}
    result = judged(lines((100 + int(began or 0), first), *[(100, first | {"began_messages": None})] * 20))
    assert (deficit_s(result) > 0) == (began is None)
    assert doubts(result) == (set() if began is not None else {"books"})


def test_balance_at_the_begin_does_not_hide_what_is_kept_back():
    first = {"burst_messages": 500.0, "began_messages": 0.0, "tokens_messages": 0.0}
    result = judged(lines((100, first), *[(50, {"burst_messages": 500.0, "tokens_messages": 0.0})] * 20))
    assert deficit_s(result) > 0


# ---- what streams say themselves


def test_pulsars_own_topics_are_in_nobodys_sums():
    """The cross-check of a total holds nothing against it that no limit counts, by the field or by the name."""
    log = PlantedLog()
    for _ in range(40):
        log.interval(15)
        log.interval(15, topic=CHANGE_EVENTS, limit_level="", limit_messages=None)
        log.limit(15, rate=20.0, level="namespace", name="acme/orders", **CALM)
        log.beat()
    result = judged(log, "namespace", "acme/orders")
    assert (excess(result) < 0, doubts(result)) == (True, set())


def bypass(seconds, passed, limited, *, with_lines=True, with_levels=True):
    log = PlantedLog()
    more = {"limit_levels": "topic"} if with_levels else {}
    for second in range(seconds):
        log.interval(passed(second), **more)
        if with_lines:
            log.limit(limited(second), **CALM)
        log.beat()
    return log


@pytest.mark.parametrize("with_levels", [True, False])
def test_a_limit_that_streams_name_and_that_has_no_lines_is_not_kept(with_levels):
    log = bypass(20, lambda _: 500, lambda _: 0, with_lines=False, with_levels=with_levels)
    log.beat(last=True)
    result = judged(log)
    (worst,) = (window for window in result.windows if window.excess > 0)
    assert (worst.basis, worst.passed) == ("streams", 10_000)
    assert doubts(result) == {"no lines"}
    assert result.doubts[0].said == "its streams passed 500 messages, and it has no line"


@pytest.mark.parametrize(("complete_s", "kinds"), [(20, set()), (21, {"no lines"}), (None, {"no lines"})])
def test_run_without_an_end_may_lack_what_no_heartbeat_covers(complete_s, kinds):
    """A limit that was not reached has a line after some intervals: it may be yet to come, or the proxy was killed."""
    log = bypass(20, lambda _: 50, lambda _: 50)
    until = None if complete_s is None else log.begin + timedelta(seconds=complete_s)
    for _ in range(60):
        log.interval(50, limit_levels="topic")
        log.beat(complete_until=until)
    assert doubts(judged(log)) == kinds


@pytest.mark.parametrize(("complete_s", "kinds"), [(0, set()), (5, {"no streams"})])
def test_stream_lines_no_heartbeat_covers_may_be_yet_to_come(complete_s, kinds):
    log = PlantedLog()
    for _ in range(60):
        log.limit(50, throttled_ms=0.0)
        log.beat(complete_until=log.begin + timedelta(seconds=complete_s))
    assert {doubt.what for doubt in judged(log).doubts} == kinds


def test_a_limiter_made_just_before_a_change_has_its_streams():
    log = PlantedLog()
    log.interval(5, limit_levels="topic")
    end = log.begin + timedelta(seconds=1)
    log.limit(5, **CALM, start=end - timedelta(microseconds=500), duration_ms=0.5)
    log.second += 1
    log.change(what="attachment")
    log.interval(5, limit_levels="topic")
    log.limit(5, **CALM)
    assert (excess(judged(log)) < 0, doubts(judged(log))) == (True, set())


def test_streams_of_a_limit_without_lines_count_at_any_value():
    log = PlantedLog()
    log.interval(5, limit_levels="topic", limit_level="", limit_messages=None)
    log.limit(0, level="tenant", name="acme", **CALM)
    (doubt,) = judged(log).doubts
    assert doubt.said == "its streams passed 5 messages, and it has no line"


@pytest.mark.parametrize("with_levels", [True, False])
def test_a_bypass_of_five_seconds_is_found_among_three_hundred(with_levels):
    result = judged(
        bypass(300, lambda second: 300 if 100 <= second < 105 else 40, lambda _: 40, with_levels=with_levels)
    )
    (worst,) = (window for window in result.windows if window.excess > 0)
    assert (worst.basis, worst.passed) == ("streams", 1500)
    assert doubts(result) == {"streams"}


def test_a_bypass_within_the_limit_is_told_all_the_same():
    result = judged(bypass(20, lambda _: 50, lambda _: 40))
    assert (excess(result) < 0, doubts(result)) == (True, {"streams"})
    text = "its streams passed 50 messages, and it passed 40 by its own line"
    assert (result.doubts[0].said, result.doubts[0].times) == (text, 20)


def test_a_total_is_checked_against_all_its_streams():
    log = PlantedLog()
    for _ in range(20):
        for topic in ("a", "b"):
            log.interval(100, topic=f"persistent://acme/orders/{topic}", limit_levels="tenant")
        log.interval(100, tenant="other", limit_levels="")
        log.limit(100, level="tenant", name="acme", namespace="", **CALM)
        log.beat()
    assert excess(judged(log, "tenant", "acme")) > 1900


def test_streams_before_the_limit_was_set_are_not_held_against_it():
    log = PlantedLog()
    log.interval(5000, limit_level="", limit_messages=None, limit_levels="")
    log.beat()
    log.interval(100, limit_levels="topic")
    log.limit(100)
    result = judged(log)
    assert (excess(result) < 0, doubts(result)) == (True, set())


def test_what_does_not_count_against_limits_is_not_held_against_them():
    log = PlantedLog()
    log.interval(1000, charged_messages=60, charged_bytes=6000, limit_levels="topic", direction="dispatch")
    log.interval(500, charged_messages=0, charged_bytes=0, limit_levels="topic", direction="dispatch")
    log.limit(60, limit_bytes=1e6, burst_bytes=1e5, direction="dispatch")
    assert doubts(verdicts(log.lines)["dispatch", "topic", TOPIC]) == set()
    published = [replaced(line, direction="publish") for line in log.lines]
    assert doubts(verdicts(published)["publish", "topic", TOPIC]) == {"streams"}


def test_lines_of_streams_and_limits_need_not_have_the_same_spans():
    log = PlantedLog()
    head = log._head
    middle = head["start"] + (head["end"] - head["start"]) / 2
    log.limit(50, end=middle, duration_ms=500.0, **CALM)
    log.limit(20, start=middle, duration_ms=500.0, rate=50.0, **CALM)
    log.interval(70)
    assert doubts(judged(log)) == set()
    log.lines[-1] = replaced(log.lines[-1], passed_messages=71, passed_entries=71)
    assert doubts(judged(log)) == {"streams"}


def test_waits_that_the_limits_own_line_lacks_are_owed():
    """Streams wait a second of each second, and 10/s pass of 100/s; the limit says that nobody waited."""
    log = PlantedLog()
    for second in range(20):
        log.interval(10, offered=100, held_messages=90 * (second + 1), **HELD)
        log.limit(10, **CALM)
        log.beat()
    result = judged(log)
    assert (deficit_s(result) > 8, doubts(result)) == (True, {"waits"})
    assert result.doubts[0].said == "a stream waited 1.000 s on it, and its own line has waits of 0.000 s"


# ---- entitlement


def large_entries():
    """4.9 MB pass at 1 MB/s; another producer waits for three seconds in that debt and dies; every seven seconds."""
    limit = {"rate": None, "limit_bytes": 1e6, "burst_bytes": 1e5}
    log = PlantedLog()
    for _ in range(8):
        log.limit(1, largest_entry_bytes=4_900_000, passed_bytes=4_900_000, **limit, **CALM)
        log.second += 1
        for _ in range(3):
            log.limit(0, **limit)
            log.second += 1
        log.second += 3
    return log


def test_waits_in_a_legal_debt_are_no_shortfall():
    assert deficit_s(judged(large_entries())) < 0


def test_each_debt_counts_and_none_twice():
    """30 a minute in batches of ten: each is paid for in twenty seconds, in which others wait."""
    batch = {"largest_entry_messages": 10} | CALM
    each = [(10, batch), *[0] * 15, *[(0, CALM)] * 4]
    assert deficit_s(judged(lines(*each * 4, rate=0.5, burst_messages=3.0))) < 0


def test_a_debt_that_is_paid_excuses_nothing_more():
    batch = {"largest_entry_messages": 10} | CALM
    assert deficit_s(judged(lines((10, batch), *[0] * 30, rate=0.5, burst_messages=3.0))) > 5


def test_single_short_waits_are_no_shortfall():
    """Ten milliseconds are what one message takes at 100/s: so long waits the one behind the burst, each second."""
    assert deficit_s(judged(lines(*[(11, {"throttled_ms": 10.0})] * 50))) < 0
    assert deficit_s(judged(lines(*[(2, {"throttled_ms": 10.0})] * 50, burst_messages=1.0))) < 0


@pytest.mark.parametrize("percent", [2, 5])
def test_starvation_of_two_percent_and_more_is_found(percent):
    assert deficit_s(judged(lines(110, *[100] * 10, *[100 - percent] * 20))) > 0
    assert deficit_s(judged(lines(110, *[100] * 30))) < 0


def test_starvation_is_found_where_somebody_waits_for_most_of_each_second():
    assert deficit_s(judged(lines(110, *[(88, {"throttled_ms": 900.0})] * 30))) > 0


def test_who_gets_nothing_from_the_begin_is_found():
    assert deficit_s(judged(lines(*[0] * 12))) > 9


def test_of_two_rates_that_take_turns_neither_is_accused():
    """Half a second of small messages, half a second of a large one: each bucket was empty for its half."""
    both = {"limit_bytes": 1000.0, "burst_bytes": 100.0, "passed_bytes": 500, "largest_entry_bytes": 450}
    result = judged(lines((60, both | {"passed_bytes": 600}), *[(50, both)] * 20))
    assert deficit_s(result) < 0


def test_of_two_rates_the_one_that_binds_is_enough():
    both = {"limit_bytes": 1000.0, "burst_bytes": 100.0, "passed_bytes": 1000, "largest_entry_bytes": 100}
    result = judged(lines((11, both | {"passed_bytes": 1100}), *[(10, both)] * 19))
    assert (deficit_s(result) < 0, result.entitlement.unseen_s < UNSEEN_S) == (True, True)


def told(tokens, passed=100, **more):
    return passed, {"tokens_messages": tokens, "idle_ms": 0.0} | more


def test_a_token_in_a_hundred_that_gets_lost_shows_in_the_books():
    result = judged(lines(told(0.5, 110), told(0.5), told(0.5, 99), told(0.5, 99), told(0.5, 99)))
    assert doubts(result) == {"books"}
    assert result.doubts[0].said == "its bucket should hold 1.50 messages at the end of the line, and holds 0.50"
    assert deficit_s(result) > 0


def test_a_token_that_is_granted_twice_shows_in_the_books():
    assert doubts(judged(lines(told(0.5, 110), told(0.5), told(0.5, 101)))) == {"books"}


PART = {"limit_messages": 10.0, "burst_messages": 20.0, **CALM}
"""A part of a limit, as of a process whose place another one takes."""


def test_tokens_that_went_to_another_process_are_not_missed():
    before = told(5.0, 50, overflow_messages=55.0, **CALM)
    assert doubts(judged(lines(before, told(2.0, 8, began_messages=0.0, **PART), told(2.0, 10, **PART)))) == set()
    assert doubts(judged(lines(before, told(2.0, 8, **PART), told(2.0, 10, **PART)))) == {"books"}


def test_process_that_has_handed_a_limit_over_earns_nothing():
    """Its lines have a millionth of the limit; two bytes a second would show in the books."""
    rest = {"limit_bytes": 2.0, "burst_bytes": 1.0, "tokens_bytes": 0.0, **CALM}
    whole = {"limit_bytes": 2e6, "burst_bytes": 2e5, "tokens_bytes": 2e5, "overflow_bytes": 2e6, **CALM}
    many = [told(10.0, 0, overflow_messages=100.0, **whole), *[told(10.0, 0, overflow_messages=100.0, **rest)] * 2]
    many[1][1]["began_bytes"] = 0.0
    assert doubts(judged(lines(*many))) == set()


def test_tokens_that_came_from_another_process_may_be_used():
    came = judged(lines(told(0.0, 110), told(0.0, 24, began_messages=14.0, **PART), told(0.0, 10, **PART)))
    assert (excess(came) < 0, doubts(came)) == (True, set())
    assert excess(judged(lines(told(0.0, 110), told(0.0, 24, **PART), told(0.0, 10, **PART)))) > 0


def test_tokens_that_went_to_another_process_may_not_be_used():
    before, part = told(10.0, 50, overflow_messages=50.0, **CALM), PART | {"burst_messages": 10.0}
    kept = excess(judged(lines(before, told(-20.0, 40, **part))))
    went = excess(judged(lines(before, told(-28.0, 40, began_messages=2.0, **part))))
    assert went == pytest.approx(kept + 8)


def test_what_a_full_bucket_had_no_room_for_is_in_its_books():
    kept = lines(told(10.0, 50, overflow_messages=50.0, **CALM), told(10.0, 20, overflow_messages=80.0, **CALM))
    assert doubts(judged(kept)) == set()


def test_timers_that_are_late_beyond_their_due_are_a_shortfall():
    late = [told(0.5, 110), *[told(0.5, 96, idle_ms=40.0, overflow_messages=4.0)] * 10]
    result = judged(lines(*late))
    assert (deficit_s(result) > 0, doubts(result)) == (True, set())


@pytest.mark.parametrize(("recovered_ms", "is_owed"), [(0.0, True), (60.0, True), (100.0, False)])
def test_late_tokens_that_found_room_are_not_owed(recovered_ms, is_owed):
    """Each second ten messages pass at once and forty wait for 0.4 s; then the bucket fills, and has room no more."""
    more = {"throttled_ms": 400.0, "idle_ms": 100.0, "recovered_ms": recovered_ms, "overflow_messages": 50.0}
    result = judged(lines(*[told(10.0, 50, **more)] * 10))
    assert ((deficit_s(result) > 0), doubts(result)) == (is_owed, set())


def test_late_tokens_behind_a_time_without_lines_are_not_owed():
    log, late = PlantedLog(), {"throttled_ms": 400.0, "idle_ms": 90.0, "recovered_ms": 90.0}
    for _ in range(10):
        log.limit(50, tokens_messages=10.0, overflow_messages=550.0, **late)
        log.second += 6
    assert deficit_s(judged(log)) < 0


def test_more_recovered_than_a_wait_has_room_for_does_not_show():
    half = {"throttled_ms": 490.0, "idle_ms": 490.0, "recovered_ms": 490.0, "overflow_messages": 49.0}
    result = judged(lines(*[told(10.0, 51, **half)] * 10))
    assert result.entitlement.unseen_s > UNSEEN_S


def test_tokens_without_room_are_lost_whatever_a_line_says():
    late = {"idle_ms": 40.0, "recovered_ms": 40.0, "overflow_messages": 4.0}
    assert deficit_s(judged(lines(told(0.5, 110), *[told(0.5, 96, **late)] * 10))) > 0


def test_tokens_that_were_kept_for_somebody_else_are_owed_to_nobody():
    kept = [told(0.5, 110), *[told(0.5, 70, reserved_ms=300.0, overflow_messages=30.0)] * 10]
    assert deficit_s(judged(lines(*kept))) < 0


def reserved(seconds=60, stream=None, **own):
    """A full bucket of 100/s that is reserved all the time, by its own lines; and a stream under it."""
    log = PlantedLog()
    fields = {"idle_ms": 0.0, "reserved_ms": 1000.0, "tokens_messages": 10.0, "overflow_messages": 100.0} | own
    for second in range(seconds):
        if stream is not None:
            held = {"held_messages": 30 * (second + 1), "offered_entries": 1, "throttled_ms": 1000.0}
            log.interval(0, 30, **(held | {"limit_levels": "tenant topic"} | stream))
        log.limit(0, **fields)
        log.second += 1
    return judged(log)


def test_reserved_is_only_what_a_stream_that_waits_on_another_limit_explains():
    elsewhere = {"reason": "tenant", "reason_name": "acme"}
    assert doubts(reserved(stream=elsewhere)) == set()
    assert doubts(reserved()) == {"unconfirmed"}, "nobody is under it and another one"
    assert doubts(reserved(stream={"limit_levels": "topic"})) == {"unconfirmed"}
    assert doubts(reserved(stream=elsewhere | {"throttled_ms": 0.0})) == {"unconfirmed"}, "nobody waited"
    assert doubts(reserved(stream={"reason": "topic", "reason_name": TOPIC})) == {"unconfirmed"}, "nor elsewhere"


def test_a_full_bucket_is_reserved_only_where_an_entry_is_as_large_as_its_burst():
    small = {"reason": "tenant", "reason_name": "acme", "offered_entries": 30}
    assert doubts(reserved(stream=small)) == {"unconfirmed"}
    assert doubts(reserved(stream=small, burst_messages=1.0, tokens_messages=1.0)) == set()


def wasted(percent, interval_ms, seconds=30, **more):
    """So much of 100/s finds no room while somebody waits, and the rest passes: tokens and overflow add up."""
    log = PlantedLog()
    for line in range(seconds * 1000 // interval_ms):
        at = log.begin + timedelta(milliseconds=line * interval_ms)
        earned = 100 * interval_ms / 1000
        before, passed = ((line * earned * (1 - percent / 100)) % 1, line * earned * (1 - percent / 100))
        passed = int(passed + earned * (1 - percent / 100)) - int(passed)
        tokens = before + earned * (1 - percent / 100) - passed
        log.limit(
            passed + (10 if line == 0 else 0),
            tokens_messages=tokens,
            overflow_messages=earned * percent / 100,
            idle_ms=0.0,
            throttled_ms=float(interval_ms),
            start=at,
            end=at + timedelta(milliseconds=interval_ms),
            duration_ms=float(interval_ms),
            **more,
        )
    return judged(log)


@pytest.mark.parametrize("interval_ms", [100, 1000, 5000])
def test_two_percent_without_room_are_found_with_any_interval(interval_ms):
    assert deficit_s(wasted(2, interval_ms)) > 0
    assert deficit_s(wasted(15, interval_ms)) > 0
    assert (deficit_s(wasted(0, interval_ms)) < 0, doubts(wasted(0, interval_ms))) == (True, set())


def test_behind_missing_lines_nothing_is_known_of_a_bucket():
    log = lines(110, 100, 0, 0, 100)
    assert deficit_s(judged(log)) > 1
    log.lines = [*log.lines[:2], replaced(log.lines[4], throttled_ms=500.0, passed_messages=0)]
    assert deficit_s(judged(log, holes=[4])) < 0


def test_a_minute_tells_for_how_long_each_promise_was_kept():
    result = judged(lines(110, *[100] * 14, 200, *[100] * 14, *[80] * 15, *[100] * 15))
    sums = [sum(getattr(minute, name) for minute in result.minutes.values()) for name in ("judged_s", "over_s")]
    assert sums == [60, 1]
    assert sum(minute.waited_s for minute in result.minutes.values()) == 60


@pytest.mark.parametrize(("tokens", "kinds"), [(10.0, set()), (1.0, set()), (12.0, {"books"})])
def test_a_balance_that_another_value_may_have_cut_for_a_moment_is_in_its_books(tokens, kinds):
    log = lines(told(10.0, 50, overflow_messages=50.0, **CALM))
    log.change()
    log.limit(100, rate=100.0, tokens_messages=tokens, idle_ms=0.0, **CALM)
    assert doubts(judged(log)) == kinds
    assert doubts(judged(log, changed=())) == (set() if tokens == 10 else {"books"})


# ---- a change that comes into force behind the begin of a line


@pytest.mark.parametrize(("late", "is_over"), [(timedelta(0), True), (timedelta(milliseconds=50), False)])
def test_up_to_the_moment_of_a_change_what_was_before_is_in_force(late, is_over):
    log = lines(1100, rate=1000.0)
    moment = log._head["start"] + late
    log.change(start=moment, end=moment)
    log.limit(130, rate=100.0)
    assert (excess(judged(log)) > 0) == is_over


# ---- what an auditor planted


def cross_checked(seconds=20, stream=None, **own):
    """Streams that are told to be under a limit of 100/s, and its own lines."""
    log = PlantedLog()
    for _ in range(seconds):
        log.interval(100, **({"limit_levels": "topic"} | (stream or {})))
        log.limit(100, **(CALM | own))
        log.second += 1
    return log


@pytest.mark.parametrize("own", [{"rate": None}, {"mode": "observe"}])
def test_a_limit_that_its_streams_name_and_its_own_lines_do_not_is_not_known(own):
    assert doubts(judged(cross_checked())) == set()
    assert doubts(judged(cross_checked(**own))) == {"value"}


def test_a_limit_of_which_a_stream_names_another_value_is_not_known():
    result = judged(cross_checked(stream={"limit_messages": 150.0}))
    assert doubts(result) == {"value"}
    assert result.doubts[0].said == "by its streams' lines 150 messages/s are in force, and by its own line 100"
    one_of_two = cross_checked()
    for _ in range(5):
        one_of_two.interval(0, stream_id=2, limit_levels="topic", limit_messages=50.0)
        one_of_two.interval(100, limit_levels="topic")
        one_of_two.limit(100, **CALM)
        one_of_two.second += 1
    assert doubts(judged(one_of_two)) == {"value"}


@pytest.mark.parametrize(("seconds", "is_known"), [(1, True), (3, False)])
def test_within_a_second_behind_a_change_a_stream_may_name_the_value_of_before(seconds, is_known):
    log = cross_checked()
    log.change()
    for _ in range(seconds + 1):
        log.interval(50, limit_levels="topic", limit_messages=100.0)
        log.limit(50, rate=50.0, **CALM)
        log.second += 1
    assert doubts(judged(log)) == (set() if is_known else {"value"})


def test_a_limit_that_follows_a_publish_rate_has_other_values_meanwhile():
    assert doubts(judged(cross_checked(stream={"limit_messages": 150.0}, published_messages=90.0))) == set()


@pytest.mark.parametrize("more", [{"limit_levels": ""}, {"limit_levels": "topic", "exempt": True}])
def test_a_stream_that_names_a_limit_is_under_it_whatever_else_it_says(more):
    log = PlantedLog()
    for _ in range(20):
        log.interval(500, **more)
        log.second += 1
    result = judged(log)
    assert (excess(result) > 0, doubts(result)) == (True, {"no lines"})


def test_no_entry_is_larger_than_all_that_passed():
    assert excess(judged(lines(*[(300, {"largest_entry_messages": 20_000} | CALM)] * 5))) > 0


def test_a_limit_that_refuses_with_tokens_at_hand_is_not_known_to_owe_nothing():
    fields = {"idle_ms": 0.0, "mode": "reject", "rejected_messages": 300} | CALM
    full = {"tokens_messages": 10.0, "overflow_messages": 100.0}
    assert doubts(judged(lines((0, fields | full), (0, fields | full)))) == {"refused"}
    assert (
        doubts(judged(lines((110, fields | {"tokens_messages": 0.0}), (100, fields | {"tokens_messages": 0.0}))))
        == set()
    )


def refusing(*overflow, rejected=140):
    """Of 200 a second 60 pass a limit of 100/s; the bucket had no room for some of what it earned."""
    fields = {"idle_ms": 0.0, "mode": "reject", "rejected_messages": rejected} | CALM
    return judged(
        lines(
            *((60, fields | {"tokens_messages": 0.5, "overflow_messages": 40.0 + more}) for more in overflow),
        )
    )


def test_refusals_while_the_bucket_had_no_room_may_be_owed():
    result = refusing(9.5, *[0.0] * 19)
    assert (excess(result) < 0, doubts(result), deficit_s(result) < 0) == (True, set(), True)
    assert result.entitlement.unseen_s > UNSEEN_S
    assert result.entitlement.whole_waited_s == 0


def test_who_begins_and_ends_within_lines_leaves_nothing_unseen():
    fields = {"idle_ms": 0.0, "mode": "reject"} | CALM
    steady = fields | {"rejected_messages": 100, "tokens_messages": 0.5}
    begins = steady | {"overflow_messages": 59.5, "rejected_messages": 60}
    ends = steady | {"overflow_messages": 40.0, "rejected_messages": 50}
    result = judged(lines((50, begins), *[(100, steady)] * 18, (60, ends)))
    assert (excess(result) < 0, doubts(result)) == (True, set())
    assert result.entitlement is None


def test_no_more_is_owed_than_was_refused():
    result = refusing(9.5, *[0.0] * 19, rejected=2)
    assert result.entitlement.unseen_s == pytest.approx(0.1 + 10 * 0.02)


def short_waits(*, waited_ms=867.0, passed=95, parts=1, seconds=20, tokens=10.0):
    """In each second, or part of one, but the first a burst waits a while; what is not used has no room in the end."""
    log = PlantedLog()
    for number in range(seconds * parts):
        start = BEGIN + timedelta(seconds=number / parts)
        spans = {"start": start, "end": start + timedelta(seconds=1 / parts), "duration_ms": 1000.0 / parts}
        earned = 100 / parts - passed + (0.0 if number else 10.0 - tokens)
        fields = {"idle_ms": 0.0, "tokens_messages": tokens, "overflow_messages": earned}
        log.limit(passed, throttled_ms=waited_ms if number else 0.0, **(fields | spans))
    return judged(log)


def test_what_late_timers_may_hide_in_short_waits_is_unseen_and_said():
    """With 17 ms too much in each second's wait 2 % are lacking, as if each timer were late by so much."""
    result = short_waits()
    assert (deficit_s(result) < 0, doubts(result)) == (True, set())
    assert result.entitlement.unseen_s == pytest.approx(0.1 + 10 * 0.02)
    assert short_waits(waited_ms=5.0).entitlement.unseen_s == pytest.approx(0.1 + 10 * 0.005)


def test_too_many_short_waits_make_a_limit_unknown():
    result = short_waits(waited_ms=60.0, passed=8, parts=10, tokens=5.0)
    assert (deficit_s(result) < 0, result.entitlement.unseen_s > UNSEEN_S) == (True, True)


def test_a_wait_that_goes_on_and_whose_tokens_all_pass_hides_nothing():
    result = short_waits(waited_ms=100.0, passed=10, parts=10, tokens=0.5)
    assert result.entitlement.unseen_s == pytest.approx(0.1)


def test_no_more_is_hidden_than_nobody_got():
    result = short_waits(waited_ms=900.0, passed=100, tokens=0.0)
    assert result.entitlement.unseen_s == pytest.approx(0.1)


# ---- waits, held against all that tells of them


def dishonest(share, seconds=20, **stream):
    """The limiter passes less than it owes, and both accounts say that somebody waited for as much less."""
    log = PlantedLog()
    passed, waited = round(100 * share), {"throttled_ms": 1000.0 * share}
    for second in range(seconds):
        held = {"offered_messages": 100, "held_messages": 50, "held_since": BEGIN + timedelta(seconds=-1)}
        log.interval(passed, **({"limit_levels": "topic"} | HELD | waited | held | stream))
        full = 10.0 if not second else 0.0
        account = {"idle_ms": 0.0, "tokens_messages": 0.0, "overflow_messages": full + 100.0 - passed}
        log.limit(passed, **(waited | account))
        log.second += 1
    return log


@pytest.mark.parametrize("share", [0.98, 0.8, 0.5, 0.0])
def test_a_stream_that_holds_through_a_line_waits_through_it(share):
    result = judged(dishonest(share))
    assert deficit_s(result) > 0
    assert "waits" in doubts(result)
    assert result.doubts[0].said.startswith("a stream waited 1.000 s on it, and its own line has waits of")


def test_whose_waits_are_as_long_as_what_is_held_is_believed():
    assert "waits" not in doubts(judged(dishonest(0.5, held_since=None, held_messages=0)))
    assert denied_waits(dishonest(1.0).lines) == []


@pytest.mark.parametrize(
    "stream",
    [
        {"held_since": None},
        {"held_messages": 0, "held_since": None, "delay_max_ms": 990.0},
        {"held_since": BEGIN + timedelta(seconds=-1)},
    ],
)
def test_a_stream_that_denies_how_long_it_held_something_contradicts_itself(stream):
    log = dishonest(0.0, **stream)
    assert len(denied_waits(log.lines)) >= len(log.lines) // 2 - 1


def test_a_stream_that_holds_something_says_since_when():
    log = PlantedLog()
    for _ in range(3):
        log.interval(100, offered=100, held_messages=20, throttled_ms=1000.0, held_since=None)
        log.second += 1
    assert len(denied_waits(log.lines)) == len(log.lines)


def test_a_delay_may_have_begun_before_the_line():
    log = PlantedLog()
    held = {"held_messages": 5, "held_since": BEGIN + timedelta(seconds=0.2), "throttled_ms": 800.0}
    log.interval(0, offered=5, **held)
    log.second += 1
    log.interval(5, offered=0, held_messages=0, throttled_ms=100.0, delay_max_ms=900.0)
    assert denied_waits(log.lines) == []
    log.lines[-1] = replaced(log.lines[-1], delay_max_ms=903.0)
    assert [waited for _, waited in denied_waits(log.lines)] == [pytest.approx(103.0)]


@pytest.mark.parametrize(("duration_ms", "is_over"), [(1000.0, True), (1500.0, True), (500.0, True)])
def test_a_false_duration_excuses_nothing(duration_ms, is_over):
    """The monotonic clock at the ends of lines bounds how long they are."""
    log = lines(110, *[(150, {"duration_ms": duration_ms})] * 10)
    assert (excess(judged(log)) > 0) == is_over


def test_an_entry_that_takes_longer_by_a_new_limit_makes_nobody_starve():
    """A stream of large batches waits for its turn behind small ones: of bytes it took next to nothing."""
    log = PlantedLog()
    for second in range(12):
        of_bytes = second < 6
        batches = {"held_messages": 1000, "held_bytes": 700, "offered_messages": 150, "offered_bytes": 100}
        log.interval(0, stream_id=2, limit_levels="topic", **(HELD | batches | {"offered_entries": 1}))
        log.interval(50, limit_levels="topic", **HELD)
        values = {"rate": None, "limit_bytes": 5000.0, "burst_bytes": 500.0} if of_bytes else {"rate": 50.0}
        log.limit(50, **values)
        log.second += 1
    assert "starved" not in doubts(judged(log))


def test_a_stream_whose_entries_grow_while_it_waits_does_not_starve():
    """It waits for a debt to be paid, passes ten messages, and has a large batch behind them, as others have none."""
    log = PlantedLog()
    for second in range(13):
        is_paid, small = second >= 8, {"offered_messages": 10, "offered_bytes": 10}
        batch = {"offered_messages": 1000, "offered_bytes": 1000, "held_messages": 1000, "held_bytes": 1000}
        mine = batch if is_paid else small | {"held_messages": 10, "held_bytes": 10}
        of_debt = 10 if second == 8 else 0
        log.interval(of_debt, stream_id=2, limit_levels="topic", **(HELD | mine | {"offered_entries": 1}))
        log.interval(90 if is_paid else 0, limit_levels="topic", **(HELD | {"held_messages": 90, "held_bytes": 90}))
        log.limit(90 + of_debt if is_paid else 0)
        log.second += 1
    assert "starved" not in doubts(judged(log))


def starved(victims, backlog=1600, seconds=60):
    """Three streams wait all the time, and one of them gets what it gets in each second."""
    log = PlantedLog()
    for second in range(seconds):
        mine = victims(second)
        for stream, passed in ((1, mine), (2, 50), (3, 50 - mine)):
            held = backlog if stream == 1 else 500
            waits = HELD | {"limit_levels": "topic", "stream_id": stream, "held_since": log.begin}
            log.interval(passed, passed + 100, held_messages=held, **waits)
        log.limit(100, idle_ms=0.0, tokens_messages=0.5)
        log.second += 1
    return log


@pytest.mark.parametrize("victims", [lambda _second: 0, lambda second: int(second % 10 == 9)])
def test_a_stream_that_gets_next_to_nothing_is_found_however_much_it_holds(victims):
    result = judged(starved(victims))
    assert (deficit_s(result) > 0, "starved" in doubts(result)) == (True, True)


def test_it_is_told_who_got_most_while_a_stream_starved():
    (text,) = (doubt.said for doubt in judged(starved(lambda _second: 0)).doubts if doubt.what == "starved")
    assert text == "1/1 waited 10 s on it and passed nothing, while 10 s' worth of it passed, 500 messages of 1/2"


def test_a_stream_that_gets_half_of_an_equal_share_is_not_said_to_starve():
    assert "starved" not in doubts(judged(starved(lambda _second: 20)))


def stood_still(*still, idle=(3,)):
    """Somebody waits all the time, and nothing passes in some of the seconds, for want of a processor."""
    seconds = [
        told(0.5, 10, idle_ms=900.0, overflow_messages=90.0)
        if second in idle
        else told(0.5, 110 if second == 0 else 100)
        for second in range(20)
    ]
    begin_us = micros(BEGIN)
    return judged(
        lines(*seconds), still_us=[(begin_us + int(begin * 1e6), begin_us + int(end * 1e6)) for begin, end in still]
    )


def test_what_a_proxy_that_stood_still_did_not_pass_is_not_known_to_be_owed():
    result = stood_still((3.1, 4.0))
    assert (deficit_s(result) < 0, result.entitlement.still_s) == (True, pytest.approx(0.9))


def test_only_the_time_in_which_it_stood_still_is_uncertain():
    assert deficit_s(stood_still()) > 0
    assert deficit_s(stood_still((5.1, 6.0))) > 0
    assert deficit_s(stood_still((3.1, 4.0), idle=(3, 9))) > 0
    assert deficit_s(stood_still((3.1, 4.0), (9.1, 10.0), idle=(3, 9))) < 0


def test_a_debt_of_an_observed_limit_stays_in_seconds():
    log = PlantedLog()
    for rate, tokens, mode in (
        (1000.0, -47_000.0, "observe"),
        (1.0, -46.0, "enforce"),
        (7.0, -46 * 7 + 7.0, "enforce"),
    ):
        log.change()
        burst = {"burst_messages": 3.0, "tokens_messages": tokens, "mode": mode}
        log.limit(0, rate=rate, idle_ms=0.0, **burst)
        log.second += 1
    result = judged(log)
    assert (deficit_s(result) < 0, doubts(result)) == (True, set())
