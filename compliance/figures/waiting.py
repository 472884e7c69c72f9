"""Waits: which streams waited, on which limit, how long, beside which others, and how fairly limits were shared."""

from collections.abc import Collection

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from compliance.figures.rates import LEVEL_WORDS, LIMIT_KEY, of_limiters, spread
from compliance.schema import BOOT, LIMITER, OBSERVED, rfc3339, seconds

_STILL_ONE_S = 0.001


def episode_facts(limit_lines: DataFrame) -> DataFrame:
    """Waits on each limiter, as `EpisodeFacts`; lines that follow one another are one episode."""
    lines = limit_lines.where(F.col("mode") != OBSERVED)
    by_seq = Window.partitionBy(*LIMITER).orderBy("seq")
    waits = F.col("throttled_ms") > 0
    is_next = F.lag(waits).over(by_seq) & (seconds(F.col("start")) - seconds(F.lag("end").over(by_seq)) <= _STILL_ONE_S)
    begins = F.when(waits & ~F.coalesce(is_next, F.lit(False)), 1).otherwise(0)
    numbered = lines.withColumns({"waits": waits, "begins": begins}).withColumn("episode", F.sum("begins").over(by_seq))
    waited_s = (F.sum("throttled_ms") / 1e3).alias("waited_s")
    episodes = numbered.where("waits").groupBy(*LIMITER, "episode").agg(waited_s, F.min("start").alias("start"))
    waited = episodes.groupBy(*LIMIT_KEY).agg(
        F.sum("waited_s").alias("throttled_s"),
        F.count("*").alias("episodes"),
        F.max("waited_s").alias("longest_s"),
        # Of several that are as long, the first; sums of fractions differ with the order in which they are added.
        rfc3339(F.max_by("start", F.struct(F.round("waited_s", 9), -F.unix_micros("start")))).alias("longest_start"),
    )
    span_s = seconds(F.max("end")) - seconds(F.min("start"))
    runs = lines.groupBy(*LIMITER, "tenant", "namespace").agg(span_s.alias("span_s"))
    spans = runs.groupBy(*LIMIT_KEY).agg(
        F.first("tenant").alias("tenant"), F.first("namespace").alias("namespace"), F.sum("span_s").alias("span_s")
    )
    return waited.join(spans, on=list(LIMIT_KEY), how="inner")


def delay_facts(interval_lines: DataFrame, *, by_topic: bool) -> DataFrame:
    """Delays, as `DelayFacts`: of each topic and direction, or of all topics by direction and reason."""
    subject = ("tenant", "namespace", "topic") if by_topic else ("reason",)
    keys = (*subject, "direction")
    sums = interval_lines.groupBy(*keys).agg(
        F.sum("passed_messages").alias("passed_messages"),
        F.coalesce(F.sum("delay_sum_ms"), F.lit(0.0)).alias("delay_sum_ms"),
        F.max("delay_max_ms").alias("delay_max_ms"),
    )
    buckets = interval_lines.select(*keys, F.posexplode("delay_hist").alias("bucket", "held")).groupBy(*keys, "bucket")
    counted = buckets.agg(F.sum("held").alias("held")).where(F.col("held") > 0)
    merged = counted.groupBy(*keys).agg(
        F.sum("held").alias("held_messages"),
        F.map_from_entries(F.collect_list(F.struct("bucket", "held"))).alias("by_bucket"),
        F.max("bucket").alias("highest"),
    )
    places = F.sequence(F.lit(0), F.col("highest"))
    hist = F.transform(places, lambda place: F.coalesce(F.try_element_at("by_bucket", place), F.lit(0)))
    joined = sums.join(merged, on=list(keys), how="left").select(
        *keys,
        "passed_messages",
        "delay_sum_ms",
        "delay_max_ms",
        F.coalesce("held_messages", F.lit(0)).alias("held_messages"),
        F.coalesce(hist, F.array().cast("array<long>")).alias("hist"),
    )
    absent = {name: F.lit("") for name in ("tenant", "namespace", "topic", "reason") if name not in keys}
    return joined.withColumns(absent)


