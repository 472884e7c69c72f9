"""Passed, waiting and refused messages of topics, tenants, clients, and of the limits that they waited on.

The access log attributes the waits of a line to one limit, its `reason`. Sums by tenant are of all lines.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accesslog.record import BUCKETS, upper_bound_ms
from compliance.figures.facts import NeighbourFacts, RoleFacts
from compliance.figures.sums import Grouping, Latest, Sum, itself, ones, seconds, waits, with_columns, with_zeros
from compliance.schema import BOOT

TOPIC = ("tenant", "namespace", "topic", "direction")
CONNECTION = (*BOOT, "connection_id")
_UNITS = ("messages", "bytes")
_PASSED = ("offered_messages", "offered_bytes", "passed_messages", "passed_bytes")
_LOST = ("dropped_messages", "dropped_bytes", "rejected_messages", "rejected_bytes")
_DUE = tuple(f"{amount}_{unit}" for amount in ("due", "offered_under") for unit in _UNITS)
_LIMIT = ("limit_level", "limit_messages", "limit_bytes")
_HELD = ("held_messages", "held_bytes")

_OF_STREAM = ("throttled_ms", "delay_max_ms", "start", "end", "seq", "reason", "client_address", "duration_ms")
_MINUTE_US = 60_000_000


def _streams(lines: pa.Table) -> pa.Table:
    lasted_s = seconds(lines["duration_ms"])
    more = {"throttled_ms": waits(lines)}
    for unit in _UNITS:
        limit = lines[f"limit_{unit}"]
        more[f"due_{unit}"] = pc.multiply(limit, lasted_s)
        more[f"offered_under_{unit}"] = pc.if_else(limit.is_valid(), lines[f"offered_{unit}"], None)
    more["last_end"] = lines["end"]
    more["reason_seq"] = pc.if_else(pc.not_equal(lines["reason"], ""), lines["seq"], None)
    return with_columns(lines, **more)


STREAMS = Sum(
    (*CONNECTION, "stream_id", *TOPIC, *_PASSED, *_LOST, *_LIMIT, *_HELD, *_OF_STREAM),
    _streams,
    Grouping(
        (*CONNECTION, "stream_id", *TOPIC),
        sums=(*_PASSED, *_LOST, *_DUE, "throttled_ms"),
        least=("start", "client_address"),
        most=("end", "delay_max_ms"),
        latest=(Latest(("seq",), (*_LIMIT, *_HELD, "last_end")), Latest(("reason_seq",), ("reason",))),
    ),
    ("interval",),
)
"""Each stream over everything: held is what its last line says, `reason` the last limit that it waited on."""


def topic_facts(streams: pa.Table) -> pa.Table:
    """Sum up each topic and direction, as `TopicFacts`."""
    topics = Grouping(
        TOPIC,
        sums=(*_PASSED, *_LOST, *_HELD, "throttled_ms"),
        least=("start",),
        most=("end", "delay_max_ms"),
        latest=(Latest(("last_end", *CONNECTION, "stream_id"), _LIMIT),),
    ).of(with_zeros(streams, *_PASSED, *_LOST, "throttled_ms"))
    return with_columns(topics, throttled_s=seconds(topics["throttled_ms"]), first=topics["start"], last=topics["end"])


def _days(lines: pa.Table) -> pa.Table:
    return with_columns(lines, day=pc.strftime(lines["day"], "%Y-%m-%d"))


DAYS = Sum(("day", *TOPIC, *_PASSED), _days, Grouping(("day", *TOPIC), sums=_PASSED), ("interval",))
"""Each topic and direction on each UTC day, as `UsageFacts`; a line counts on the day in which it starts."""


def _minutes(lines: pa.Table) -> pa.Table:
    minute = pa.array(lines["start"].cast(pa.int64()).to_numpy() // _MINUTE_US)
    return with_columns(_days(lines), minute=minute, throttled_ms=waits(lines))


MINUTES = Sum(
    ("day", "tenant", "direction", "start", *_PASSED, "throttled_ms", "duration_ms"),
    _minutes,
    Grouping(("day", "tenant", "direction", "minute"), sums=(*_PASSED, "throttled_ms")),
    ("interval",),
)
"""Each tenant and direction in each minute."""


def tenant_day_facts(minutes: pa.Table) -> pa.Table:
    """Sum up each tenant and direction on each UTC day, as `TenantDayFacts`."""
    counted = with_zeros(minutes, *_PASSED, "throttled_ms")
    most = {f"most_{unit}": counted[f"passed_{unit}"] for unit in _UNITS}
    days = Grouping(("day", "tenant", "direction"), sums=(*_PASSED, "throttled_ms"), most=tuple(most))
    summed_up = days.of(with_columns(counted, **most))
    peaks = {
        f"peak_{unit}_per_s": pc.divide(summed_up[f"most_{unit}"].cast(pa.float64(), safe=False), 60) for unit in _UNITS
    }
    return with_columns(summed_up, throttled_s=seconds(summed_up["throttled_ms"]), **peaks)


def _roles(lines: pa.Table) -> pa.Table:
    named = lines.filter(pc.not_equal(lines["client_role"], ""))
    proved = pc.fill_null(named["role_is_proved"], False).cast(pa.int64())
    return with_columns(named, name=named["client_role"], proved=proved, claimed=pc.subtract(1, proved))


ROLES = Sum(
    ("proxy_id", "direction", "client_role", "role_is_proved"),
    _roles,
    Grouping(("proxy_id", "direction", "name"), sums=("proved", "claimed")),
    ("interval",),
)
"""Each role with a client: lines of streams by proof."""


def role_facts(roles: pa.Table, limited: Collection[tuple[str, str, str]]) -> list[RoleFacts]:
    """Return how the clients of each role with a limit came by it.

    Args:
        roles: As `ROLES`.
        limited: Proxy, direction and name of the roles with a limit.
    """
    return [
        msgspec.convert(row | {"is_proved": row["proved"] > 0, "is_claimed": row["claimed"] > 0}, RoleFacts)
        for row in (roles.to_pylist() if limited else ())
        if (row["proxy_id"], row["direction"], row["name"]) in limited
    ]


TIMEOUT_S = 30
"""Clients' default send timeout."""
LATE_BUCKET = next(
    bucket for bucket in range(BUCKETS) if (upper_bound_ms(bucket) or TIMEOUT_S * 1e3) >= TIMEOUT_S * 1e3
)
"""The bucket of 28.7 to 32.8 s. Messages count as late from here on, in lines with a wait of `TIMEOUT_S`."""
_COUNTS = ("offered_messages", "passed_messages", "dropped_messages", "rejected_messages")
_SETS = (("direction",), ("tenant",), ("level", "name"), ("topic", "client"))
"""Each row of impacts is grouped by the first of these names, the first two, three, or all."""
_CLIENT = ("direction", "tenant", "namespace", "level", "name", "topic", "client")
_CLIENT_SUMS = (*_COUNTS, "late_messages", "throttled_ms", "would_throttle_ms", "delay_sum_ms")
_LONGEST = ("delay_max_ms", "would_delay_max_ms")
_OF_CLIENT = ("direction", "tenant", "namespace", "reason", "reason_name", "topic", "producer_name", "subscription")


