"""The table of `sluice explain`, in terminals of any width."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from proxy.cli.policy_tables import LevelRow, LevelTable, in_force

Part = tuple[float | None, float | None]
"""A rate, and the share that it is."""
COLUMNS = ("level", "value for", "limit", "from", "", "in force here")
CELLS = (
    ("tenant", "tenant free-*", "messages 100, burst_messages 200", "file, plan free", "▶ holds", "50/s (50.0%)"),
    ("partitioned_topic", "", "", "", "", ""),
    ("topic", "topic_of_namespace free-*/web", "messages 40", "file", "hidden by topic", ""),
    ("resource_group", "", "not attached to any", "", "", ""),
)
TABLE = LevelTable("publish", COLUMNS, [LevelRow(level, tuple(map(Text, cells)), "") for level, *cells in CELLS])


def drawn(width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(TABLE)
    return out.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_word_is_broken(width: int) -> None:
    text = drawn(width)
    assert max(map(len, text.splitlines())) <= width
    shown = [word.strip("()") for word in text.replace("│", " ").split()]
    for cells in CELLS:
        for word in " ".join(cells).split():
            assert word.strip("()") in shown, word


def test_wide_terminal_has_a_table_with_one_line_for_each_row() -> None:
    assert "│ topic             │ topic_of_namespace free-*/web │ messages 40 " in drawn(200)
    assert "│" not in drawn(60)


def test_name_that_fits_no_line_is_folded() -> None:
    name = "n" * 100
    out = io.StringIO()
    table = LevelTable("publish", COLUMNS, [LevelRow("topic", tuple(map(Text, (name, "", "", "", ""))), "")])
    Console(file=out, width=60, color_system=None).print(table)
    assert out.getvalue().count("n") == 100


@pytest.mark.parametrize(
    ("messages", "size", "text"),
    [
        ((50.0, 0.5), (None, None), "50/s (50.0%)"),
        ((50.0, 0.5), (0.0, 0.0), "50/s (50.0%), 0 B/s (0.0%)"),
        ((0.0, 0.0), (None, None), "no share yet"),
        ((0.0, 0.0), (0.0, 0.0), "no share yet"),
        ((50.0, None), (None, None), ""),
    ],
)
def test_limit_without_a_share_is_told_as_one(messages: Part, size: Part, text: str) -> None:
    rates = {"messages_per_s": messages[0], "bytes_per_s": size[0]}
    assert in_force({**rates, "share_messages": messages[1], "share_bytes": size[1]}) == text
