"""Permits: how many messages a limited consumer may have under way from the broker.

A consumer asks for a whole receiver queue at once. Were all of that passed on, the broker would send it at once and the
proxy would have to hold it, out of reach of other consumers. So permits are passed on as messages leave for the
clients: what a limiter's consumers have under way stays within what it can pass in a short horizon.

    FLOW(1000) ─▶ asked ──room in the horizon──▶ granted: FLOW(n) to the broker ─▶ outstanding ──passed──▶ room

Source: CommandFlow.messagePermits; the broker counts messages, and a batch may overdraw them.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from limiter.rates import NANOS_PER_SECOND, Rate

if TYPE_CHECKING:
    from limiter.usage import StreamUsage

HORIZON_NS = NANOS_PER_SECOND // 5


def horizon_of(rate: Rate) -> int:
    """Messages that `rate` passes in the horizon, at least one."""
    return max(1, rate.tokens * min(rate.period_ns, HORIZON_NS) // rate.period_ns)


class PermitMeter:
    """What all consumers of one limiter may have under way.

    Args:
        horizon: Messages. Who asks gets permits while the sum of the outstanding ones is below this. Who has nothing
            under way gets a share of it besides, so with n consumers, most of them idle, the sum may reach
            horizon · (2 + ln n) + n. What a consumer brings along from before it was limited comes on top.
    """

    def __init__(self, horizon: int) -> None:
        self.horizon = horizon
        self.outstanding = 0
        self.consumers = 0
        self.asking: OrderedDict[Permits, None] = OrderedDict()

    def room(self) -> int:
        """Permits that may still be granted; negative if too many are out."""
        return self.horizon - self.outstanding

    def fair_share(self) -> int:
        """What a consumer gets that has nothing under way, even while idle ones sit on permits."""
        return max(1, self.horizon // max(1, self.consumers))

    def serve(self) -> None:
        """Hand out the room that there is, in turns, in portions worth a frame."""
        while self.asking and self.room() >= max(1, self.horizon // 4):
            if not self._serve_round(max(1, self.room() // len(self.asking))):
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


class Permits:
    """One consumer's permits: asked for by the client, granted to the broker, outstanding until used.

    Args:
        meters: Those of its limiters that count messages. None: every permit passes at once.
        usage: Where asked and granted permits are counted.
        grant: Called with a number, above 0, of permits to pass on to the broker.
    """

    def __init__(self, meters: tuple[PermitMeter, ...], usage: "StreamUsage", grant: Callable[[int], None]) -> None:
        self.asked = 0
        self.outstanding = 0
        self._meters: tuple[PermitMeter, ...] = ()
        self._usage = usage
        self._grant = grant
        self._join(meters)

    @property
    def is_metered(self) -> bool:
        """Whether FLOW must be held back; else it may pass as it came."""
        return bool(self._meters) or self.asked > 0

    def ask(self, permits: int) -> None:
        """The client asks for more."""
        self._usage.permits_asked += permits
        self.asked += permits
        self._settle()

    def pass_through(self, permits: int) -> None:
        """The client asked for more, and the caller has passed it on as it was."""
        self._usage.permits_asked += permits
        self._count_granted(permits)

    def passed(self, messages: int) -> None:
        """Messages went on to the client."""
        self._set_outstanding(self.outstanding - messages)
        self._settle()

    def dropped(self, messages: int, *, ask_again: bool) -> None:
        """Held messages were dropped; `ask_again` where the client still counts their permits as given."""
        self._set_outstanding(self.outstanding - messages)
        if ask_again:
            self.asked += messages
        self._settle()

    def forgo(self) -> None:
        """The consumer is about to end: it wants nothing any more."""
        self.asked = 0
        for meter in self._meters:
            meter.asking.pop(self, None)

    def rewire(self, meters: tuple[PermitMeter, ...]) -> None:
        """Other limits apply from now on."""
        before = self._meters
        if meters != before:
            self._leave()
            self._join(meters)
        self._settle()
        for meter in before:
            meter.serve()

    def close(self) -> None:
        """The consumer ends; its permits are free for others."""
        self.asked = 0
        meters = self._meters
        self._leave()
        for meter in meters:
            meter.serve()

    def take(self, share: int, meter: PermitMeter) -> bool:
        """Take `share` of the room of `meter`, but at most a fair part of the others'. Returns whether it could."""
        others = [other for other in self._meters if other is not meter]
        if any(other.room() < 1 for other in others):
            return False
        self._give(min([share, *(max(1, other.room() // len(other.asking)) for other in others)]))
        return True

    def _settle(self) -> None:
        """Take what this consumer must have at once; what room there is goes to all who ask, in turns."""
        if self.asked and not self._meters:
            self._give(self.asked)
        elif self.asked and self.outstanding <= 0:
            self._give(min(meter.fair_share() for meter in self._meters) - self.outstanding)
        for meter in self._meters:
            if self.asked:
                meter.asking.setdefault(self)
        for meter in self._meters:
            meter.serve()

    def _give(self, permits: int) -> None:
        permits = min(permits, self.asked)
        if permits <= 0:
            return
        self.asked -= permits
        if self.asked == 0:
            for meter in self._meters:
                meter.asking.pop(self, None)
        self._count_granted(permits)
        self._grant(permits)

    def _count_granted(self, permits: int) -> None:
        self._usage.permits_granted += permits
        self._set_outstanding(self.outstanding + permits)

    def _set_outstanding(self, outstanding: int) -> None:
        change = max(0, outstanding) - max(0, self.outstanding)
        self.outstanding = outstanding
        for meter in self._meters:
            meter.outstanding += change

    def _join(self, meters: tuple[PermitMeter, ...]) -> None:
        self._meters = meters
        for meter in meters:
            meter.consumers += 1
            meter.outstanding += max(0, self.outstanding)

    def _leave(self) -> None:
        for meter in self._meters:
            meter.consumers -= 1
            meter.outstanding -= max(0, self.outstanding)
            meter.asking.pop(self, None)
        self._meters = ()
