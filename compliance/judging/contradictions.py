"""Contradictions between the lines of limits, streams and changes, each as `DoubtFacts`.

Spark finds these contradictions between lines. `account.py` finds contradictions within one limiter's replay.
"""

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window as Over
from pyspark.sql.window import WindowSpec

from compliance.figures.rates import PARTITION, scoped
from compliance.judging.judge import held_ms, is_exempt, under_limits
from compliance.judging.lines import BUCKETS, SAME_WAIT_S
from compliance.schema import BOOT, LIMITER, rfc3339
from limiter import levels as limiting

_UNITS = BUCKETS[:2]


def unbalanced(intervals: DataFrame, limits: DataFrame, torn: Collection[tuple[str, str]]) -> DataFrame:
    """Find, for each limit, the first line of its streams that does not add up, as `DoubtFacts`.

    Three rules must hold. A stream's offered amount is the sum of the amounts passed, dropped, rejected and held. A
    stream waits while it holds something: by `held_since`, by the longest delay, and through a line in which part of
    the amount held before stayed held. And it waits no longer than the line lasts.

    Args:
        intervals: All lines of streams, as `with_waits`.
        limits: All lines of limiters.
        torn: Runs with missing lines: their lines need not add up.
    """
    own = Over.partitionBy(*BOOT, "connection_id", "direction", "stream_id", "topic").orderBy("seq")
    held = {unit: F.col(f"held_{unit}") for unit in _UNITS}
    over = {
        unit: F.col(f"offered_{unit}")
        - F.col(f"passed_{unit}")
        - F.col(f"dropped_{unit}")
        - F.coalesce(f"rejected_{unit}", F.lit(0))
        - held[unit]
        + F.coalesce(F.lag(held[unit]).over(own), F.lit(0))
        for unit in _UNITS
    }
    lines = intervals.withColumns({f"over_{unit}": amount for unit, amount in over.items()})
    lines = lines.withColumn("waited_ms", _least_wait_ms(own))
    is_unbalanced = (F.col("over_messages") != 0) | (F.col("over_bytes") != 0)
    is_silent = (F.col("held_messages") > 0) & F.col("held_since").isNull()
    is_denied = F.col("waited_ms") > F.col("throttled_ms") + SAME_WAIT_S * 1000
    is_beyond = F.col("beyond_ms") > SAME_WAIT_S * 1000
    broken = lines.where(is_unbalanced | is_silent | is_beyond | is_denied)
    for proxy_id, boot_id in torn:
        broken = broken.where((F.col("proxy_id") != proxy_id) | (F.col("boot_id") != boot_id))
    differs = F.format_string(
        "%d messages and %d bytes that a stream offered neither passed nor were dropped, rejected or held",
        "over_messages",
        "over_bytes",
    )
    denied = F.format_string(
        "a stream held something for at least %.3f ms, and its line has a wait of %.3f ms", "waited_ms", "throttled_ms"
    )
    silent = F.format_string("a stream held %d messages, and its line lacks held_since", "held_messages")
    beyond = F.format_string(
        "a stream's line has a wait that is %.3f ms longer than the line, which lasts %.3f ms",
        "beyond_ms",
        "duration_ms",
    )
    text = F.when(is_unbalanced, differs).when(is_silent, silent).when(is_beyond, beyond).otherwise(denied)
    return _doubts_of("stream", text, broken, limits)


def _least_wait_ms(own: WindowSpec) -> Column:
    """Return the least time for which a stream held something in a line.

    Args:
        own: Lines of one stream, in order.
    """
    before = F.coalesce(F.lag(F.when(F.col("held_since").isNotNull(), held_ms(whole=True))).over(own), F.lit(0.0))
    gone = F.col("passed_messages") + F.col("dropped_messages") + F.coalesce("rejected_messages", F.lit(0))
    stays = F.coalesce(F.lag("held_messages").over(own), F.lit(0)) > gone
    through = F.when(stays, F.col("duration_ms")).otherwise(F.lit(0.0))
    return F.greatest(held_ms(), through, F.col("delay_max_ms") - before)


