"""The job's options as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from compliance.session import cause
from compliance.stream.log_file import JobPlaces
from protocol.exit_codes import ExitCode

SOURCES = ("files", "kafka", "pulsar")
SINKS = ("parquet", "delta", "iceberg")


class JobError(Exception):
    """The job cannot be done, for a reason that the operator can mend."""

    exit_code = ExitCode.FAILED


class JobOptionError(JobError):
    """The options of the command line are wrong, or do not go together."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True, slots=True)
class Source:
    """The source of lines.

    Args:
        kind: One of `SOURCES`.
        folder: The folder of the log's closed files; only for `files`.
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
        out: Folder for the tables, the summary and the state between runs; a path or a URI.
        batch_bytes: Bytes of the log that one batch reads, about.
        every_s: Seconds between two looks for new lines, while following.
        retain_days: Days before the latest whose rows are kept; None: all.
        with_usage: Whether tables of usage are kept.
        least_files: A closed day is compacted if it has this number of files that are not.
    """

    source: Source
    sink: Sink
    out: str
    batch_bytes: int = 2 * 2**30
    every_s: float = 10.0
    retain_days: int | None = None
    with_usage: bool = True
    least_files: int = 1

    @property
    def places(self) -> JobPlaces:
        """The places of the job's files."""
        return JobPlaces(self.out)


def pairs(option: str, texts: list[str]) -> dict[str, str]:
    """Turn `KEY=VALUE` texts into a mapping.

    Raises:
        JobOptionError: If one is not of that form.
    """
    for text in texts:
        if not text.partition("=")[0] or "=" not in text:
            raise JobOptionError(f"{option} {text}: must be KEY=VALUE")
    return {text.partition("=")[0]: text.partition("=")[2] for text in texts}


def checked(job: Job) -> Job:
    """Return the job, if its parts fit together.

    Raises:
        JobOptionError: Naming the option and the remedy.
    """
    source, sink = job.source, job.sink
    if source.kind not in SOURCES:
        raise JobOptionError(f"--source {source.kind}: must be one of {', '.join(SOURCES)}")
    if sink.kind not in SINKS:
        raise JobOptionError(f"--sink {sink.kind}: must be one of {', '.join(SINKS)}")
    if (source.kind == "files") != bool(source.folder):
        raise JobOptionError(f"--source {source.kind}: --access-log is for files, and files need it")
    if source.kind == "files" and source.options:
        raise JobOptionError("--source files: --source-option is for kafka and pulsar")
    if source.kind == "pulsar" and not {"admin.url", "maxbytespertrigger"} & {key.lower() for key in source.options}:
        raise JobOptionError(
            "--source pulsar: its connector bounds a batch only if it can ask the broker's admin: "
            "add --source-option admin.url=http://HOST:8080 (or your own maxBytesPerTrigger=…)"
        )
    if (sink.kind == "iceberg") != bool(sink.catalog):
        raise JobOptionError(f"--sink {sink.kind}: --catalog CATALOG.NAMESPACE is for iceberg, and iceberg needs it")
    return job


_CONNECTORS = {
    "kafka": "org.apache.spark:spark-sql-kafka-0-10_2.13, of your Spark's version",
    "pulsar": "io.streamnative.connectors:pulsar-spark-connector_2.13, of a version for your Spark",
    "delta": "io.delta:delta-spark_2.13, of a version for your Spark",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime, of a version for your Spark",
}

_MISSING = (
    "DATA_SOURCE_NOT_FOUND",
    "find data source",
    "find the data source",
    "ClassNotFound",
    "catalog plugin class",
)


def no_connector(option: str, kind: str, error: Exception) -> str:
    """Return the message for a connector that Spark refuses: that it is missing, or Spark's own first line."""
    if not any(word in str(error) for word in _MISSING):
        return f"{option} {kind}: {cause(error)}"
    return (
        f"{option} {kind}: its connector is not on Spark's class path: add "
        f"--spark spark.jars.packages=GROUP:ARTIFACT:VERSION (or spark.jars=FILE.jar) of {_CONNECTORS[kind]}"
    )
