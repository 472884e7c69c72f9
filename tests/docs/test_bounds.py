"""The tables of `docs/bounds.md` name what is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.split(" | ")]
    for line in (ROOT / "docs/bounds.md").read_text().splitlines()
    if re.match(r"\| `(proxy|limiter|protocol|fleet)/", line)
]
METRICS = (ROOT / "proxy/admin/metrics.py").read_text()


def test_there_are_rows() -> None:
    assert len(ROWS) > 50
    assert all(len(row) == 5 for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_structure_and_its_test_are_there(row: list[str]) -> None:
    (path, *names), (test_path, *tests) = re.findall(r"`([^`]+)`", row[0]), re.findall(r"`([^`]+)`", row[4])
    source, tested = (ROOT / path).read_text(), (ROOT / test_path).read_text()
    for name in names:
        for part in name.split("."):
            assert re.search(rf"\b{re.escape(part)}\b", source), f"{part} is not in {path}"
    for metric in re.findall(r"`(sluice_\w+)`", row[3]):
        assert f'"{metric.removesuffix("_total")}' in METRICS, f"{metric} is no metric"
    assert len(tests) <= 1
    for test in tests:
        assert f"def {test}(" in tested
