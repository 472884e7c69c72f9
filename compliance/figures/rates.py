"""Passed amounts, step by step and in all: of limits of every level, of topics, of tenants."""

from collections.abc import Collection, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from compliance.figures.limits import LIMIT_KEY, MOST_STEPS_A_LINE
from compliance.figures.scopes import HASHED, LEVEL_WORDS, LIMITED, PARTITION
from compliance.schema import OBSERVED, STEP_S, seconds
from limiter import levels as limiting


def scoped(interval_lines: DataFrame, levels: Collection[str] = LEVEL_WORDS) -> DataFrame:
    """Repeat each line for each level: adds `level`, `name`, and `member`, which shares the limit of that name.

    The members of a proxy's limit are tenants, of a tenant's and a resource group's namespaces, of a namespace's,
    role's and address's topics; of all others the streams' own names. Topics of Pulsar's own are under their own level
    only.
    """
    is_exempt = F.coalesce("exempt", F.lit(False)) if "exempt" in interval_lines.columns else F.lit(False)
    parts, members = _parts(), _members()
    scopes = F.array(
        *(
            F.struct(
                F.lit(level.word).alias("level"),
                F.when(is_exempt if level.is_of_system else ~is_exempt, _name(level, parts)).alias("name"),
                members[level.members].alias("member"),
            )
            for level in limiting.LEVELS
            if level.word in levels
        )
    )
    # A stream without a producer name or role has no limit of that level.
    kept = interval_lines.withColumn("scope", F.explode(scopes)).where(F.col("scope.name").isNotNull())
    return kept.withColumns({name: F.col(f"scope.{name}") for name in ("level", "name", "member")}).drop("scope")


def _name(level: limiting.Level, parts: Mapping[limiting.Part, Column]) -> Column:
    """Return the name of a level's limit on a stream; null where the stream has nothing of that level."""
    name = F.concat_ws("@", *(parts[part] for part in level.limited))
    for part in level.limited:
        if part.missing:
            name = F.when(parts[part] != "", name)
    return name


def _parts() -> dict[limiting.Part, Column]:
    """Map the parts that limits look at to the columns of streams' lines."""
    return {part: F.col(part.columns[0]) for part in LIMITED} | {
        limiting.NAMESPACE: F.concat_ws("/", "tenant", "namespace"),
        limiting.PARTITIONED_TOPIC: F.regexp_replace("topic", PARTITION, ""),
        limiting.COUNTED_ADDRESS: F.coalesce(F.nullif(F.col("client_network"), F.lit("")), _address()),
    }


def _members() -> dict[str, Column]:
    parts = _parts()
    own_name = F.when(F.col("direction") == "publish", F.col("producer_name")).otherwise(F.col("subscription"))
    stream = F.concat(own_name, F.lit(" on connection "), F.col("connection_id"), F.lit("/"), F.col("stream_id"))
    of = {"tenant": limiting.TENANT, "namespace": limiting.NAMESPACE, "topic": limiting.TOPIC}
    return {"stream": stream, **{word: parts[part] for word, part in of.items()}}


def _address() -> Column:
    """A client's address without its port; a keyed hash has none, though its end may look like one."""
    text = F.col("client_address")
    return F.when(text.rlike(HASHED), text).otherwise(F.regexp_replace(text, r":\d+$", ""))


def of_limiters(interval_lines: DataFrame, limiters: DataFrame, levels: Collection[str] = LEVEL_WORDS) -> DataFrame:
    """Return the lines of the streams under some limiters.

    Args:
        interval_lines: All lines of streams.
        limiters: Columns `proxy_id`, `direction`, `level`, `name` and any others to keep; few enough for one machine.
        levels: That they are of.
    """
    keys = ["proxy_id", "direction", "level", "name"]
    columns = [name for name in limiters.columns if name not in keys]  # lines of another kind have a `unit`, for one
    return scoped(interval_lines, levels).drop(*columns).join(F.broadcast(limiters), on=keys, how="inner")


_LIMITS = ("limit_messages", "limit_bytes", "burst_messages", "burst_bytes")
_FLOWS = ("messages", "bytes")
_WHOLE = {"limit": "shared", "burst": "shared_burst"}
"""Columns of a limit, and their counterparts for the whole fleet in the lines of its members."""


def spread(lines: DataFrame, names: tuple[str, ...]) -> DataFrame:
    """Repeat each line for every step that it touches, with its share of each count.

    Args:
        lines: With `start`, `end` and `step_s`, the length of a step in seconds; adds `step`, counted from 1970.
        names: Columns to share out.
    """
    step_s = F.col("step_s")
    to_s = seconds(F.col("end"))
    from_s = to_s - _length_s(lines)
    first = F.floor(from_s / step_s)
    # The end is exclusive; a clock that stepped back must not make the sequence run backwards.
    last = F.greatest(first, F.ceil(to_s / step_s) - 1)
    # A line of an hour must not become thousands of rows.
    steps = F.when(last - first <= MOST_STEPS_A_LINE, F.sequence(first, last)).otherwise(F.array(first, last))
    touched = lines.select("*", F.explode(F.array_distinct(steps)).alias("step"))
    begin = F.col("step") * step_s
    overlap = F.greatest(F.lit(0.0), F.least(to_s, begin + step_s) - F.greatest(from_s, begin))
    whole = to_s - from_s
    share = F.when(whole > 0, F.coalesce(F.try_divide(overlap, whole), F.lit(1.0))).otherwise(1.0)
    return touched.withColumn("share", share).withColumns({name: F.col(name) * F.col("share") for name in names})


