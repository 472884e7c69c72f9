"""Measured figures of `docs/sizing.md` are those of `docs/benchmarks.md`, which a benchmark writes."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = (ROOT / "docs/benchmarks.md").read_text()
TABLE = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (ROOT / "docs/sizing.md").read_text().partition("## In one table")[2].splitlines()
    if line.startswith("| ")
]
PLAIN, TLS = 1, 2
_APART = 0.25
"""Part by which a rounded figure may differ."""


def cell(row: str, column: int) -> tuple[float, float]:
    """Least and most of a row of the table."""
    (text,) = [each[column] for each in TABLE if re.sub(r"[*]", "", each[0]).endswith(row)]
    numbers = [float(number) for number in re.findall(r"[\d.]+", text)]
    return numbers[0], numbers[-1]


def sluices(title: str, row: str) -> float:
    """Sluice's median in a row of a table of the benchmarks."""
    table = BENCHMARKS.partition(f"**{title}**")[2].partition("\n**")[0]
    heads, line = (re.search(rf"^\| {first} *\|.*$", table, re.MULTILINE) for first in ("", row))
    assert heads, title
    assert line, title
    place = [each.strip() for each in heads[0].split("|")].index("Sluice")
    return float(line[0].split("|")[place].split()[0].replace(",", ""))


@pytest.mark.parametrize(
    ("row", "titles"),
    [
        ("of 100 B, full reads", ["SEND of 100 B, 1 connection", "SEND of 100 B, 100 connections"]),
        ("of 1 KiB, full reads", ["SEND of 1,024 B, 1 connection", "SEND of 1,024 B, 100 connections"]),
        ("of 16 KiB, full reads", ["SEND of 16,384 B, 1 connection", "SEND of 16,384 B, 100 connections"]),
        ("of 100 B, 8 in a write", ["60,000 SEND/s of 100 B over 20 connections, 8 in a write"]),
        (
            "of 100 B, 1 in a write, with receipts",
            ["10,000 SEND/s of 100 B over 20 connections, 1 in a write, with receipts"],
        ),
    ],
)
def test_cores_of_plain_messages_are_measured(row: str, titles: list[str]) -> None:
    cores = [sluices(title, "CPU s per million frames") / 10 for title in titles]
    least, most = cell(row, PLAIN)
    assert least == pytest.approx(min(cores), rel=_APART)
    assert most == pytest.approx(max(cores), rel=_APART)


@pytest.mark.parametrize(("row", "kinds"), [("1 KiB", ["SEND", "MESSAGE"]), ("16 KiB", ["SEND"])])
def test_cores_of_messages_by_tls_are_measured(row: str, kinds: list[str]) -> None:
    size = {"1 KiB": "1,024", "16 KiB": "16,384"}[row]
    titles = [f"TLS on both legs: {kind} of {size} B, 1 connection" for kind in kinds]
    cores = [100_000 / sluices(title, "frames per CPU s") for title in titles]
    least, most = cell(f"of {row}, full reads", TLS)
    assert least == pytest.approx(min(cores), rel=_APART)
    assert most == pytest.approx(max(cores), rel=_APART)


def test_memory_of_a_connection_by_tls_is_measured() -> None:
    measured = sluices("TLS on both legs: 1,000 idle connections", "memory of a connection")
    assert cell("of an idle connection", TLS) == (measured, measured)
