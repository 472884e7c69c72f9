"""The report knows each level that the limiter has."""

from compliance.figures.rates import LEVELS
from limiter.levels import LEVELS as LIMITED


def test_no_level_is_missing_in_reports() -> None:
    assert sorted(LEVELS) == sorted(level.word for level in LIMITED)
