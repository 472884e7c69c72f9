"""One run of the job: the stream of new files, the upkeep of its tables, its end, and its errors."""

import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

import msgspec
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from compliance import storage
from compliance.java import JavaNotFoundError
from compliance.log_folder import NOT_WITHIN, is_within, look_into, on_this_machine
from compliance.session import cause, disk_trouble, spark_session
from compliance.stream import compaction, metrics, usage
from compliance.stream.folder import Ledger, claim, forget_files, recover, retire
from compliance.stream.lakes import lake_of, publish
from compliance.stream.ledger import Summary, summary
from compliance.stream.log_file import JobPlaces, name_of
from compliance.stream.options import Job, JobError, checked
from compliance.stream.source import FileFinder, closed_files, facts_in, stream_of
from compliance.stream.tables import PASSED_OVER
from protocol.exit_codes import ExitCode

OnSummary = Callable[[Summary], None]
OnStep = Callable[[str], None]


class LiveReport(Protocol):
    """A report that is kept up to date while a run follows."""

    complete_up_to: datetime | None
    """The time up to which the report has all lines; None before the first, or if that is not known."""

    def changed(self) -> None:
        """Note that there are new lines; make the report again, unless it was made a moment ago."""

    def look(self) -> None:
        """Make the report again if lines came shortly after it was made."""


Judge = Callable[[SparkSession, JobPlaces, Ledger, OnStep], Collection[str]]
"""Judges days that are over and have changed; returns the days whose rows the judging still needs."""


class JobRun:
    """One run of a job on its folder. Only one at a time may be at work on a folder.

    Args:
        spark: The session.
        job: The options.
        on_summary: Called with the summary after each batch.
        on_step: Called with the name of the next step.
        judge: Judges days; None: they are not judged.
        live: The report that is kept up to date; None: there is none.

    Attributes:
        trouble: The reason why days are not judged; empty if they are.

    Raises:
        JobError: If the folder is another source's, sink's or version's, or a connector is missing.
    """

    def __init__(
        self,
        spark: SparkSession,
        job: Job,
        on_summary: OnSummary,
        on_step: OnStep = lambda _: None,
        judge: Judge | None = None,
        live: LiveReport | None = None,
    ) -> None:
        self._spark = spark
        self._on_step = on_step
        self._judge = judge
        self.trouble = ""
        self._live = live
        self._at_work = Lock()
        """Held while tables change, which no report may read then."""
        self._job = job
        self._on_summary = on_summary
        spark.conf.set("spark.sql.shuffle.partitions", str(max(2, spark.sparkContext.defaultParallelism)))
        self._follows, self._due = False, 0.0
        self._summary: Summary | None = None
        self._measured: tuple[Summary, datetime | None] | None = None
        claim(job)
        self._lake = lake_of(spark, job)
        self._ledger = recover(job.places)
        self._finder = FileFinder(job) if job.source.kind == "files" else None
        self._note_passed_over()

    def start(self, *, follow: bool) -> StreamingQuery | None:
        """Start reading what no earlier run has read; go on until stopped, or end after what is there now.

        Returns None if nothing is new and nothing will be.
        """
        self._follows = follow
        if self._finder:
            # Of files there is nothing to remember: those that have facts have been read.
            storage.remove_folder(self._checkpoint)
            if not self._finder.look():
                if not follow:
                    return None
                self._finder.wait()
        stream = stream_of(self._spark, self._job).writeStream.foreachBatch(self._write)
        stream = stream.option("checkpointLocation", self._checkpoint)
        if follow:
            return stream.trigger(processingTime=f"{self._job.every_s} seconds").start()
        return stream.trigger(availableNow=True).start()

    def look(self) -> None:
        """Look for new files now; a run that follows has them read."""
        self._note_passed_over()
        if self._finder:
            self._finder.look()
        if self._live and self._at_work.acquire(blocking=False):
            try:
                self._live.look()
                self._measure()
            finally:
                self._at_work.release()

    def once(self) -> None:
        """Read what is there now, and bring the tables up to date."""
        if query := self.start(follow=False):
            query.awaitTermination()
        self.end()

    def end(self) -> None:
        """Bring the tables up to date: usage, compaction and verdicts of days, deletion of those past `retain_days`."""
        job, now = self._job, datetime.now(UTC)
        if self._lake:
            self._on_step(f"adding rows to {job.sink.kind}")
            publish(self._spark, job, self._ledger, self._lake)
        if job.with_usage:
            self._on_step("adding up usage")
            usage.refresh(self._spark, job.places, self._ledger)
        for day in compaction.closed_days(self._ledger, now, job.least_files):
            self._on_step(f"compacting {day}")
            compaction.compact(self._spark, job.places, self._ledger, day)
        unjudged = self._judged()
        if job.retain_days is not None:
            retire(job.places, self._ledger, job.retain_days, unjudged)
        if self._finder:
            present = {file.name for file in closed_files(job.source.folder)}
            forget_files(job.places, self._ledger, {name_of(file) for file in present})
            self._finder.forget(present)
        self._tell()

    def _judged(self) -> Collection[str]:
        """Judge days; return those whose rows the judging still needs. A failure is said once, and the run goes on."""
        if self._judge is None:
            return ()
        trouble = ""
        unjudged: Collection[str] = ()
        try:
            unjudged = self._judge(self._spark, self._job.places, self._ledger, self._on_step)
        except Py4JNetworkError:
            raise
        except (PySparkException, Py4JError) as error:
            trouble = f"days are not judged: {cause(error)}"
        if trouble and trouble != self.trouble:
            _say(trouble)
        self.trouble = trouble
        return unjudged

    def _note_passed_over(self) -> None:
        """Keep the names of the log's files that are not read, for readers of the tables."""
        folder = on_this_machine(self._job.source.folder) if self._job.source.folder else None
        if folder is None:
            return
        content = look_into(folder)
        encoded = msgspec.json.encode({"words": content.words(), "unread": content.unread})
        place = f"{self._job.places.work}/{PASSED_OVER}"
        if not storage.holds(place, encoded):
            storage.write(place, encoded)

    @property
    def _checkpoint(self) -> str:
        return f"{self._job.places.work}/checkpoint"

    def _write(self, batch: DataFrame, step: int) -> None:
        with self._at_work:
            self._ledger.add(facts_in(batch, self._job, step))
            if self._follows and time.monotonic() >= self._due:
                began = time.monotonic()
                self.end()
                # Of a long log a tenth of the time at most goes into tables that are made again and again.
                self._due = time.monotonic() + _UPKEEP_SHARE * (time.monotonic() - began)
            else:
                self._tell()
            if self._live:
                self._on_step("making the report")
                self._live.changed()
                self._measure()

    def _tell(self) -> None:
        self._summary = new = summary(self._ledger.totals, datetime.now(UTC))
        storage.write(f"{self._job.out}/summary.json", msgspec.json.encode(new) + b"\n")
        self._measure()
        self._on_summary(new)

    def _measure(self) -> None:
        reported = self._live.complete_up_to if self._live else None
        if self._summary and (self._summary, reported) != self._measured:
            storage.write(f"{self._job.out}/{metrics.FILE}", metrics.encoded(self._summary, reported))
            self._measured = self._summary, reported


