"""Sources of lines: a stream of `value`, `file` and what tells a line's place in it.

For files, `block` is where in the file the block begins; `partition_reader.Numbering` finds the line's number by it.
For topics, `line` is the offset.
"""

from collections.abc import Mapping

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamReader

from compliance.session import cause
from compliance.stream.options import Job, JobError

REMEDIES = {
    "kafka": "org.apache.spark:spark-sql-kafka-0-10_2.13, of your Spark's version",
    "pulsar": "io.streamnative.connectors:pulsar-spark-connector_2.13, of a version for your Spark",
    "delta": "io.delta:delta-spark_2.13, of a version for your Spark",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime, of a version for your Spark",
}

LINE_BYTES = 1024
"""What a line is reckoned at where a connector counts messages; most are half as long."""

_MISSING = (
    "DATA_SOURCE_NOT_FOUND",
    "find data source",
    "find the data source",
    "ClassNotFound",
    "catalog plugin class",
)


def lines(spark: SparkSession, job: Job) -> DataFrame:
    """The stream of lines.

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
    """The options for a topic's connector: the user's, and what bounds a batch where these say nothing of it.

    Without a bound the whole backlog of a topic would be one batch, and its result more than the driver holds.

    Source: `maxOffsetsPerTrigger` of Spark's Kafka connector, `maxBytesPerTrigger` of StreamNative's for Pulsar.
    """
    bounds = {
        "kafka": {"maxOffsetsPerTrigger": str(max(1, job.batch_bytes // LINE_BYTES))},
        "pulsar": {"maxBytesPerTrigger": str(job.batch_bytes)},
    }
    said = {key.lower() for key in job.source.options}
    ours = {key: value for key, value in bounds[job.source.kind].items() if key.lower() not in said}
    return {**ours, **job.source.options}


def no_connector(option: str, kind: str, error: Exception) -> str:
    """The message for a connector that Spark refuses: that it is missing, or Spark's own first line."""
    if not any(word in str(error) for word in _MISSING):
        return f"{option} {kind}: {cause(error)}"
    return (
        f"{option} {kind}: its connector is not on Spark's class path: add "
        f"--spark spark.jars.packages=GROUP:ARTIFACT:VERSION (or spark.jars=FILE.jar) of {REMEDIES[kind]}"
    )


def _of_files(reader: DataStreamReader, job: Job) -> DataFrame:
    text = (
        reader.format("text")
        .option("pathGlobFilter", "*.jsonl")
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
