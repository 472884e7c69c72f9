from typing import Any

import msgspec
import pyarrow as pa
import pytest

from compliance import storage
from compliance.stream import source as module
from compliance.stream.folder import load
from compliance.stream.ledger import FileFacts
from compliance.stream.log_file import JobPlaces, read_log_file
from compliance.stream.options import Job, JobError, Sink, Source, no_connector
from compliance.stream.source import (
    LINE_BYTES,
    FileFinder,
    ReadOrder,
    SluiceLog,
    bounded,
    closed_files,
    read_topic,
    stream_of,
    unread,
)
from compliance.tables import read_tables
from tests.compliance.planted import planted, write_file

KAFKA = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "access-log", "startingOffsets": "earliest"}
SCHEMA = pa.schema({"value": pa.binary(), "file": pa.string(), "line": pa.int64()})


# ---- files


def finder(tmp_path, batch_bytes=2**40):
    return FileFinder(Job(Source("files", str(tmp_path / "log")), Sink(), str(tmp_path / "out"), batch_bytes))


def orders(tmp_path):
    """The files of each task, by batch."""
    batches = [file.read_bytes().splitlines() for file in sorted((tmp_path / "out/_work/orders").glob("0*-*.txt"))]
    places = [[msgspec.json.decode(line, type=ReadOrder).places for line in batch] for batch in batches]
    return [[[place.rpartition("/")[2][0] for place in task] for task in batch] for batch in places]


def sized(tmp_path, **sizes):
    for name, size in sizes.items():
        write_file(tmp_path / "log", f"{name}.jsonl", [b"x" * (size - 1)])


