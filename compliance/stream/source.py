"""Streams of work for tasks: orders that name new files, and lines of topics.

The tasks write the rows themselves and give back the facts of each file, so a stream carries kilobytes. Spark keeps no
account of the log's files: those that have facts have been read, and every other file is new, however old it is. The
driver looks for new files and orders them to be read; an order is a small file that Spark's own text source finds. (A
source in Python would do without orders. Spark gives the processes of such a source ten seconds to start, which is too
little on a busy machine.)
"""

import contextlib
import gc
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count, groupby

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from compliance import storage
from compliance.line_reader import ROWS, LineReader
from compliance.log_folder import is_closed, look_into, on_this_machine
from compliance.storage import StoredFile
from compliance.stream.ledger import FileFacts
from compliance.stream.log_file import JobPlaces, PartWriter, log_blocks, name_of, read_log_file
from compliance.stream.options import Job, JobError, no_connector

TASK_BYTES = 16 * 2**20
"""Small files share a task up to this size."""
TASK_FILES = 256
"""The number of files that share a task."""


def stream_of(spark: SparkSession, job: Job) -> DataFrame:
    """Return the stream of orders, or of a topic's lines.

    Raises:
        JobError: If the connector is not on Spark's class path.
    """
    reader = spark.readStream
    if job.source.kind == "files":
        # Orders are read in the order of their times. Spark forgets those that are a week older than the last.
        return reader.option("maxFilesPerTrigger", 1).text(job.places.orders)
    try:
        topic = reader.format(job.source.kind).options(**bounded(job)).load()
    except (PySparkException, Py4JJavaError) as error:
        raise JobError(no_connector("--source", job.source.kind, error)) from error
    return _of_kafka(topic) if job.source.kind == "kafka" else _of_pulsar(topic)


def facts_in(batch: DataFrame, job: Job, step: int) -> list[FileFacts]:
    """Have the tasks of a batch done; return the facts that they found."""
    if job.source.kind != "files":
        encoded = [row.facts for row in batch.mapInArrow(_topic_task(job.out, step), "facts binary").collect()]
    else:
        orders = [msgspec.json.decode(row.value, type=ReadOrder) for row in batch.collect()]
        if not orders:
            return []
        # Each order is a task, and the largest comes first.
        work = batch.sparkSession.sparkContext.parallelize(orders, len(orders))
        encoded = work.flatMap(partial(_file_task, out=job.out)).collect()
        for name in {order.file for order in orders}:
            storage.remove(f"{job.places.orders}/{name}")
    return [msgspec.msgpack.decode(facts, type=FileFacts) for facts in encoded]


# ---- files


def _amounts(file: StoredFile) -> tuple[int, int]:
    """Return the bytes and the number of a file."""
    return file.size, 1


class ReadOrder(msgspec.Struct, frozen=True):
    """The order to read some files in one task.

    Args:
        file: The name of the file with this order.
        places: The files.
    """

    file: str
    places: list[str]


def _file_task(order: ReadOrder, *, out: str) -> list[bytes]:
    with _no_collector():
        return [msgspec.msgpack.encode(read_log_file(place, out)) for place in order.places]


class FileFinder:
    """Looks for new files, and orders them to be read.

    Args:
        job: The options.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._ordered: set[str] = set()
        self._made = count()
        storage.remove_folder(job.places.orders)

    def wait(self) -> None:
        """Have Spark wait for orders: its source wants a folder that is there."""
        storage.write(f"{self._job.places.orders}/none.txt", b"")

    def look(self) -> int:
        """Order new files; return the number of orders, each of a batch's size."""
        new = [file for file in unread(self._job.source.folder, self._job.places) if file.name not in self._ordered]
        batches = storage.in_parts(new, _amounts, (self._job.batch_bytes, len(new)))
        for batch in batches:
            name = f"{next(self._made):08}-{len(batch)}.txt"
            in_tasks = storage.in_parts(sorted(batch, key=lambda file: -file.size), _amounts, (TASK_BYTES, TASK_FILES))
            tasks = [ReadOrder(name, [f"{self._job.source.folder}/{file.name}" for file in task]) for task in in_tasks]
            storage.write(f"{self._job.places.orders}/{name}", msgspec.json.Encoder().encode_lines(tasks))
            self._ordered |= {file.name for file in batch}
        return len(batches)

    def forget(self, present: set[str]) -> None:
        """Forget orders of files that the log no longer has."""
        self._ordered &= present


def closed_files(folder: str) -> list[StoredFile]:
    """List the closed files of a folder of any storage, by name."""
    if local := on_this_machine(folder):
        return [StoredFile(file.name, file.stat().st_size) for file in look_into(local).closed]
    return [file for file in storage.files(folder) if is_closed(file.name)]


