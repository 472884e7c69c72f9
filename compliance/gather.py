"""Runs the sums on Spark over all rows kept so far and hands back plain values.

A batch job on purpose: windows of a stream stay in its state until later lines come, so the last seconds would be
missing from every report.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from compliance.containment import containment_facts
from compliance.crosscheck import crosscheck_facts
from compliance.entitlement import entitlement_facts
from compliance.facts import (
    ContainmentFacts,
    EntitlementFacts,
    Facts,
    GapFacts,
    LimiterFacts,
    QuarantineFacts,
    RateFacts,
    RunFacts,
    TopicFacts,
    UsageFacts,
)
from compliance.ingest import Folders, read_quarantine, read_rows
from compliance.quality import distinct_lines, gaps, run_facts
from compliance.rates import rate_facts
from compliance.usage import limiter_facts, topic_facts, usage_facts

CHARTS = 8
MOST_STEPS = 300
MOST_GAPS = 100
MOST_QUARANTINE_GROUPS = 100
BYTES_A_PARTITION = 64 * 2**20
STEPS_S = (1, 2, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 86400)

T = TypeVar("T")


def gather(spark: SparkSession, folders: Folders, on_step: Callable[[str], None]) -> Facts:
    """Everything that the report needs.

    Args:
        spark: The session.
        folders: Where the rows are.
        on_step: Told, in words, what is counted next.
    """
    partitions = _bytes_of(folders) // BYTES_A_PARTITION
    spark.conf.set("spark.sql.shuffle.partitions", str(min(2000, max(2, partitions))))
    rows = read_rows(spark, folders)
    lines = distinct_lines(rows).persist()
    try:
        return _facts(rows, lines, read_quarantine(spark, folders), on_step)
    finally:
        lines.unpersist()


def _facts(rows: DataFrame, lines: DataFrame, quarantine: DataFrame, on_step: Callable[[str], None]) -> Facts:
    intervals = lines.where(F.col("kind") == "interval")
    limits = lines.where(F.col("kind") == "limit")
    on_step("checking that the log is complete")
    runs = _collect(run_facts(rows, lines), RunFacts)
    gap_rows = gaps(lines).orderBy("until", "proxy_id", "boot_id").limit(MOST_GAPS)
    found_gaps = _collect(gap_rows, GapFacts) if any(run.missing for run in runs) else []
    on_step("adding up topics and days")
    topics = _collect(topic_facts(intervals), TopicFacts)
    usage = _collect(usage_facts(intervals), UsageFacts)
    on_step("judging the limits")
    limiters = _collect(limiter_facts(limits), LimiterFacts)
    containment = _collect(containment_facts(limits), ContainmentFacts)
    containment += _collect(crosscheck_facts(limits, intervals), ContainmentFacts)
    entitlement = _collect(entitlement_facts(limits), EntitlementFacts)
    on_step("drawing rates")
    charted = charted_topics(topics)
    return Facts(
        runs=runs,
        gaps=found_gaps,
        quarantine=_collect(_quarantine_facts(quarantine), QuarantineFacts),
        limiters=limiters,
        containment=containment,
        entitlement=entitlement,
        topics=topics,
        usage=usage,
        rates=_rates(intervals, charted),
        charts_left_out=len(topics) - len(charted),
    )


def charted_topics(topics: list[TopicFacts]) -> list[TopicFacts]:
    """The topics that get a chart: the most throttled first, then those with a limit, then the busiest."""

    def interest(topic: TopicFacts) -> tuple[float, bool, int, str]:
        has_limit = topic.limit_messages is not None or topic.limit_bytes is not None
        return (-topic.throttled_s, not has_limit, -topic.passed_messages, topic.topic)

    return sorted(topics, key=interest)[:CHARTS]


def chart_step_s(topic: TopicFacts) -> int:
    """The shortest step that keeps the topic's chart within its number of steps."""
    span_s = (topic.last - topic.first).total_seconds()
    return next((step for step in STEPS_S if span_s / step <= MOST_STEPS), STEPS_S[-1])


def _rates(intervals: DataFrame, charted: list[TopicFacts]) -> list[RateFacts]:
    if not charted:
        return []
    wanted = [(topic.topic, topic.direction, chart_step_s(topic)) for topic in charted]
    topics = intervals.sparkSession.createDataFrame(wanted, "topic string, direction string, step_s long")
    return _collect(rate_facts(intervals, topics).orderBy("topic", "direction", "step"), RateFacts)


def _quarantine_facts(quarantine: DataFrame) -> DataFrame:
    counted = quarantine.groupBy("file", "reason").agg(
        F.count("*").alias("lines"), F.substring(F.min("line"), 1, 300).alias("example")
    )
    return counted.orderBy(F.desc("lines"), "file", "reason").limit(MOST_QUARANTINE_GROUPS)


def _collect(frame: DataFrame, kind: type[T]) -> list[T]:
    return [msgspec.convert(row.asDict(recursive=True), kind) for row in frame.collect()]


def _bytes_of(folders: Folders) -> int:
    return sum(file.stat().st_size for file in folders.rows.rglob("*.parquet"))
