"""The answers for people: what clients asked for and got, how long it waited, which limits hurt, and the next steps."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import accumulate

from msgspec import Struct

from compliance.figures.facts import DemandFacts, ImpactFacts, ObservedFacts
from compliance.figures.traffic import TIMEOUT_S
from compliance.judging.facts import Facts
from compliance.judging.verdict import LimiterVerdict
from compliance.report.sections import Headroom, SharedLimit, percentile_ms
from compliance.report.subjects import between, numbered, rate, roughly, whole

MOST_CLIENTS = 20
"""Clients of one limit that the report lists."""
_SUMMED_UP = 2
"""Tenants that the summary names."""
_NAMED = 3
"""Limits, members or clients that a sentence names."""
_BEYOND = 1.01
"""Demand in parts of a limit above which it exceeded the limit."""
_MUCH_MORE = 1.1
"""Demand in parts of a fair share above which a member makes others wait."""
_MOST = 0.8
"""Part of what came at a limit that its loudest clients sent together."""
_IDLE = 0.2
"""Share in use in the fullest ten seconds below which a limit was hardly used."""
MODES = {"enforce": "holds", "reject": "refuses", "observe": "only observed"}


class Impact(Struct, frozen=True, kw_only=True):
    """The demand of one tenant, or of one client at a limit, and its part that was served.

    A text is empty where the row is of all.
    """

    direction: str
    tenant: str
    level: str
    name: str
    topic: str
    client: str
    """Name of the producer or subscription."""
    offered_messages: int
    passed_messages: int
    dropped_messages: int
    rejected_messages: int
    """Refused, with an error to the client."""
    held_messages: int
    """Passed messages that waited."""
    late_messages: int
    """Passed messages that waited for about 30 s or longer: sends of clients with the default timeout had failed."""
    p50_ms: float
    """Half of all messages that passed had waited for less; most often 0."""
    p99_ms: float
    longest_ms: float
    waited_s: float
    """Time in which something was held, summed over streams."""
    first: datetime | None
    """Begin of the first wait or refusal; null without any."""
    last: datetime | None
    worst_at: datetime | None
    would_wait_s: float
    """Time in which limits that are only observed would have held something, summed over streams."""
    would_longest_ms: float

    @property
    def is_hurt(self) -> bool:
        """True if sends failed: messages were refused, or waited for longer than clients do."""
        return bool(self.failed_messages)

    @property
    def failed_messages(self) -> int:
        """Messages that were refused, or waited for longer than producers do; consumers wait."""
        return self.rejected_messages + (self.late_messages if self.direction == "publish" else 0)


class LimitImpact(Impact, frozen=True, kw_only=True):
    """The impact of one limit on the clients of one tenant."""

    mode: str
    limit_messages: float | None
    """Last in force; of a limit that a fleet shares, the whole."""
    limit_bytes: float | None
    asked_messages: float | None
    """Per second, in the fullest 30 s, by all clients of the limit; null where it was not measured."""
    asked_bytes: float | None
    suffices_messages: float | None
    """A limit at which no message would have waited for longer than 30 s, for what came; null where none is needed."""
    suffices_bytes: float | None
    clients: list[Impact]
    """Those that were hurt most come first."""
    clients_left_out: int

    @property
    def asked_share(self) -> float:
        """Demand in parts of the limit, in the unit in which that is more; 0 where it was not measured."""
        pairs = ((self.asked_messages, self.limit_messages), (self.asked_bytes, self.limit_bytes))
        return max((asked / limit for asked, limit in pairs if asked is not None and limit), default=0.0)


class Answers(Struct, frozen=True, kw_only=True):
    """The first screen."""

    totals: list[Impact]
    """All tenants together, by direction."""
    tenants: list[Impact]
    """By tenant and direction: those that were hurt most come first."""
    limits: list[LimitImpact]
    """By limit and tenant: those that hurt most come first."""
    observed: list[ObservedFacts]
    summary: str
    """Who was hurt, and by which limits; empty if no send failed."""
    next_steps: list[str]

    @property
    def is_hurt(self) -> bool:
        """True if sends failed although limits may have been kept."""
        return any(total.is_hurt for total in self.totals)


def answers(
    facts: Facts, limiters: Sequence[LimiterVerdict], use: Sequence[Headroom], shared: Sequence[SharedLimit]
) -> Answers:
    """Answer what managers of tenants and operators ask.

    Args:
        facts: Of the whole log.
        limiters: All verdicts.
        use: The headroom of all limits.
        shared: Limits with several members, while a stream waited.
    """
    rows = sorted(facts.impacts, key=_order)
    limits = _limits(rows, limiters, facts.demands)
    tenants = [_impact(row) for row in rows if row.tenant is not None and row.level is None]
    return Answers(
        totals=[_impact(row) for row in rows if row.tenant is None],
        tenants=tenants,
        limits=limits,
        observed=facts.observed,
        summary=summary(tenants, limits),
        next_steps=[*_of_limits(limits), *_of_members(shared), *_of_observed(facts.observed), *_of_use(use, limits)],
    )


def of_tenant(tenant: str, answers: Answers) -> Answers:
    """Return the answers for one tenant, which name no other."""
    own = [row for row in answers.tenants if row.tenant == tenant]
    limits = [limit for limit in answers.limits if limit.tenant == tenant]
    observed = [row for row in answers.observed if row.tenant == tenant]
    steps = [*_of_limits(limits), *_of_observed(observed)]
    return Answers(
        totals=own, tenants=own, limits=limits, observed=observed, summary=summary(own, limits), next_steps=steps
    )


def _order(row: ImpactFacts) -> tuple[float | str, ...]:
    failed = row.rejected_messages + row.late_messages
    return (-failed, -row.throttled_s, -row.offered_messages, row.tenant or "", row.name or "", row.direction)


def _impact(row: ImpactFacts) -> Impact:
    p50, p99 = (_waited_less(row, share) for share in (0.5, 0.99))
    return Impact(
        direction=row.direction,
        tenant=row.tenant or "",
        level=row.level or "",
        name=row.name or "",
        topic=row.topic or "",
        client=row.client or "",
        offered_messages=row.offered_messages,
        passed_messages=row.passed_messages,
        dropped_messages=row.dropped_messages,
        rejected_messages=row.rejected_messages,
        held_messages=sum(row.hist),
        late_messages=row.late_messages,
        p50_ms=p50,
        p99_ms=p99,
        longest_ms=row.delay_max_ms,
        waited_s=row.throttled_s,
        first=row.first,
        last=row.last,
        worst_at=row.worst_at,
        would_wait_s=row.would_throttle_s,
        would_longest_ms=row.would_delay_max_ms,
    )


def _waited_less(row: ImpactFacts, share: float) -> float:
    """Return the wait, in milliseconds, below which this share of all passed messages stayed."""
    held = sum(row.hist)
    at_once = max(0, row.passed_messages - held)
    least = share * (at_once + held) - at_once
    return (percentile_ms(row.hist, least / held, row.delay_max_ms) or 0.0) if held and least > 0 else 0.0


def _limits(
    rows: Sequence[ImpactFacts], limiters: Sequence[LimiterVerdict], demands: Sequence[DemandFacts]
) -> list[LimitImpact]:
    verdicts = {(limiter.direction, limiter.level, limiter.name): limiter for limiter in reversed(limiters)}
    asked: dict[tuple[str, ...], DemandFacts] = {}
    for demand in demands:
        key = (demand.direction, demand.level, demand.name)
        # Each proxy has such a limit to itself: the fullest one decides.
        if key not in asked or asked[key].messages_per_s < demand.messages_per_s:
            asked[key] = demand
    clients: defaultdict[tuple[str | None, ...], list[Impact]] = defaultdict(list)
    for row in rows:
        if row.topic is not None:
            clients[row.direction, row.tenant, row.level, row.name].append(_impact(row))
    of_limits = [row for row in rows if row.level is not None and row.topic is None]
    return [
        _limit(row, verdicts.get(key), asked.get(key), clients[row.direction, row.tenant, row.level, row.name])
        for row in of_limits
        for key in [(row.direction, row.level or "", row.name or "")]
    ]


def _limit(
    row: ImpactFacts, verdict: LimiterVerdict | None, demand: DemandFacts | None, clients: list[Impact]
) -> LimitImpact:
    is_shared = verdict is not None and verdict.is_shared
    prefix = "shared" if is_shared else "limit"
    limits = [getattr(verdict, f"{prefix}_{unit}") if verdict else None for unit in ("messages", "bytes")]
    measured = [None, None] if demand is None else [demand.messages_per_s, demand.bytes_per_s]
    asked = [None if limit is None else rate for rate, limit in zip(measured, limits, strict=True)]
    is_needed = bool(row.late_messages or row.rejected_messages or row.throttled_s)
    needed = [
        _rounded_up(rate) if is_needed and rate is not None and limit is not None and rate > limit * _BEYOND else None
        for rate, limit in zip(asked, limits, strict=True)
    ]
    return LimitImpact(
        **{name: getattr(impact, name) for impact in [_impact(row)] for name in Impact.__struct_fields__},
        mode=verdict.mode if verdict else "reject" if row.rejected_messages else "enforce",
        limit_messages=limits[0],
        limit_bytes=limits[1],
        asked_messages=asked[0],
        asked_bytes=asked[1],
        suffices_messages=needed[0],
        suffices_bytes=needed[1],
        clients=clients[:MOST_CLIENTS],
        clients_left_out=max(0, len(clients) - MOST_CLIENTS),
    )


def _rounded_up(value: float) -> float:
    """Two figures are enough for advice."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / unit - 1e-9) * unit


