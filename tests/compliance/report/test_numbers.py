import pytest

from compliance.report.subjects import numbered, percent, quantity, span, whole, window


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (512.4, "512"), (999.6, "1k"), (1500, "1.5k"), (2e7, "20M"), (0.5, "0.5")]
)
def test_quantities_have_three_figures(value, text):
    assert quantity(value) == text


def test_what_is_not_whole_is_never_shown_as_whole():
    assert percent(1.0) == "100 %"
    assert percent(0.999999) == "99.99 %"
    assert (percent(1.5), percent(1000)) == ("150 %", "100\u202f000 %")


def test_counts_and_spans_are_readable():
    assert whole(1234567) == "1\u202f234\u202f567"
    assert [span(1.0), span(600), span(86400)] == ["1 s", "10 min", "24 h"]


def test_a_chosen_length_of_time_is_told_as_it_was_chosen():
    assert [window(length) for length in (3 * 86400, 6 * 3600, 3600, 300, 90)] == ["3 d", "6 h", "1 h", "5 min", "90 s"]


def test_one_is_not_many():
    assert (numbered(1, "limit"), numbered(0, "limit"), numbered(2, "limit")) == ("1 limit", "0 limits", "2 limits")