_SETTINGS = tuple(
    (level, record)
    for level in limiting.LEVELS
    for record in level.settings
    if not level.is_of_system and (not record.has_patterns or level.is_by_match)
)
"""The settings with a name that gives the names of its limiters. Names that are patterns, as networks, do not: several
may be for one limiter, whose line does not tell which holds."""
_SETTING = ("own_setting", "own_level", "own_source", "own_has_each")
"""Columns of a setting in a change line: the setting, the level of its limiters, their source in their lines, and
whether `*` is for all names without a value of their own."""
_KEYS = {
    "brokerPublisherThrottlingMax": ("publish", "proxy"),
    "maxPublishRatePerTopic": ("publish", "topic_of_broker"),
    "dispatchThrottlingRateIn": ("dispatch", "proxy"),
    "dispatchThrottlingRatePerTopic": ("dispatch", "topic_of_broker"),
    "dispatchThrottlingRatePerSubscription": ("dispatch", "subscription_of_broker"),
}
"""Direction and setting of each key of the broker's dynamic configuration, by the key's beginning."""
_TWO_PARTS = r"^(.*)@((?:non-)?persistent://.*|[^@]*)$"
"""A limiter's name of two parts; a topic as the second one may have an @."""
_NO_RATE = r'"(ratePeriodInSecond|[a-zA-Z]*[pP]eriod[a-zA-Z]*)"\s*:\s*"?\d+'
_SOME_RATE = r"(^|[^\w.-])[1-9]\d*"


_WHEN = ("before", "after")
_ORIGINS = ("file", "rest", "dynamic", "global")
_LIMITS = tuple(f"limits_{when}" for when in _WHEN)


def _rates_of(direction: str, when: str) -> Column:
    return F.concat_ws(" ", F.regexp_extract_all(when, F.lit(rf'"{direction}Rate[^"]*"\s*:\s*"?(-?\d+)'), F.lit(1)))


def _changed_settings(changes: DataFrame) -> DataFrame:
    """Select changes that set limits, with `direction`, `of_setting`, `of` and the `origin` that limits name then."""
    same = changes.withColumns(
        {
            "of": F.col("name"),
            "origin": F.lit("rest"),
            **{f"rates_{when}": F.regexp_replace(when, _NO_RATE, "") for when in _WHEN},
        }
    )
    limits = same.where(F.col("what").isin("publish", "dispatch")).withColumns(
        {"direction": F.col("what"), "of_setting": F.col("setting")}
    )
    groups = [
        same.where(F.col("what") == "group").withColumns(
            {
                "direction": F.lit(direction),
                "of_setting": F.lit("resource_group"),
                # One text has the rates of both directions.
                **{f"rates_{when}": _rates_of(direction, when) for when in _WHEN},
            }
        )
        for direction in ("publish", "dispatch")
    ]
    keys = [
        same.where((F.col("what") == "dynamic") & F.col("name").startswith(key)).withColumns(
            {
                "direction": F.lit(direction),
                "of_setting": F.lit(setting),
                "of": F.lit(""),
                "origin": F.lit("dynamic"),
            }
        )
        for key, (direction, setting) in _KEYS.items()
    ]
    changed = limits
    for more in (*groups, *keys):
        changed = changed.unionByName(more)
    return changed


def _named_in_setting() -> Column:
    """Return the name under which a setting has a limiter's tenant, namespace, topic or other owner."""
    named = F.when(_is_each(), F.col("of"))
    for level, record in _SETTINGS:
        own = F.concat_ws("@", *(_of_limiter(level, part) for part in record.named))
        named = named.when(F.col("of_setting") == record.word, own)
    return named


def _is_each() -> Column:
    return F.col("own_has_each") & (F.col("of") == "*")


