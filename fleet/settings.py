"""The settings that all members of a fleet have in common."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class FleetSettings:
    """The settings that all members of a fleet have in common, by their configuration.

    Attributes:
        fleet: The fleet's name.
        cycle_ns: Nanoseconds between two reports, and between two grants, when nothing urgent is to be told.
        lease_ns: Nanoseconds for which a member may use its shares, from the sending of a report that was answered.
        isolated: What a member may use while it cannot reach a coordinator: of the lesser of its last share and an
            equal part, all (`fair`), a twentieth (`floor`) or nothing (`none`). `auto` is `fair` where connections are
            refused, since then those of other members are, too; and `floor` where nothing is heard.
        weight: The weight of a member's claim to a scarce limit: the number of its waiting `streams`, or 1 for each
            `proxy`.
        expected: The number of members that there should be, if that is known beforehand; else 0.
    """

    fleet: str
    cycle_ns: int = 250_000_000
    lease_ns: int = 2_000_000_000
    isolated: Literal["auto", "fair", "floor", "none"] = "auto"
    weight: Literal["streams", "proxy"] = "streams"
    expected: int = 0
