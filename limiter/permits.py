"""Dispatch credit: bounds on the messages that a limited consumer has under way from the broker.

A consumer asks for a whole receiver queue at once. If all of these permits were passed on, the broker would send the
messages at once and the proxy would have to hold them, out of reach of other consumers. So permits are passed on as
messages leave for the clients. The messages that a limiter's consumers have under way stay within what it can pass in a
short horizon. A FLOW that fits whole passes as it came.

    FLOW(1000) ─▶ asked ──room in the horizon──▶ granted: FLOW(n) ─▶ at the broker ─arrived─▶ held ─passed─▶ room
                                                                     └───────── under way ─────────┘

A consumer that could use more stands in line at one credit window that has no room for it. When that window has room,
the consumer takes its portion, or moves on to another window that has none. So a step costs the same however many
consumers wait elsewhere.

A consumer at or below 0 permits at the broker (see `InFlight`) is granted, on top of its portion, the permits that
bring it to 0.

Source: CommandFlow.messagePermits; preciseDispatcherFlowControl, which divides by the mean messages per entry.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from limiter.token_bucket import NANOS_PER_SECOND, Rate
from limiter.usage import StreamUsage

_KEPT = 0.9


class EntrySizeEwma:
    """Moving means of messages and bytes per entry: each new entry has a weight of a tenth, earlier ones the rest.

    Attributes:
        messages: Messages per entry, rounded, at least 1; 0 before the first entry.
        size: Metered bytes per entry, likewise.

    Source: Pulsar's Consumer.avgMessagesPerEntry, which starts at the first value and keeps 0.9 of the old one; halves
    are rounded up, as Math.round does.
    """

    __slots__ = ("_messages", "_size", "messages", "size")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self._messages = 0.0
        self._size = 0.0

    def add(self, entries: int, messages: int, size: int) -> None:
        """Add `entries` entries, with `messages` messages and `size` bytes in all."""
        if entries == 0:
            return
        kept = _KEPT**entries if self.messages else 0.0
        self._messages = kept * self._messages + (1 - kept) * messages / entries
        self._size = kept * self._size + (1 - kept) * size / entries
        self.messages = max(1, int(self._messages + 0.5))
        self.size = max(1, int(self._size + 0.5))


Unit = Literal["messages", "bytes"]


@dataclass(frozen=True, slots=True)
class DispatchRules:
    """The rules by which limits count deliveries, and permits are counted.

    Args:
        is_precise: A permit counts as an entry of the consumer's mean size; else as a message
            (preciseDispatcherFlowControl).
        by_entry: Limits of messages count an entry as one, whatever it holds (dispatchThrottlingOnBatchMessageEnabled).
        spares_caught_up: Subscriptions without a backlog are not limited
            (dispatchThrottlingOnNonBacklogConsumerEnabled: false).
    """

    is_precise: bool = True
    by_entry: bool = False
    spares_caught_up: bool = False


RULES = DispatchRules()


class InFlight:
    """One consumer's messages in flight: permits at the broker, and entries that arrived and have not gone on.

        granted ─▶ at the broker ─arrived─▶ held ─▶ passed or dropped
                   └────────── in flight ─────────┘

    Amounts are in messages as limits count them, and in bytes. The broker counts permits in messages, but sends whole
    entries while its counter is above 0, and so may overdraw it: a consumer that is granted 1 may be sent a batch of
    50, and then stands at -49. So a permit at the broker counts as an entry of the consumer's mean size.

    Attributes:
        at_broker: Permits granted and not used up, equal to the broker's own counter; a batch may make it negative.
    """

    __slots__ = ("_held_entries", "_held_messages", "_held_size", "_mean", "_rules", "at_broker")

    def __init__(self, rules: DispatchRules) -> None:
        self.at_broker = 0
        self._held_entries = 0
        self._held_messages = 0
        self._held_size = 0
        self._mean = EntrySizeEwma()
        self._rules = rules

    @property
    def is_nothing(self) -> bool:
        """True if no message can come for the permits granted, and none is held."""
        return self.at_broker <= 0 and self._held_entries == 0

    @property
    def waits_for_broker(self) -> bool:
        """True if the broker may send an entry, and every entry that it sent has gone on."""
        return self.at_broker > 0 and self._held_entries == 0

    @property
    def overdrawn(self) -> int:
        """Number of permits by which the broker's counter is below 0: the broker sends nothing for as many."""
        return max(0, -self.at_broker)

    def learn(self, entries: int, messages: int, size: int) -> None:
        """Add delivered entries to the means of an entry's size."""
        self._mean.add(entries, messages, size)

    def counted(self, entries: int, messages: int, size: int, unit: Unit) -> int:
        """Return the amount that limits count for a delivery, in messages or bytes."""
        if unit == "bytes":
            return size
        return entries if self._rules.by_entry else messages

    def hold(self, entries: int, messages: int, size: int) -> None:
        """Count delivered entries that have not gone on yet; negative numbers once they have, or were dropped."""
        self._held_entries += entries
        self._held_messages += messages
        self._held_size += size

    def amount(self, unit: Unit) -> int:
        """Return all that is under way: what the broker may send, and what is held."""
        coming = max(0, self.at_broker) * self.least(unit)
        return coming + self.counted(self._held_entries, self._held_messages, self._held_size, unit)

    def least(self, unit: Unit) -> int:
        """Return what the broker may send for one permit, as far as is known; at least 1."""
        return max(1, self._per_permit(unit))

    def coming_for(self, permits: int, unit: Unit) -> int:
        """Return what the broker will send for so many permits; 0 as long as nothing is known."""
        return permits * self._per_permit(unit)

    def permits_for(self, share: int, unit: Unit) -> int:
        """Return the permits for which the broker may send `share`, rounded up to a whole entry.

        As long as nothing is known of the entries, the result is one permit at a time: the entry that comes for it will
        tell.
        """
        per_permit = self._per_permit(unit)
        if per_permit == 0:
            return 1 if self.at_broker <= 0 else 0
        return -(-share // per_permit)

    def _per_permit(self, unit: Unit) -> int:
        """Return what the broker sends for a permit; 0 as long as nothing is known."""
        if unit == "bytes":
            return self._mean.size
        return self._mean.messages if self._rules.is_precise and not self._rules.by_entry else 1


class CreditEntry:
    """The amount that one consumer has under way at one credit window.

    Attributes:
        permits: The consumer's permits.
        meter: The credit window.
        amount: The amount under way, in the window's unit.
        beyond: The part of `amount` beyond one entry.
        is_idle: Whether the consumer is idle: nothing has come for it lately.
        is_present: Whether something is under way at all.
        since_came, since_trips: The window's amount delivered and its number of round trips, when the consumer began to
            wait for the broker.
        trip: The round trip that the consumer's next delivery ends; none if below 0.
        waits: Whether this entry is in a `CreditRow`, between `before` and `behind`.
    """

    __slots__ = (
        "amount",
        "before",
        "behind",
        "beyond",
        "is_idle",
        "is_present",
        "meter",
        "permits",
        "since_came",
        "since_trips",
        "trip",
        "waits",
    )

    def __init__(self, permits: "Permits", meter: "CreditWindow") -> None:
        self.permits = permits
        self.meter = meter
        self.amount = 0
        self.beyond = 0
        self.is_idle = False
        self.is_present = False
        self.since_came = 0
        self.since_trips = 0
        self.trip = -1
        self.waits = False
        self.before: CreditEntry | None = None
        self.behind: CreditEntry | None = None


class CreditRow:
    """A linked list of credit entries in the order in which they came; each step costs less than in a dictionary.

    Attributes:
        first: The entry that has been in the row longest.
    """

    def __init__(self) -> None:
        self.first: CreditEntry | None = None
        self._last: CreditEntry | None = None

    def __iter__(self) -> Iterator[CreditEntry]:
        """Yield all entries, the oldest first."""
        account = self.first
        while account is not None:
            yield account
            account = account.behind

    def add(self, account: CreditEntry) -> None:
        """Append an entry that is not in the row."""
        account.waits = True
        account.before = self._last
        if self._last is None:
            self.first = account
        else:
            self._last.behind = account
        self._last = account

    def remove(self, account: CreditEntry) -> None:
        """Remove an entry, if it is in the row."""
        if not account.waits:
            return
        account.waits = False
        before, behind = account.before, account.behind
        account.before = account.behind = None
        if before is None:
            self.first = behind
        else:
            before.behind = behind
        if behind is None:
            self._last = before
        else:
            behind.before = before


HORIZON_NS = NANOS_PER_SECOND // 5
IDLE_HORIZONS: Final = 4
"""Horizons' worth that idle consumers may have under way, beyond an entry each, before it counts."""
LEAST_PART: Final = 32
"""Even then the active consumers may have one part in this many of the horizon at the broker: 6 ms' worth."""
_TRIPS: Final = 8


def horizon_of(rate: Rate) -> int:
    """Return the messages, or bytes, that `rate` passes in the horizon; at least 1."""
    return max(1, rate.tokens * min(rate.period_ns, HORIZON_NS) // rate.period_ns)


class CreditWindow:
    """A credit window: bounds what all consumers of one limiter have under way, in messages or in bytes.

    For some consumers the broker has no messages: their permits stay unused. These must not keep credit from consumers
    for which the broker has messages. So a consumer that waits for the broker becomes idle by what comes for the others
    meanwhile:

                     nothing came while two horizons' worth came for others, or in eight round trips of others
           counted ─────────────────────────────────────────────────────────────────────────────────────────▶ idle
              ▲                                    a delivery comes                                            │
              └────────────────────────────────────────────────────────────────────────────────────────────────┘

    While all have messages, each gets some of every horizon's worth: hence two. The permits of idle consumers at the
    broker do not count, up to a bound. A round trip counts only if it certainly was one: of a consumer that had no
    permits left at the broker. So there is no clock, and a step costs the same however many consumers there are.

    Args:
        horizon: A consumer that asks gets permits while the sum under way is below this. A consumer with nothing under
            way gets a share of it besides, and no consumer gets less than one entry. So with n consumers of entries of
            at most `largest`, the sum may reach horizon · (2 + ln n) + (n + 1) · largest while none is idle; and ever
            horizon · (1 + IDLE_HORIZONS + n / LEAST_PART) + (n + 1) · largest, if they have had their turns one after
            the other. What a consumer has under way from before it was limited comes on top.
        unit: The unit of amounts.

    Attributes:
        under_way: The amount under way of all consumers that are not idle.
        asking: Consumers that could use more and found no room here, in the order of their turns.
        unsure: Consumers that will ask when their first entry has shown how much an entry holds.
    """

    def __init__(self, horizon: int, unit: Unit = "messages") -> None:
        self.horizon = horizon
        self.unit = unit
        self.under_way = 0
        self.asking: OrderedDict[Permits, None] = OrderedDict()
        self.unsure: set[Permits] = set()
        self._beyond = 0
        self._present = 0
        self._waiting = CreditRow()
        self._came = 0
        self._trips = 0

    def room(self) -> int:
        """Return how much more may be under way; negative if it is too much."""
        room = self.horizon - self.under_way
        if self._beyond:
            room -= max(0, self._beyond - IDLE_HORIZONS * self.horizon)
        return room

    def takes_at_once(self, amount: int) -> bool:
        """Return whether `amount` more may be under way, and no consumer waits for room.

        Consumers stand here for want of room. While limits are being changed there may already be room, which is handed
        out when all of them are changed.
        """
        room = self.room()
        return amount <= room and self._is_worth_a_frame(room) and not self.asking and not self.unsure

    def fair_share(self) -> int:
        """Return the share of a consumer that has nothing under way, however little room there is.

        The share is an even part of the horizon, as long as that keeps within the bound on all that is ever under way.
        Where idle consumers have used that up, it is an even part of so little that it does no harm: else active
        consumers would go on one entry at a time, and the limit would stay unused. The share is at least 1: nothing
        else brings the consumer further.
        """
        sharing = self._present + 1
        left = (1 + IDLE_HORIZONS) * self.horizon - self.under_way - self._beyond
        even = min(self.horizon // sharing, left)
        return max(even, self.horizon // LEAST_PART // sharing, 1)

    def turn_share(self, others: int = 0) -> int:
        """Return an even share of the room for each consumer that asks here, or will, and for `others` more."""
        return max(1, self.room() // max(1, len(self.asking) + len(self.unsure) + others))

    def join(self, permits: "Permits", of: InFlight) -> CreditEntry:
        """Add a consumer that is limited by this window from now on."""
        account = CreditEntry(permits, self)
        self.count(account, of)
        return account

    def leave(self, account: CreditEntry) -> None:
        """Remove a consumer that is no longer limited by this window."""
        self._take_out(account)
        self._waiting.remove(account)

    def let_go(self, permits: "Permits") -> None:
        """Take a consumer out of the line."""
        self.asking.pop(permits, None)
        self.unsure.discard(permits)

    def granted(self, account: CreditEntry, of: InFlight, *, was_dry: bool) -> None:
        """Record that a consumer was granted permits; `was_dry` if it had none left at the broker."""
        if was_dry:
            account.trip = self._trips
        self.count(account, of)

    def delivered(self, account: CreditEntry, of: InFlight, amount: int) -> None:
        """Record that the broker sent `amount` to a consumer."""
        self._came += amount
        if account.trip == self._trips:
            self._trips += 1
        account.trip = -1
        self._waiting.remove(account)
        if account.is_idle:
            self._turn(account, is_idle=False)
        self.count(account, of)
        self._find_idle()

    def count(self, account: CreditEntry, of: InFlight) -> None:
        """Count anew what a consumer has under way."""
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
        """Hand out the room in turns, in portions worth a frame."""
        while self.asking and self._is_worth_a_frame(self.room()):
            if not self._serve_round(self.turn_share()):
                return

    def _serve_round(self, share: int) -> bool:
        """Give `share` to each consumer that asks, and return whether any could take something."""
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
        """Mark consumers that have waited too long for the broker as idle; the longest wait stands first.

        Each consumer that is found has come here by a delivery or grant of its own.
        """
        enough = self.horizon + self.horizon  # for a product of large numbers compiled code asks the interpreter
        while (account := self._waiting.first) is not None:
            if self._came - account.since_came < enough and self._trips - account.since_trips < _TRIPS:
                return
            self._waiting.remove(account)
            self._turn(account, is_idle=True)
            account.permits.stop_asking()

    def _is_worth_a_frame(self, room: int) -> bool:
        return room >= 1 and room >= self.horizon >> 2

    def _turn(self, account: CreditEntry, *, is_idle: bool) -> None:
        self._take_out(account)
        account.is_idle = is_idle
        self._put_in(account)

    def _put_in(self, account: CreditEntry) -> None:
        if account.is_idle:
            self._beyond += account.beyond
        else:
            self.under_way += account.amount
            self._present += account.is_present

    def _take_out(self, account: CreditEntry) -> None:
        if account.is_idle:
            self._beyond -= account.beyond
        else:
            self.under_way -= account.amount
            self._present -= account.is_present


MOST_ASKED: Final = 2**31 - 1
"""Most permits that are withheld: a broker counts them in 32 bits, and a consumer that asked for more would get all at
once when its limit goes."""


class BacklogSign(Protocol):
    """Infers from one consumer's permits whether its subscription has a backlog."""

    def arriving(self, messages: int, left: int) -> None:
        """Note a delivery, after which the broker has `left` permits; it is not counted in the permits yet."""

    def found(self) -> None:
        """Note that the broker is to deliver messages again that it had delivered."""

    def turned(self, *, is_dry: bool) -> None:
        """Note that the consumer has used up all its permits at the broker, or has some again."""


class Permits:
    """One consumer's permits: asked for by the client, granted to the broker, used up by what arrives.

    As long as the consumer has no limits (see `rewire`), every permit passes at once.

    Attributes:
        asked: Permits withheld: asked for by the client and not granted yet.
        backlog: If set, told of deliveries, and when all permits at the broker are used up.

    Args:
        usage: The counters of permits asked for and granted.
        grant: Called with a number, above 0, of permits to pass on to the broker.
        noted: Called when permits were asked for, granted or given up: there is something to report.
        rules: How permits and entries are counted.
        clock: Monotonic nanoseconds; measures how long permits are withheld.
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
        self._under_way = InFlight(rules)
        self._meters: tuple[CreditWindow, ...] = ()
        self._accounts: tuple[CreditEntry, ...] = ()
        self._stands_at: CreditWindow | None = None
        self._usage = usage
        self._grant = grant
        self._noted = noted
        self._clock = clock

    @property
    def at_broker(self) -> int:
        """Permits granted and not used up; negative if a batch overdrew them."""
        return self._under_way.at_broker

    def may_pass(self, permits: int) -> bool:
        """Return whether a FLOW may pass whole: no limit applies, or each credit window has free room for it."""
        for account in self._accounts:
            coming = self._under_way.coming_for(permits, account.meter.unit)
            if coming == 0 or account.is_idle or not account.meter.takes_at_once(coming):
                return False
        return True

    def ask(self, permits: int, *, as_it_came: bool = False) -> bool:
        """Record that the client asks for more permits.

        `as_it_came` says that the client's FLOW could go on to the broker as it is. Returns whether it is to: then all
        of it is granted. Otherwise `grant` is called with the permits that are granted, now or later.
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

    def arrived(self, entries: int, messages: int, size: int) -> None:
        """Record a delivery by the broker that has not gone on to the client yet."""
        self._sense_backlog(messages)
        self._under_way.hold(entries, messages, size)
        self._use_up(entries, messages, size)

    def crossed(self, entries: int, messages: int, size: int) -> None:
        """Record a delivery by the broker that has gone on to the client whole."""
        self._sense_backlog(messages)
        self._use_up(entries, messages, size)

    def passed(self, messages: int, size: int) -> None:
        """Record that an entry that had arrived has gone on to the client."""
        self._under_way.hold(-1, -messages, -size)
        if self._meters:
            self._count()
            self._settle()

    def dropped(self, entries: int, messages: int, size: int, *, ask_again: bool) -> None:
        """Record that held entries were dropped; `ask_again` if the client still counts their permits as given."""
        self._under_way.hold(-entries, -messages, -size)
        self._count()
        self.ask_again(messages if ask_again else 0)

    def ask_again(self, permits: int) -> None:
        """Withhold permits again on which the client still counts, having asked for them before."""
        self._withhold(permits)

    def overdraw(self, permits: int) -> None:
        """Record that the broker took so many more permits for a delivery, by its metadata, than limits count of it.

        Otherwise a consumer would seem to have permits at the broker, and be granted none.
        """
        was_dry = self.at_broker <= 0
        self._under_way.at_broker -= permits
        self._count()
        self._turned(was_dry=was_dry)
        if self._meters:
            self._settle()

    def rewound(self) -> None:
        """Record that the broker was asked to deliver again what the client has got already."""
        if self.backlog is not None:
            self.backlog.found()

    def forgo(self) -> None:
        """Give up all withheld permits: the consumer is about to end."""
        self._give_up()
        self.stop_asking()

    def rewire(self, meters: tuple[CreditWindow, ...]) -> None:
        """Put the consumer within these credit windows from now on."""
        before = self._meters
        if meters != before:
            self._leave()
            self._join(meters)
        self._settle()
        for meter in before:
            meter.serve()

    def close(self) -> None:
        """Remove the consumer, which ends; what it had under way is room for others."""
        self._give_up()
        self._noted = lambda: None  # what there was knows the stream, which knows these permits
        meters = self._meters
        self._leave()
        for meter in meters:
            meter.serve()

    def take(self, share: int, meter: CreditWindow) -> bool:
        """Take `share` of the room of `meter`, but at most a fair part of the others' room; or stand at another window.

        Returns whether any permits could be granted.
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
        """Grant what this consumer must have at once; hand out the room of its windows to all that ask, in turns."""
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
        """Wait where there is no room, unless the consumer is idle: the broker leaves its permits unused."""
        if not self.asked or self._is_idle:
            return
        if self._is_unsure:
            self.stop_asking()
            for meter in self._meters:
                meter.unsure.add(self)
        elif self._stands_at is None:
            self.stop_asking()
            self._stand_at(self._refusing() or self._meters[0])

    def _refusing(self) -> CreditWindow | None:
        """Return the first credit window of this consumer that has no room, or None."""
        return next((meter for meter in self._meters if meter.room() < 1), None)

    def _stand_at(self, meter: CreditWindow) -> None:
        """Wait for room at `meter` and nowhere else: so a window with room passes by no consumer that cannot use it."""
        if self._stands_at is not None:
            self._stands_at.let_go(self)
        self._stands_at = meter
        meter.asking[self] = None

    @property
    def _is_idle(self) -> bool:
        return any(account.is_idle for account in self._accounts)

    @property
    def _is_unsure(self) -> bool:
        """True if the consumer has a permit at the broker, and it is not known what will come for another."""
        return not all(self._under_way.permits_for(1, meter.unit) for meter in self._meters)

    def stop_asking(self) -> None:
        """Leave the line: more permits would be of no use, wherever there is room."""
        for meter in self._meters:
            meter.let_go(self)
        self._stands_at = None

    def _give(self, portion: int) -> bool:
        """Grant permits for which the broker sends something; return whether there were any to grant."""
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
        """Tell the credit windows what is under way now."""
        for account in self._accounts:
            account.meter.count(account, self._under_way)

    def _join(self, meters: tuple[CreditWindow, ...]) -> None:
        self._meters = meters
        self._accounts = tuple(meter.join(self, self._under_way) for meter in meters)

    def _leave(self) -> None:
        self.stop_asking()
        for account in self._accounts:
            account.meter.leave(account)
        self._meters, self._accounts = (), ()
