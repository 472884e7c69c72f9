"""The coordinator's part of a process, while its member coordinates the fleet: reports are heard, grants are made.

    once a cycle ───────────────────────────────────────────────────────────────────▶ turn ─▶ _grant
    a report came that is worth an answer at once ─▶ _grant_soon, 5 ms after the last grants ─▶ _grant

The core's `Coordinator` divides the limits. This module has its clock, and logs its warnings.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog

from fleet.coordinator import Coordinator
from fleet.member import FleetMember
from fleet.messages import MOST_EPOCH, BadMessage, MemberReport, ShareKey
from fleet.settings import FleetSettings
from fleet.share_table import Disagreement
from limiter.token_bucket import NANOS_PER_SECOND
from proxy.fleet.member_limits import worded
from proxy.fleet.spaced_call import SpacedCall
from proxy.observe.operator_log import ThrottledLog
from proxy.slices import AT_ONCE, InTurn, OneInTurn, Work

LEAST_BETWEEN_GRANTS_S: Final = 0.005
"""Seconds between two grants, at least; a cycle's grants come in any case."""
MOST_STOPPING_NS: Final = NANOS_PER_SECOND
"""Nanoseconds for the last grants, at most: the next coordinator makes those that are left."""
_SHARES_OF_A_UNIT: Final = 20
"""Shares that are granted in a unit of work."""
_PAUSE_PARTS: Final = 2
"""After grants the coordinator pauses for this multiple of the time that they took, for a cycle at most. Otherwise,
while all limits change, it would divide each limit again after each report; once a cycle is enough."""


