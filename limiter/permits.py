"""Dispatch credit: bounds on the messages that a limited consumer has under way from the broker.

A consumer asks for a whole receiver queue at once. If all permits were passed on, the broker would send the messages at
once and the proxy would have to hold them, out of reach of other consumers. So permits are passed on as messages leave
for the clients. The messages that a limiter's consumers have under way stay within the number that it can pass in a
short horizon. A FLOW that fits whole passes as it came.

    FLOW(1000) ─▶ asked ──room in the horizon──▶ granted: FLOW(n) ─▶ at the broker ─arrived─▶ held ─passed─▶ room
                                                                     └───────── under way ─────────┘

A consumer that could use more waits in line at one credit window that has no room for it. When that window has room,
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
        size: Metered bytes per entry, rounded, at least 1; 0 before the first entry.

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
        by_entry: Limits of messages count an entry as one message (dispatchThrottlingOnBatchMessageEnabled).
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
    50, which leaves -49. So a permit at the broker counts as an entry of the consumer's mean size.

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
        """Count delivered entries that have not gone on yet; negative numbers if they have, or were dropped."""
        self._held_entries += entries
        self._held_messages += messages
        self._held_size += size

    def amount(self, unit: Unit) -> int:
        """Return the amount under way: that which the broker may send, and that which is held."""
        coming = max(0, self.at_broker) * self.least(unit)
        return coming + self.counted(self._held_entries, self._held_messages, self._held_size, unit)

    def least(self, unit: Unit) -> int:
        """Return the amount that the broker may send for one permit, as far as is known; at least 1."""
        return max(1, self._per_permit(unit))

    def coming_for(self, permits: int, unit: Unit) -> int:
        """Return the amount that the broker will send for `permits`; 0 before the first entry."""
        return permits * self._per_permit(unit)

    def permits_for(self, share: int, unit: Unit) -> int:
        """Return the permits for which the broker may send `share`, rounded up to a whole entry.

        Before the first entry, which shows the size of entries, the result is one permit at a time.
        """
        per_permit = self._per_permit(unit)
        if per_permit == 0:
            return 1 if self.at_broker <= 0 else 0
        return -(-share // per_permit)

    def _per_permit(self, unit: Unit) -> int:
        """Return the amount that the broker sends for a permit; 0 before the first entry."""
        if unit == "bytes":
            return self._mean.size
        return self._mean.messages if self._rules.is_precise and not self._rules.by_entry else 1


class CreditAccount:
    """The amount that one consumer has under way at one credit window.

    Attributes:
        permits: The consumer's permits.
        window: The credit window.
        amount: The amount under way, in the window's unit.
        beyond: The part of `amount` beyond one entry.
        is_idle: Whether the consumer is idle: the broker has sent it nothing lately.
        is_present: Whether anything is under way.
        since_came, since_trips: The window's amount delivered and its number of round trips, when the consumer began to
            wait for the broker.
        trip: The round trip that the consumer's next delivery ends; none if below 0.
        waits: Whether this account is in a `CreditRow`, between `before` and `after`.
    """

    __slots__ = (
        "after",
        "amount",
        "before",
        "beyond",
        "is_idle",
        "is_present",
        "permits",
        "since_came",
        "since_trips",
        "trip",
        "waits",
        "window",
    )

    def __init__(self, permits: "Permits", window: "CreditWindow") -> None:
        self.permits = permits
        self.window = window
        self.amount = 0
        self.beyond = 0
        self.is_idle = False
        self.is_present = False
        self.since_came = 0
        self.since_trips = 0
        self.trip = -1
        self.waits = False
        self.before: CreditAccount | None = None
        self.after: CreditAccount | None = None


class CreditRow:
    """A linked list of credit accounts in the order in which they came; each step costs less than in a dictionary.

    Attributes:
        first: The account that has been in the row longest.
    """

    def __init__(self) -> None:
        self.first: CreditAccount | None = None
        self._last: CreditAccount | None = None

    def __iter__(self) -> Iterator[CreditAccount]:
        """Yield all accounts, the oldest first."""
        account = self.first
        while account is not None:
            yield account
            account = account.after

    def add(self, account: CreditAccount) -> None:
        """Append an account that is not in the row."""
        account.waits = True
        account.before = self._last
        if self._last is None:
            self.first = account
        else:
            self._last.after = account
        self._last = account

    def remove(self, account: CreditAccount) -> None:
        """Remove an account, if it is in the row."""
        if not account.waits:
            return
        account.waits = False
        before, after = account.before, account.after
        account.before = account.after = None
        if before is None:
            self.first = after
        else:
            before.after = after
        if after is None:
            self._last = before
        else:
            after.before = before


HORIZON_NS = NANOS_PER_SECOND // 5
IDLE_HORIZONS: Final = 4
"""Horizons' worth that idle consumers may have under way, beyond an entry each, before it takes room of active ones."""
LEAST_PART: Final = 32
"""Even then the active consumers may have one part in 32 of the horizon at the broker: 6 ms' worth."""
_TRIPS: Final = 8


