"""`docs/benchmarks.md` is legible in a terminal and on a page: its generators keep to 100 columns."""

from pathlib import Path

from bench.harness import WIDTH

PAGE = Path(__file__).parents[2] / "docs/benchmarks.md"


def test_no_line_is_wider_than_the_page() -> None:
    lines = PAGE.read_text().splitlines()
    assert [line for line in lines if len(line) > WIDTH and not line.startswith(("<!--", "|"))] == []
    assert sum(line.startswith("|") for line in lines) > 150