def unread(folder: str, places: JobPlaces) -> list[StoredFile]:
    """List the closed files of a folder that have no facts, by name; of a plain file and the same packed, the plain."""
    have = {name.removesuffix(".json") for name, _ in storage.files(places.files)}
    new: dict[str, StoredFile] = {}
    for file in closed_files(folder):
        name = name_of(file.name)
        if name not in have:
            new.setdefault(name, file)
    return list(new.values())


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    """Reading makes tuples by the ten thousand and no cycles: looking for such is a fifth of the work."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# ---- topics

LINE_BYTES = 1024
"""Bytes that a line is reckoned at where a connector counts messages; most are half as long."""


def bounded(job: Job) -> Mapping[str, str]:
    """Return the options for a topic's connector: the user's, and a bound of a batch unless these have one.

    Source: `maxOffsetsPerTrigger` of Spark's Kafka connector, `maxBytesPerTrigger` of StreamNative's for Pulsar.
    """
    bounds = {
        "kafka": {"maxOffsetsPerTrigger": str(max(1, job.batch_bytes // LINE_BYTES))},
        "pulsar": {"maxBytesPerTrigger": str(job.batch_bytes)},
    }
    given = {key.lower() for key in job.source.options}
    ours = {key: value for key, value in bounds[job.source.kind].items() if key.lower() not in given}
    return {**ours, **job.source.options}


def _of_kafka(topic: DataFrame) -> DataFrame:
    place = F.concat_ws("/", "topic", F.col("partition").cast("string"))
    return topic.select(_value(), place.alias("file"), F.col("offset").alias("line"))


def _of_pulsar(topic: DataFrame) -> DataFrame:
    # A message id is bytes: ledger, entry, batch index. It has no number of its own.
    return topic.select(_value(), F.col("__topic").alias("file"), F.lit(None).cast("long").alias("line"))


def _value() -> Column:
    """A message without a value is an empty line: counted, and not the end of the job."""
    return F.coalesce(F.col("value").cast("binary"), F.lit(b"")).alias("value")


def _topic_task(out: str, step: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task writes its ranges of partitions. The same batch has the same ranges whenever it is done."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        with _no_collector():
            for facts in read_topic(batches, out, f"{step}-{context.partitionId()}"):
                yield pa.RecordBatch.from_pylist([{"facts": msgspec.msgpack.encode(facts)}], FACTS_SCHEMA)

    return work


FACTS_SCHEMA = pa.schema({"facts": pa.binary()})


def read_topic(batches: Iterator[pa.RecordBatch], out: str, task: str) -> Iterator[FileFacts]:
    """Read lines of topics, with columns `value`, `file` and `line`; return the facts of each partition.

    Args:
        batches: The lines.
        out: The job's folder.
        task: A name for the task; for partitions whose lines have no numbers.
    """
    writers: dict[str, PartWriter] = {}
    bounds: defaultdict[str, list[int]] = defaultdict(list)
    for batch in batches:
        columns = zip(batch["file"].to_pylist(), batch["value"].to_pylist(), batch["line"].to_pylist(), strict=True)
        for file, lines in groupby(columns, key=lambda line: str(line[0])):
            own = list(lines)
            if file not in writers:
                writers[file] = PartWriter(file, JobPlaces(out))
            numbers = [number for *_, number in own]
            bounds[file] += [number for number in (numbers[0], numbers[-1]) if number is not None]
            block = writers[file].reader.read_each([line for _, line, _ in own], pa.array(numbers, pa.int64()))
            writers[file].add(block)
    for file, writer in writers.items():
        range_ = f"{min(bounds[file])}-{max(bounds[file])}" if bounds[file] else task
        yield writer.close(name_of(f"{file.replace('/', '-')}-{range_}"))


# ---- for notebooks


class FileGroup(InputPartition):
    """Files that one task reads."""

    def __init__(self, files: list[str]) -> None:
        self.files = files


class SluiceLog(DataSource):
    """The lines of a folder of closed files as rows, for notebooks.

        spark.dataSource.register(SluiceLog)
        spark.read.format("sluice").load("/var/log/sluice")

    Lines that are no records are left out. Every row passes through Python; the job's tables are faster to read.
    """

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "sluice"

    def schema(self) -> StructType:
        """Return the schema of `rows`."""
        return from_arrow_schema(ROWS)

    def reader(self, schema: StructType) -> "SluiceLogReader":  # noqa: ARG002 - Spark's interface
        """Return the reader."""
        if not (folder := self.options.get("path", "")):
            raise ValueError('give the folder of the access log: load("/var/log/sluice")')
        return SluiceLogReader(folder)


class SluiceLogReader(DataSourceReader):
    """The reader of a folder.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def partitions(self) -> list[FileGroup]:
        """A task for each file."""
        return [FileGroup([f"{self._folder}/{file.name}"]) for file in closed_files(self._folder)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a file."""
        if isinstance(partition, FileGroup):
            for place in partition.files:
                file = place.rpartition("/")[2]
                for block in log_blocks(place, file, LineReader(file)):
                    yield from block.rows.to_batches()