def horizon_of(rate: Rate) -> int:
    """Return the messages, or bytes, that `rate` passes in the horizon; at least 1."""
    return max(1, rate.tokens * min(rate.period_ns, HORIZON_NS) // rate.period_ns)


class CreditWindow:
    """A credit window: bounds the amount that all consumers of one limiter have under way, in messages or in bytes.

    For some consumers the broker has no messages: their permits stay unused. These must not keep credit from consumers
    for which the broker has messages. So deliveries to others make a consumer that waits for the broker idle:

                     nothing came while two horizons' worth came for others, or in eight round trips of others
           counted ─────────────────────────────────────────────────────────────────────────────────────────▶ idle
              ▲                                    a delivery comes                                            │
              └────────────────────────────────────────────────────────────────────────────────────────────────┘

    While all have messages, each gets some of every horizon's worth: hence two. The permits of idle consumers at the
    broker do not count, up to a bound. A round trip counts only if it certainly was one: that of a consumer without
    permits left at the broker. So the window needs no clock, and a step costs the same for any number of consumers.

    Args:
        horizon: A consumer that asks gets permits while the sum under way is below the horizon. A consumer with nothing
            under way also gets a share of the horizon, and no consumer gets less than one entry. So with n consumers of
            entries of at most `largest`, the sum may reach horizon · (2 + ln n) + (n + 1) · largest while none is idle.
            It never exceeds horizon · (1 + IDLE_HORIZONS + n / LEAST_PART) + (n + 1) · largest, which it may reach if
            they have had their turns one after the other. Amounts under way from before the limit come on top.
        unit: The unit of amounts.

    Attributes:
        under_way: The amount under way of all consumers that are not idle.
        asking: Consumers that could use more than this window had room for, in the order of their turns.
        unsure: Consumers that will ask when their first entry has shown the size of their entries.
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
        """Return the amount that may be added; negative if too much is under way."""
        room = self.horizon - self.under_way
        if self._beyond:
            room -= max(0, self._beyond - IDLE_HORIZONS * self.horizon)
        return room

    def takes_at_once(self, amount: int) -> bool:
        """Return whether `amount` more may be under way, and no consumer waits for room.

        While limits change, a window may have room and waiting consumers: they get it when all limits have changed.
        """
        room = self.room()
        return amount <= room and self._is_worth_a_frame(room) and not self.asking and not self.unsure

    def fair_share(self) -> int:
        """Return the share of a consumer that has nothing under way, however little room there is.

        The share is an even part of the horizon, within the bound on the amount that is ever under way. Where idle
        consumers have used up that bound, it is an even part of the LEAST_PART: else active consumers would go on one
        entry at a time, and the limit would stay unused. The share is at least 1, so that the consumer goes on at all.
        """
        sharing = self._present + 1
        left = (1 + IDLE_HORIZONS) * self.horizon - self.under_way - self._beyond
        even = min(self.horizon // sharing, left)
        return max(even, self.horizon // LEAST_PART // sharing, 1)

    def turn_share(self, others: int = 0) -> int:
        """Return an even share of the room for each consumer that asks here, or will, and for `others` more."""
        return max(1, self.room() // max(1, len(self.asking) + len(self.unsure) + others))

    def join(self, permits: "Permits", of: InFlight) -> CreditAccount:
        """Add a consumer that is limited by this window from now on."""
        account = CreditAccount(permits, self)
        self.count(account, of)
        return account

    def leave(self, account: CreditAccount) -> None:
        """Remove a consumer that is no longer limited by this window."""
        self._take_out(account)
        self._waiting.remove(account)

    def let_go(self, permits: "Permits") -> None:
        """Take a consumer out of the line."""
        self.asking.pop(permits, None)
        self.unsure.discard(permits)

    def granted(self, account: CreditAccount, of: InFlight, *, was_dry: bool) -> None:
        """Record that a consumer was granted permits; `was_dry` if it had none left at the broker."""
        if was_dry:
            account.trip = self._trips
        self.count(account, of)

    def delivered(self, account: CreditAccount, of: InFlight, amount: int) -> None:
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

    def count(self, account: CreditAccount, of: InFlight) -> None:
        """Replace the amount that counts as under way for a consumer."""
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
        """Mark consumers that have waited too long for the broker as idle; the longest wait comes first.

        Each consumer is marked once per delivery or grant of its own, so the cost is shared by these.
        """
        enough = self.horizon + self.horizon  # compiled code calls the interpreter for a product of large numbers
        while (account := self._waiting.first) is not None:
            if self._came - account.since_came < enough and self._trips - account.since_trips < _TRIPS:
                return
            self._waiting.remove(account)
            self._turn(account, is_idle=True)
            account.permits.stop_asking()

    def _is_worth_a_frame(self, room: int) -> bool:
        return room >= 1 and room >= self.horizon >> 2

    def _turn(self, account: CreditAccount, *, is_idle: bool) -> None:
        self._take_out(account)
        account.is_idle = is_idle
        self._put_in(account)

    def _put_in(self, account: CreditAccount) -> None:
        if account.is_idle:
            self._beyond += account.beyond
        else:
            self.under_way += account.amount
            self._present += account.is_present

    def _take_out(self, account: CreditAccount) -> None:
        if account.is_idle:
            self._beyond -= account.beyond
        else:
            self.under_way -= account.amount
            self._present -= account.is_present


MOST_ASKED: Final = 2**31 - 1
"""Most permits that are withheld: when the limit is removed, the consumer gets all at once, and a broker counts them in
32 bits."""


class BacklogSign(Protocol):
    """Infers from one consumer's permits whether its subscription has a backlog."""

    def arriving(self, messages: int, left: int) -> None:
        """Note a delivery, after which the broker has `left` permits; it is not counted in the permits yet."""

    def found(self) -> None:
        """Note that the broker will deliver messages again."""

    def on_dry_changed(self, *, is_dry: bool) -> None:
        """Note that the consumer has used up all its permits at the broker, or has some again."""


class Permits:
    """One consumer's permits: asked for by the client, granted to the broker, used up by deliveries.

    As long as the consumer has no limits (see `rewire`), every permit passes at once.

    Attributes:
        asked: Permits withheld: asked for by the client and not granted yet.
        backlog: If set, called for deliveries, and when all permits at the broker are used up.
        windows: The credit windows that the consumer is within.

    Args:
        usage: The counters of permits asked for and granted.
        grant: Called with a number, above 0, of permits to pass on to the broker.
        on_change: Called when permits were asked for, granted or given up.
        rules: The rules by which permits and entries are counted.
        clock: Monotonic nanoseconds; measures the time for which permits are withheld.
    """

    def __init__(
        self,
        usage: "StreamUsage",
        grant: Callable[[int], None],
        on_change: Callable[[], None],
        rules: DispatchRules = RULES,
        clock: Callable[[], int] = lambda: 0,
    ) -> None:
        self.asked = 0
        self.backlog: BacklogSign | None = None
        self._under_way = InFlight(rules)
        self.windows: tuple[CreditWindow, ...] = ()
        self._accounts: tuple[CreditAccount, ...] = ()
        self._waits_at: CreditWindow | None = None
        self._usage = usage
        self._grant = grant
        self._on_change = on_change
        self._clock = clock

    @property
    def at_broker(self) -> int:
        """Permits granted and not used up; negative if a batch overdrew them."""
        return self._under_way.at_broker

    def may_pass(self, permits: int) -> bool:
        """Return whether a FLOW may pass whole: no limit applies, or each credit window has free room for it."""
        for account in self._accounts:
            coming = self._under_way.coming_for(permits, account.window.unit)
            if coming == 0 or account.is_idle or not account.window.takes_at_once(coming):
                return False
        return True

    def ask(self, permits: int, *, as_it_came: bool = False) -> bool:
        """Record that the client asks for more permits.

        `as_it_came` says that the client's FLOW could go on to the broker as it is. Returns whether it must: then it is
        granted whole. Otherwise `grant` is called with the permits that are granted, now or later.
        """
        self._usage.permits_asked += permits
        if not self.may_pass(permits):
            self._on_change()
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
        if self.windows:
            self._count()
            self._settle()

    def dropped(self, entries: int, messages: int, size: int, *, ask_again: bool) -> None:
        """Record that held entries were dropped; `ask_again`: the client still counts on their permits."""
        self._under_way.hold(-entries, -messages, -size)
        self._count()
        self.ask_again(messages if ask_again else 0)

    def ask_again(self, permits: int) -> None:
        """Withhold permits again that were used up in vain; the client still counts on them."""
        self._withhold(permits)

    def overdraw(self, permits: int) -> None:
        """Record the permits that the broker took for a delivery beyond the messages that limits count for it.

        Otherwise a consumer would seem to have permits at the broker, and be granted none.
        """
        was_dry = self.at_broker <= 0
        self._under_way.at_broker -= permits
        self._count()
        self._note_dryness(was_dry=was_dry)
        if self.windows:
            self._settle()

    def rewound(self) -> None:
        """Record that the broker was asked to deliver messages again."""
        if self.backlog is not None:
            self.backlog.found()

    def forgo(self) -> None:
        """Give up all withheld permits: the consumer is about to end."""
        self._give_up()
        self.stop_asking()

    def rewire(self, windows: tuple[CreditWindow, ...]) -> None:
        """Put the consumer within these credit windows from now on."""
        before = self.windows
        if windows != before:
            self._leave()
            self._join(windows)
        self._settle()
        for window in before:
            window.serve()

    def close(self) -> None:
        """Remove the consumer, which ends; the amount that it had under way is room for others."""
        self._give_up()
        self._on_change = lambda: None  # the callback refers to the stream, which refers to these permits
        windows = self.windows
        self._leave()
        for window in windows:
            window.serve()

    def take(self, share: int, window: CreditWindow) -> bool:
        """Take `share` of the room of `window`, but at most a fair part of the others' room; or wait at another window.

        Returns whether any permits could be granted.
        """
        refusing = self._refusing()
        if refusing is not None:
            self._wait_at(refusing)
            return False
        shares = [(share if other is window else other.turn_share(others=1), other) for other in self.windows]
        was_granted = self._give(min(self._under_way.permits_for(part, other.unit) for part, other in shares))
        self._wait_in_line()  # no longer, while the size of its entries is unknown
        return was_granted

    def _withhold(self, permits: int) -> None:
        self.asked = min(self.asked + permits, MOST_ASKED)
        self._settle()

    def _give_up(self) -> None:
        if self.asked:
            self.asked = 0
            self._usage.withheld.stop(self._clock())
            self._on_change()

    def _settle(self) -> None:
        """Grant the permits that this consumer must have; then hand out the room of its windows in turns."""
        if self.asked and not self.windows:
            self._grant_some(self.asked)
        elif self.asked and self._under_way.is_nothing:
            self._give(min(self._under_way.permits_for(window.fair_share(), window.unit) for window in self.windows))
        self._wait_in_line()
        for window in self.windows:
            window.serve()
        if self.asked and not self._usage.withheld.is_running:
            self._usage.withheld.start(self._clock())

    def _wait_in_line(self) -> None:
        """Wait at a window without room, unless the consumer is idle: the broker leaves its permits unused."""
        if not self.asked or self._is_idle:
            return
        if self._is_unsure:
            self.stop_asking()
            for window in self.windows:
                window.unsure.add(self)
        elif self._waits_at is None:
            self.stop_asking()
            self._wait_at(self._refusing() or self.windows[0])

    def _refusing(self) -> CreditWindow | None:
        """Return the first credit window of this consumer that has no room, or None."""
        return next((window for window in self.windows if window.room() < 1), None)

    def _wait_at(self, window: CreditWindow) -> None:
        """Wait for room at `window` and nowhere else: so a window with room meets no consumer that cannot use it."""
        if self._waits_at is not None:
            self._waits_at.let_go(self)
        self._waits_at = window
        window.asking[self] = None

    @property
    def _is_idle(self) -> bool:
        return any(account.is_idle for account in self._accounts)

    @property
    def _is_unsure(self) -> bool:
        """True if the consumer has a permit at the broker, and the size of its entries is unknown."""
        return not all(self._under_way.permits_for(1, window.unit) for window in self.windows)

    def stop_asking(self) -> None:
        """Leave the line: more permits would be of no use, even with room."""
        for window in self.windows:
            window.let_go(self)
        self._waits_at = None

    def _give(self, portion: int) -> bool:
        """Grant permits beyond those that the broker has overdrawn; return whether there were any to grant."""
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
        self._on_change()
        was_dry = self.at_broker <= 0
        self._under_way.at_broker += permits
        for account in self._accounts:
            account.window.granted(account, self._under_way, was_dry=was_dry)
        self._note_dryness(was_dry=was_dry)

    def _sense_backlog(self, messages: int) -> None:
        if self.backlog is not None:
            self.backlog.arriving(messages, self.at_broker - messages)

    def _use_up(self, entries: int, messages: int, size: int) -> None:
        under_way = self._under_way
        was_dry = under_way.at_broker <= 0
        under_way.at_broker -= messages
        if self.windows:  # without limits the size of entries is not needed
            under_way.learn(entries, messages, size)
            for account in self._accounts:
                window = account.window
                window.delivered(account, under_way, under_way.counted(entries, messages, size, window.unit))
        self._note_dryness(was_dry=was_dry)
        if self.windows:
            self._settle()

    def _note_dryness(self, *, was_dry: bool) -> None:
        is_dry = self.at_broker <= 0
        if self.backlog is not None and was_dry != is_dry:
            self.backlog.on_dry_changed(is_dry=is_dry)

    def _count(self) -> None:
        """Update the amount under way at the credit windows."""
        for account in self._accounts:
            account.window.count(account, self._under_way)

    def _join(self, windows: tuple[CreditWindow, ...]) -> None:
        self.windows = windows
        self._accounts = tuple(window.join(self, self._under_way) for window in windows)

    def _leave(self) -> None:
        self.stop_asking()
        for account in self._accounts:
            account.window.leave(account)
        self.windows, self._accounts = (), ()