# ---- wording


def failed(row: Impact, of: str = "") -> str:
    """Return how many messages waited for longer than clients do, and how many were refused.

    Args:
        row: With these numbers.
        of: The number that they are of, in words; it follows the first.
    """
    late = row.late_messages if row.direction == "publish" else 0
    counts = ((late, f"waited longer than {TIMEOUT_S} s"), (row.rejected_messages, "refused"))
    parts: list[str] = []
    for count, outcome in counts:
        verb = f"{'was' if count == 1 else 'were'} {outcome}" if outcome == "refused" else outcome
        number = whole(count) if parts else f"{whole(count)}{of} messages" if of else numbered(count, "message")
        parts += [f"{number} {verb}"] if count else []
    return " and ".join(parts)


def limit_words(limit: LimitImpact) -> str:
    """Return a limit as an operator would call it: publish limit of tenant acme, 500 messages/s."""
    level = limit.level.replace("_", " ")
    of = f"{level} {limit.name}" if limit.name else "the whole proxy"
    return f"the {limit.direction} limit of {of} ({rate(limit)})"


def sufficing(limit: LimitImpact) -> str:
    """Return the limit that would have sufficed, with its reason; empty where the limit did no harm."""
    needed = rate(limit, "suffices")
    if needed != "none":
        least = "at least " if limit.waited_s else ""
        return f"{least}{needed}"
    if limit.rejected_messages and limit.asked_share:
        return "the same rate with a larger burst"
    if limit.failed_messages:
        return "more than it is; how much is not in the log, as clients that wait send less"
    return ""


