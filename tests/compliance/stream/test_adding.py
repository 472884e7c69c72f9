from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from compliance.stream.windows import TABLES, WIDTHS_S, merged, windows_of
from tests.compliance.arrow import lines_of
from tests.compliance.planted import BEGIN, PlantedLog, planted

TOPICS, LIMITERS = TABLES
BEGIN_S = int(BEGIN.timestamp())


def of_kind(log, kind):
    lines = lines_of(log)
    return lines.filter(pa.compute.equal(lines["kind"], kind))


def windows(log, table, only=lambda place: True):
    lines = of_kind(log, table.kind).select(table.fields)
    return windows_of(lines.take([place for place in range(len(lines)) if only(place)]), table)


def sums(found):
    return {
        (row["width_s"], row["window_s"] - BEGIN_S): (row["lines"], row["passed_messages"]) for row in found.to_pylist()
    }


def by_key(found, table):
    made = {tuple(row[name] for name in ("width_s", "window_s", *table.key)): row for row in found.to_pylist()}
    assert len(made) == len(found), "a window is there twice"
    return made


def test_windows_of_all_widths_hold_what_starts_in_them():
    found = sums(windows(planted("w", 12), TOPICS))
    assert {second: found[1, second] for second in (0, 1, 11)} == {0: (1, 110), 1: (1, 100), 11: (1, 100)}
    assert (found[10, 0], found[10, 10], found[60, 0]) == ((10, 1010), (2, 200), (12, 1210))
    # 11:29 is in the five minutes from 11:25 and in the hour from 11:00.
    assert (found[300, -240], found[3600, -1740]) == ((12, 1210), (12, 1210))


def test_windows_begin_at_multiples_of_their_length_before_1970_too():
    log = PlantedLog()
    log.begin = datetime(1969, 12, 31, 23, 59, 58, 500_000, tzinfo=UTC)
    log.interval(3)
    begins = {row["width_s"]: row["window_s"] for row in windows(log, TOPICS).to_pylist()}
    assert begins == {1: -2, 10: -10, 60: -60, 300: -300, 3600: -3600}


def test_nothing_in_nothing_out():
    none = of_kind(planted("w", 1), "interval").select(TOPICS.fields).slice(0, 0)
    assert windows_of(none, TOPICS).num_rows == 0
    assert merged(windows_of(none, TOPICS), TOPICS).schema == TOPICS.schema


@settings(deadline=None)
@given(part=st.lists(st.integers(0, 2), min_size=20, max_size=20), shuffle=st.randoms())
def test_windows_of_batches_are_those_of_all_together(part, shuffle):
    log = planted("w", 20)
    parts = [windows(log, LIMITERS, lambda place, one=one: part[place] == one) for one in set(part)]
    shuffle.shuffle(parts)
    together = merged(pa.concat_tables(parts), LIMITERS)
    assert by_key(together, LIMITERS) == by_key(windows(log, LIMITERS), LIMITERS)


def test_the_limit_is_that_of_the_line_that_ends_last_whatever_comes_first():
    log = PlantedLog()
    log.limit(1, rate=50.0, end=BEGIN + timedelta(milliseconds=900))
    log.limit(1, rate=20.0, end=BEGIN + timedelta(milliseconds=400))
    for order in ([0, 1], [1, 0]):
        lines = of_kind(log, "limit").select(LIMITERS.fields).take(order)
        rows = windows_of(lines, LIMITERS).to_pylist()
        assert {row["limit_messages"] for row in rows} == {50.0}
        assert {row["as_of"] for row in rows} == {BEGIN + timedelta(milliseconds=900)}


