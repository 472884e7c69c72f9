"""The settings that all members of a fleet have in common."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class FleetSettings:
    """The settings that all members of a fleet have in common, by their configuration.

    Attributes:
        fleet: The fleet's name.
        cycle_ns: Nanoseconds between two reports, and between two grants, when none is urgent.
        lease_ns: Nanoseconds for which a member may use its shares, from the sending of a report that was answered.
        isolated: The part of the lesser of its last share and an equal part that a member may use while it cannot reach
            a coordinator: all (`fair`), a twentieth (`floor`) or nothing (`none`). `auto` is `fair` where connections
            are refused, as those of other members are then refused as well, and `floor` where they time out.
        weight: The weight of a member's claim to a scarce limit: the number of its waiting `streams`, or 1 for each
            `proxy`.
        expected: The number of members that the configuration expects; 0 if it expects none.
    """

    fleet: str
    cycle_ns: int = 250_000_000
    lease_ns: int = 2_000_000_000
    isolated: Literal["auto", "fair", "floor", "none"] = "auto"
    weight: Literal["streams", "proxy"] = "streams"
    expected: int = 0
