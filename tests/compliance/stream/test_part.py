import json
from datetime import timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from compliance.fault import LONGEST_QUARANTINED
from compliance.stream import part as module
from compliance.stream.adding import merged, windows_of
from compliance.stream.known import Known
from compliance.stream.parquet import table_of
from compliance.stream.part import Part
from compliance.stream.piece import FOUND, QUARANTINE, ROWS, WINDOWS, Found, decoded
from compliance.stream.seen import Seen
from compliance.stream.window_table import TABLES
from tests.compliance.arrow import lines_of, seen_of
from tests.compliance.planted import planted
from tests.compliance.test_fault import HEARTBEAT, changed

SCHEMA = pa.schema({"value": pa.binary(), "file": pa.string(), "block": pa.int64()})


class Read:
    """What came out of lines that come in batches."""

    def __init__(self, *batches, known=None, tables=TABLES):
        given = [
            pa.RecordBatch.from_pylist([{"value": line, "file": "f", "block": 0} for line in lines], SCHEMA)
            for lines in batches
        ]
        self.pieces = list(Part(3, known or Known(), tables).read(iter(given)))
        assert {piece.part for piece in self.pieces} == {3}
        assert self.pieces[-1].name == FOUND
        self.found = msgspec.msgpack.decode(self.pieces[-1].content, type=Found)

    def of(self, name):
        return [piece for piece in self.pieces if piece.name == name]

    def rows(self):
        """By day."""
        schema = (
            lines_of(planted("a")).schema.append(pa.field("file", pa.string())).append(pa.field("line", pa.int64()))
        )
        found: Any = {}
        for piece in self.of(ROWS):
            found.setdefault(piece.day, []).extend(table_of([piece.content], schema).to_pylist())
        return found

    def quarantined(self):
        return [json.loads(line) for piece in self.of(QUARANTINE) for line in piece.content.splitlines()]


def test_each_line_is_a_row_of_its_day_or_quarantined_with_its_place():
    lines = planted("a", 2).encoded()
    early = changed(HEARTBEAT, start="2026-11-21T01:29:00+02:00", end="2026-11-20T23:29:01Z", seq=7).encode()
    read = Read([lines[0], b"torn", *lines[1:]], [b"", early])
    days = read.rows()
    assert [(row["line"], row["seq"], row["file"]) for row in days["2026-11-21"]] == [
        *((line, seq, "f") for line, seq in ((1, 0), (5, 3), (3, 1), (6, 4), (4, 2), (7, 5)))
    ]
    assert [(row["line"], row["seq"]) for row in days["2026-11-20"]] == [(9, 7)]
    assert read.quarantined() == [
        {"file": "f", "line": 2, "text": "torn", "reason": "not exactly one complete JSON object"},
        {"file": "f", "line": 8, "text": "", "reason": "empty line"},
    ]
    assert (read.found.lines, read.found.malformed, read.found.rows) == (9, 2, 7)
    assert read.found.blocks == [(("f", 0), 9)]


def test_of_a_malformed_line_the_beginning_is_kept_as_text_whatever_it_is():
    longest = "\U0001f600" * (LONGEST_QUARANTINED + 1)
    kept = Read([b"\xff{}", longest.encode(), changed(HEARTBEAT, seq=-1).encode()]).quarantined()
    assert [(one["text"], one["reason"]) for one in kept] == [
        ("\ufffd{}", "not UTF-8 text"),
        (longest[:-1], "not exactly one complete JSON object"),
        (changed(HEARTBEAT, seq=-1), "impossible value: seq"),
    ]


def test_copies_are_left_out_of_rows_and_windows_but_are_read():
    lines = planted("a", 4).encoded()
    known = Known(seen_of(planted("a", 1)))
    read = Read(lines[:6], lines[4:] * 2, known=known)
    (rows,) = read.rows().values()
    assert sorted(row["seq"] for row in rows) == list(range(3, 12))
    assert (read.found.lines, read.found.copies, read.found.rows) == (22, 13, 9)
    assert read.found.seen == [(("a", "boot-1"), [(3, 11)])]
    assert [span.read for _, span in read.found.spans] == [22]
    for table in TABLES:
        own = decoded((piece.content for piece in read.of(WINDOWS + table.name)), table.schema)
        assert sum(row["lines"] for row in own.to_pylist() if row["width_s"] == 3600) == 3


def test_losses_that_proxies_declare_are_counted_once():
    log = planted("a", 1)
    log.loss("boot-0", 5)
    log.loss("boot-0", None)
    read = Read(log.encoded(), log.encoded())
    assert (read.found.losses, read.found.lost) == (2, 5)


@pytest.mark.parametrize("most", [1, 7, 10_000])
def test_how_much_is_handed_on_at_once_changes_nothing(monkeypatch, most):
    monkeypatch.setattr(module, "MOST_LINES", most)
    monkeypatch.setattr(module, "MOST_TEXT", most)
    log = planted("a", 30)
    log.begin += timedelta(hours=12, minutes=30, seconds=40)
    log.tick(5)
    lines = [*log.encoded(), b"torn"]
    read = Read(*(lines[at : at + 5] for at in range(0, len(lines), 5)))
    assert sorted(read.rows()) == ["2026-11-21", "2026-11-22"]
    assert sum(map(len, read.rows().values())) == read.found.rows == 93
    assert len(read.quarantined()) == 1
    all_lines = lines_of(log)
    for table in TABLES:
        own = decoded((piece.content for piece in read.of(WINDOWS + table.name)), table.schema)
        of_kind = all_lines.filter(pa.compute.equal(all_lines["kind"], table.kind)).select(table.fields)
        whole = windows_of(of_kind, table)
        order = [(name, "ascending") for name in table.window]
        assert merged(own, table).sort_by(order) == whole.sort_by(order)


def test_without_tables_of_windows_there_are_none():
    assert not [piece for piece in Read(planted("a", 1).encoded(), tables=()).pieces if piece.name.startswith(WINDOWS)]


def test_nothing_in_nothing_out():
    for read in (Read(), Read([])):
        assert [piece.name for piece in read.pieces] == [FOUND]
        assert (read.found.lines, read.found.blocks, read.found.seen, read.found.spans) == (0, [], [], [])


def test_runs_are_told_apart_in_one_batch():
    logs = [planted("a", 2), planted("b", 1), planted("a", 3, boot_id="boot-2")]
    mixed = [line for three in zip(*(log.encoded() + [b"x"] * 9 for log in logs), strict=False) for line in three]
    seen = {tuple(run): ranges for run, ranges in Read(mixed).found.seen}
    assert seen == {("a", "boot-1"): [(0, 5)], ("b", "boot-1"): [(0, 2)], ("a", "boot-2"): [(0, 8)]}
    assert Seen().union(*(seen_of(log) for log in logs)).there() == 18
