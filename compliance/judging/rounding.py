"""What is rounding, not excess: one rule, for plain numbers and for Spark columns."""

from typing import TypeVar

from pyspark.sql import Column

Number = TypeVar("Number", float, Column)

CLOCK_RESOLUTION_S = 1e-6
"""The record's times are exact to a microsecond: so much of the limit is no excess."""


def excess_tolerance(limit: Number) -> Number:
    """Half a message or byte, and a microsecond's worth of the limit."""
    return 0.5 + CLOCK_RESOLUTION_S * limit
