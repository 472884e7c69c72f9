"""How a broker writes values."""

import pytest

from proxy.importing.keys import INT_MOST, BrokerKey, one_line, read_flag, read_number, read_period, shown


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("-1", 0), ("-0", 0), ("+7", 7), ("007", 7), (str(INT_MOST), INT_MOST)]
)
def test_a_number_limits_or_is_0(text: str, number: int) -> None:
    assert read_number(text, INT_MOST) == number


@pytest.mark.parametrize("text", ["", "1.5", "1_000", "ten", "10MB", "0x10", "٣", "1 0", "--1", "9" * 5000])
def test_what_is_no_whole_number_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(ValueError, match="not a whole number; write 0 for no limit"):
        read_number(text, INT_MOST)


@pytest.mark.parametrize("text", ["-2", "-500"])
def test_only_one_negative_number_means_something(text: str) -> None:
    with pytest.raises(ValueError, match=r"-1 \(no limit\) is the only negative number allowed"):
        read_number(text, INT_MOST)


def test_what_pulsar_could_not_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="no more than 2147483647"):
        read_number("2147483648", INT_MOST)


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "1.5", "2147483648"])
def test_a_period_is_a_second_at_least(text: str) -> None:
    with pytest.raises(ValueError, match="whole seconds, 1 at least"):
        read_period(text)


def test_a_period_is_in_seconds() -> None:
    assert [read_period("1"), read_period("30")] == [1, 30]


def test_flags_are_true_or_false_in_any_case() -> None:
    assert [read_flag(text) for text in ("true", "TRUE", "false", "False")] == [True, True, False, False]


@pytest.mark.parametrize("text", ["yes", "1", "on", "", "truee"])
def test_what_pulsar_would_take_for_false_silently_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither true nor false"):
        read_flag(text)


def test_only_what_java_calls_white_space_is_taken_off() -> None:
    assert BrokerKey("a", " \t\x001 \n", "here").plain == "1"
    assert BrokerKey("a", "\xa01", "here").plain == "\xa01"


def test_values_are_shown_in_one_line_of_bounded_length() -> None:
    assert BrokerKey("a", "x\ny ", "broker.conf:3").shown_with_place == r"broker.conf:3: a='x\ny'"
    assert len(shown("x" * 1000)) == 101


def test_names_are_told_whole() -> None:
    assert [one_line(name) for name in ("x" * 1000, "a b", "a\nb")] == ["x" * 1000, "a b", r"'a\nb'"]
