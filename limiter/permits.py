"""Permits: how many messages a limited consumer may have under way from the broker.

A consumer asks for a whole receiver queue at once. Were all of that passed on, the broker would send it at once and the
proxy would have to hold it, out of reach of other consumers. So permits are passed on as messages leave for the
clients: what a limiter's consumers have under way stays within what it can pass in a short horizon. A FLOW for all of
which there is room passes as it came.

    FLOW(1000) ─▶ asked ──room in the horizon──▶ granted: FLOW(n) ─▶ at the broker ─arrived─▶ held ─passed─▶ room
                                                                     └───────── under way ─────────┘

A consumer that could use more stands in line at one meter that has no room for it; when that one has, it takes its
portion, or moves on to another one that has none. So a step costs the same however many wait elsewhere.

Who stands at or below 0 at the broker (see `under_way.py`) is given what brings it above, on top of its portion.

Source: CommandFlow.messagePermits; preciseDispatcherFlowControl, which divides by the mean messages per entry.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from limiter.permit_account import Account
from limiter.permit_meter import PermitMeter
from limiter.under_way import RULES, DispatchRules, UnderWay

if TYPE_CHECKING:
    from limiter.usage import StreamUsage

MOST_ASKED: Final = 2**31 - 1
"""Permits that are withheld at most: a broker counts them in 32 bits, and whoever asked for more would get all at once
when its limit goes."""


class BacklogSign(Protocol):
    """Who concludes from permits whether a subscription has a backlog."""

    def arriving(self, messages: int, left: int) -> None:
        """The broker delivers so many, and has so many permits left then; they are still counted as before."""

    def found(self) -> None:
        """The broker is to deliver again what it had delivered."""

    def turned(self, *, is_dry: bool) -> None:
        """The consumer has used up all its permits at the broker, or has some again."""


class Permits:
    """One consumer's permits: asked for by the client, granted to the broker, used up by what arrives.

    As long as it has no limits (see `rewire`), every permit passes at once.

    Attributes:
        asked: Asked for and not granted yet: withheld.
        backlog: Told of deliveries, and when all permits at the broker are used up, if anybody wants to know.

    Args:
        usage: Where asked and granted permits are counted.
        grant: Called with a number, above 0, of permits to pass on to the broker.
        noted: Called when permits were asked for or granted, or given up: there is something to report.
        rules: How permits and entries are counted.
        clock: Monotonic nanoseconds, for how long permits are withheld.
    """

    def __init__(
        self,
        usage: "StreamUsage",
        grant: Callable[[int], None],
        noted: Callable[[], None],
        rules: DispatchRules = RULES,
        clock: Callable[[], int] = lambda: 0,
    ) -> None:
        self.asked = 0
        self.backlog: BacklogSign | None = None
        self._under_way = UnderWay(rules)
        self._meters: tuple[PermitMeter, ...] = ()
        self._accounts: tuple[Account, ...] = ()
        self._stands_at: PermitMeter | None = None
        self._usage = usage
        self._grant = grant
        self._noted = noted
        self._clock = clock

    @property
    def at_broker(self) -> int:
        """Permits granted and not used up; negative if a batch overdrew them."""
        return self._under_way.at_broker

    @property
    def is_metered(self) -> bool:
        """Whether FLOW may have to be held back."""
        return bool(self._meters)

    def may_pass(self, permits: int) -> bool:
        """Whether a FLOW of so many may pass whole: nobody limits it, or there is room everywhere that nobody wants."""
        for account in self._accounts:
            coming = self._under_way.coming_for(permits, account.meter.unit)
            if coming == 0 or account.is_idle or not account.meter.takes_at_once(coming):
                return False
        return True

    def ask(self, permits: int, *, as_it_came: bool = False) -> bool:
        """The client asks for more.

        `as_it_came` says that its FLOW could go on to the broker as it is. Returns whether it is to: then all of it is
        granted; else what is granted, now or later, is told by `grant`.
        """
        self._usage.permits_asked += permits
        if not self.may_pass(permits):
            self._noted()
            self._withhold(permits)
            return False
        self._count_granted(permits)
        if not as_it_came:
            self._grant(permits)
        return as_it_came

    def pass_through(self, permits: int) -> None:
        """The client asked for more, and a worker that knew of no limit has passed it on as it was."""
        self._usage.permits_asked += permits
        self._count_granted(permits)

    def arrived(self, entries: int, messages: int, size: int) -> None:
        """The broker delivered; what was delivered is not with the client yet."""
        self._sense_backlog(messages)
        self._under_way.hold(entries, messages, size)
        self._use_up(entries, messages, size)

    def crossed(self, entries: int, messages: int, size: int) -> None:
        """The broker delivered, and all of it went on to the client."""
        self._sense_backlog(messages)
        self._use_up(entries, messages, size)

    def passed(self, messages: int, size: int) -> None:
        """An entry that had arrived went on to the client."""
        self._under_way.hold(-1, -messages, -size)
        if self._meters:
            self._count()
            self._settle()

    def dropped(self, entries: int, messages: int, size: int, *, ask_again: bool) -> None:
        """Held entries were dropped; `ask_again` where the client still counts their permits as given."""
        self._under_way.hold(-entries, -messages, -size)
        self._count()
        self.ask_again(messages if ask_again else 0)

    def ask_again(self, permits: int) -> None:
        """The client still counts on these, which it asked for before."""
        self._withhold(permits)

    def overdraw(self, permits: int) -> None:
        """The broker took so many more for a delivery, as its metadata say, than limits count of it.

        Else a consumer would be thought to have permits there, and be given none.
        """
        was_dry = self.at_broker <= 0
        self._under_way.at_broker -= permits
        self._count()
        self._turned(was_dry=was_dry)
        if self._meters:
            self._settle()

    def rewound(self) -> None:
        """The client wants what it has got already: the broker was asked to deliver it again."""
        if self.backlog is not None:
            self.backlog.found()

    def forgo(self) -> None:
        """The consumer is about to end: it wants nothing any more."""
        self._give_up()
        self.stop_asking()

    def rewire(self, meters: tuple[PermitMeter, ...]) -> None:
        """These limits apply from now on."""
        before = self._meters
        if meters != before:
            self._leave()
            self._join(meters)
        self._settle()
        for meter in before:
            meter.serve()

    def close(self) -> None:
        """The consumer ends; what it had under way is room for others."""
        self._give_up()
        self._noted = lambda: None  # what there was knows the stream, which knows these permits
        meters = self._meters
        self._leave()
        for meter in meters:
            meter.serve()

    def take(self, share: int, meter: PermitMeter) -> bool:
        """Take `share` of the room of `meter`, but at most a fair part of the others'; or go and stand at one of them.

        Returns whether it could.
        """
        refusing = self._refusing()
        if refusing is not None:
            self._stand_at(refusing)
            return False
        shares = [(share if one is meter else one.turn_share(others=1), one) for one in self._meters]
        could = self._give(min(self._under_way.permits_for(each, one.unit) for each, one in shares))
        self._stand_in_line()  # no longer, if what its entries hold is yet to be seen
        return could

    def _withhold(self, permits: int) -> None:
        self.asked = min(self.asked + permits, MOST_ASKED)
        self._settle()

    def _give_up(self) -> None:
        if self.asked:
            self.asked = 0
            self._usage.withheld.stop(self._clock())
            self._noted()

    def _settle(self) -> None:
        """Take what this consumer must have at once; what room there is goes to all who ask, in turns."""
        if self.asked and not self._meters:
            self._grant_some(self.asked)
        elif self.asked and self._under_way.is_nothing:
            self._give(min(self._under_way.permits_for(each.fair_share(), each.unit) for each in self._meters))
        self._stand_in_line()
        for meter in self._meters:
            meter.serve()
        if self.asked and not self._usage.withheld.is_running:
            self._usage.withheld.start(self._clock())

    def _stand_in_line(self) -> None:
        """Where there is no room for it, unless it has permits of which the broker makes nothing."""
        if not self.asked or self._is_idle:
            return
        if self._is_unsure:
            self.stop_asking()
            for meter in self._meters:
                meter.unsure.add(self)
        elif self._stands_at is None:
            self.stop_asking()
            self._stand_at(self._refusing() or self._meters[0])

    def _refusing(self) -> PermitMeter | None:
        """Of its meters, the first one that has no room."""
        return next((meter for meter in self._meters if meter.room() < 1), None)

    def _stand_at(self, meter: PermitMeter) -> None:
        """Wait for room there, and nowhere else: so whoever has room passes by none that cannot use it."""
        if self._stands_at is not None:
            self._stands_at.let_go(self)
        self._stands_at = meter
        meter.asking[self] = None

    @property
    def _is_idle(self) -> bool:
        return any(account.is_idle for account in self._accounts)

    @property
    def _is_unsure(self) -> bool:
        """Whether it has a permit at the broker, and nobody knows what will come for another."""
        return not all(self._under_way.permits_for(1, meter.unit) for meter in self._meters)

    def stop_asking(self) -> None:
        """More would be of no use, wherever there is room."""
        for meter in self._meters:
            meter.let_go(self)
        self._stands_at = None

    def _give(self, portion: int) -> bool:
        """Grant permits for which the broker sends something. Returns whether there were any to grant."""
        if portion < 1:
            return False
        self._grant_some(min(self._under_way.overdrawn + portion, self.asked))
        return True

    def _grant_some(self, permits: int) -> None:
        self.asked -= permits
        if self.asked == 0:
            self.stop_asking()
            if self._usage.withheld.is_running:
                self._usage.withheld.stop(self._clock())
        self._count_granted(permits)
        self._grant(permits)

    def _count_granted(self, permits: int) -> None:
        self._usage.permits_granted += permits
        self._noted()
        was_dry = self.at_broker <= 0
        self._under_way.at_broker += permits
        for account in self._accounts:
            account.meter.granted(account, self._under_way, was_dry=was_dry)
        self._turned(was_dry=was_dry)

    def _sense_backlog(self, messages: int) -> None:
        if self.backlog is not None:
            self.backlog.arriving(messages, self.at_broker - messages)

    def _use_up(self, entries: int, messages: int, size: int) -> None:
        under_way = self._under_way
        was_dry = under_way.at_broker <= 0
        under_way.at_broker -= messages
        if self._meters:  # else nobody needs to know what entries hold: that is learnt when limits come
            under_way.learn(entries, messages, size)
            for account in self._accounts:
                meter = account.meter
                meter.delivered(account, under_way, under_way.counted(entries, messages, size, meter.unit))
        self._turned(was_dry=was_dry)
        if self._meters:
            self._settle()

    def _turned(self, *, was_dry: bool) -> None:
        is_dry = self.at_broker <= 0
        if self.backlog is not None and was_dry != is_dry:
            self.backlog.turned(is_dry=is_dry)

    def _count(self) -> None:
        """Tell the meters what is under way now."""
        for account in self._accounts:
            account.meter.count(account, self._under_way)

    def _join(self, meters: tuple[PermitMeter, ...]) -> None:
        self._meters = meters
        self._accounts = tuple(meter.join(self, self._under_way) for meter in meters)

    def _leave(self) -> None:
        self.stop_asking()
        for account in self._accounts:
            account.meter.leave(account)
        self._meters, self._accounts = (), ()
