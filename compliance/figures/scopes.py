"""Which limits a stream's line would be charged to: its names at every level.

Lines of older proxies name no resource group, and no network of an IPv6 client: limits of these have no members there.
"""

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from compliance.figures.levels import LEVELS

_HASHED = r"^k[0-9a-f]{4}:[0-9a-f]{16}$"
"""As `proxy.observe.log_lines` writes it."""


def scoped(interval_lines: DataFrame, levels: Collection[str] = LEVELS) -> DataFrame:
    """Each line once for each of these levels: adds `level`, `name`, and `member`, who shares the limit of that name.

    The members of a proxy's limit are tenants, of a tenant's and a resource group's namespaces, of a namespace's,
    role's and address's topics; of all others the streams' own names. Topics of Pulsar's own are under their own level
    only; lines of older proxies do not tell them.
    """
    is_exempt = F.coalesce("exempt", F.lit(False)) if "exempt" in interval_lines.columns else F.lit(False)
    scopes = F.array(*(_scope(is_exempt, *names) for names in _names() if names[0] in levels))
    # A stream without a producer name or role has no limit of that level.
    kept = interval_lines.withColumn("scope", F.explode(scopes)).where(F.col("scope.name").isNotNull())
    return kept.withColumns({name: F.col(f"scope.{name}") for name in ("level", "name", "member")}).drop("scope")


def _names() -> tuple[tuple[str, Column, Column], ...]:
    namespace = F.concat_ws("/", "tenant", "namespace")
    whole_topic = F.regexp_replace("topic", r"-partition-(0|[1-9]\d{0,9})$", "")
    is_publish = F.col("direction") == "publish"
    who = F.when(is_publish, F.col("producer_name")).otherwise(F.col("subscription"))
    stream = F.concat(who, F.lit(" on connection "), F.col("connection_id"), F.lit("/"), F.col("stream_id"))
    subscribed = F.when(F.col("subscription") != "", F.concat_ws("@", "subscription", "topic"))
    produced = F.when(F.col("producer_name") != "", F.concat_ws("@", F.col("producer_name"), whole_topic))
    role, group, network = (
        F.nullif(F.col(name), F.lit("")) for name in ("client_role", "resource_group", "client_network")
    )
    return (
        ("proxy", F.lit(""), F.col("tenant")),
        ("tenant", F.col("tenant"), namespace),
        ("namespace", namespace, F.col("topic")),
        ("resource_group", group, namespace),
        ("partitioned_topic", whole_topic, F.col("topic")),
        ("topic", F.col("topic"), stream),
        ("subscription", subscribed, stream),
        ("producer", produced, stream),
        ("role", role, F.col("topic")),
        ("address", F.coalesce(network, _address()), F.col("topic")),
        ("exempt", whole_topic, stream),
    )


def _address() -> Column:
    """A client's address without its port; a keyed hash has none, though its end may look like one."""
    text = F.col("client_address")
    return F.when(text.rlike(_HASHED), text).otherwise(F.regexp_replace(text, r":\d+$", ""))


def _scope(is_exempt: Column, level: str, name: Column, member: Column) -> Column:
    own = F.when(is_exempt if level == "exempt" else ~is_exempt, name)
    return F.struct(F.lit(level).alias("level"), own.alias("name"), member.alias("member"))


def of_limiters(interval_lines: DataFrame, limiters: DataFrame, levels: Collection[str] = LEVELS) -> DataFrame:
    """The lines of the streams under some limiters.

    Args:
        interval_lines: All of them.
        limiters: Columns `proxy_id`, `direction`, `level`, `name` and what is wanted besides; few enough for one
            machine.
        levels: That they are of.
    """
    keys = ["proxy_id", "direction", "level", "name"]
    return scoped(interval_lines, levels).join(F.broadcast(limiters), on=keys, how="inner")