def _named(lines: pa.Table) -> pa.Table:
    is_publish = pc.equal(lines["direction"], "publish")
    client = pc.if_else(is_publish, lines["producer_name"], lines["subscription"])
    return with_columns(lines, level=lines["reason"], name=lines["reason_name"], client=client)


def _clients(lines: pa.Table) -> pa.Table:
    lines = with_zeros(with_columns(_named(lines), throttled_ms=waits(lines)), "rejected_messages", *_LONGEST)
    late = pc.if_else(pc.greater_equal(lines["delay_max_ms"], TIMEOUT_S * 1e3), _late(lines), 0)
    hurts = [pc.greater(lines[name], 0) for name in ("throttled_ms", "delay_max_ms", "rejected_messages")]
    is_hurt = pc.or_(pc.or_(hurts[0], hurts[1]), hurts[2])
    of_hurt = {"first": lines["start"], "last": lines["end"], "worst_at": lines["start"]}
    of_hurt |= {"worst_ms": lines["delay_max_ms"], "failed": pc.add(late, lines["rejected_messages"])}
    only_hurt = {name: pc.if_else(is_hurt, value, None) for name, value in of_hurt.items()}
    return with_columns(lines, late_messages=late, **only_hurt)


def _late(lines: pa.Table) -> pa.Array:
    """The messages of each line in the buckets of a client's timeout and longer."""
    held = _held(lines)
    late = held.filter(pc.greater_equal(held["bucket"], LATE_BUCKET))
    messages = np.zeros(len(lines), np.int64)
    np.add.at(messages, late["place"].to_numpy(), late["held"].to_numpy())
    return pa.array(messages)


def _held(lines: pa.Table) -> pa.Table:
    """Held messages of each line by bucket; buckets without any are left out."""
    hist = lines["delay_hist"].combine_chunks()
    places = pc.list_parent_indices(hist).to_numpy()
    buckets = np.arange(len(places)) - np.searchsorted(places, places)
    held = pa.table({"place": places, "bucket": buckets, "held": pc.list_flatten(hist)})
    return held.filter(pc.greater(held["held"], 0))


