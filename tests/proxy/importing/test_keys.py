"""The tables of keys."""

import pytest

from proxy.config.model import Config
from proxy.importing.keys import DEFAULTS, IMPORTED, NUMBERS, WITHOUT_MEANING, why_left


def test_no_key_is_both_imported_and_without_meaning() -> None:
    assert IMPORTED.isdisjoint(WITHOUT_MEANING)


def test_no_two_keys_become_the_same() -> None:
    paths = [number.path for number in NUMBERS.values()]
    assert len(set(paths)) == len(paths)


def test_each_imported_key_has_a_default() -> None:
    assert set(DEFAULTS) >= IMPORTED
    assert set(DEFAULTS) - IMPORTED <= set(WITHOUT_MEANING)


@pytest.mark.parametrize("key", sorted(NUMBERS))
def test_what_a_number_becomes_is_a_key_of_the_configuration(key: str) -> None:
    number = NUMBERS[key]
    value: object = f"7{number.unit}"
    for part in reversed(number.path):
        value = {part: value}
    Config.model_validate(value)


@pytest.mark.parametrize("key", sorted(WITHOUT_MEANING))
def test_each_key_without_meaning_has_a_reason(key: str) -> None:
    assert why_left(key) == WITHOUT_MEANING[key] != ""


@pytest.mark.parametrize("key", ["newThrottlingOfTomorrow", "maxPublishRatePerTenantInMsg", "someRateLimitEnabled"])
def test_a_key_that_sounds_like_a_limit_is_not_passed_over(key: str) -> None:
    assert "does not know it" in str(why_left(key))


@pytest.mark.parametrize("key", ["clusterName", "exposeTopicLevelMetricsInPrometheus", "tokenSecretKey", ""])
def test_other_keys_are_not_about_limits(key: str) -> None:
    assert why_left(key) is None
