"""Changes of limits beside the lines of streams."""

from types import SimpleNamespace
from typing import Any

import pytest

from compliance.judging.changes import Changed
from compliance.judging.lines import RunNotes


@pytest.mark.parametrize(
    ("begin_us", "end_us", "is_in_it"),
    [(50, 150, True), (50, 100, True), (50, 99, True), (50, 98, False), (100, 150, False), (0, 0, False)],
)
def test_a_line_has_the_changes_up_to_its_end(begin_us: int, end_us: int, *, is_in_it: bool) -> None:
    line: Any = SimpleNamespace(at_us=(begin_us, end_us))
    assert RunNotes(changed=[Changed(7, 100)]).has_change(line) is is_in_it
