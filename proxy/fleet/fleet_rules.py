"""The limits as they are written in the members of a fleet: those that differ hold in all, and operators are told.

The core (`fleet/rules.py`) finds the limits that not all members have. `SharedRules` (`limiter/policies.py`) lets those
of other members hold here. This module joins both, and has the words for people.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import structlog

from fleet.coordinator import Coordinator
from fleet.rules import DifferingRule, MemberRules, target_of
from fleet.settings import FleetSettings
from limiter.policies import SharedRules, described
from proxy.observe.operator_log import ThrottledLog

TOLD_LEASES: Final = 2
"""The operator's log warns of limits that not all members have when members have disagreed for so many lease times."""
MOST_SAID: Final = 5
"""Rules that one line of the operator's log names, and members of each, at most."""
_NOT_SHARED: Final = "not shared here"


@dataclass(frozen=True, slots=True)
class MemberRule:
    """A limit as it is written in some members and not in all.

    Args:
        target: What the limit is for, as `publish tenant acme`.
        value: The limit, as people read it.
        here: The limit that is written for the same target in this member, as people read it, and whether it is not
            shared, so that no other member's holds; empty for none.
        is_here: This member has the very limit.
        having: Members that have the limit: all of them where this member coordinates, else one.
        lacking: Members that have none for the target, or another one; empty where this member does not coordinate.
    """

    target: str
    value: str
    here: str
    is_here: bool
    having: list[str]
    lacking: list[str]


class FleetRules:
    """The limits as they are written in the members of a fleet.

    Limits that this member lacks hold in it, too (`SharedRules.adopt`), and the operator's log tells of them.

    Args:
        settings: Those of the fleet.
        heard: What this member has heard of the rules that not all members have.
        own: This member's rules; None: no member is told of them, and no others are looked at.
        clock: Monotonic nanoseconds.
    """

    def __init__(
        self, settings: FleetSettings, heard: MemberRules, own: SharedRules | None, clock: Callable[[], int]
    ) -> None:
        self._fleet = settings.fleet
        self._heard = heard
        self._own = own
        self._clock = clock
        self._patience_ns = TOLD_LEASES * settings.lease_ns
        self._revision = self._told_revision = 0
        self._disagreed_at: int | None = None
        """When members began to disagree; None while they agree."""
        self._warnings = ThrottledLog(clock)

    @property
    def own_total(self) -> int:
        """The number of limits that this member would share."""
        return 0 if self._own is None else self._own.total

    @property
    def disagreed(self) -> int:
        """The number of limits that not all members have, or not all alike."""
        return len({target_of(line) for line in self._heard.differing}) + self._heard.unnamed

    @property
    def is_disagreed(self) -> bool:
        """Whether members have disagreed for so long that it is no reload which has yet to reach all."""
        return self._disagreed_at is not None and self._clock() - self._disagreed_at >= self._patience_ns

    def differing(self, coordinator: Coordinator | None, most: int) -> Iterator[MemberRule]:
        """Yield up to `most` rules that not all members have; the coordinator, if given, knows who has each."""
        if self._own is None:
            return
        found = [] if coordinator is None else coordinator.comparison.differing_rules(most)
        for line, having, lacking in found or self._named(most):
            target, _, value = line.partition("\0")
            here = self._own.here(target)
            if is_shared := self._own.shares(target):
                said = described(here)
            else:
                said = f"{described(here)}; {_NOT_SHARED}" if here else _NOT_SHARED
            yield MemberRule(target, described(value), said, is_shared and here == value, having, lacking)

    def _named(self, most: int) -> list[DifferingRule]:
        return [DifferingRule(line, [having], []) for line, having in islice(self._heard.differing.items(), most)]

    def look(self) -> None:
        """Let limits of others hold here, too. Log what differs if it lasts: reloads of members take their time."""
        if self._own is None:
            return
        if self._revision != self._heard.revision:
            self._revision = self._heard.revision
            self._own.adopt(self._heard.differing)
        if self._revision != self._told_revision:
            self._tell(self._clock())

    def _tell(self, now: int) -> None:
        log = structlog.get_logger()
        if not self._heard.differing:
            if self._told_revision and self._heard.is_compared:
                log.info("fleet: all members have the same limits now", fleet=self._fleet)
            elif self._told_revision:
                log.warning(
                    "fleet: limits are not compared any more, and each member has its own: the coordinator is of a "
                    "version that does not compare them",
                    fleet=self._fleet,
                )
            self._disagreed_at, self._told_revision = None, 0
            return
        self._disagreed_at = now if self._disagreed_at is None else self._disagreed_at
        if now - self._disagreed_at >= self._patience_ns and self._warnings.due("rules"):
            self._told_revision = self._revision
            log.warning(
                "fleet: members do not have the same limits, and what one lacks holds in it, too: give all members the "
                "same limits",
                fleet=self._fleet,
                limits=self.disagreed,
                first=[_told(rule) for rule in self.differing(None, MOST_SAID)],
            )


def _told(rule: MemberRule) -> str:
    here = "" if rule.is_here else f"; here: {rule.here or 'nothing'}"
    return f"{rule.target}: {rule.value} in {', '.join(rule.having[:MOST_SAID])}{here}"
