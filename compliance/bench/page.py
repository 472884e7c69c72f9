"""The table, and its place in docs/benchmarks.md."""

from dataclasses import dataclass

BEGIN = "<!-- bench-compliance: written by `make bench-compliance`, not by hand -->"
END = "<!-- bench-compliance: end -->"


@dataclass(frozen=True, slots=True)
class Row:
    """One size of log; several runs of each."""

    lines: int
    size: int
    bare_s: float
    job_s: float


def section(rows: list[Row], machine: str) -> str:
    """The section with its marks."""
    table = [f"| {' | '.join(_HEAD)} |", "|" + "---|" * len(_HEAD)]
    for row in rows:
        grown = (row.job_s / row.lines) / (rows[0].job_s / rows[0].lines)
        cells = [f"{row.lines:,}", f"{row.size / 1e6:,.0f}", f"{row.bare_s:.1f} s", f"{row.job_s:.1f} s"]
        cells += [f"{row.lines / row.job_s:,.0f}", f"{row.bare_s / row.job_s:.2f}", f"{grown:.2f}"]
        table.append(f"| {' | '.join(cells)} |")
    return "\n".join([BEGIN, "## The compliance job", "", _HOW, "", *table, "", f"Measured on {machine}.", END])


def placed(page: str, made: str) -> str:
    """The page with the section in place of its former self, or at the end."""
    before, mark, rest = page.partition(BEGIN)
    if not mark:
        return f"{page.rstrip()}\n\n{made}\n"
    return before + made + rest.partition(END)[2]


_HEAD = ("lines", "MB", "bare", "the job", "job, lines/s", "bare ÷ job", "time a line ÷ first row's")
_HOW = """\
Made by `make bench-compliance`, which writes this section itself. *The job* is `sluice compliance
run --once` on an empty folder: parse, check of every rule, rows as Parquet, duplicates, gaps,
windows of five lengths. *Bare* is Spark's own JSON source with the same schema on the same files:
every field parsed and its values counted, nothing checked, nothing written. By turns, each in a
process of its own that has just started Spark (its start is not counted, its warming up is); the
least of the runs."""