def _of_limiter(level: limiting.Level, part: limiting.Part) -> Column:
    """Return a part of the streams of a level's limiter, as its line has it: in the name, or as tenant or namespace."""
    parts = [limited.by or limited for limited in level.limited]
    if part not in parts:
        return F.col("tenant") if part is limiting.TENANT else F.concat_ws("/", "tenant", "namespace")
    name = F.col("name")
    if len(parts) > 1:
        name = F.regexp_extract(name, _TWO_PARTS, parts.index(part) + 1)
    return F.regexp_replace(name, PARTITION, "") if part is not level.limited[parts.index(part)] else name


def _hidden_by(own: Column, level: Column) -> Column:
    """Return the sources that a value of the setting hides, as limiters' lines name them."""
    sources = F.array(F.concat(own, F.lit(" file")), F.concat(F.lit("each "), own, F.lit(" file")))
    sources = F.array_union(sources, F.array(F.concat(F.lit("each "), own, F.lit(" rest"))))
    by_pattern = (F.concat(F.lit("pattern "), own, F.lit(f" {origin}")) for origin in ("file", "rest"))
    sources = F.array_union(sources, F.array(*by_pattern))
    for each in limiting.LEVELS:
        for place, record in enumerate(each.settings[:-1]):
            words = {word for other in each.settings[place + 1 :] for word in (other.source, other.pattern_source)}
            wider = [f"{word} {origin}" for word in sorted(words) for origin in _ORIGINS]
            hidden = F.array(*(F.lit(source) for source in wider))
            sources = F.when((level == each.word) & (own == record.source), F.array_union(sources, hidden)).otherwise(
                sources
            )
    return sources


