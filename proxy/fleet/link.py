"""How the reports and grants of a fleet travel between its members: the interface of both links.

A message is opaque here, and has `fleet.messages.MOST_MESSAGE` bytes at most. It may be lost, come late or twice;
reports and grants say themselves what is to be made of that. Nothing is kept for a member that cannot be reached.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

LinkState = Literal["connecting", "following", "leading"]


class Callbacks(NamedTuple):
    """What a link tells its member, all of it on the loop, and nothing behind `stop`.

    Attributes:
        on_report: A report came; only while leading.
        on_grant: A grant came.
        on_lead: This member coordinates from now on.
        on_unlead: It does not any more, or cannot know.
        on_confirmed: It was the only coordinator at some time after this moment, in nanoseconds of the monotonic clock:
            when the question was sent.
    """

    on_report: Callable[[bytes], None]
    on_grant: Callable[[bytes], None]
    on_lead: Callable[[], None]
    on_unlead: Callable[[], None]
    on_confirmed: Callable[[int], None]


@dataclass(slots=True)
class LinkCounts:
    """Totals since the link was made."""

    messages_in: int = 0
    messages_out: int = 0
    reconnects: int = 0
    takeovers: int = 0
    """How often this member became the coordinator."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Messages that were not carried, by cause: `disconnected`, `slow`, `oversized`, `foreign`, `refused`."""


class FleetLink(Protocol):
    """Carries reports to the coordinator, whoever it is, and its grants to all members."""

    counts: LinkCounts

    @property
    def state(self) -> LinkState:
        """Whether reports and grants can pass, and whether this member coordinates."""
        ...

    @property
    def refused(self) -> bool:
        """Whether what carries the messages refuses at once, rather than being silent."""
        ...

    async def start(self) -> None:
        """Begin; returns before anything is connected."""
        ...

    async def stop(self) -> None:
        """End: no connection, task or timer is left."""
        ...

    def report(self, message: bytes) -> bool:
        """Send a report to the coordinator; False: it cannot be sent now."""
        ...

    def grant(self, message: bytes) -> bool:
        """Send grants to all members, this one included; False: not leading, or it cannot be sent now."""
        ...


def backoff(attempt: int) -> float:
    """Seconds before the next try, after so many that failed: 50 ms doubled up to 5 s, and jitter by half."""
    return float(min(5.0, 0.05 * 2 ** min(attempt, 10)) * random.uniform(0.5, 1))  # noqa: S311 - no secret