def summary(tenants: Sequence[Impact], limits: Sequence[LimitImpact]) -> str:
    """Name those that were hurt most, the limit and the clients; empty if no send failed."""
    hurt = [row for row in tenants if row.is_hurt]
    parts = [_of_tenant(row, [limit for limit in limits if limit.tenant == row.tenant]) for row in hurt[:_SUMMED_UP]]
    more = f" {numbered(len(hurt) - _SUMMED_UP, 'more tenant')} had failed sends." if len(hurt) > _SUMMED_UP else ""
    return " ".join(parts) + more


def _of_tenant(row: Impact, limits: Sequence[LimitImpact]) -> str:
    when = f", {between((row.first, row.last))}" if row.first and row.last else ""
    causes = [limit for limit in limits if limit.is_hurt and limit.direction == row.direction]
    text = f"Tenant {row.tenant}: {failed(row, f' of {whole(row.offered_messages)}')}{when}"
    if not causes:
        return f"{text}."
    enough = sufficing(causes[0])
    return f"{text}, by {limit_words(causes[0])}{'; enough would have been ' + enough if enough else ''}."


def _of_limits(limits: Sequence[LimitImpact]) -> Iterator[str]:
    hurt = [limit for limit in limits if limit.is_hurt]
    for limit in hurt[:_NAMED]:
        names = ", ".join(
            f"{client.client} ({roughly(_part(client, limit))} of what came)" for client in _loudest(limit)
        )
        enough, kind = sufficing(limit), "producer" if limit.direction == "publish" else "subscription"
        less = f" Or let {kind} {names} send less." if names else ""
        wait = " Or let messages wait: mode enforce." if limit.mode == "reject" else ""
        yield f"Raise {limit_words(limit)}: it takes {enough or 'more'}.{less}{wait}"
    if len(hurt) > _NAMED:
        yield f"{numbered(len(hurt) - _NAMED, 'more limit')} made sends fail: see the table of limits."


