"""The table in Markdown, what is to be said below it, and its place in a page. Pure."""

import statistics
from collections.abc import Mapping, Sequence

from loadgen.bench.figures import Rounds, is_guarded, number, values_of
from loadgen.bench.rows.row import EVERYBODY, SUBJECT, Row
from loadgen.bench_limits.table import aligned

MARKS = (
    "<!-- bench: written by `make bench`, not by hand -->",
    "<!-- bench: end -->",
)
OTHERS = tuple(name for name in EVERYBODY if name != SUBJECT)

Found = Mapping[str, Rounds]
"""What was measured, by the row's name."""


def table(rows: Sequence[Row], found: Found) -> str:
    """The table: the peers, Sluice, and Sluice beside them."""
    lines = [["load", "figure", *OTHERS, SUBJECT, f"{SUBJECT} beside them, and its goals"]]
    for row in rows:
        rounds = found[row.name]
        for position, figure in enumerate(row.figures):
            cells = [figure.shown(rounds.get(name, ())) for name in (*OTHERS, SUBJECT)]
            verdicts = [figure.verdict(goal, rounds, SUBJECT) for goal in figure.goals]
            said = "; ".join(verdict for verdict in verdicts if verdict)
            lines.append([row.load if position == 0 else "", figure.text, *cells, said])
    return aligned(lines)


def losses(rows: Sequence[Row], found: Found) -> list[str]:
    """A line for each peer that lost frames, with what it lost at most in one measurement."""
    return [
        f"{name} lost frames that were written before the close: {row.load}, {number(max(lost), 2)}"
        f" in one of {len(lost)} measurements"
        for row in rows
        for name, samples in found[row.name].items()
        if (lost := values_of("lost", samples)) and max(lost) > 0
    ]


def beyond(rows: Sequence[Row], found: Found) -> list[str]:
    """A line for each peer and load for which the machine, with all that runs on it, is too slow."""
    return [
        f"the load is not reached here: {row.load}, {name}: {figure.shown(samples)} {figure.text}"
        for row in rows
        if row.needs is not None
        for figure in row.figures
        if figure.key == row.needs[0]
        for name, samples in found[row.name].items()
        if (values := values_of(figure.key, samples)) and statistics.median(values) < row.needs[1]
    ]


def unlisted(rows: Sequence[Row], found: Found) -> list[str]:
    """A line for each peer that was measured and has no column."""
    return [
        f"{name}, {row.load}: " + ", ".join(f"{figure.shown(samples)} {figure.text}" for figure in row.figures)
        for row in rows
        for name, samples in found[row.name].items()
        if name not in EVERYBODY
    ]


def missed(rows: Sequence[Row], found: Found) -> list[str]:
    """A line for each goal that was measured and is missed."""
    return [
        f"{row.name}: {figure.text}: {figure.verdict(goal, found[row.name], SUBJECT)}"
        for row in rows
        for figure in row.figures
        for goal in figure.goals
        if not figure.is_met(goal, found[row.name], SUBJECT)
    ]


def unguarded(rows: Sequence[Row], found: Found) -> list[str]:
    """A line for each figure that is beyond the short form's bound, or could not be measured."""
    lines = []
    for row in rows:
        for figure in row.figures:
            for goal in figure.goals:
                value = figure.compared(goal, found[row.name], SUBJECT) if goal.guard is not None else 0.0
                if value is None:
                    lines.append(f"{row.name}: {figure.text}: was not measured")
                elif not is_guarded(goal, value):
                    bound = f"{goal.is_to_be} {goal.guard}"
                    lines.append(f"{row.name}: {figure.text}: {number(value, 2)} x {goal.beside}, bound {bound}")
    return lines
