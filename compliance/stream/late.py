"""What is said of lines that came too late for their windows: how many, for which, and what helps."""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from compliance.stream.options import Job
from compliance.stream.state import State

Late = Mapping[str, int]
"""Lines by the width of their window in seconds."""
_ORDER = (
    "files are read in the order in which they were last modified, so a copy of the log should keep these times "
    "(cp -p, rsync -t); "
)


def late_so_far(spark: SparkSession, job: Job) -> Late:
    """What earlier runs with this `out` have counted.

    Raises:
        JobError: If another version of the job wrote it.
    """
    state = State(spark, job.work)
    return state.totals(state.newest()).late


def late_words(before: Late, after: Late, job: Job) -> str:
    """What is said of a run; nothing if none of its lines was late.

    Args:
        before: Before the run.
        after: Behind it.
        job: What the run was told.
    """
    new = {int(width): lines - before.get(width, 0) for width, lines in after.items() if lines > before.get(width, 0)}
    if not new:
        return ""
    counted = ", ".join(f"{new[width]:,} for windows of {width} s" for width in sorted(new))
    order = _ORDER if job.source.kind == "files" else ""
    return (
        f"late lines: {counted}: they are in rows, but not in these windows, which later lines had closed; {order}"
        f"a --late-after of more than {job.late_after_s} keeps windows open longer; those that are closed come right "
        "only with another --out, and there with such a --late-after, or a --batch-mib that holds all of the log"
    )
