"""What the consumers of one limiter may have under way: permits at the broker, and messages held here."""

from collections import OrderedDict
from typing import TYPE_CHECKING

from limiter.rates import NANOS_PER_SECOND, Rate
from limiter.under_way import Unit

if TYPE_CHECKING:
    from limiter.permits import Permits

HORIZON_NS = NANOS_PER_SECOND // 5


def horizon_of(rate: Rate) -> int:
    """Messages, or bytes, that `rate` passes in the horizon, at least one."""
    return max(1, rate.tokens * min(rate.period_ns, HORIZON_NS) // rate.period_ns)


class PermitMeter:
    """What all consumers of one limiter may have under way, in messages or in bytes.

    Args:
        horizon: Who asks gets permits while the sum of what is under way is below this. Who has nothing under way gets
            a share of it besides, and nobody gets less than one entry. So with n consumers, most of them idle, of
            entries of at most `largest`, the sum may reach horizon · (2 + ln n) + (n + 1) · largest. What a consumer
            brings along from before it was limited comes on top.
        unit: What is counted.
    """

    def __init__(self, horizon: int, unit: Unit = "messages") -> None:
        self.horizon = horizon
        self.unit = unit
        self.under_way = 0
        self.consumers = 0
        self.asking: OrderedDict[Permits, None] = OrderedDict()

    def room(self) -> int:
        """How much more may be under way; negative if it is too much."""
        return self.horizon - self.under_way

    def fair_share(self) -> int:
        """What a consumer gets that has nothing under way, even while idle ones sit on permits."""
        return max(1, self.horizon // max(1, self.consumers))

    def turn_share(self) -> int:
        """What each who asks could have of the room."""
        return max(1, self.room() // max(1, len(self.asking)))

    def serve(self) -> None:
        """Hand out the room that there is, in turns, in portions worth a frame."""
        while self.asking and self.room() >= max(1, self.horizon // 4):
            if not self._serve_round(self.turn_share()):
                return

    def _serve_round(self, share: int) -> bool:
        """Give each who asks as much. Returns whether anybody could take anything."""
        was_taken = False
        for _ in range(len(self.asking)):
            if self.room() < 1:
                break
            permits = next(iter(self.asking))
            self.asking.move_to_end(permits)
            was_taken |= permits.take(share, self)
        return was_taken
