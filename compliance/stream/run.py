"""One run of the job behind its command line: the query, its end, and what went wrong."""

import contextlib
import fcntl
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from compliance.java import JavaNotFoundError
from compliance.log_folder import NOT_WITHIN, is_within, look_into, on_this_machine
from compliance.session import cause, disk_trouble, spark_session
from compliance.stream.batch import BatchWriter
from compliance.stream.options import Job, JobError, Sink, checked
from compliance.stream.sinks import tables_of
from compliance.stream.sources import lines
from compliance.stream.state import State, Storage
from compliance.stream.summary import Progress, Summary, late_so_far, late_words

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


_LOOK_EVERY_S = 1
_AGAIN = "run it again: it goes on where it was"


def run_with_progress(job: Job, *, follow: bool, settings: Mapping[str, str]) -> int:
    """Does the job; returns the exit code: 0 done (or ended by a signal, in following), 1 not done.

    Args:
        job: What is asked for.
        follow: Go on until SIGTERM or SIGINT; else end with what is there now.
        settings: Of Spark, from the user.
    """
    try:
        checked(job)
        _check_folders(job)
        log = _log_file(job)
    except JobError as error:
        return _fail(str(error))
    try:
        _tell_passed_over(job)
        with _alone(job), spark_session(log, settings) as spark, Progress(Console(stderr=True)) as progress:
            before = late_so_far(spark, job)
            query = start(spark, job, progress.on_summary, follow=follow)
            _wait(query, progress, job, follow=follow)
    except (JobError, JavaNotFoundError) as error:
        return _fail(str(error))
    except (ConnectionError, Py4JNetworkError):
        return _fail(f"Spark's Java process is gone: killed, or out of memory (its log: {log}); {_AGAIN}")
    except OSError as error:
        return _fail(_trouble(str(error), job) or f"{error.filename or job.out}: {error.strerror or error}")
    except (PySparkException, Py4JError) as error:
        said = cause(error)
        return _fail(_trouble(said, job) or f"Spark failed: {said} (its log: {log}); {_AGAIN}")
    print(progress.last_words(job.out))  # noqa: T201 - a command's answer
    if words := late_words(before, progress.late, job):
        _say(words)
    return 0


def _wait(query: StreamingQuery, progress: Progress, job: Job, *, follow: bool) -> None:
    """Until the stream ends, or a signal ends it; a batch under way is done again by the next run.

    Raises:
        JobError: If a signal ends what was to end by itself.
    """
    is_stopping = False

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what `signal` calls
        nonlocal is_stopping
        is_stopping = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        while not query.awaitTermination(_LOOK_EVERY_S):
            progress.on_look(query.lastProgress)
            if follow:
                job.look()
            if is_stopping:
                query.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if is_stopping and not follow:
        raise JobError(f"ended by a signal before all was read; {_AGAIN}")


@contextlib.contextmanager
def _alone(job: Job) -> Iterator[None]:
    """Two runs at once on one folder would write over each other."""
    work = on_this_machine(job.work)
    if work is None:
        yield
        return
    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JobError(
                f"--out {job.out}: another run is at work on it; wait for it, or give another folder"
            ) from error
        yield


def _check_folders(job: Job) -> None:
    named = {"--access-log": job.source.folder, "--out": job.out}
    for option, path in named.items():
        # Spark's readers take these for patterns, even where they come from a listing.
        if found := set("*?[]{}\\") & set(path):
            raise JobError(f"{option} {path}: Spark reads {' '.join(sorted(found))} as a pattern; rename the folder")
    folder = on_this_machine(job.source.folder)
    if job.source.folder and folder and not folder.is_dir():
        raise JobError(f"--access-log {job.source.folder}: no such folder; give the folder that the proxy writes")
    if job.source.folder and is_within(job.out, job.source.folder):
        raise JobError(f"--out {job.out}: lies in --access-log {job.source.folder}, {NOT_WITHIN}")


def _tell_passed_over(job: Job) -> None:
    folder = on_this_machine(job.source.folder)
    if job.source.folder and folder and (words := look_into(folder).words()):
        _say(f"--access-log {job.source.folder}: passed over: {words}")


def _log_file(job: Job) -> Path:
    work = on_this_machine(job.work)
    if work is None:
        return Path(tempfile.mkdtemp(prefix="sluice-compliance-")) / "spark.log"
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JobError(f"--out {job.out}: cannot be written: {error.strerror}") from error
    return work / "spark.log"


def _trouble(said: str, job: Job) -> str | None:
    if job.source.folder:
        said = said.replace(job.shown, job.source.folder)
    trouble = disk_trouble(said, {"--access-log": job.source.folder, "--out": job.out})
    return trouble and f"{trouble}, then {_AGAIN}"


def _fail(message: str) -> int:
    _say(message)
    return 1


def _say(message: str) -> None:
    print(f"sluice compliance run: {message}", file=sys.stderr)  # noqa: T201 - a command's answer