def test_large_files_have_their_own_task_and_small_ones_share(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TASK_BYTES", 100)
    monkeypatch.setattr(module, "TASK_FILES", 3)
    sized(tmp_path, a=10, b=500, c=100, d=60, e=20, f=10, g=10, h=5)
    assert finder(tmp_path).look() == 1
    assert orders(tmp_path) == [[["b"], ["c"], ["d", "e", "a"], ["f", "g", "h"]]]


def test_a_batch_holds_so_many_bytes_and_one_file_at_least(tmp_path):
    sized(tmp_path, a=60, b=60, c=300, d=10)
    assert finder(tmp_path, 120).look() == 3
    assert [[file for task in batch for file in task] for batch in orders(tmp_path)] == [["a", "b"], ["c"], ["d"]]


def test_a_file_is_ordered_once_and_again_by_the_next_run(tmp_path):
    sized(tmp_path, a=10)
    first = finder(tmp_path)
    assert (first.look(), first.look()) == (1, 0)
    sized(tmp_path, b=10)
    assert first.look() == 1
    assert orders(tmp_path) == [[["a"]], [["b"]]]
    read_log_file(f"{tmp_path}/log/a.jsonl", f"{tmp_path}/out")
    assert (finder(tmp_path).look(), orders(tmp_path)) == (1, [[["b"]]])
    # A file that went, came back and has no facts is new.
    first.forget(set())
    assert first.look() == 1


def test_a_file_that_is_packed_later_is_not_read_again(tmp_path):
    write_file(tmp_path / "log", "a.jsonl", planted("a", 1).encoded())
    places = JobPlaces(f"{tmp_path}/out")
    packed = tmp_path / "log/a.jsonl.zst"
    packed.write_bytes(b"")
    assert [file.name for file in closed_files(f"{tmp_path}/log")] == ["a.jsonl", "a.jsonl.zst"]
    assert [file.name for file in unread(f"{tmp_path}/log", places)] == ["a.jsonl"]
    read_log_file(f"{tmp_path}/log/a.jsonl", places.out)
    (tmp_path / "log/a.jsonl").unlink()
    assert unread(f"{tmp_path}/log", places) == []


@pytest.mark.spark
def test_a_notebook_reads_a_folder_as_rows(spark, tmp_path):
    write_file(tmp_path / "log", "a.jsonl", [*planted("a", 3).encoded(), b"torn"])
    write_file(tmp_path / "log", "b c.jsonl", planted("b", 2).encoded())
    spark.dataSource.register(SluiceLog)
    rows = spark.read.format("sluice").load(f"{tmp_path}/log")
    limits = rows.where("kind = 'limit'").select("file", "line", "seq", "passed_messages").collect()
    assert sorted(map(tuple, limits)) == [
        *(("a.jsonl", 3 * second + 2, 3 * second + 1, 100 + 10 * (second == 0)) for second in range(3)),
        *(("b c.jsonl", 3 * second + 2, 3 * second + 1, 100 + 10 * (second == 0)) for second in range(2)),
    ]


# ---- topics


def messages(*rows):
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def read(tmp_path, *given, task="0-0") -> list[FileFacts]:
    return list(read_topic(iter(given), f"{tmp_path}/out", task))


def test_a_task_writes_a_range_of_each_partition(tmp_path):
    lines = planted("a", 2).encoded()
    of_zero = [(line, "t/0", 40 + at) for at, line in enumerate(lines)]
    files = read(
        tmp_path, messages(*of_zero[:2], (b"torn", "t/1", 7)), messages(*of_zero[2:], (b"a\nb", "t/1", 8)), messages()
    )
    assert [(file.name, file.file) for file in files] == [("t-0-40-45", "t/0"), ("t-1-7-8", "t/1")]
    ledger = load(JobPlaces(f"{tmp_path}/out"))
    assert set(ledger.files) == {"t-0-40-45", "t-1-7-8"}
    assert sum(facts.rows for facts in ledger.totals.values()) == 6
    assert sum(facts.malformed for facts in ledger.totals.values()) == 2


def test_a_batch_that_is_done_again_writes_the_same(tmp_path):
    rows = [(line, "t/0", at) for at, line in enumerate(planted("a", 2).encoded())]
    assert read(tmp_path, messages(*rows)) == read(tmp_path, messages(*rows[:1]), messages(*rows[1:]))
    assert [name for name, _ in storage.files(f"{tmp_path}/out/_work/files")] == ["t-0-0-5.json"]


def test_messages_without_numbers_are_named_by_their_task(tmp_path):
    (file,) = read(tmp_path, messages((b"torn", "persistent://t/n/x", None)), task="3-1")
    assert file.name == "persistent~3a--t-n-x-3-1"


class FakeSpark:
    """Keeps what the reader is told, and answers with a frame of another kind."""

    def __init__(self, frame):
        self.readStream = self
        self.said = {}
        self._frame = frame

    def format(self, kind):
        self.said["format"] = kind
        return self

    def options(self, **options):
        self.said |= options
        return self

    def load(self):
        return self._frame


@pytest.mark.spark
@pytest.mark.parametrize(
    ("kind", "schema", "row", "expected"),
    [
        (
            "kafka",
            "value binary, topic string, partition int, offset long",
            (bytearray(b"\xff{}"), "t", 3, 41),
            (b"\xff{}", "t/3", 41),
        ),
        ("kafka", "value binary, topic string, partition int, offset long", (None, "t", 3, 42), (b"", "t/3", 42)),
        ("pulsar", "value string, __topic string", ("{}", "persistent://t"), (b"{}", "persistent://t", None)),
        ("pulsar", "value binary, __topic string", (None, "persistent://t"), (b"", "persistent://t", None)),
    ],
)
def test_options_reach_the_connector_as_they_are_and_its_messages_become_lines(spark, kind, schema, row, expected):
    fake: Any = FakeSpark(spark.createDataFrame([row], schema))
    job = Job(Source(kind, options=KAFKA), Sink(), "out")
    frame = stream_of(fake, job)
    assert fake.said == {"format": kind, **bounded(job)}
    assert frame.columns == ["value", "file", "line"]
    assert [tuple(line) for line in frame.collect()] == [expected]


@pytest.mark.spark
def test_a_batch_of_a_topic_is_written_by_its_tasks(spark, tmp_path):
    job = Job(Source("kafka", options=KAFKA), Sink(), f"{tmp_path}/out")
    storage.write(f"{job.places.work}/job.json", b'{"version":2}')
    lines = [(bytearray(line), f"t/{at % 2}", at) for at, line in enumerate(planted("a", 20).encoded())]
    parts = [[line for line in lines if line[1] == f"t/{number}"] for number in (0, 1)]
    batch = spark.createDataFrame(
        spark.sparkContext.parallelize(parts, 2).flatMap(list), "value binary, file string, line long"
    )
    for _ in range(2):
        files = module.facts_in(batch, job, 0)
        assert sorted(file.name for file in files) == ["t-0-0-58", "t-1-1-59"]
    assert read_tables(spark, job.out).rows.frame.count() == 60


@pytest.mark.parametrize(
    ("kind", "options", "bound"),
    [
        ("kafka", {}, {"maxOffsetsPerTrigger": "3072"}),
        ("kafka", {"maxoffsetspertrigger": "7"}, {}),
        ("pulsar", {"admin.url": "http://b:8080"}, {"maxBytesPerTrigger": "3145728"}),
        ("pulsar", {"MaxBytesPerTrigger": "7"}, {}),
    ],
)
def test_a_batch_of_a_topic_is_bounded_unless_the_user_has_said_how(kind, options, bound):
    job = Job(Source(kind, options=options), Sink(), "out", batch_bytes=3 * 2**20)
    assert bounded(job) == options | bound


def test_a_batch_of_a_topic_has_a_message_at_least():
    tiny = Job(Source("kafka"), Sink(), "out", batch_bytes=LINE_BYTES - 1)
    assert bounded(tiny) == {"maxOffsetsPerTrigger": "1"}


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["kafka", "pulsar"])
def test_a_connector_that_is_not_there_is_named_with_the_remedy(spark, kind):
    with pytest.raises(JobError, match=rf"--source {kind}: its connector .* --spark spark\.jars\.packages=.*{kind}"):
        stream_of(spark, Job(Source(kind, options=KAFKA), Sink(), "out"))


def test_what_a_connector_itself_says_is_passed_on():
    assert no_connector("--source", "kafka", ValueError("no topic\nmore")) == "--source kafka: no topic"
