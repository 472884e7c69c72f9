from typing import Any

import pytest

from proxy.config.sources import Given, Sources, given_by_flags, laid_over

A_B = Given(("a", "b"), 1, "SLUICE_A__B")


@pytest.mark.parametrize(
    ("values", "merged"),
    [
        ({}, {"a": {"b": 1}}),
        ({"a": None}, {"a": {"b": 1}}),
        ({"a": {"b": 0, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 2}, "d": 3}),
        ({"a": "text"}, {"a": "text"}),
    ],
)
def test_a_value_is_laid_over_and_a_section_that_is_none_is_left_to_be_told(
    values: dict[str, Any], merged: dict[str, Any]
) -> None:
    before = repr(values)
    assert laid_over(values, [A_B]) == merged
    assert repr(values) == before


def test_flags_that_were_not_given_give_nothing() -> None:
    assert given_by_flags({"listen": None, "access_log": "d"}) == [Given(("access_log", "dir"), "d", "--access-log")]


@pytest.mark.parametrize(
    ("key", "source"),
    [
        (("a", "b"), "SLUICE_A__B"),
        (("a", "b", 0), "SLUICE_A__B"),
        (("a", "c"), "f"),
        (("a",), "f, SLUICE_A__B"),
        (("d",), "f"),
        (("no",), "f"),
    ],
)
def test_a_key_is_blamed_on_who_gave_it(key: tuple[Any, ...], source: str) -> None:
    assert Sources("f", {"a": {"c": 1}, "d": 2}, [A_B]).of(key) == source


def test_a_section_that_is_not_in_the_file_is_blamed_on_the_variable_alone() -> None:
    assert Sources("f", {}, [A_B]).of(("a",)) == "SLUICE_A__B"


def test_the_last_of_two_is_the_one_that_gave_it() -> None:
    assert Sources("f", {}, [A_B, Given(A_B.key, 2, "--b")]).of(("a", "b")) == "--b"
