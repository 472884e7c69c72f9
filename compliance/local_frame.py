"""Rows of the driver's own as a data frame.

`createDataFrame` would have Python workers started to hand them over, on every executor: seconds for a few rows, and
executors need no Python for anything else.
"""

from collections.abc import Mapping, Sequence

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def local_frame(spark: SparkSession, rows: Sequence[Sequence[object]], types: Mapping[str, str]) -> DataFrame:
    """A data frame of these rows, few enough to stand in a plan.

    Args:
        spark: The session.
        rows: Values in the order of the columns; of types that JSON has.
        types: Of the columns, as SQL writes them, by name.
    """
    said = msgspec.json.encode([dict(zip(types, row, strict=True)) for row in rows]).decode()
    fields = ",".join(f"`{name}`:{kind}" for name, kind in types.items())
    parsed = F.from_json(F.lit(said), f"array<struct<{fields}>>")
    return spark.range(0, 1, 1, 1).select(F.inline(parsed))
