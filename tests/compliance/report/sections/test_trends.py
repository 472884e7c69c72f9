from typing import Any

import pytest

from compliance.figures.facts import HeadroomFacts
from compliance.report.sections.trends import days_until, headrooms, t_of_95
from tests.compliance.planted import BEGIN


def headroom(**more):
    values: dict[str, Any] = {
        "proxy_id": "p",
        "direction": "publish",
        "level": "topic",
        "name": "t",
        "steps": 100,
        "near_steps": 3,
    }
    peaks: dict[str, Any] = {
        "peak": 0.9,
        "peak_at": BEGIN,
        "typical": 0.5,
        "days": 10,
        "slope": 0.01,
        "slope_error": 0.002,
        "now": 0.8,
    }
    (row,) = headrooms([HeadroomFacts(**(values | peaks | more))])
    return row


def test_less_than_a_week_says_nothing_of_where_it_is_going():
    row = headroom(days=6)
    assert (row.outlook, row.per_day, row.days_left) == ("too little data", None, None)


def test_a_rise_has_a_date_and_an_interval():
    row = headroom()
    half = 2.31 * 0.002
    assert (row.outlook, row.days_left) == ("rising", pytest.approx(20))
    assert (row.per_day_low, row.per_day_high) == (pytest.approx(0.01 - half), pytest.approx(0.01 + half))
    assert (row.days_left_low, row.days_left_high) == (
        pytest.approx(0.2 / (0.01 + half)),
        pytest.approx(0.2 / (0.01 - half)),
    )


@pytest.mark.parametrize(
    ("more", "outlook"),
    [
        ({"slope_error": 0.02}, "no clear trend"),
        ({"slope": -0.01}, "falling"),
        ({"now": 1.02}, "at the limit"),
    ],
)
def test_no_date_is_given_where_there_is_no_clear_rise(more, outlook):
    row = headroom(**more)
    assert (row.outlook, row.days_left) == (outlook, None)


def test_what_is_farther_than_a_year_has_no_date():
    assert days_until(0.5, 0.001) is None
    assert days_until(0.5, 0.01) == 50
    assert days_until(1.2, 0.01) == 0


def test_students_t_falls_towards_the_normal_two():
    assert [t_of_95(freedom) for freedom in (1, 5, 20, 21, 500)] == [12.71, 2.57, 2.09, 2.05, 2.05]


def test_what_is_left_is_what_the_fullest_moment_left():
    assert headroom().left == pytest.approx(0.1)
    assert headroom(peak=1.4).left == 0
    assert (headroom().near_s, headroom().active_s) == (30, 1000)
