"""What is rounding, not excess, and what no shortfall: one rule, for plain numbers and for Spark columns."""

from typing import TypeVar

from pyspark.sql import Column

Number = TypeVar("Number", float, Column)

CLOCK_RESOLUTION_S = 1e-6
"""The record's times are exact to a microsecond: so much of the limit is no excess."""
OWED_SHARE = 0.99
"""What passed while somebody waited, of what the limit allowed, is at least so much, but for one entry ..."""
OWED_WINDOW_S = 10
"""... in every window of so many seconds."""


def excess_tolerance(limit: Number) -> Number:
    """Half a message or byte, and a microsecond's worth of the limit."""
    return 0.5 + CLOCK_RESOLUTION_S * limit