def test_of_lines_that_end_at_once_a_limit_comes_before_none_in_any_order():
    log = PlantedLog()
    for rate in (50.0, 20.0):
        log.limit(1, rate=rate, end=BEGIN + timedelta(seconds=1))
    none = of_kind(log, "limit").select(LIMITERS.fields)
    unlimited = none.set_column(
        none.schema.get_field_index("limit_messages"), "limit_messages", pa.array([None, 20.0], pa.float64())
    )
    for order in ([0, 1], [1, 0]):
        assert {row["limit_messages"] for row in windows_of(none.take(order), LIMITERS).to_pylist()} == {50.0}
        assert {row["limit_messages"] for row in windows_of(unlimited.take(order), LIMITERS).to_pylist()} == {20.0}


HISTOGRAMS = st.lists(st.lists(st.integers(0, 9), max_size=5).map(lambda hist: (*hist, 1)), max_size=4)


@settings(deadline=None)
@given(histograms=HISTOGRAMS)
def test_histograms_are_added_place_by_place(histograms):
    log = PlantedLog()
    log.interval(1)
    for hist in histograms:
        log.interval(1, delay_hist=hist, delay_sum_ms=2.0)
    expected = Counter[int]()
    for hist in histograms:
        expected.update(dict(enumerate(hist)))
    rows = windows(log, TOPICS).to_pylist()
    hour = [row for row in rows if row["width_s"] == WIDTHS_S[-1]]
    assert sum(sum(row["delay_hist"]) for row in hour) == sum(expected.values())
    together = merged(pa.Table.from_pylist(hour, TOPICS.schema), TOPICS).to_pylist()
    assert [row["delay_hist"] for row in together] == [[expected[at] for at in range(max(expected, default=-1) + 1)]]
    assert [row["delay_sum_ms"] for row in together] == [2.0 * len(histograms)]


def test_windows_of_other_keys_are_others_whatever_stands_beside_them():
    """Values that are the same in one column and not in another, in an order that mixes all of them."""
    logs = [planted("w", 3, boot_id=name) for name in "ab"]
    for log, tenant in zip(logs, ("acme", "zeta"), strict=True):
        log.lines = [msgspec.structs.replace(line, tenant=tenant) for line in log.lines if hasattr(line, "tenant")]
    logs[1].lines = [msgspec.structs.replace(line, direction="dispatch") for line in logs[1].lines] + logs[1].lines
    lines = lines_of(*logs).filter(pa.compute.equal(lines_of(*logs)["kind"], "interval")).select(TOPICS.fields)
    mixed = lines.take([at * 5 % len(lines) for at in range(len(lines))])
    for found in (windows_of(mixed, TOPICS), merged(windows_of(mixed, TOPICS), TOPICS)):
        ones = sorted(
            (row["tenant"], row["direction"], row["window_s"] - BEGIN_S, row["lines"])
            for row in found.to_pylist()
            if row["width_s"] == 1
        )
        assert ones == sorted(
            (*whose, second, 1)
            for whose in (("acme", "publish"), ("zeta", "publish"), ("zeta", "dispatch"))
            for second in range(3)
        )


def test_the_largest_is_kept_and_none_where_no_line_has_one():
    log = PlantedLog()
    for largest in (3, 7, 5):
        log.limit(1, largest_entry_messages=largest, largest_entry_bytes=0)
    (hour,) = (row for row in windows(log, LIMITERS).to_pylist() if row["width_s"] == WIDTHS_S[-1])
    assert (hour["largest_entry_messages"], hour["largest_entry_bytes"]) == (7, 0)
    lines = of_kind(log, "limit").select(LIMITERS.fields)
    at = lines.schema.get_field_index("largest_entry_bytes")
    silent = lines.set_column(at, "largest_entry_bytes", pa.nulls(3, pa.int64()))
    assert {row["largest_entry_bytes"] for row in windows_of(silent, LIMITERS).to_pylist()} == {None}


def test_zeros_at_the_end_of_a_histogram_are_left_out():
    log = PlantedLog()
    log.interval(1, delay_hist=(0, 2, 0, 0), delay_sum_ms=2.0)
    assert {tuple(row["delay_hist"]) for row in windows(log, TOPICS).to_pylist()} == {(0, 2)}
