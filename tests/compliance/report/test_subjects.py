from datetime import timedelta

from compliance.judging.verdict import judge_limiters
from compliance.report.subjects import CHARTS, MOST_STEPS, charted, shared_limits, step_for
from tests.compliance.judging.facts_made import containment_fact, entitlement_fact, facts, limiter_fact, topic_fact
from tests.compliance.planted import BEGIN

HOUR = timedelta(hours=1)


def limiters(*rows, **more):
    return judge_limiters(facts(limiters=list(rows), **more))


def test_steps_are_as_fine_as_the_chart_can_hold():
    step_s = step_for(BEGIN, BEGIN + HOUR)
    assert step_s > 1
    assert 3600 / step_s <= MOST_STEPS
    assert step_for(BEGIN, BEGIN + timedelta(seconds=30)) == 1


def test_the_gravest_limits_are_charted_first():
    rows = [limiter_fact(name=f"t{number:02}") for number in range(20)]
    names = [subject.name for subject in charted(limiters(*rows, containment=[containment_fact(5.0, name="t19")]), [])]
    assert names == ["t19", *(f"t{number:02}" for number in range(CHARTS - 1))]


def test_the_gravest_of_each_level_is_charted_though_others_are_graver():
    rows = [*(limiter_fact(name=f"t{number:02}") for number in range(20)), limiter_fact(level="role", throttled_s=0.0)]
    levels = [subject.level for subject in charted(limiters(*rows), [])]
    assert levels == [*["topic"] * (CHARTS - 1), "role"]


def test_a_long_time_is_shown_close_up_around_its_worst_moment():
    row = limiter_fact(last=BEGIN + HOUR)
    over = containment_fact(5.0, end=BEGIN + HOUR / 2)
    whole, close = charted(limiters(row, containment=[over]), [])
    assert (whole.step_s, close.step_s) == (15, 1) or whole.step_s > close.step_s == 1
    assert close.first < over.end < close.last


def test_the_worst_moment_of_a_shortfall_is_its_own():
    short = entitlement_fact(5.0, end=BEGIN + HOUR / 4)
    rows = limiters(limiter_fact(last=BEGIN + HOUR), containment=[containment_fact(-5.0)], entitlement=[short])
    _, close = charted(rows, [])
    assert close.first < short.end < close.last


def test_without_limits_the_busiest_topics_are_charted():
    topics = [topic_fact(topic=f"t{number}", passed_messages=number) for number in range(20)]
    subjects = charted(limiters(limiter_fact(was_limited=False)), topics)
    assert [subject.name for subject in subjects] == [f"t{number}" for number in range(19, 19 - CHARTS, -1)]
    assert {subject.proxy_id for subject in subjects} == {""}


def test_limits_that_cannot_be_shared_or_held_none_are_left_out():
    rows = limiters(
        limiter_fact(level="namespace", throttled_s=1.0),
        limiter_fact(level="producer"),
        limiter_fact(level="resource_group", throttled_s=3.0),
        limiter_fact(level="tenant", throttled_s=0.0),
        limiter_fact(level="topic", throttled_s=9.0),
    )
    assert [limiter.level for limiter in shared_limits(rows)] == ["topic", "resource_group", "namespace"]


def test_a_clock_that_was_decades_off_makes_no_chart_of_as_many_days():
    first = BEGIN.replace(year=1970)
    step_s = step_for(first, BEGIN)
    assert step_s % 86400 == 0
    assert (BEGIN - first).total_seconds() / step_s <= MOST_STEPS


def test_nothing_is_shown_behind_the_last_of_all_days():
    last = BEGIN.replace(year=9999, month=12, day=31, hour=23, minute=59)
    row = limiter_fact(first=last - HOUR, last=last)
    _, close = charted(limiters(row, containment=[containment_fact(5.0, end=last)]), [])
    assert close.last == last