def _length_s(lines: DataFrame) -> Column:
    """Return each line's length in seconds: by its own clock, where the wall clock was stepped within it."""
    by_wall = seconds(F.col("end")) - seconds(F.col("start"))
    if "duration_ms" not in lines.columns:
        return by_wall
    by_clock = F.col("duration_ms") / 1e3
    return F.when(F.abs(by_wall - by_clock) > STEP_S, by_clock).otherwise(by_wall)


def limiter_rates(
    limit_lines: DataFrame, interval_lines: DataFrame, limiters: DataFrame, levels: Collection[str] = LEVEL_WORDS
) -> DataFrame:
    """Rates per second of some limiters per step, as `RateFacts`.

    Args:
        limit_lines: All lines of limiters.
        interval_lines: All lines of streams, which have the amounts offered.
        limiters: Columns `proxy_id`, `direction`, `level`, `name`, `step_s`, `from_s`, `to_s` (seconds since 1970).
        levels: That they are of.
    """
    own = _between(limit_lines.join(F.broadcast(limiters), on=list(LIMIT_KEY), how="inner"))
    passed = _per_step(own, ("passed",), *(F.max(name).alias(name) for name in _LIMITS))
    theirs = _between(of_limiters(interval_lines, limiters, levels))
    is_own = F.col("limit_level") == F.col("level")
    limits_of_streams = {f"limit_{unit}": F.when(is_own, F.col(f"limit_{unit}")) for unit in _FLOWS}
    offered = _per_step(
        theirs,
        ("offered", "passed"),
        *(F.max(value).alias(f"said_{name}") for name, value in limits_of_streams.items()),
    )
    keys = [*LIMIT_KEY, "step_s", "step"]
    by_streams = offered.withColumnsRenamed({f"passed_{unit}": f"by_streams_{unit}" for unit in _FLOWS})
    joined = passed.join(by_streams, on=keys, how="full")
    # Where the limit has no lines, its streams' lines count.
    passed_by_unit = (F.coalesce(f"passed_{unit}", f"by_streams_{unit}").alias(f"passed_{unit}") for unit in _FLOWS)
    limits = (F.coalesce(f"limit_{unit}", f"said_limit_{unit}").alias(f"limit_{unit}") for unit in _FLOWS)
    return joined.select(*keys, "offered_messages", "offered_bytes", *passed_by_unit, *limits, *_LIMITS[2:])


def fleet_rates(
    limit_lines: DataFrame, interval_lines: DataFrame, limiters: DataFrame, levels: Collection[str] = LEVEL_WORDS
) -> DataFrame:
    """Rates per second of limits that fleets share per step, as `FleetRateFacts`: of all members as if of one proxy.

    Args:
        limit_lines: As `fleets.in_fleets`.
        interval_lines: As `fleets.of_members`.
        limiters: As in `limiter_rates`, with `fleet` in the place of `proxy_id`.
        levels: That they are of.
    """
    of_fleet = {"proxy_id": F.col("fleet")}
    whole = {f"{name}_{unit}": F.col(f"{shared}_{unit}") for name, shared in _WHOLE.items() for unit in _FLOWS}
    # A stream's line has the share of one member only.
    untold = {f"limit_{unit}": F.lit(None).cast("double") for unit in _FLOWS}
    limits = limit_lines.where(F.col("fleet").isNotNull() & (F.col("mode") != OBSERVED)).withColumns(of_fleet | whole)
    streams = interval_lines.where(F.col("fleet").isNotNull()).withColumns(of_fleet | untold)
    rates = limiter_rates(limits, streams, limiters.withColumnRenamed("fleet", "proxy_id"), levels)
    return rates.withColumns({"fleet": F.col("proxy_id"), "proxy_id": F.lit("")})


def _between(lines: DataFrame) -> DataFrame:
    return lines.where((seconds(F.col("end")) > F.col("from_s")) & (seconds(F.col("start")) < F.col("to_s")))


def _per_step(lines: DataFrame, flows: tuple[str, ...], *more: Column) -> DataFrame:
    names = tuple(f"{flow}_{unit}" for flow in flows for unit in _FLOWS)
    sums = ((F.sum(name) / F.col("step_s")).alias(name) for name in names)
    return spread(lines, names).groupBy(*LIMIT_KEY, "step_s", "step").agg(*sums, *more)


def whole_limit(unit: str) -> Column:
    """Return the limit of one unit in a limiter's line; of a share, that of the whole fleet."""
    return F.coalesce(f"shared_{unit}", f"limit_{unit}")
