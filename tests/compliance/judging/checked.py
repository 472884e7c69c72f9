"""Planted lines in the form in which they are judged."""

from compliance.judging.clock_steps import steps_back, with_epoch
from compliance.judging.containment import judged_lines
from compliance.judging.crosscheck import crosscheck_facts
from compliance.stream.sequence import merged
from tests.compliance.planted import frame


def crosschecked(spark, logs):
    """What the streams' own lines say of the limits of some planted logs."""
    lines = frame(spark, logs)
    placed = with_epoch(lines, steps_back(lines, lines))
    return crosscheck_facts(judged_lines(placed.where("kind = 'limit'")), placed.where("kind = 'interval'"))


def seen_of(rows):
    """The ranges of numbers that the job would have kept of these rows."""
    return merged(rows.selectExpr("proxy_id", "boot_id", "seq AS from_seq", "seq AS to_seq"))
