"""What the consumers of one limiter may have under way: permits at the broker, and messages held here.

For some consumers the broker has nothing: theirs are permits that nobody makes use of. They must not keep those from
it for whom it has something, so a consumer that waits for the broker is told from the others by what comes meanwhile:

                 nothing came while two horizons' worth came for others, or in eight round trips of others
       counted ────────────────────────────────────────────────────────────────────────────────────────────▶ idle
          ▲                                    a delivery comes                                               │
          └───────────────────────────────────────────────────────────────────────────────────────────────────┘

While all have messages, each gets some of every horizon's worth: hence two. What idle ones have at the broker does not
count, up to a bound. A round trip is one that certainly was: of a consumer that had no permits at the broker any more.
So there is no clock, and a step costs the same however many consumers there are.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from limiter.permit_account import Account, AccountRow
from limiter.rates import NANOS_PER_SECOND, Rate
from limiter.under_way import UnderWay, Unit

if TYPE_CHECKING:
    from limiter.permits import Permits

HORIZON_NS = NANOS_PER_SECOND // 5
IDLE_HORIZONS: Final = 4
"""As many horizons' worth may be with idle consumers, beyond an entry each, before it counts."""
LEAST_PART: Final = 32
"""Even then the consumers for whom something comes may have this part of the horizon at the broker: 6 ms' worth."""
_TRIPS: Final = 8


def horizon_of(rate: Rate) -> int:
    """Messages, or bytes, that `rate` passes in the horizon, at least one."""
    return max(1, rate.tokens * min(rate.period_ns, HORIZON_NS) // rate.period_ns)


class PermitMeter:
    """What all consumers of one limiter may have under way, in messages or in bytes.

    Args:
        horizon: Who asks gets permits while the sum of what is under way is below this. Who has nothing under way gets
            a share of it besides, and nobody gets less than one entry. So with n consumers of entries of at most
            `largest`, the sum may reach horizon · (2 + ln n) + (n + 1) · largest while nobody is idle; and ever
            horizon · (1 + IDLE_HORIZONS + n / LEAST_PART) + (n + 1) · largest, if they have had their turns one after
            the other. What a consumer brings along from before it was limited comes on top.
        unit: What is counted.

    Attributes:
        under_way: With all that are not idle.
        asking: Who could use more and found no room here, in the order of their turns.
        unsure: Who will ask when the first of its entries has shown what they hold.
    """

    def __init__(self, horizon: int, unit: Unit = "messages") -> None:
        self.horizon = horizon
        self.unit = unit
        self.under_way = 0
        self.asking: OrderedDict[Permits, None] = OrderedDict()
        self.unsure: set[Permits] = set()
        self._beyond = 0
        self._present = 0
        self._waiting = AccountRow()
        self._came = 0
        self._trips = 0

    def room(self) -> int:
        """How much more may be under way; negative if it is too much."""
        room = self.horizon - self.under_way
        if self._beyond:
            room -= max(0, self._beyond - IDLE_HORIZONS * self.horizon)
        return room

    def takes_at_once(self, amount: int) -> bool:
        """Whether so much may be under way besides, and nobody waits for it.

        Who stands here does so for want of room; but where limits are being changed there may be room already, which
        is handed out when all of them are.
        """
        room = self.room()
        return amount <= room and self._is_worth_a_frame(room) and not self.asking and not self.unsure

    def fair_share(self) -> int:
        """What a consumer gets that has nothing under way, however little room there is.

        An even part of the horizon, as long as that keeps within the bound on all that is ever under way. Where idle
        ones have used that up, an even part of so little that it does no harm: else those for whom something comes
        would go on one entry at a time, and the limit go unused. And one at least: nothing else brings it further.
        """
        sharing = self._present + 1
        left = (1 + IDLE_HORIZONS) * self.horizon - self.under_way - self._beyond
        even = min(self.horizon // sharing, left)
        return max(even, self.horizon // LEAST_PART // sharing, 1)

    def turn_share(self, others: int = 0) -> int:
        """What each who asks here, or will, could have of the room; and so many `others`."""
        return max(1, self.room() // max(1, len(self.asking) + len(self.unsure) + others))

    def join(self, permits: "Permits", of: UnderWay) -> Account:
        """A consumer is limited by this from now on."""
        account = Account(permits, self)
        self.count(account, of)
        return account

    def leave(self, account: Account) -> None:
        """It is no longer."""
        self._take_out(account)
        self._waiting.remove(account)

    def let_go(self, permits: "Permits") -> None:
        """A consumer stands here no longer."""
        self.asking.pop(permits, None)
        self.unsure.discard(permits)

    def granted(self, account: Account, of: UnderWay, *, was_dry: bool) -> None:
        """A consumer was granted permits; `was_dry` if the broker had none of it."""
        if was_dry:
            account.trip = self._trips
        self.count(account, of)

    def delivered(self, account: Account, of: UnderWay, amount: int) -> None:
        """The broker sent so much to a consumer."""
        self._came += amount
        if account.trip == self._trips:
            self._trips += 1
        account.trip = -1
        self._waiting.remove(account)
        if account.is_idle:
            self._turn(account, is_idle=False)
        self.count(account, of)
        self._find_idle()

    def count(self, account: Account, of: UnderWay) -> None:
        """What a consumer has under way is another amount now."""
        self._take_out(account)
        account.amount = of.amount(self.unit)
        account.beyond = max(0, account.amount - of.least(self.unit))
        account.is_present = not of.is_nothing
        self._put_in(account)
        if not of.waits_for_broker:
            self._waiting.remove(account)
        elif not account.is_idle and not account.waits:
            account.since_came, account.since_trips = self._came, self._trips
            self._waiting.add(account)

    def serve(self) -> None:
        """Hand out the room that there is, in turns, in portions worth a frame."""
        while self.asking and self._is_worth_a_frame(self.room()):
            if not self._serve_round(self.turn_share()):
                return

    def _serve_round(self, share: int) -> bool:
        """Give each who asks as much. Returns whether anybody could take anything."""
        was_taken = False
        for _ in range(len(self.asking)):
            room = self.room()
            if room < 1:
                break
            permits = next(iter(self.asking))
            self.asking.move_to_end(permits)
            was_taken |= permits.take(min(share, room), self)
        return was_taken

    def _find_idle(self) -> None:
        """Who has waited longest stands first; each that is found has come here by a delivery or grant of its own."""
        enough = self.horizon + self.horizon  # for a product of large numbers compiled code asks the interpreter
        while (account := self._waiting.first) is not None:
            if self._came - account.since_came < enough and self._trips - account.since_trips < _TRIPS:
                return
            self._waiting.remove(account)
            self._turn(account, is_idle=True)
            account.permits.stop_asking()

    def _is_worth_a_frame(self, room: int) -> bool:
        return room >= 1 and room >= self.horizon >> 2

    def _turn(self, account: Account, *, is_idle: bool) -> None:
        self._take_out(account)
        account.is_idle = is_idle
        self._put_in(account)

    def _put_in(self, account: Account) -> None:
        if account.is_idle:
            self._beyond += account.beyond
        else:
            self.under_way += account.amount
            self._present += account.is_present

    def _take_out(self, account: Account) -> None:
        if account.is_idle:
            self._beyond -= account.beyond
        else:
            self.under_way -= account.amount
            self._present -= account.is_present
