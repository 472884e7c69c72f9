"""The report knows each level that the limiter has."""

from compliance.figures.scopes import LEVEL_WORDS
from limiter.levels import LEVELS as LIMITED


def test_no_level_is_missing_in_reports() -> None:
    assert sorted(LEVEL_WORDS) == sorted(level.word for level in LIMITED)
