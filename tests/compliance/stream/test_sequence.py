import pytest

from compliance.stream import sequence

pytestmark = pytest.mark.spark
SCHEMA = "proxy_id string, boot_id string, from_seq long, to_seq long"


def rows(spark, *numbers):
    return spark.createDataFrame(
        [("p", "b", number) for number in numbers or (0,)], "proxy_id string, boot_id string, seq long"
    )


def seen(spark, *pairs):
    return spark.createDataFrame([("p", "b", *pair) for pair in pairs], SCHEMA)


def pairs(frame):
    return sorted((row.from_seq, row.to_seq) for row in frame.collect())


@pytest.mark.parametrize("tasks", [1, 3])
def test_numbers_become_ranges_in_any_order_whoever_reads_them(spark, tasks):
    found = sequence.ranges(rows(spark, 3, 1, 2, 2, 7, 2**40 - 1, 2**40, 2**40 + 1).repartition(tasks))
    assert pairs(found) == [(1, 3), (7, 7), (2**40 - 1, 2**40 + 1)]
    assert sequence.counted(found) == (7, 2**40 + 2 - 7)


def test_runs_are_told_apart(spark):
    other = spark.createDataFrame([("p", "c", 2)], "proxy_id string, boot_id string, seq long")
    ranges = sequence.ranges(rows(spark, 0, 1, 3).unionByName(other))
    assert sorted(map(tuple, sequence.per_run(ranges).collect())) == [("p", "b", 3, 1), ("p", "c", 1, 2)]


def test_ranges_that_overlap_touch_or_lie_in_each_other_become_one(spark):
    found = sequence.merged(seen(spark, (0, 10), (2, 3), (5, 12), (13, 14), (16, 17)))
    assert pairs(found) == [(0, 14), (16, 17)]


def test_what_was_seen_and_what_is_twice_is_left_out(spark):
    found = sequence.unseen(rows(spark, 1, 2, 2, 3, 9, 10), seen(spark, (2, 2), (9, 20)))
    assert sorted(row.seq for row in found.collect()) == [1, 3]


def test_gaps_are_what_is_missing_below_the_largest(spark):
    found = sequence.gaps(seen(spark, (2, 4), (6, 6), (10, 10)))
    assert sorted((row.after_seq, row.missing) for row in found.collect()) == [(-1, 2), (4, 1), (6, 3)]


def test_nothing_has_no_length(spark):
    assert sequence.counted(sequence.ranges(rows(spark).limit(0))) == (0, 0)
