"""The job's options as values, and its source: a stream of `value`, `file` and a line's place in the file.

For files, `block` is where in the file the block begins; `partition_reader.Numbering` finds the line's number by it.
For topics, `line` is the offset.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamReader

from compliance.log_folder import CLOSED_PATTERN, on_this_machine, show
from compliance.session import cause
from compliance.stream.windows import TABLES, WindowTable

SOURCES = ("files", "kafka", "pulsar")
SINKS = ("parquet", "delta", "iceberg")


class JobError(Exception):
    """The job cannot be done, for a reason that the operator can mend."""


@dataclass(frozen=True, slots=True)
class Source:
    """The source of lines.

    Args:
        kind: One of `SOURCES`.
        folder: The folder of closed `*.jsonl.zst` and `*.jsonl` files; only for `files`.
        options: Options that go to the connector unchanged; only for the other kinds.
    """

    kind: str
    folder: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sink:
    """The place of tables.

    Args:
        kind: One of `SINKS`.
        catalog: `catalog.namespace` of the tables; only for `iceberg`. Other tables are folders of `out`.
    """

    kind: str = "parquet"
    catalog: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """One job; every job needs an `out` of its own.

    Args:
        source: Where lines come from.
        sink: Where tables go.
        out: Folder for the tables, the summary and the state between runs; a path or any URI that Spark writes.
        late_after_s: Seconds of event time past its end after which a window is closed.
        batch_bytes: Bytes of the log that one batch reads, about.
        every_s: Seconds between two looks for new lines, while following.
        windows: Tables of windows to keep.
    """

    source: Source
    sink: Sink
    out: str
    late_after_s: int = 60
    batch_bytes: int = 512 * 2**20
    every_s: float = 10.0
    windows: tuple[WindowTable, ...] = TABLES

    @property
    def work(self) -> str:
        """Checkpoint and state; readers of tables pass over names with an underscore."""
        return f"{self.out}/_work"

    @property
    def links(self) -> Path | None:
        """The folder of links that Spark reads in place of a log; None unless log and `out` are on this machine."""
        work = on_this_machine(self.work)
        is_here = self.source.folder and on_this_machine(self.source.folder)
        return work.resolve() / "log" if work and is_here else None

    @property
    def shown(self) -> str:
        """The folder that Spark looks into."""
        return str(self.links or self.source.folder)

    def look(self) -> None:
        """Show Spark the present content of the log's folder.

        Raises:
            OSError: If that cannot be read, or `out` not be written.
        """
        folder = on_this_machine(self.source.folder) if self.source.folder else None
        if folder and self.links:
            show(folder, self.links)

    @property
    def checkpoint(self) -> str:
        """Spark's record of the files and offsets that it has read."""
        return f"{self.work}/checkpoint"


def pairs(option: str, texts: list[str]) -> dict[str, str]:
    """Turn `KEY=VALUE` texts into a mapping.

    Raises:
        JobError: If one is not of that form.
    """
    for text in texts:
        if not text.partition("=")[0] or "=" not in text:
            raise JobError(f"{option} {text}: must be KEY=VALUE")
    return {text.partition("=")[0]: text.partition("=")[2] for text in texts}


def checked(job: Job) -> Job:
    """Return the job, if its parts fit together.

    Raises:
        JobError: Naming the option and the remedy.
    """
    source, sink = job.source, job.sink
    if source.kind not in SOURCES:
        raise JobError(f"--source {source.kind}: must be one of {', '.join(SOURCES)}")
    if sink.kind not in SINKS:
        raise JobError(f"--sink {sink.kind}: must be one of {', '.join(SINKS)}")
    if (source.kind == "files") != bool(source.folder):
        raise JobError(f"--source {source.kind}: --access-log is for files, and files need it")
    if source.kind == "files" and source.options:
        raise JobError("--source files: --source-option is for kafka and pulsar")
    if source.kind == "pulsar" and not {"admin.url", "maxbytespertrigger"} & {key.lower() for key in source.options}:
        raise JobError(
            "--source pulsar: its connector bounds a batch only if it can ask the broker's admin: "
            "add --source-option admin.url=http://HOST:8080 (or your own maxBytesPerTrigger=…)"
        )
    if (sink.kind == "iceberg") != bool(sink.catalog):
        raise JobError(f"--sink {sink.kind}: --catalog CATALOG.NAMESPACE is for iceberg, and iceberg needs it")
    return job