_LOOK_EVERY_S = 1
_UPKEEP_SHARE = 10
_AGAIN = "run it again: it goes on where it was"


def run_with_progress(
    job: Job,
    *,
    follow: bool,
    settings: Mapping[str, str],
    judge: Judge | None = None,
    live: Callable[[SparkSession], LiveReport] | None = None,
    as_json: bool = False,
    is_quiet: bool = False,
) -> int:
    """Run the job. Returns the exit code: 0 when done (or ended by a signal, while following), else 1.

    Args:
        job: The options.
        follow: Go on until SIGTERM or SIGINT; else end after the present lines.
        settings: Of Spark, from the user.
        judge: Judges days; None: they are not judged.
        live: Makes the report that is kept up to date while following; None: there is none.
        as_json: Print the summary and its place as one object of JSON at the end.
        is_quiet: Print errors only, and that object where it is wanted.
    """
    try:
        checked(job)
        _check_folders(job)
        log = _log_file(job)
    except JobError as error:
        return _fail(str(error), error.exit_code)
    try:
        if not is_quiet:
            _tell_passed_over(job)
        with (
            Progress(Console(stderr=True, quiet=is_quiet)) as progress,
            alone(job),
            spark_session(log, settings, is_quiet=is_quiet) as spark,
        ):
            progress.on_start(spark)
            run = JobRun(spark, job, progress.on_summary, progress.on_step, judge, live and live(spark))
            if query := run.start(follow=follow):
                _wait(run, query, progress, follow=follow)
            run.end()
    except (JobError, JavaNotFoundError) as error:
        return _fail(str(error))
    except (ConnectionError, Py4JNetworkError):
        return _fail(f"Spark's Java process is gone: killed, or out of memory (its log: {log}); {_AGAIN}")
    except OSError as error:
        return _fail(_trouble(str(error), job) or f"{error.filename or job.out}: {error.strerror or error}")
    except (PySparkException, Py4JError) as error:
        reason = cause(error)
        return _fail(_trouble(reason, job) or f"Spark failed: {reason} (its log: {log}); {_AGAIN}")
    if as_json:
        print(json.dumps(progress.last_object(job.out), indent=2))  # noqa: T201 - a command's answer
    elif not is_quiet:
        print(progress.last_words(job.out))  # noqa: T201 - a command's answer
    return ExitCode.FAILED if run.trouble else ExitCode.DONE


