"""Time as Spark columns: seconds as numbers, and text that any JSON reader takes for a UTC time."""

from pyspark.sql import Column
from pyspark.sql import functions as F


def seconds(time: Column) -> Column:
    """A timestamp as seconds since 1970, microseconds behind the point."""
    return F.unix_micros(time) / 1e6


def rfc3339(time: Column) -> Column:
    """A timestamp as text; Spark would hand it over in the local time of this machine, without saying so."""
    return F.date_format(time, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