CLIENTS = Sum(
    (
        *_OF_CLIENT,
        *_COUNTS,
        "throttled_ms",
        "duration_ms",
        "would_throttle_ms",
        "delay_sum_ms",
        *_LONGEST,
        "delay_hist",
        "start",
        "end",
    ),
    _clients,
    Grouping(
        _CLIENT,
        sums=_CLIENT_SUMS,
        least=("first",),
        most=("last", *_LONGEST),
        latest=(Latest(("failed", "worst_ms", "worst_at")),),
    ),
    ("interval",),
)
"""Each client of each topic at each limit that it last waited on, or that refused it; names are empty for none."""


def _client_waits(lines: pa.Table) -> pa.Table:
    held = _held(lines)
    return with_columns(
        _named(lines).select(list(_CLIENT)).take(held["place"]), bucket=held["bucket"], held=held["held"]
    )


CLIENT_WAITS = Sum(
    (*_OF_CLIENT, "delay_hist"), _client_waits, Grouping((*_CLIENT, "bucket"), sums=("held",)), ("interval",)
)
"""The same clients' held messages by bucket of the access log's bounds."""


def impact_facts(clients: pa.Table, client_waits: pa.Table) -> pa.Table:
    """Sum up by direction; by tenant, too; by limit, too; by client, too. As `ImpactFacts`.

    A row has null in the columns that it is not grouped by. Limits and clients without a wait or refusal have no row.
    """
    keys = [name for names in _SETS for name in names]
    tables = []
    for number in range(len(_SETS)):
        own = [name for names in _SETS[: number + 1] for name in names]
        grouped = CLIENTS.grouping.by(*own).of(clients)
        if "level" in own:
            grouped = grouped.filter(pc.and_(grouped["first"].is_valid(), pc.not_equal(grouped["level"], "")))
        hist = _hist(grouped, CLIENT_WAITS.grouping.by(*own, "bucket").of(client_waits), own, BUCKETS)
        absent = {name: pa.nulls(len(grouped), pa.string()) for name in keys if name not in own}
        tables.append(with_columns(grouped, hist=hist, **absent).select([*keys, *_IMPACT]))
    summed_up = with_zeros(pa.concat_tables(tables), *_CLIENT_SUMS, *_LONGEST)
    times = {f"{name}_s": seconds(summed_up[f"{name}_ms"]) for name in ("throttled", "would_throttle")}
    rank = pc.add(summed_up["level"].is_valid().cast(pa.int8()), summed_up["topic"].is_valid().cast(pa.int8()))
    failed = pc.add(summed_up["late_messages"], summed_up["rejected_messages"])
    return with_columns(summed_up, **times, rank=rank, failed_messages=failed)


_IMPACT = (*_CLIENT_SUMS, *_LONGEST, "first", "last", "worst_at", "hist")


def delay_facts(clients: pa.Table, client_waits: pa.Table, *, by_topic: bool) -> pa.Table:
    """Delays, as `DelayFacts`: of each topic and direction, or of all topics by direction and reason."""
    own = list(TOPIC) if by_topic else ["level", "direction"]
    grouped = Grouping(tuple(own), sums=("passed_messages", "delay_sum_ms"), most=("delay_max_ms",)).of(clients)
    of_buckets = CLIENT_WAITS.grouping.by(*own, "bucket").of(client_waits)
    hist = _hist(grouped, of_buckets, own, 0)
    held = pa.array([sum(messages) for messages in hist.to_pylist()], pa.int64())
    counted = with_columns(with_zeros(grouped, "delay_sum_ms"), hist=hist, held_messages=held)
    absent = {
        name: pa.array([""] * len(grouped)) for name in ("tenant", "namespace", "topic", "level") if name not in own
    }
    named = with_columns(counted, **absent)
    return with_columns(named, reason=named["level"])


def _hist(grouped: pa.Table, client_waits: pa.Table, keys: list[str], length: int) -> pa.Array:
    """Return held messages by bucket of each row, up to the last bucket with any, and at least of a length."""
    hists: dict[tuple[Any, ...], list[int]] = {}
    for row in client_waits.to_pylist():
        hist = hists.setdefault(tuple(row[name] for name in keys), [0] * length)
        hist.extend([0] * (row["bucket"] + 1 - len(hist)))
        hist[row["bucket"]] += row["held"]
    rows = grouped.select(keys).to_pylist()
    return pa.array([hists.get(tuple(row.values()), [0] * length) for row in rows], pa.list_(pa.int64()))


def _pauses(lines: pa.Table) -> pa.Table:
    return with_columns(lines, pauses=ones(lines), longest_ms=lines["duration_ms"])


PAUSES = Sum(
    ("side", "cause", *CONNECTION, "duration_ms"),
    _pauses,
    Grouping(("side", "cause", *CONNECTION), sums=("pauses", "duration_ms"), most=("longest_ms",)),
    ("throttle",),
)
"""Pauses of reading of each connection by side and cause."""


