from typing import Any

import pytest

from compliance.stream.options import Job, Sink, Source
from compliance.stream.places import numbered
from compliance.stream.sources import lines

pytestmark = pytest.mark.spark


def test_lines_are_numbered_as_an_editor_does_though_files_are_cut_into_blocks(spark, tmp_path):
    texts = {name: [f"{name}-{number}" for number in range(1, 400)] for name in ("a.jsonl", "b.jsonl")}
    texts["a.jsonl"][100:110] = [""] * 10
    for name, text in texts.items():
        (tmp_path / name).write_text("\n".join(text) + ("\n" if name == "a.jsonl" else ""))
    spark.conf.set("spark.sql.files.maxPartitionBytes", "777")
    try:
        found, blocks = read_by_stream(spark, tmp_path)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert blocks > 4
    assert sorted(found) == sorted(
        (name, number, one) for name, all_ in texts.items() for number, one in enumerate(all_, 1)
    )


def read_by_stream(spark, folder):
    found: list[Any] = []

    def keep(batch, _):
        found.extend(map(tuple, numbered(batch).select("file", "line", "value").collect()))
        found.append(batch.select("file", "block").distinct().count())

    stream = lines(spark, Job(Source("files", str(folder)), Sink(), "out"))
    checkpoint = str(folder / "_checkpoint")
    query = stream.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
    assert query.trigger(availableNow=True).start().awaitTermination(120)
    return found[:-1], found[-1]


def test_lines_that_have_a_number_keep_it(spark):
    frame = spark.createDataFrame([("v", "topic/0", 41)], "value string, file string, line long")
    assert [tuple(row) for row in numbered(frame).collect()] == [("v", "topic/0", 41)]