def _wait(run: JobRun, query: StreamingQuery, progress: "Progress", *, follow: bool) -> None:
    """Wait until the stream or a signal ends the run; the next run reads what was under way.

    Raises:
        JobError: If a signal ends a run without `follow`.
    """
    is_stopping = False

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what `signal` calls
        nonlocal is_stopping
        is_stopping = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        while not query.awaitTermination(_LOOK_EVERY_S):
            progress.on_look()
            if follow:
                run.look()
            if is_stopping:
                query.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if is_stopping and not follow:
        raise JobError(f"ended by a signal before all was read; {_AGAIN}")


class Progress:
    """A line of progress on a terminal; nothing is written where standard error is none.

    Args:
        console: Where to.
    """

    def __init__(self, console: Console) -> None:
        self._status = console.status("starting Spark")
        self._spark: SparkSession | None = None
        self._summary: Summary | None = None

    def __enter__(self) -> Self:
        """Begins to draw."""
        self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stops drawing."""
        self._status.stop()

    def on_start(self, spark: SparkSession) -> None:
        """Show the tasks of a session from now on."""
        self._spark = spark
        self.on_step("looking for new files")

    def on_step(self, words: str) -> None:
        """Show the next step."""
        self._status.update(words)

    def on_summary(self, summary: Summary) -> None:
        """Show the progress after each batch."""
        self._summary = summary
        self.on_step(_words(summary))

    def on_look(self) -> None:
        """Show the progress within a batch, now and then."""
        if self._spark is None:
            return
        tracker = self._spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        done, tasks = (
            sum(getattr(stage, name) for stage in stages if stage) for name in ("numCompletedTasks", "numTasks")
        )
        if tasks:
            before = f"{_words(self._summary)}; " if self._summary else ""
            self.on_step(f"{before}{done:,} of {tasks:,} tasks done")

    def last_words(self, out: str) -> str:
        """Return the text that is printed at the end."""
        assert self._summary is not None
        return f"{_words(self._summary)}\n{out}/summary.json"

    def last_object(self, out: str) -> dict[str, Any]:
        """Return the same for programs."""
        assert self._summary is not None
        return {"summary_file": f"{out}/summary.json", **msgspec.to_builtins(self._summary)}


def _words(summary: Summary) -> str:
    counted = {"malformed": summary.malformed, "twice": summary.duplicates, "missing": summary.missing}
    counted |= {"declared lost": summary.lost}
    troubles = "".join(f", {number:,} {word}" for word, number in counted.items() if number)
    return f"{summary.lines:,} lines{troubles}; complete up to {summary.complete_up_to or 'no heartbeat yet'}"


@contextlib.contextmanager
def alone(job: Job) -> Iterator[None]:
    """Two runs at once on one folder would write over each other."""
    work = on_this_machine(job.places.work)
    taken = JobError(f"--out {job.out}: another run is at work on it; wait for it, or give another folder")
    with contextlib.nullcontext() if work is None else storage.locked(work, taken):
        yield


def _check_folders(job: Job) -> None:
    named = {"--access-log": job.source.folder, "--out": job.out}
    for option, path in named.items():
        # Spark's readers take these for patterns, even where they come from a listing.
        if special := set("*?[]{}\\") & set(path):
            raise JobError(f"{option} {path}: Spark reads {' '.join(sorted(special))} as a pattern; rename the folder")
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
    work = on_this_machine(job.places.work)
    if work is None:
        return Path(tempfile.mkdtemp(prefix="sluice-compliance-")) / "spark.log"
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JobError(f"--out {job.out}: cannot be written: {error.strerror}") from error
    return work / "spark.log"


def _trouble(text: str, job: Job) -> str | None:
    trouble = disk_trouble(text, {"--access-log": job.source.folder, "--out": job.out})
    return trouble and f"{trouble}, then {_AGAIN}"


def _fail(message: str, code: ExitCode = ExitCode.FAILED) -> int:
    _say(message)
    return code


def _say(message: str) -> None:
    print(f"sluice compliance run: {message}", file=sys.stderr)  # noqa: T201 - a command's answer
