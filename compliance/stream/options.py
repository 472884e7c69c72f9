"""The job's options, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from compliance.log_folder import on_this_machine, show
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
        folder: The folder of closed `*.jsonl` files; only for `files`.
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
        out: Folder for the tables, the summary and what is kept between runs; a path or any URI that Spark writes.
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
        """The folder of links that Spark reads in place of a log on this machine, if `out` is here, too."""
        work = on_this_machine(self.work)
        is_here = self.source.folder and on_this_machine(self.source.folder)
        return work.resolve() / "log" if work and is_here else None

    @property
    def shown(self) -> str:
        """The folder that Spark looks into."""
        return str(self.links or self.source.folder)

    def look(self) -> None:
        """Show Spark what is in the log's folder now.

        Raises:
            OSError: If that cannot be read, or `out` not be written.
        """
        folder = on_this_machine(self.source.folder) if self.source.folder else None
        if folder and self.links:
            show(folder, self.links)

    @property
    def checkpoint(self) -> str:
        """Spark's record of what has been read."""
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
