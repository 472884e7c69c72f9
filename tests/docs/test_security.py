"""Each line of the threat model names a test that there is."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/security.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| who | ")]


def test_there_are_rows() -> None:
    assert len(ROWS) > 15


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_each_row_names_a_test_that_there_is(row: str) -> None:
    found = re.search(r"`(tests/[^`]+\.py)` `(\w+)` \|$", row)
    assert found, f"no test at the end of: {row}"
    assert f"def {found[2]}(" in (ROOT / found[1]).read_text()
