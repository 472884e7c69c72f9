"""Lines of text in, rows out; each line that is not exactly one record gets the reason why.

Read as text and parsed here, not by Spark's JSON source: that one drops text behind a complete object, changes its
mind about what is malformed with the columns selected, and loses the raw line.
"""

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType

from accesslog.record import SCHEMA_VERSION, Kinds
from compliance.schema import (
    choices,
    count_list_fields,
    line_schema,
    nullable_fields,
    number_fields,
    required_fields,
    row_schema,
    time_fields,
)

LONGEST_QUARANTINED = 100_000
_RFC3339 = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$"

# The line is parsed as the only element of a list that a sentinel follows: a second object, a bracket or any other
# text behind the record breaks that form, which a bare parse of the line would not notice.
_WRAPPED = StructType(
    [
        StructField("lines", ArrayType(line_schema())),
        StructField("end", BooleanType()),
        StructField("bad", StringType()),
    ]
)
_OPTIONS = {"columnNameOfCorruptRecord": "bad", "allowNonNumericNumbers": "false"}


def parse(lines: DataFrame) -> DataFrame:
    """Column `value` in, with any that tell its place (`file` …).

    Out: these, every field of the record (times still as text), and `is_good`.

    Persist or write the result before selecting from it twice: else each line is parsed twice.
    """
    place = [name for name in lines.columns if name != "value"]
    wrapped = F.concat(F.lit('{"lines":['), F.col("value"), F.lit('],"end":true}'))
    parsed = lines.select(
        *place,
        F.make_valid_utf8("value").alias("value"),
        F.is_valid_utf8("value").alias("is_text"),
        F.from_json(wrapped, _WRAPPED, _OPTIONS).alias("parsed"),
    )
    is_alone = F.coalesce(F.col("parsed.end") & (F.size("parsed.lines") == 1), F.lit(False))
    # A generator and not fields of `parsed`: the optimizer would copy the parser into each of them.
    flat = parsed.select(
        *place,
        "value",
        "is_text",
        is_alone.alias("is_alone"),
        F.col("parsed.bad").isNull().alias("is_typed"),
        F.inline_outer(F.when(is_alone, F.col("parsed.lines"))),
    )
    return flat.withColumn("is_good", F.coalesce(_is_good(), F.lit(False)))


def rows_or_null(parsed: DataFrame, place: tuple[str, ...]) -> DataFrame:
    """A row for every line: of the good ones with its fields and the UTC day of its start, of others with its place."""
    times = {name: F.try_to_timestamp(F.col(name)) for name in time_fields()}
    day = F.when(F.col("is_good"), F.to_date("start")).alias("day")
    return parsed.withColumns(times).select(*row_schema().names, *place, day)


def quarantined(malformed: DataFrame, place: tuple[str, ...]) -> DataFrame:
    """What is kept of malformed lines: their places, the beginning of their text, and why they are malformed."""
    text = F.substring("value", 1, LONGEST_QUARANTINED).alias("text")
    return malformed.select(*place, text, fault().alias("reason"))


def _is_good() -> Column:
    """Every rule of `fault` at once, in a form that is quick for the many lines that keep them all."""
    complete = {kind: [F.col(name).isNotNull() for name in required_fields(kind)] for kind in Kinds.BY_NAME}
    for kind, conditions in complete.items():
        conditions += [F.col(name).isNotNull() | _says(name) for name in nullable_fields(kind)]
    by_kind = (F.when(F.col("kind") == kind, reduce(and_, conditions)) for kind, conditions in complete.items())
    rules = [
        F.col("is_text") & F.col("is_alone") & F.col("is_typed"),
        F.col("v") <= SCHEMA_VERSION,
        F.coalesce(*by_kind),
        F.least(*number_fields()) >= 0,
        *(~_has_bad_count(name) for name in count_list_fields()),
        *(~_is_bad_time(name) for name in time_fields()),
        *(F.col(name).isNull() | F.col(name).isin(*words) for name, words in choices().items()),
        *(~_lacks_burst(unit) for unit in ("messages", "bytes")),
    ]
    return reduce(and_, rules)


def fault() -> Column:
    """The first rule that the line breaks, in words; null if it breaks none."""
    known = F.col("kind").isin(*Kinds.BY_NAME)
    return F.coalesce(
        F.when(~F.col("is_text"), "not UTF-8 text"),
        F.when(F.trim("value") == "", "empty line"),
        F.when(~F.col("is_alone"), "not exactly one complete JSON object"),
        F.when(~F.col("is_typed"), "a field has the wrong type"),
        F.when(F.col("kind").isNull(), "missing: kind"),
        F.when(~known, F.concat(F.lit("unknown kind: "), F.substring("kind", 1, 100))),
        F.when(F.col("v") > SCHEMA_VERSION, F.concat(F.lit("newer schema version: "), F.col("v").cast("string"))),
        _named(_missing(), "missing: "),
        _named(_bad_values(), "impossible value: "),
    )


def _named(names: list[Column], words: str) -> Column:
    found = F.concat_ws(", ", *names)
    return F.when(found != "", F.concat(F.lit(words), found))


def _missing() -> list[Column]:
    """The names of fields that the line's kind must have and that are not there."""
    absent = []
    for name in line_schema().names:
        required = [kind for kind in Kinds.BY_NAME if name in required_fields(kind)]
        nullable = [kind for kind in Kinds.BY_NAME if name in nullable_fields(kind)]
        is_absent = F.col("kind").isin(*required) & F.col(name).isNull()
        # A null limit means "none", so it must be written: a lost field must not lift a limit.
        is_unsaid = F.col("kind").isin(*nullable) & ~_says(name)
        absent.append(F.when(is_absent | is_unsaid, name))
    return absent


def _says(name: str) -> Column:
    return F.contains(F.col("value"), F.lit(f'"{name}"'))


def _bad_values() -> list[Column]:
    bad = {name: _is_bad_time(name) for name in time_fields()}
    bad |= {name: F.col(name) < 0 for name in number_fields()}
    bad |= {name: _has_bad_count(name) for name in count_list_fields()}
    bad |= {name: ~F.col(name).isin(*words) for name, words in choices().items()}
    for unit in ("messages", "bytes"):
        bad[f"burst_{unit}"] |= _lacks_burst(unit)
    return [F.when(condition, name) for name, condition in bad.items()]


def _is_bad_time(name: str) -> Column:
    # `try_to_timestamp` alone would accept a bare year or a time without a zone. A time that must be there and is not
    # is found as missing.
    is_unreadable = ~F.col(name).rlike(_RFC3339) | F.try_to_timestamp(F.col(name)).isNull()
    return F.col(name).isNotNull() & is_unreadable


def _has_bad_count(name: str) -> Column:
    is_bad = F.exists(name, lambda count: count.isNull() | (count < 0))
    return F.col(name).isNotNull() & F.coalesce(is_bad, F.lit(False))


def _lacks_burst(unit: str) -> Column:
    is_limited = (F.col("kind") == "limit") & F.col(f"limit_{unit}").isNotNull()
    return is_limited & F.col(f"burst_{unit}").isNull()
