"""`sluice compliance run` as its user sees it: progress, one line for each error, the summary, the exit code."""

import contextlib
import fcntl
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from compliance.cause import cause
from compliance.disk import disk_trouble
from compliance.java import JavaNotFoundError
from compliance.log_folder import look_into
from compliance.place import NOT_WITHIN, is_within, on_this_machine
from compliance.session import spark_session
from compliance.stream.late import late_so_far, late_words
from compliance.stream.options import Job, JobError, checked
from compliance.stream.progress import Progress
from compliance.stream.query import start

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
