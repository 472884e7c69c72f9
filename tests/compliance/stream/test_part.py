import gzip
import json
from datetime import timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from compliance.schema import LONGEST_QUARANTINED
from compliance.stream import partition_reader as module
from compliance.stream.partition_reader import (
    FOUND,
    QUARANTINE,
    ROWS,
    WINDOWS,
    KnownBatch,
    PartNumbers,
    PartReader,
    decoded,
)
from compliance.stream.runs import Seen
from compliance.stream.windows import TABLES, merged, table_of, windows_of
from tests.compliance.arrow import lines_of, seen_of
from tests.compliance.planted import planted
from tests.compliance.test_fault import HEARTBEAT, changed

SCHEMA = pa.schema({"value": pa.binary(), "file": pa.string(), "block": pa.int64()})


class Read:
    """What came out of lines that come in batches."""

    schema = lines_of(planted("a")).schema.append(pa.field("file", pa.string())).append(pa.field("line", pa.int64()))

    def __init__(self, *batches, known=None, tables=TABLES):
        given = [
            pa.RecordBatch.from_pylist([{"value": line, "file": "f", "block": 0} for line in lines], SCHEMA)
            for lines in batches
        ]
        self.pieces = list(PartReader(3, known or KnownBatch(), tables).read(iter(given)))
        assert {piece.part for piece in self.pieces} == {3}
        assert self.pieces[-1].name == FOUND
        self.found = msgspec.msgpack.decode(self.pieces[-1].content, type=PartNumbers)

    def of(self, name):
        return [piece for piece in self.pieces if piece.name == name]

    def rows(self):
        """By day."""
        found: Any = {}
        for piece in self.of(ROWS):
            found.setdefault(piece.day, []).extend(table_of([piece.content], self.schema).to_pylist())
        return found

    def quarantined(self):
        return [
            json.loads(line) for piece in self.of(QUARANTINE) for line in gzip.decompress(piece.content).splitlines()
        ]


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
    known = KnownBatch(seen_of(planted("a", 1)))
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
        order = [(name, "ascending") for name in ("width_s", "window_s", *table.key)]
        assert merged(own, table).sort_by(order) == whole.sort_by(order)


def test_so_many_lines_are_handed_on_at_a_time_and_so_much_of_what_is_malformed(monkeypatch):
    monkeypatch.setattr(module, "MOST_LINES", 6)
    monkeypatch.setattr(module, "MOST_TEXT", 200)
    lines = planted("a", 6).encoded()
    good = Read(*(lines[at : at + 3] for at in range(0, 18, 3)))
    assert [len(table_of([piece.content], good.schema)) for piece in good.of(ROWS)] == [6, 6, 6]
    bad = Read(*[[b"torn" * 10]] * 6)
    assert [gzip.decompress(piece.content).count(b"torn" * 10) for piece in bad.of(QUARANTINE)] == [2, 2, 2]


def test_what_is_known_of_other_parts_is_heeded():
    log = planted("a", 4)
    known = KnownBatch(parts={2: seen_of(planted("a", 1)), 3: seen_of(log), 4: seen_of(log)}, above={("f", 0): 100})
    (rows,) = Read(log.encoded(), known=known).rows().values()
    assert sorted((row["seq"], row["line"]) for row in rows) == [(seq, 101 + seq) for seq in range(3, 12)]


def test_a_row_is_of_the_day_on_which_it_starts():
    log = planted("a")
    log.begin = log.begin.replace(hour=23, minute=59, second=59)
    log.interval(1)
    assert list(Read(log.encoded()).rows()) == ["2026-11-21"]


def test_of_a_long_line_of_ascii_so_many_characters_are_kept():
    (kept,) = Read([b"x" * (LONGEST_QUARANTINED + 1)]).quarantined()
    assert len(kept["text"]) == LONGEST_QUARANTINED


def test_files_have_the_names_that_they_have_and_topics_theirs():
    line, names = planted("a", 1).encoded()[0], {"a%20b%2520%C3%BC.jsonl": "a b%20ü.jsonl"}
    for told, name in names.items():
        block = pa.record_batch([[line], [told], [0]], schema=SCHEMA)
        offset = pa.record_batch([block["value"], block["file"], block["block"]], names=["value", "file", "line"])
        for batch, expected in ((block, name), (offset, told)):
            (rows, _) = PartReader(0, KnownBatch(), ()).read(iter([batch]))
            assert table_of([rows.content], Read.schema)["file"].to_pylist() == [expected]


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
