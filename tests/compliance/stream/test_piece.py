import msgspec
import pyarrow as pa

from compliance.stream.partition_reader import (
    FOUND,
    SPARK_SCHEMA,
    PartitionPiece,
    PartNumbers,
    decoded,
    encoded,
    pieces_of,
)
from compliance.stream.runs import Span

FOUND_OF_SIX = PartNumbers(
    lines=6,
    malformed=1,
    copies=2,
    losses=1,
    lost=7,
    blocks=[(("a.jsonl", 0), 6)],
    spans=[(("p", "b"), Span(0, 2**62, None, False, 0, 5))],
    seen=[(("p", "b"), [(0, 2**63 - 1)])],
)


def test_what_a_part_hands_on_is_what_the_driver_gets():
    pieces = [
        PartitionPiece(3, "rows", b"\x00\xff", "2026-11-21"),
        PartitionPiece(4, FOUND, msgspec.msgpack.encode(FOUND_OF_SIX)),
    ]
    batches = [piece.batch() for piece in pieces]
    assert pieces_of(pa.Table.from_batches(batches)) == pieces
    assert [f"{name} " for name in batches[0].schema.names] == [
        f"{field.split()[0]} " for field in SPARK_SCHEMA.split(", ")
    ]
    assert msgspec.msgpack.decode(pieces[1].content, type=PartNumbers) == FOUND_OF_SIX
    assert FOUND_OF_SIX.rows == 3


def test_tables_come_back_as_one():
    table = pa.table({"x": [1, 2], "y": [[1], None]})
    assert decoded([encoded(table), encoded(table.slice(0, 0)), encoded(table)], table.schema) == pa.concat_tables(
        [table, table]
    )
    assert decoded([], table.schema) == table.schema.empty_table()
