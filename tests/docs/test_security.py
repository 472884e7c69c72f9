"""Each line of the threat model says what bounds a threat, and names a test that there is."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "docs/security.md").read_text().splitlines()
ROWS = [
    line
    for line, below in zip(LINES, [*LINES[1:], ""], strict=True)
    if line.startswith("| ") and not below.startswith("|---")
]
SIDES: tuple[str, ...] = (
    *("Anonymous clients", "prove who they are", "of a tenant", "Brokers", "topics of a fleet"),
    *(
        "same load balancer",
        "admin address",
        "access to files",
        "On the path",
        "stolen token or certificate",
        "Scrapers",
    ),
)


def test_every_side_has_rows() -> None:
    headings = [number for number, line in enumerate(LINES) if line.startswith("## ")]
    sections = [LINES[begin:end] for begin, end in zip(headings, [*headings[1:], len(LINES)], strict=True)]
    assert [side in section[0] for side, section in zip(SIDES, sections, strict=True)] == [True] * len(SIDES)
    assert all(len(set(section).intersection(ROWS)) >= 3 for section in sections)


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_each_row_says_what_bounds_it_and_names_a_test_that_there_is(row: str) -> None:
    threat, bound, _remains, test = (cell.strip() for cell in row.strip("|").split(" | "))
    assert threat
    assert bound
    match = re.fullmatch(r"`(tests/[^`]+\.py)` `(\w+)`", test)
    assert match, f"no test at the end of: {row}"
    assert f"def {match[2]}(" in (ROOT / match[1]).read_text()
