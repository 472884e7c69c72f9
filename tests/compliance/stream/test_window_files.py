import pyarrow as pa
import pytest

from compliance.stream.partition_reader import encoded
from compliance.stream.run import put_together
from compliance.stream.windows import TABLES, published, table_of, windows_of
from tests.compliance.arrow import lines_of
from tests.compliance.planted import BEGIN, planted

BEGIN_S = int(BEGIN.timestamp())


def lines_for(table, log):
    lines = lines_of(log)
    return lines.filter(pa.compute.equal(lines["kind"], table.kind)).select(table.fields)


def read(days, table):
    schema = published(table.schema.empty_table(), table, is_final=True).drop_columns("day").schema
    return table_of([content for _, content in days], schema).to_pylist()


def seconds_of(rows):
    return sorted(int(row["start"].timestamp()) - BEGIN_S for row in rows if row["width_s"] == 1)


@pytest.mark.parametrize("table", TABLES)
def test_windows_of_all_parts_and_of_batches_before_are_closed_at_the_watermark(table):
    lines = lines_for(table, planted("w", 9))
    first, second, third = (windows_of(lines.slice(at, 3), table) for at in (0, 3, 6))
    made = put_together(table, first, [encoded(second), encoded(third)], (0, BEGIN_S + 8))
    assert seconds_of(read(made.closed_days, table)) == list(range(8))
    assert {row["is_final"] for row in read(made.closed_days, table)} == {True}
    assert seconds_of(read(made.open_days, table)) == [8]
    assert made.late == {}
    tens = [row for row in read(made.open_days, table) if row["width_s"] == 10]
    assert [(row["lines"], row["is_final"]) for row in tens] == [(9, False)]
    later = put_together(table, made.open, [encoded(third)], (BEGIN_S + 8, BEGIN_S + 10))
    assert later.late == {"1": 2}
    assert seconds_of(read(later.closed_days, table)) == [8]
    assert [row["lines"] for row in read(later.closed_days, table) if row["width_s"] == 10] == [12]


def test_files_are_of_one_day_each():
    log = planted("w", 3)
    log.begin = log.begin.replace(day=22)
    log.tick(1)
    (table, _) = TABLES
    made = put_together(table, table.schema.empty_table(), [encoded(windows_of(lines_for(table, log), table))], (0, 0))
    assert {str(day): len(read([(day, content)], table)) for day, content in made.open_days} == {
        "2026-11-21": 7,
        "2026-11-22": 5,
    }
    assert made.closed_days == []
