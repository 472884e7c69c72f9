"""Usage of some rows by minute, without Spark: the same sums as by hand."""

from datetime import datetime

import pyarrow as pa

from compliance.line_reader import LineReader
from compliance.schema import MOST
from compliance.stream.minutes import by_minute
from tests.compliance.planted import BEGIN, planted

SECONDS = 130


def rows_of(log):
    return LineReader("a").read(b"".join(line + b"\n" for line in log.encoded()), 1).rows


def busy(**more):
    log = planted("p", begin=BEGIN)
    for second in range(SECONDS):
        histogram = [0, second % 3, 1, 0] if second % 2 else []
        log.interval(second, delay_hist=histogram, delay_max_ms=float(second % 50), limit_messages=1.0 + second, **more)
        log.limit(second)
        log.interval(1, direction="dispatch", limit_messages=None)
        log.beat()
    return log


def test_lines_of_a_minute_are_one_row_for_each_key():
    minutes = by_minute(rows_of(busy())).sort_by([("direction", "descending"), ("start", "ascending")]).to_pylist()
    seconds = [range(60), range(60, 120), range(120, SECONDS)]
    assert [row["passed_messages"] for row in minutes] == [*map(sum, seconds), *map(len, seconds)]
    assert [row["lines"] for row in minutes] == [*map(len, seconds)] * 2
    assert [row["delay_max_ms"] for row in minutes[:3]] == [49.0, 49.0, 29.0]
    waits = [[0, sum(second % 3 for second in own if second % 2), len(own) // 2] for own in seconds]
    assert [row["delay_hist"] for row in minutes] == [*waits, [], [], []]
    assert [row["limit_messages"] for row in minutes] == [60.0, 120.0, 130.0, None, None, None]
    for row, own in zip(minutes, seconds, strict=False):
        assert (row["start"], row["as_of"]) == (at(own[0] // 60 * 60), at(own[-1] + 1))


def at(second) -> datetime:
    return BEGIN.replace(minute=BEGIN.minute + second // 60, second=second % 60)


def test_rows_without_streams_have_no_usage():
    log = planted("p")
    log.beat()
    assert by_minute(rows_of(log)).num_rows == 0


def test_sums_that_might_not_fit_are_left_to_spark():
    rows = rows_of(busy(offered_bytes=MOST))
    many = pa.concat_tables([rows] * 150)
    assert by_minute(rows).num_rows == 6
    assert by_minute(many).num_rows == 2 * SECONDS * 150
