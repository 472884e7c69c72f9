"""Has everything that a job has kept summed up for the report.

A batch job on purpose: it looks at lines, and not at the job's windows, so that no window hides what its parts show.
"""

from collections.abc import Callable

from pyspark.sql import SparkSession

from compliance.judging.facts import Facts
from compliance.report.collect import Asked, collect, opened
from compliance.tables import LogTables

LINES_A_PARTITION = 250_000
FEW_LINES = 100_000


def gather(spark: SparkSession, tables: LogTables, on_step: Callable[[str], None], asked: Asked | None = None) -> Facts:
    """Everything that the report needs.

    Args:
        spark: The session.
        tables: What has been kept.
        on_step: Told, in words, what is counted next.
        asked: What else the reader wants to know.
    """
    for name, value in settings_for(tables.lines).items():
        spark.conf.set(name, value)
    with opened(tables) as logs:
        return collect(logs, asked or Asked(), on_step)


def settings_for(lines: int) -> dict[str, str]:
    """What Spark is told for so many lines."""
    is_little = lines < FEW_LINES
    return {
        "spark.sql.shuffle.partitions": str(min(2000, max(2, lines // LINES_A_PARTITION))),
        # Compiling the plans takes longer than running them over so few rows as they are.
        "spark.sql.codegen.wholeStage": str(not is_little).lower(),
        "spark.sql.codegen.factoryMode": "NO_CODEGEN" if is_little else "FALLBACK",
        # The number of partitions is known: planning anew behind each of them costs more than it gains.
        "spark.sql.adaptive.enabled": "false",
    }