class Leadership:
    """This process' part as the coordinator of its fleet, from each `lead` to the `unlead` that follows.

    Args:
        settings: The fleet's settings.
        member: The member that coordinates.
        in_turn: Makes the coordinator's calls, by turns with others of the fleet.
        send: Sends grants to all members.
        is_relative: Returns whether a limiter is relative to publish rates.
        clock: Monotonic nanoseconds.
        wall: Nanoseconds since 1970. Epochs are made from it, so that a later coordinator has a greater epoch.

    Attributes:
        coordinator: The core's coordinator, while this member coordinates; else None.
    """

    def __init__(
        self,
        settings: FleetSettings,
        member: FleetMember,
        in_turn: InTurn,
        send: Callable[[bytes], None],
        is_relative: Callable[[ShareKey], bool],
        clock: Callable[[], int],
        wall: Callable[[], int],
    ) -> None:
        self.coordinator: Coordinator | None = None
        self._settings = settings
        self._member = member
        self._send = send
        self._is_relative = is_relative
        self._clock, self._wall = clock, wall
        self._dropped: Counter[str] = Counter()
        self._grants = SpacedCall(OneInTurn(in_turn, self._grant, "leadership").ask, clock)
        self._between_s = LEAST_BETWEEN_GRANTS_S
        self._deposed_at = 0
        self._warnings = ThrottledLog(clock)

    def dropped_messages(self) -> Counter[str]:
        """Return the number of reports, or parts of reports, that were not taken, by cause."""
        return self._dropped if self.coordinator is None else self._dropped + self.coordinator.dropped

    def turn(self) -> None:
        """Make the grants of a cycle; nothing is made while this member does not coordinate."""
        if self.coordinator is not None:
            self._look_at_names(self.coordinator)
            self._grants.now()

    async def stop(self, last: MemberReport) -> None:
        """Make the last grants, which give the share of this process' member to others.

        Args:
            last: The report by which the member leaves.
        """
        self._grants.stop()
        if self.coordinator is not None:
            self.coordinator.hear(last, self._clock())
            self._grant()
            until = self._clock() + MOST_STOPPING_NS
            while self.coordinator is not None and self.coordinator.has_more and self._clock() < until:
                await asyncio.sleep(0)
                self._grant()

    # ---- from the link

    def lead(self) -> None:
        """Coordinate from now on."""
        epoch, heard = self._wall() // 1_000_000 << 20 | secrets.randbits(20), self._member.epoch_heard
        if heard < MOST_EPOCH:  # else no epoch is greater: members forget it two leases after their own has ended
            epoch = max(epoch, heard + 1)
        self._end()
        self.coordinator = Coordinator(self._settings, self._member.name, epoch, self._clock(), self._member.version)
        structlog.get_logger().info("fleet: coordinates from now on", fleet=self._settings.fleet, epoch=epoch)
        self._grant_soon()

    def unlead(self) -> None:
        """Coordinate no more."""
        if self.coordinator is not None:
            structlog.get_logger().info("fleet: does not coordinate any more", fleet=self._settings.fleet)
        self._end()
        self._grants.cancel()

    def confirmed(self, asked_at: int) -> None:
        """Note that this member was the only coordinator at some time after `asked_at`, see `Callbacks`."""
        if self.coordinator is None:
            return
        self.coordinator.confirmed(asked_at)
        if self.coordinator.deposed and asked_at > self._deposed_at:
            self.lead()  # the greater epoch was forged, or its coordinator has ended

    def heard(self, message: bytes) -> int:
        """Take a report; return the units of work that it was."""
        coordinator = self.coordinator
        if coordinator is None:
            return 1
        try:
            report = MemberReport.decode(message)
        except BadMessage as error:
            self._dropped[error.cause] += 1
            return 1
        if coordinator.hear(report, self._clock()):
            self._grant_soon()
        if coordinator.deposed:
            self._deposed_at = self._clock()
        if (disagreement := coordinator.table.take_disagreement()) is not None:
            self._look_at_disagreement(disagreement)
        return 1 + report.units

    def _end(self) -> None:
        if self.coordinator is not None:
            self._dropped += self.coordinator.dropped
        self.coordinator = None

    # ---- grants, and warnings about reports

    def _grant_soon(self) -> None:
        self._grants.soon(self._between_s)

    def _grant(self) -> int:
        """Make grants; return the units of work that they were."""
        coordinator = self.coordinator
        if coordinator is None:
            return 1
        now, shares = self._clock(), 0
        for grants in coordinator.grant(now):
            self._send(replace(grants, sent_at=self._wall()).encode())
            shares += sum(len(grant.ids) for grant in grants.grants)
        took_s = (self._clock() - now) / NANOS_PER_SECOND
        cycle_s = self._settings.cycle_ns / NANOS_PER_SECOND
        self._between_s = min(max(LEAST_BETWEEN_GRANTS_S, (1 + _PAUSE_PARTS) * took_s), cycle_s)
        if coordinator.has_more:
            self._grant_soon()
            return AT_ONCE[Work.FLEET]
        return 1 + shares // _SHARES_OF_A_UNIT

    def _look_at_names(self, coordinator: Coordinator) -> None:
        """Warn that several members have one name, each ten seconds at most for a name."""
        for name, members in coordinator.names_taken_twice().items():
            if self._warnings.due("name", name):
                structlog.get_logger().warning(
                    "fleet: several members have one name, so logs cannot distinguish them: give each member a "
                    "proxy_id of its own",
                    fleet=self._settings.fleet,
                    member=name,
                    members=members,
                )

    def _look_at_disagreement(self, disagreement: Disagreement) -> None:
        """Warn, each ten seconds at most, that members have different limits; relative limits may differ."""
        key = disagreement.key
        if self._is_relative(key):
            return
        if times := self._warnings.due("disagreed"):
            has, in_force = worded(disagreement.own), worded(disagreement.in_force)
            fields = {"limiter": key.limiter, "unit": key.unit, "has": has, "in_force": in_force}
            structlog.get_logger().warning(
                "fleet: members have different limits, and the lowest holds: give all members the same limits",
                fleet=self._settings.fleet,
                member=disagreement.member,
                reports=times,
                **fields,
            )