_CONNECTORS = {
    "kafka": "org.apache.spark:spark-sql-kafka-0-10_2.13, of your Spark's version",
    "pulsar": "io.streamnative.connectors:pulsar-spark-connector_2.13, of a version for your Spark",
    "delta": "io.delta:delta-spark_2.13, of a version for your Spark",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime, of a version for your Spark",
}

LINE_BYTES = 1024
"""Bytes that a line is reckoned at where a connector counts messages; most are half as long."""

_MISSING = (
    "DATA_SOURCE_NOT_FOUND",
    "find data source",
    "find the data source",
    "ClassNotFound",
    "catalog plugin class",
)


def lines(spark: SparkSession, job: Job) -> DataFrame:
    """Return the stream of lines.

    Raises:
        JobError: If the connector is not on Spark's class path.
    """
    reader = spark.readStream
    if job.source.kind == "files":
        return _of_files(reader, job)
    try:
        topic = reader.format(job.source.kind).options(**bounded(job)).load()
    except (PySparkException, Py4JJavaError) as error:
        raise JobError(no_connector("--source", job.source.kind, error)) from error
    return _of_kafka(topic) if job.source.kind == "kafka" else _of_pulsar(topic)


def bounded(job: Job) -> Mapping[str, str]:
    """Return the options for a topic's connector: the user's, and a bound of a batch unless these have one.

    Without a bound the whole backlog of a topic would be one batch, and its result more than the driver holds.

    Source: `maxOffsetsPerTrigger` of Spark's Kafka connector, `maxBytesPerTrigger` of StreamNative's for Pulsar.
    """
    bounds = {
        "kafka": {"maxOffsetsPerTrigger": str(max(1, job.batch_bytes // LINE_BYTES))},
        "pulsar": {"maxBytesPerTrigger": str(job.batch_bytes)},
    }
    given = {key.lower() for key in job.source.options}
    ours = {key: value for key, value in bounds[job.source.kind].items() if key.lower() not in given}
    return {**ours, **job.source.options}


def no_connector(option: str, kind: str, error: Exception) -> str:
    """Return the message for a connector that Spark refuses: that it is missing, or Spark's own first line."""
    if not any(word in str(error) for word in _MISSING):
        return f"{option} {kind}: {cause(error)}"
    return (
        f"{option} {kind}: its connector is not on Spark's class path: add "
        f"--spark spark.jars.packages=GROUP:ARTIFACT:VERSION (or spark.jars=FILE.jar) of {_CONNECTORS[kind]}"
    )


def _of_files(reader: DataStreamReader, job: Job) -> DataFrame:
    text = (
        reader.format("text")
        .option("pathGlobFilter", CLOSED_PATTERN)
        .option("lineSep", "\n")
        .option("maxBytesPerTrigger", job.batch_bytes)
        # By default files a week older than the newest are passed over in silence.
        .option("maxFileAge", "36500d")
        .load(job.shown)
    )
    return text.select(
        "value",
        F.col("_metadata.file_name").alias("file"),
        F.col("_metadata.file_block_start").alias("block"),
    )


def _of_kafka(topic: DataFrame) -> DataFrame:
    place = F.concat_ws("/", "topic", F.col("partition").cast("string"))
    return topic.select(_value(), place.alias("file"), F.col("offset").alias("line"))


def _of_pulsar(topic: DataFrame) -> DataFrame:
    # A message id is bytes: ledger, entry, batch index. It has no number of its own.
    return topic.select(_value(), F.col("__topic").alias("file"), F.lit(None).cast("long").alias("line"))


def _value() -> Column:
    """A message without a value is an empty line: counted, and not the end of the job."""
    return F.coalesce(F.col("value").cast("binary"), F.lit(b"")).alias("value")