def _part(client: Impact, limit: LimitImpact) -> float:
    return client.offered_messages / max(1, limit.offered_messages)


def _loudest(limit: LimitImpact) -> list[Impact]:
    """The clients that sent most: as many as make up most of what came."""
    clients = sorted(limit.clients, key=lambda client: -client.offered_messages)
    so_far = accumulate(_part(client, limit) for client in clients)
    return [client for client, part in zip(clients, so_far, strict=True) if part - _part(client, limit) < _MOST][
        :_NAMED
    ]


def loud(limit: SharedLimit) -> list[str]:
    """Members that asked for more than their fair share, the loudest first; the others in the limit waited for them."""
    more = [member for member in limit.members if member.wanted > member.fair * _MUCH_MORE]
    return [member.member for member in sorted(more, key=lambda member: -member.wanted)]


def _of_members(shared: Iterable[SharedLimit]) -> Iterator[str]:
    for limit in shared:
        names = loud(limit)
        others = len(limit.members) - len(names)
        if names and others:
            listed = ", ".join(names[:_NAMED])
            yield (
                f"Give {listed} a limit of its own within {limit.level.replace('_', ' ')} {limit.name}: "
                f"{numbered(others, 'other')} in the same limit asked for no more than a fair share and waited too."
            )


def _of_observed(observed: Sequence[ObservedFacts]) -> Iterator[str]:
    for row in observed[:_NAMED]:
        limit = f"{row.direction} limit of {row.level.replace('_', ' ')} {row.name} ({rate(row)})"
        if row.would_throttle_s and row.observed_s:
            part = roughly(min(1.0, row.would_throttle_s / row.observed_s))
            yield f"Before you enforce the {limit}, raise it: it would have held messages for {part} of its time."
        else:
            yield f"The {limit} may be enforced: it would have held nothing."


def _of_use(use: Sequence[Headroom], limits: Sequence[LimitImpact]) -> Iterator[str]:
    hurt = {(limit.direction, limit.level, limit.name) for limit in limits}
    near = [row for row in use if row.near_s and (row.direction, row.level, row.name) not in hurt]
    if near:
        named = ", ".join(dict.fromkeys(row.name or "the whole proxy" for row in near[:_NAMED]))
        yield f"Watch {numbered(len(near), 'limit')} near the limit without a wait: {named}."
    idle = [row for row in use if row.peak < _IDLE]
    if idle:
        yield f"{numbered(len(idle), 'limit')} never had more than {roughly(_IDLE)} in use: lower ones would do."
