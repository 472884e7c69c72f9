"""The limits in force in this proxy, as answers have them: the fullest ones, a fleet's shares, and degraded states."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, TypedDict

from limiter.limiter import Limiter
from limiter.token_bucket import WHOLE, Rate
from proxy.degraded import DegradedStates
from proxy.drain import DrainService
from proxy.fleet.service import FleetService, ShareState
from proxy.observe.log_lines import in_force, is_shared


class ShownInForce(TypedDict):
    """The rates of a limit in force in this proxy; `share_…` is its part of a limit that a fleet shares, else null."""

    messages_per_s: float | None
    bytes_per_s: float | None
    burst_messages: int | None
    burst_bytes: int | None
    share_messages: float | None
    share_bytes: float | None


class FullestLimits:
    """The limits of the highest ranks among all that are added.

    Args:
        most: The number of limits.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._ranked: list[tuple[tuple[Any, ...], int, Limiter]] = []
        self.added = 0

    def add(self, rank: tuple[Any, ...], limiter: Limiter) -> None:
        """Add a limit; of equal ranks, the one that was added first is before the others."""
        self.added += 1
        self._ranked.append((rank, -self.added, limiter))
        if len(self._ranked) > 2 * self._most:
            self.first()

    def first(self) -> list[Limiter]:
        """Return the limits, those of the highest rank first."""
        self._ranked.sort(reverse=True)
        del self._ranked[self._most :]
        return [limiter for *_, limiter in self._ranked]


class ShownShares(TypedDict):
    """The shares in force in this member of a fleet.

    `state` is `granted` by a coordinator, `isolated` (cut off from it), or `none` before the first answer. `part` is
    the part that a cut-off member keeps, a word of `fleet.isolated`; else null. `changes` tells where a change of a
    limit or a block holds that this member is asked for: in the whole `fleet`, or in this `member` alone
    (`policies.topic: none`).
    """

    fleet: str
    state: ShareState
    part: str | None
    since: str
    why: str
    changes: Literal["fleet", "member"]


class ShownDegraded(TypedDict):
    """A state in which the proxy serves, and not all that is configured holds."""

    cause: str
    since: str
    for_s: float
    reason: str
    remedy: str


def shown_in_force(limiter: Limiter) -> ShownInForce:
    """Show the rates of a limit that are in force here."""
    messages, _, size, _ = in_force(limiter)
    of_messages, of_bytes = limiter.shares if is_shared(limiter) else (None, None)
    return {
        "messages_per_s": _per_second(messages, of_messages),
        "bytes_per_s": _per_second(size, of_bytes),
        "burst_messages": None if messages is None else messages.burst,
        "burst_bytes": None if size is None else size.burst,
        "share_messages": None if messages is None or of_messages is None else of_messages / WHOLE,
        "share_bytes": None if size is None or of_bytes is None else of_bytes / WHOLE,
    }


def _per_second(rate: Rate | None, share: int | None) -> float | None:
    """Return a rate; 0 without a share, for which `in_force` returns a millionth."""
    return None if rate is None else 0.0 if share == 0 else rate.per_second


class LimitsInForce:
    """The limits in force in this proxy, beside those that are configured.

    Args:
        fleet: This proxy's part in its fleet, if it has one.
        states: The degraded states.
        drain: Drains the process.
        on_look: Called when the degraded states are shown: has the brokers asked, for the next answer.
        has_policy_topic: Whether a topic carries changes of policies to all members of the fleet.
    """

    def __init__(
        self,
        fleet: FleetService | None = None,
        states: DegradedStates | None = None,
        drain: DrainService | None = None,
        on_look: Callable[[], None] = lambda: None,
        *,
        has_policy_topic: bool = False,
    ) -> None:
        self._has_policy_topic = has_policy_topic
        self._on_look = on_look
        self._fleet = fleet
        self._states = states or DegradedStates()
        self._drain = drain

    def shares(self) -> ShownShares | None:
        """Show the shares of this member; None without a fleet."""
        if self._fleet is None:
            return None
        shares = self._fleet.shares_in_force()
        since = moment(shares.since_ns)
        return {
            "fleet": self._fleet.config.name,
            "state": shares.state,
            "part": shares.part or None,
            "since": since,
            "why": shares.why,
            "changes": "fleet" if self._has_policy_topic else "member",
        }

    def degraded(self) -> list[ShownDegraded]:
        """Show the degraded states."""
        self._on_look()
        return [
            {
                "cause": degraded.state.cause,
                "since": moment(degraded.since_ns),
                "for_s": round(degraded.for_s, 3),
                "reason": degraded.state.reason,
                "remedy": degraded.state.remedy,
            }
            for degraded in self._states.now()
        ]

    def draining(self) -> str | None:
        """Return the state of the drain in words; None before one."""
        return None if self._drain is None else self._drain.summary()

    def limit(self, direction: str, level: str, name: str) -> ShownInForce | None:
        """Show the rates in force of a limit that a fleet shares; None if it is not shared, or not in use."""
        limiter = None if self._fleet is None else self._fleet.shared.find(direction, level, name)
        return None if limiter is None else shown_in_force(limiter)


def moment(nanoseconds: int) -> str:
    """Return a time as answers write it, to the millisecond."""
    seconds, part_ns = divmod(nanoseconds, 10**9)
    at = datetime.fromtimestamp(seconds, UTC).replace(microsecond=part_ns // 1000)
    return at.isoformat(timespec="milliseconds")


LimitInForce = Callable[[str, str, str], ShownInForce | None]
"""Shows the rates in force of a limit, by direction, level and name."""