def without_effect(changes: DataFrame, limits: DataFrame) -> DataFrame:
    """Find, for each limiter that goes on unchanged, the first change of its own value, as `DoubtFacts`.

    A change is of the limiter's own value in three cases. The limiter's line names the setting as its source, set at
    run time. Or its value is the setting's old value, and not the new one. Or the setting has a value now, and the
    line names a source that this value hides: a file, or a wider setting.

    Args:
        changes: All lines of changes.
        limits: All lines of limiters.
    """
    settings = F.array(
        *(
            F.struct(*(F.lit(value_).alias(name) for name, value_ in zip(_SETTING, row, strict=True)))
            for row in ((record.word, level.word, record.source, record.has_each) for level, record in _SETTINGS)
        )
    )
    of_setting = Over.partitionBy(*BOOT, "what", "setting", "name").orderBy("seq")
    neighbours = {
        "changed_before": F.coalesce(F.lag("seq").over(of_setting), F.lit(-1)),
        "changed_again": F.coalesce(F.lead("seq").over(of_setting), F.lit(2**63 - 1)),
    }
    effective = changes.withColumns(neighbours).where(
        F.col("before").isNull() | F.col("after").isNull() | (F.col("before") != F.col("after"))
    )
    settings_changed = (
        _changed_settings(effective)
        .select(
            *BOOT,
            *("direction", "of_setting", "of", "origin", *neighbours),
            *(
                F.coalesce(F.col(f"rates_{when}").rlike(_SOME_RATE), F.lit(False)).alias(f"limits_{when}")
                for when in _WHEN
            ),
            F.col("seq").alias("at"),
            F.col("start_us").alias("changed_us"),
            *(F.coalesce(name, F.lit("")).alias(name) for name in ("before", "after")),
            F.inline(settings),
        )
        .where(F.col("of_setting") == F.col("own_setting"))
    )
    value = F.struct("source", "mode", *(f"{what}_{unit}" for what in ("limit", "burst") for unit in _UNITS))
    lines = limits.select(
        *LIMITER, "namespace", "tenant", "seq", "start_us", "start", "end", "file", "line", value.alias("value")
    )
    both = lines.join(
        F.broadcast(settings_changed.withColumnRenamed("own_level", "level")),
        on=[*BOOT, "direction", "level"],
        how="inner",
    ).where(_named_in_setting() == F.col("of"))
    # With many changes at once, each limiter's line ends when its own value changes: the line at the change may be old.
    is_before = (F.col("seq") < F.col("at")) | (F.col("start_us") < F.col("changed_us"))
    is_behind = (F.col("seq") > F.col("at")) & (F.col("start_us") > F.col("changed_us"))
    is_before &= F.col("seq") > F.col("changed_before")
    is_behind &= F.col("seq") < F.col("changed_again")
    place = F.struct("file", "seq", "line")
    times = (rfc3339(F.col(name)).alias(name) for name in ("start", "end"))
    behind = F.struct("value", *times, place.alias("place"))
    pairs = both.groupBy(
        *LIMITER,
        "at",
        "before",
        "after",
        "own_source",
        "own_has_each",
        "of",
        "origin",
        *(f"limits_{when}" for when in _WHEN),
    ).agg(
        F.max_by("value", F.when(is_before, F.col("seq"))).alias("was"),
        F.min_by(behind, F.when(is_behind, F.col("seq"))).alias("now"),
    )
    numbers = F.coalesce("was.limit_messages", "was.limit_bytes").cast("long").cast("string")
    stood = F.concat(F.lit(r"(^|\D)"), numbers, F.lit(r"($|\D)"))
    own = F.concat(F.when(_is_each(), F.lit("each ")).otherwise(F.lit("")), F.col("own_source"))
    is_named = F.col("was.source") == F.concat(own, F.lit(" "), F.col("origin"))
    matters = F.col("limits_before") | F.col("limits_after")
    source = F.regexp_replace("was.source", " plan .*$", "")
    is_hidden = F.col("limits_after") & F.array_contains(_hidden_by(own, F.col("level")), source)
    is_tenants_own = source.endswith(" tenant")  # it may have the same number, and goes on
    was_there = F.regexp_like("before", stood) & ~F.regexp_like("after", stood) & ~is_tenants_own
    is_own = (is_named & matters) | is_hidden | F.coalesce(was_there, F.lit(False))
    same = pairs.where((F.col("was") == F.col("now.value")) & is_own)
    text = F.concat(
        F.lit("it was changed from "),
        F.when(F.col("before") == "", "nothing").otherwise(F.substring("before", 1, 200)),
        F.lit(" to "),
        F.when(F.col("after") == "", "nothing").otherwise(F.substring("after", 1, 200)),
        F.lit(", and its next line still has the old value"),
    )
    first = F.struct(text.alias("said"), "now.start", "now.end", "now.place")
    doubts = same.groupBy(*LIMITER).agg(F.min_by(first, "at").alias("first"), F.count("*").alias("times"))
    return doubts.select(
        *LIMITER,
        F.lit("change").alias("what"),
        "first.said",
        "first.start",
        "first.end",
        F.col("first.place").alias("first_line"),
        F.col("first.place").alias("last_line"),
        "times",
    )


_OF_ALL = ("proxy", "tenant", "namespace")
"""Levels whose limits apply to all deliveries under their names; narrower limits may spare a consumer."""
_OF_ALL_PUBLISHED = tuple(level.word for level in limiting.LEVELS if not level.is_of_system)
"""Levels whose limits apply to all messages published under their names."""


