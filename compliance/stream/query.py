"""Starts the stream and waits for it."""

from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from compliance.stream.batch import BatchWriter
from compliance.stream.options import Job, JobError, Sink
from compliance.stream.sinks import tables_of
from compliance.stream.sources import lines
from compliance.stream.state import State
from compliance.stream.storage import Storage
from compliance.stream.summary import Summary

_INTO = " into "
_LEAST_TASKS = "spark.sql.files.minPartitionNum"


def start(spark: SparkSession, job: Job, on_summary: Callable[[Summary], None], *, follow: bool) -> StreamingQuery:
    """Starts reading what no earlier run with this `out` has read.

    Args:
        spark: The session.
        job: What is asked for.
        on_summary: Told the summary after each batch.
        follow: Go on for ever; else end with what is there now.

    Raises:
        JobError: If `out` is another source's, sink's or version's, or a connector is missing.
    """
    spark.conf.set("spark.sql.shuffle.partitions", str(max(2, spark.sparkContext.defaultParallelism)))
    _claim(Storage(spark), job)
    State(spark, job.work).check()
    job.look()
    writer = BatchWriter(spark, job, tables_of(spark, job), on_summary)
    stream = lines(spark, job).writeStream.foreachBatch(writer.write).option("checkpointLocation", job.checkpoint)
    trigger = stream.trigger(processingTime=f"{job.every_s} seconds") if follow else stream.trigger(availableNow=True)
    # A file goes to one task, unless it is very large: the rest of a file that is cut is read twice (`numbering.py`).
    # The stream keeps the settings with which it starts; who reads its tables wants them cut.
    spark.conf.set(_LEAST_TASKS, "1")
    try:
        return trigger.start()
    finally:
        spark.conf.unset(_LEAST_TASKS)


def sink_of(storage: Storage, out: str) -> Sink:
    """The sink of the job whose `out` it is.

    Raises:
        JobError: If it is no job's.
    """
    mark = _mark(out)
    if not storage.exists(mark):
        raise JobError(f"{out}: no tables of `sluice compliance run` in it; give that command's --out")
    kind, _, catalog = storage.read(mark).decode().rpartition(_INTO)[2].partition(" ")
    return Sink(kind, catalog)


def _mark(out: str) -> str:
    return f"{out}/_work/source"


def _claim(storage: Storage, job: Job) -> None:
    """Lines of two sources in one table would be judged as one log."""
    mark = _mark(job.out)
    ours = f"{job.source.kind} {job.source.folder}".strip() + f"{_INTO}{job.sink.kind} {job.sink.catalog}".rstrip()
    if not storage.exists(mark):
        storage.write(mark, ours.encode())
        return
    theirs = storage.read(mark).decode()
    if theirs != ours:
        raise JobError(f"--out {job.out}: holds {theirs}, not {ours}; give each its own folder")
