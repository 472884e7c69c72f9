from datetime import timedelta

import pyarrow as pa

from compliance.stream.windows import TABLES, by_state, late_lines, published, windows_of
from tests.compliance.arrow import lines_of
from tests.compliance.planted import BEGIN, planted

TOPICS, LIMITERS = TABLES
BEGIN_S = int(BEGIN.timestamp())


def windows(table, seconds):
    lines = lines_of(planted("w", seconds))
    return windows_of(lines.filter(pa.compute.equal(lines["kind"], table.kind)).select(table.fields), table)


def seconds_of(found):
    return sorted(row["window_s"] - BEGIN_S for row in found.to_pylist() if row["width_s"] == 1)


def test_a_window_is_closed_when_the_watermark_is_at_its_end():
    found = by_state(windows(TOPICS, 4), (BEGIN_S + 1, BEGIN_S + 3))
    assert [seconds_of(part) for part in (found.late, found.closed, found.open)] == [[0], [1, 2], [3]]
    assert sum(map(len, (found.late, found.closed, found.open))) == len(windows(TOPICS, 4))


def test_late_lines_are_counted_by_width():
    found = by_state(windows(TOPICS, 25), (BEGIN_S + 12, BEGIN_S + 20))
    assert late_lines(found.late) == {"1": 12, "10": 10}
    assert late_lines(found.late.slice(0, 0)) == {}


def test_readers_get_times_values_and_the_day():
    tens = windows(LIMITERS, 1).filter(pa.compute.field("width_s") == 10)
    (row,) = published(tens, LIMITERS, is_final=True).to_pylist()
    assert (row["start"], row["end"]) == (BEGIN, BEGIN + timedelta(seconds=10))
    assert (row["as_of"], str(row["day"])) == (BEGIN + timedelta(seconds=1), "2026-11-21")
    assert (row["level"], row["limit_messages"], row["passed_messages"], row["is_final"]) == ("topic", 100.0, 110, True)


def test_what_is_open_is_not_final_and_a_window_is_of_the_day_on_which_it_begins():
    log = planted("w")
    log.begin = log.begin.replace(hour=23, minute=59, second=59)
    log.interval(1)
    told = published(windows_of(lines_of(log).select(TOPICS.fields), TOPICS), TOPICS, is_final=False).to_pylist()
    (second,) = (row for row in told if row["width_s"] == 1)
    assert (str(second["day"]), str(second["end"].date()), second["is_final"]) == ("2026-11-21", "2026-11-22", False)