def of_connections(pauses: pa.Table, streams: pa.Table) -> pa.Table:
    """Return the pauses of connections that have one of some streams."""
    return pauses.join(streams.select(CONNECTION), keys=list(CONNECTION), join_type="left semi")


def pause_facts(pauses: pa.Table) -> pa.Table:
    """Sum up pauses of reading by side and cause, as `PauseFacts`."""
    counted = with_columns(pauses, connections=ones(pauses))
    causes = Grouping(("side", "cause"), sums=("pauses", "connections", "duration_ms"), most=("longest_ms",)).of(
        counted
    )
    return with_columns(causes, total_s=seconds(causes["duration_ms"]), longest_s=seconds(causes["longest_ms"]))


REFUSALS = Sum(
    ("reason", *CONNECTION, "rejected", "start", "end", "detail"),
    itself,
    Grouping(("reason", *CONNECTION), sums=("rejected",), least=("start",), latest=(Latest(("end", "detail")),)),
    ("reject",),
)
"""Lookups, producers and consumers of each connection that were refused, by reason."""


def refusal_facts(refusals: pa.Table) -> pa.Table:
    """Sum up what was refused by reason, as `RefusalFacts`."""
    reasons = replace(REFUSALS.grouping.by("reason"), sums=("rejected", "connections"))
    sums = reasons.of(with_columns(refusals, connections=ones(refusals)))
    example = pc.utf8_slice_codeunits(sums["detail"], 0, 300)
    return with_columns(sums, first=sums["start"], last=sums["end"], example=example)


MOST_OFFENDERS = 50
OVER = 1.0
FEW_OVER = 1.01
"""A smaller excess that affects no other stream is the burst with which a bucket begins."""


def neighbour_facts(streams: pa.Table, pauses: pa.Table) -> list[NeighbourFacts]:
    """Return the worst offenders, each with the victim on its connection that waited longest, as `NeighbourFacts`.

    Args:
        streams: As `STREAMS`.
        pauses: As `PAUSES`.
    """
    ratio, throttled_s = _ratios(streams), seconds(pc.fill_null(streams["throttled_ms"], 0))
    rated = with_columns(
        streams,
        ratio=ratio,
        throttled_s=throttled_s,
        reason=pc.if_else(streams["reason_seq"].is_valid(), streams["reason"], ""),
    )
    worst_first = [("ratio", "descending"), ("topic", "ascending")]
    offenders = rated.filter(pc.greater(ratio, OVER)).sort_by(worst_first).slice(0, MOST_OFFENDERS)
    kept_within = pc.less_equal(pc.fill_null(ratio, 0), OVER)
    waited = rated.filter(pc.and_(kept_within, pc.greater(throttled_s, 0)))
    victims: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in waited.join(offenders.select(CONNECTION), keys=list(CONNECTION), join_type="left semi").to_pylist():
        victims.setdefault(_connection(row), []).append(row)
    paused = Grouping(CONNECTION, sums=("duration_ms",)).of(pauses)
    paused_s_of = {_connection(row): row["duration_ms"] / 1e3 for row in paused.to_pylist()}
    rows = []
    for row in offenders.to_pylist():
        on_it, paused_s = victims.get(_connection(row), []), paused_s_of.get(_connection(row))
        if row["ratio"] > FEW_OVER or on_it or paused_s is not None:
            victim = max(on_it, key=_suffered, default={})
            rows.append(
                NeighbourFacts(
                    **{name: row[name] for name in (*CONNECTION, "client_address", "direction", "ratio")},
                    offender=row["topic"],
                    offender_stream=row["stream_id"],
                    offender_throttled_s=row["throttled_s"],
                    paused_s=paused_s or 0.0,
                    victim=victim.get("topic"),
                    victim_throttled_s=victim.get("throttled_s", 0.0),
                    victim_delay_max_ms=victim.get("delay_max_ms", 0.0),
                    victim_reason=victim.get("reason", ""),
                    victims=len(on_it),
                )
            )
    return rows


def _connection(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in CONNECTION)


def _suffered(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("throttled_s", "topic", "delay_max_ms", "reason"))


def _ratios(streams: pa.Table) -> pa.ChunkedArray:
    """Return what each stream offered over its lowest limit, in the unit in which that is larger; null without any."""
    due = {unit: streams[f"due_{unit}"] for unit in _UNITS}
    over = [
        pc.divide(
            streams[f"offered_under_{unit}"].cast(pa.float64(), safe=False), pc.if_else(pc.greater(of, 0), of, None)
        )
        for unit, of in due.items()
    ]
    return pc.max_element_wise(*over)