def pause_facts(throttle_lines: DataFrame) -> DataFrame:
    """Pauses of reading by side and cause, as `PauseFacts`."""
    paused_s = F.col("duration_ms") / 1e3
    return throttle_lines.groupBy("side", "cause").agg(
        F.count("*").alias("pauses"),
        F.count_distinct("proxy_id", "boot_id", "connection_id").alias("connections"),
        F.sum(paused_s).alias("total_s"),
        F.max(paused_s).alias("longest_s"),
    )


def refusal_facts(reject_lines: DataFrame) -> DataFrame:
    """Lookups, producers and consumers that were refused, by reason, as `RefusalFacts`."""
    return reject_lines.groupBy("reason").agg(
        F.sum("rejected").alias("rejected"),
        F.count_distinct("proxy_id", "boot_id", "connection_id").alias("connections"),
        rfc3339(F.min("start")).alias("first"),
        rfc3339(F.max("end")).alias("last"),
        F.substring(F.max_by("detail", F.struct("end", "detail")), 1, 300).alias("example"),
    )


CONNECTION = (*BOOT, "connection_id")
MOST_OFFENDERS = 50
OVER = 1.0
FEW_OVER = 1.01
"""A smaller excess that affects no other stream is the burst with which a bucket begins."""


def neighbour_facts(interval_lines: DataFrame, throttle_lines: DataFrame) -> DataFrame:
    """Return the worst offenders, each with the victim on its connection that waited longest, as `NeighbourFacts`."""
    streams = stream_ratios(interval_lines)
    offenders = streams.where(F.col("ratio") > OVER).orderBy(F.desc("ratio"), "topic").limit(MOST_OFFENDERS)
    victims = streams.where((F.coalesce("ratio", F.lit(0.0)) <= OVER) & (F.col("throttled_s") > 0))
    suffered = F.struct("throttled_s", "topic", "delay_max_ms", "reason")
    on_connection = victims.groupBy(*CONNECTION).agg(F.max(suffered).alias("victim"), F.count("*").alias("victims"))
    paused = throttle_lines.groupBy(*CONNECTION).agg((F.sum("duration_ms") / 1e3).alias("paused_s"))
    joined = offenders.join(on_connection, on=list(CONNECTION), how="left").join(
        paused, on=list(CONNECTION), how="left"
    )
    is_felt = F.col("victims").isNotNull() | F.col("paused_s").isNotNull()
    return joined.where((F.col("ratio") > FEW_OVER) | is_felt).select(
        *CONNECTION,
        "client_address",
        F.col("topic").alias("offender"),
        F.col("stream_id").alias("offender_stream"),
        "direction",
        "ratio",
        F.col("throttled_s").alias("offender_throttled_s"),
        F.coalesce("paused_s", F.lit(0.0)).alias("paused_s"),
        F.col("victim.topic").alias("victim"),
        _or(F.col("victim.throttled_s"), 0.0).alias("victim_throttled_s"),
        _or(F.col("victim.delay_max_ms"), 0.0).alias("victim_delay_max_ms"),
        _or(F.col("victim.reason"), "").alias("victim_reason"),
        _or(F.col("victims"), 0).alias("victims"),
    )


def stream_ratios(interval_lines: DataFrame) -> DataFrame:
    """Add `ratio` to each stream: offered over its lowest limit, in the unit in which that is larger."""
    seconds = F.col("duration_ms") / 1e3
    due = {unit: F.col(f"limit_{unit}") * seconds for unit in ("messages", "bytes")}
    is_limited = {unit: F.col(f"limit_{unit}").isNotNull() for unit in due}
    sums = interval_lines.groupBy(*CONNECTION, "stream_id", "topic", "direction").agg(
        *(F.sum(amount).alias(f"due_{unit}") for unit, amount in due.items()),
        *(F.sum(F.when(is_limited[unit], F.col(f"offered_{unit}"))).alias(f"offered_{unit}") for unit in due),
        (F.sum("throttled_ms") / 1e3).alias("throttled_s"),
        F.max("delay_max_ms").alias("delay_max_ms"),
        F.coalesce(F.max_by("reason", F.when(F.col("reason") != "", F.col("seq"))), F.lit("")).alias("reason"),
        F.first("client_address").alias("client_address"),
    )
    ratios = (F.try_divide(F.col(f"offered_{unit}"), F.col(f"due_{unit}")) for unit in due)
    return sums.withColumn("ratio", F.greatest(*ratios))


