"""Planted lines in the form in which they are judged."""

from compliance.judging.clock_steps import steps_back, with_epoch
from compliance.judging.containment import judged_lines
from compliance.judging.crosscheck import crosscheck_facts
from tests.compliance.planted import frame


def crosschecked(spark, logs):
    """What the streams' own lines say of the limits of some planted logs."""
    lines = frame(spark, logs)
    placed = with_epoch(lines, steps_back(lines, lines))
    return crosscheck_facts(judged_lines(placed.where("kind = 'limit'")), placed.where("kind = 'interval'"))