def outsiders(intervals: DataFrame, limits: DataFrame, changes: DataFrame) -> DataFrame:
    """Find, for each limit, the first line of a stream of its name that claims not to be under it, as `DoubtFacts`.

    Args:
        intervals: All lines of streams, on the axis.
        limits: All lines of limiters, on the same.
        changes: All lines of changes. In a span with a change, a line names the limits at its end only.
    """
    named_levels = F.split("limit_levels", " ")
    lines = intervals.where(~is_exempt() & (F.col("passed_messages") > 0))
    is_publish = F.col("direction") == "publish"
    named = scoped(lines.where(is_publish), _OF_ALL_PUBLISHED).unionByName(scoped(lines.where(~is_publish), _OF_ALL))
    without = named.where(~F.array_contains(named_levels, F.col("level")))
    is_steady = F.coalesce("steady", F.lit(False))
    streams = without.select(
        *LIMITER,
        *("topic", "passed_messages"),
        *(F.col(name).alias(f"of_{name}") for name in ("seq", "start_us", "end_us")),
        is_steady.alias("is_steady"),
    )
    is_in_force = (F.col("mode") != "observe") & (
        F.col("limit_messages").isNotNull() | F.col("limit_bytes").isNotNull()
    )
    own = limits.where(is_in_force).select(
        *LIMITER,
        *("start_us", "end_us", "seq", "start", "end"),
        is_steady.alias("steady"),
        F.struct("file", "seq", "line").alias("place"),
    )
    moments = F.broadcast(
        changes.select(*(F.col(name).alias(f"of_{name}") for name in BOOT), F.col("start_us").alias("at_us"))
    )
    is_changed = (
        (F.col("proxy_id") == F.col("of_proxy_id"))
        & (F.col("boot_id") == F.col("of_boot_id"))
        & F.col("at_us").between(F.col("start_us"), F.col("end_us"))
    )
    # A steady line and those of the other side have different spans.
    both = _by_minute(streams, "of_start_us", "of_end_us").join(
        _by_minute(own, "start_us", "end_us"), on=[*LIMITER, "minute"]
    )
    is_same = (F.col("of_start_us") == F.col("start_us")) & (F.col("of_end_us") == F.col("end_us"))
    overlaps = (F.col("of_start_us") < F.col("end_us")) & (F.col("start_us") < F.col("of_end_us"))
    pairs = both.where(is_same | (overlaps & (F.col("is_steady") | F.col("steady"))))
    whole = {"start_us": F.least("start_us", "of_start_us"), "end_us": F.greatest("end_us", "of_end_us")}
    together = pairs.dropDuplicates([*LIMITER, "of_seq", "seq"]).withColumns(whole)
    outside = together.join(moments, on=is_changed, how="left_anti")
    text = F.format_string(
        "a stream of %s passed %d messages, and its line does not name this limit", "topic", "passed_messages"
    )
    times = (rfc3339(F.col(name)).alias(name) for name in ("start", "end"))
    first = F.struct(text.alias("said"), *times, F.col("place").alias("first_line"), F.col("place").alias("last_line"))
    each = outside.groupBy(*LIMITER).agg(F.min_by(first, "seq").alias("first"), F.count("*").alias("times"))
    return each.select(*LIMITER, F.lit("outside").alias("what"), "first.*", "times")


def _by_minute(spans: DataFrame, start: str, end: str) -> DataFrame:
    """Repeat each span for each minute that it touches: adds `minute`."""
    minutes = (F.floor(F.col(moment) / 60_000_000) for moment in (start, end))
    return spans.withColumn("minute", F.explode(F.sequence(*minutes)))


def falsely_exempt(intervals: DataFrame, limits: DataFrame) -> DataFrame:
    """Find, for each limit, the first line of a stream of its names that falsely says to be exempt, as `DoubtFacts`.

    Args:
        intervals: All lines of streams.
        limits: All lines of limiters.
    """
    lines = intervals.where(F.coalesce("exempt", F.lit(False)) & ~is_exempt() & (F.col("passed_messages") > 0))
    named = scoped(lines.withColumn("exempt", F.lit(False)), _OF_ALL_PUBLISHED)
    limiters = limits.where(F.col("mode") != "observe").select(*LIMITER).distinct()
    text = F.format_string(
        "a stream of %s passed %d messages as exempt, and the topic is none of Pulsar's own",
        "topic",
        "passed_messages",
    )
    place = F.struct("file", "seq", "line")
    times = (rfc3339(F.col(name)).alias(name) for name in ("start", "end"))
    first = F.struct(text.alias("said"), *times, place.alias("first_line"), place.alias("last_line"))
    each = named.join(limiters, on=list(LIMITER), how="left_semi").groupBy(*LIMITER)
    doubts = each.agg(F.min_by(first, "seq").alias("first"), F.count("*").alias("times"))
    return doubts.select(*LIMITER, F.lit("exempt").alias("what"), "first.*", "times")