def _or(value: Column, otherwise: object) -> Column:
    return F.coalesce(value, F.lit(otherwise))


CONTENDED_STEP_S = 10
CONTENDED = 0.5
_FLOWS = ("passed", "held", "dropped", "rejected")


def fairness_facts(
    limit_lines: DataFrame, interval_lines: DataFrame, limiters: DataFrame, levels: Collection[str] = LEVEL_WORDS
) -> DataFrame:
    """Shares of each member of some limiters, as `FairnessFacts`.

    Args:
        limit_lines: All lines of limiters.
        interval_lines: All lines of streams.
        limiters: Columns `proxy_id`, `direction`, `level`, `name`, `unit` (`messages` or `bytes`).
        levels: That they are of.
    """
    contended = _contended(limit_lines, limiters)
    lines = of_limiters(interval_lines, limiters, levels).withColumn("step_s", F.lit(CONTENDED_STEP_S))
    counts = {
        flow: F.when(F.col("unit") == "bytes", F.col(f"{flow}_bytes")).otherwise(F.col(f"{flow}_messages"))
        for flow in _FLOWS
    }
    keys = [*LIMIT_KEY, "step"]
    # Messages held at the end of a step had arrived by then: they were wanted in this step and in the next.
    counted = lines.withColumns({flow: F.coalesce(count, F.lit(0)).cast("double") for flow, count in counts.items()})
    stream = (*LIMIT_KEY, "unit", "member", "step", "boot_id", "connection_id", "stream_id", "topic")
    shared = spread(counted.withColumn("held_now", F.col("held")), ("passed", "dropped", "rejected"))
    streams = shared.groupBy(*stream).agg(
        *(F.sum(name).alias(name) for name in ("passed", "dropped", "rejected")),
        F.max_by("held_now", "seq").alias("held"),
    )
    wants = F.sum("passed") + F.sum("dropped") + F.sum("rejected") + F.sum("held")
    members = streams.groupBy(*LIMIT_KEY, "unit", "member", "step").agg(
        F.sum("passed").alias("got"), wants.alias("wanted")
    )
    steps = members.join(contended, on=keys, how="inner")
    return _summed(with_fair_share(steps, keys))


def _contended(limit_lines: DataFrame, limiters: DataFrame) -> DataFrame:
    lines = limit_lines.where(F.col("mode") != OBSERVED).join(
        F.broadcast(limiters), on=list(LIMIT_KEY), how="left_semi"
    )
    waits = spread(lines.withColumn("step_s", F.lit(CONTENDED_STEP_S)), ("throttled_ms",)).groupBy(*LIMIT_KEY, "step")
    return waits.agg((F.sum("throttled_ms") / 1e3).alias("waited_s")).where(
        F.col("waited_s") >= CONTENDED * CONTENDED_STEP_S
    )


def with_fair_share(members: DataFrame, keys: list[str]) -> DataFrame:
    """Adds `fair`, the max-min share of the sum of `got` within each group of `keys`, by `wanted` (water filling)."""
    by_want = Window.partitionBy(*keys).orderBy("wanted", "member")
    smaller = by_want.rowsBetween(Window.unboundedPreceding, -1)
    group = Window.partitionBy(*keys)
    left = F.sum("got").over(group) - F.coalesce(F.sum("wanted").over(smaller), F.lit(0.0))
    share: Column = left / (F.count("*").over(group) - F.row_number().over(by_want) + 1)
    level = members.withColumn("share", F.greatest(share, F.lit(0.0)))
    # A member that wants at most an equal part of the rest gets it; the first that wants more sets the others' level.
    water = F.max(F.when(F.col("wanted") > F.col("share"), F.col("share"))).over(group)
    return level.withColumn("fair", F.least(F.col("wanted"), F.coalesce(water, F.col("wanted")))).drop("share")


def _summed(steps: DataFrame) -> DataFrame:
    return steps.groupBy(*LIMIT_KEY, "unit", "member").agg(
        (F.count_distinct("step") * float(CONTENDED_STEP_S)).alias("contended_s"),
        F.sum("got").alias("got"),
        F.sum("wanted").alias("wanted"),
        F.sum("fair").alias("fair"),
    )
