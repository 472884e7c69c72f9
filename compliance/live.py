"""A report on the latest lines, kept up to date while the job follows a log."""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compliance.excerpt import Excerpt
from compliance.job import ReportError, gather, write
from compliance.report.collect import ExtraQuestions
from compliance.report.page import visible
from compliance.report.report import make_report
from compliance.session import cause
from compliance.tables import read_tables

LEAST_S = 10.0
"""Seconds between two reports; as many as the last one took, if that is more."""


class FollowingReport:
    """Makes the report again when there are new lines; a report that fails is said, and the job goes on.

    Args:
        spark: The job's session.
        tables: The job's `--out`.
        out: Folder of the report.
        window: The time before the last line that the report is about.
        clock: Monotonic seconds.

    Attributes:
        complete_up_to: As `stream.run.LiveReport`.
    """

    def __init__(
        self,
        spark: SparkSession,
        tables: str,
        out: Path,
        window: timedelta,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.complete_up_to: datetime | None = None
        self._spark = spark.newSession()  # with settings of its own
        self._tables, self._out, self._window = tables, out, window
        self._clock = clock
        self._is_stale = False
        self._due_s = 0.0
        self._trouble = ""

    def changed(self) -> None:
        """Note that there are new lines; make the report again, unless it was made a moment ago."""
        self._is_stale = True
        self.look()

    def look(self) -> None:
        """Make the report again if lines came shortly after it was made."""
        began_s = self._clock()
        if not self._is_stale or began_s < self._due_s:
            return
        self._is_stale = False
        trouble = self._make()
        if trouble != self._trouble and trouble:
            print(visible(f"sluice compliance run: --report {self._out}: {trouble}"), file=sys.stderr)  # noqa: T201 - a command's line
        self._trouble = trouble
        ended_s = self._clock()
        self._due_s = ended_s + max(LEAST_S, ended_s - began_s)

    def _make(self) -> str:
        """Make the report; return why it cannot be made, or nothing."""
        tables = read_tables(self._spark, self._tables)
        last = max((row["last"] for row in tables.runs.to_pylist()), default=None)
        if last is None:
            return ""
        # Lines of a clock that is ahead would push all others out.
        begin = min(last, datetime.now(UTC)) - self._window
        try:
            questions = ExtraQuestions(excerpt=Excerpt(begin=begin))
            report = make_report(gather(self._spark, tables, lambda _: None, questions))
            write(report, self._out)
        except (ReportError, OSError) as error:
            return str(error)
        except (PySparkException, Py4JError) as error:
            return f"Spark failed: {cause(error)}"
        self.complete_up_to = report.overall.complete_up_to
        return ""
