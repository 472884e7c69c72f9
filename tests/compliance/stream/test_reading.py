"""A batch through real Spark tasks: several of them, files cut into blocks, copies among them."""

import gzip
from typing import Any

import pytest

from compliance.stream.options import Job, Sink, Source, lines
from compliance.stream.partition_reader import QUARANTINE, ROWS, SourceChangedError, above_each, read
from compliance.stream.runs import Seen
from compliance.stream.windows import table_of
from tests.compliance.arrow import lines_of
from tests.compliance.planted import planted, write_file
from tests.compliance.stream.recount import Recount

pytestmark = pytest.mark.spark
ROW = lines_of(planted("a")).schema


def through_stream(spark, folder, tables=()):
    """What a stream's batch gives, as the job reads it."""
    found: list[Any] = []

    def keep(batch, _):
        found.append(read(batch, Seen(), tables))

    checkpoint = str(folder / "_checkpoint")
    job = Job(Source("files", str(folder)), Sink(), str(folder.parent / f"{folder.name}-out"))
    job.look()
    stream = lines(spark, job).writeStream.foreachBatch(keep)
    query = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    (batch,) = found
    return batch


def rows_of(batch):
    schema = ROW.append(ROW.field("topic").with_name("file")).append(ROW.field("seq").with_name("line"))
    return table_of((piece.content for piece in batch.of(ROWS)), schema).to_pylist()


@pytest.fixture
def in_blocks(spark):
    spark.conf.set("spark.sql.files.maxPartitionBytes", "7777")
    yield
    spark.conf.unset("spark.sql.files.maxPartitionBytes")


@pytest.mark.usefixtures("in_blocks")
def test_lines_are_numbered_as_an_editor_does_though_files_are_cut_into_blocks(spark, tmp_path):
    for name in ("a", "b"):
        own = planted(name, 60).encoded()
        write_file(tmp_path, f"{name}.jsonl", [*own[:50], b"", b"torn", *own[50:]])
    (tmp_path / "b.jsonl").write_bytes((tmp_path / "b.jsonl").read_bytes().rstrip(b"\n"))
    batch = through_stream(spark, tmp_path)
    assert len(above_each(block for found in batch.parts.values() for block in found.blocks)) > 6
    expected = [("a.jsonl", seq, seq + 1 + 2 * (seq >= 50)) for seq in range(180)]
    expected += [("b.jsonl", seq, line) for _, seq, line in expected]
    assert sorted((row["file"], row["seq"], row["line"]) for row in rows_of(batch)) == expected
    quarantined = b"".join(gzip.decompress(piece.content) for piece in batch.of(QUARANTINE)).splitlines()
    assert sorted(line.partition(b',"text"')[0] for line in quarantined) == [
        b'{"file":"%s.jsonl","line":%d' % (name, line) for name in (b"a", b"b") for line in (51, 52)
    ]


@pytest.mark.usefixtures("in_blocks")
def test_a_line_that_several_tasks_read_is_kept_by_one(spark, tmp_path):
    own = planted("a", 60).encoded()
    for name, part in (("a", own[:120]), ("b", own[100:]), ("c", own[:180:7])):
        write_file(tmp_path, f"{name}.jsonl", part)
    batch = through_stream(spark, tmp_path)
    keys = sorted((row["proxy_id"], row["boot_id"], row["seq"]) for row in rows_of(batch))
    assert keys == sorted(Recount(tmp_path).keys)
    assert sum(found.copies for found in batch.parts.values()) == 20 + 26
    assert Seen().union(*batch.seen().values()).there() == 180


def test_a_source_that_changes_between_readings_is_an_error(spark, tmp_path):
    asked = tmp_path / "asked"

    def text(batches):
        # Not by a variable: each task may be in a process of its own.
        with asked.open("a") as file:
            file.write("x")
        extra = 10 if asked.stat().st_size > 2 else 0
        for batch in batches:
            yield batch.slice(0, min(batch.num_rows, 40 + extra))

    own = planted("a", 30).encoded()
    frame = spark.createDataFrame(
        [(bytearray(line), "f", 0) for line in own * 2], "value binary, file string, block long"
    )
    twice = frame.coalesce(1).repartition(2).mapInArrow(text, frame.schema)
    with pytest.raises(SourceChangedError):
        read(twice, Seen(), ())


def test_nothing_in_nothing_out(spark):
    frame = spark.createDataFrame([], "value string, file string, block long")
    batch = read(frame, Seen(), ())
    assert list(batch.of(ROWS)) == []
    assert sum(found.lines for found in batch.parts.values()) == 0