_LONGEST_BEAT_S = 60.0
"""The proxy writes a heartbeat at least every 30 s; the second one after a line is of another interval."""


def vanished(
    intervals: DataFrame, limits: DataFrame, heartbeats: DataFrame, torn: Collection[tuple[str, str]]
) -> DataFrame:
    """Find, for each limit, a stream's last line that holds something while the run goes on, as `DoubtFacts`.

    A stream that holds something has a line in every interval, and one at its end, with the held amount accounted for.

    Args:
        intervals: All lines of streams, on the axis.
        limits: All lines of limiters, on the same.
        heartbeats: All heartbeats, on the same.
        torn: Runs with missing lines.
    """
    stream = (*BOOT, "connection_id", "direction", "stream_id", "topic")
    last = intervals.groupBy(*stream).agg(
        F.max("seq").alias("seq"), F.max_by(F.col("held_messages"), "seq").alias("held_at_last")
    )
    last = last.where(F.col("held_at_last") > 0)
    for proxy_id, boot_id in torn:
        last = last.where((F.col("proxy_id") != proxy_id) | (F.col("boot_id") != boot_id))
    counted = [lines.select(*BOOT, "start_us", "duration_ms", "steady") for lines in (intervals, limits)]
    goes_on = counted[0].unionByName(counted[1]).groupBy(*BOOT)
    # An interval is about as long as the longest line of one: a line that begins later by more is of another interval.
    of_one_ms = F.when(~F.coalesce("steady", F.lit(False)), F.col("duration_ms"))
    until = goes_on.agg(F.max("start_us").alias("last_us"), F.max(of_one_ms).alias("longest_ms"))
    beats = heartbeats.groupBy(*BOOT).agg(F.max("start_us").alias("beat_us"))
    ends = until.join(beats, on=list(BOOT), how="left")
    both = intervals.join(last.select(*BOOT, "seq", "held_at_last"), on=[*BOOT, "seq"]).join(ends, on=list(BOOT))
    behind_us = 1e3 * F.greatest(F.col("longest_ms") * 1.2, F.lit(1000.0))
    is_gone = (F.col("last_us") >= F.col("end_us") + behind_us) | (
        F.col("beat_us") >= F.col("end_us") + F.greatest(behind_us, F.lit(_LONGEST_BEAT_S * 1e6))
    )
    lost = both.where(F.coalesce(is_gone, F.lit(False)))
    text = F.format_string("a stream of %s held %d messages, and has no more lines", "topic", "held_at_last")
    return _doubts_of("vanished", text, lost, limits)


def _doubts_of(kind: str, text: Column, lines: DataFrame, limits: DataFrame) -> DataFrame:
    """Return, for each limit that a stream is under, the first line of the stream among `lines`."""
    place = F.struct("file", "seq", "line")
    times = (rfc3339(F.col(name)).alias(name) for name in ("start", "end"))
    first = F.struct(text.alias("said"), *times, place.alias("first_line"), place.alias("last_line"))
    each = under_limits(lines).groupBy(*LIMITER)
    doubts = each.agg(F.min_by(first, "seq").alias("first"), F.count("*").alias("times"))
    limiters = limits.select(*LIMITER).distinct()
    return doubts.join(limiters, on=list(LIMITER), how="left_semi").select(
        *LIMITER, F.lit(kind).alias("what"), "first.*", "times"
    )
