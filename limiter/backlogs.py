"""Which subscriptions have a backlog, where those that have none are to go unlimited.

Pulsar knows it from the cursor. Sluice concludes it from permits, of all consumers of one subscription (a topic or one
partition, and the subscription's name) on this proxy:

          one consumer has used up its permits, or is new; what was delivered is to be
          delivered again; much is delivered to one with more permits than a receiver queue
               ┌──────────────────────────────────────────────────────────────┐
               ▼                                                              │
           limited ──a delivery comes, and for CALM_NS before it every────▶ spared
                     consumer had permits that the broker made no use of

A broker that has something for a consumer with permits sends it, in far less than that time. Permits that were only
just granted say nothing, as limited consumers get them in small portions: hence the time. A new consumer counts as one
that has used up its permits, so a backlog that it begins with is limited from the first message on.

A consumer makes a backlog by asking for what it has got already: by REDELIVER, of all or of some messages, or SEEK.
That is known before any of it comes, and so the time begins anew with it.

Whoever asks for more than the broker delivers in that time never uses it up, backlog or not: his unused permits say
nothing. Clients ask for a receiver queue, 1,000 messages unless they are told otherwise, and for more as it empties. So
while no more than RECEIVER_QUEUE permits are unused, the broker would use up the last of them if it had a backlog: they
are a sign, however fast and long messages come, and an honest consumer at the end of its topic stays spared. With more,
only CALM_NS without any delivery is one. When more than RECEIVER_QUEUE messages have come since the last sign, there is
a backlog, as there is to a broker, which takes a cursor for a backlogged one beyond as many entries. This takes a
consumer that chose a queue of more than twice that, and is never without a delivery for that time, for one with a
backlog.

What is held here has been left behind as well: with more than RECEIVER_QUEUE messages of it no subscription is spared.
So a client that makes its calm times itself, by not reading, gains about that many messages from each, and no more.

What passes while a subscription is spared is charged to no limit. From the delivery on that uses up a consumer's
permits all its limits hold for all consumers of the subscription, with the tokens that are there: never more than a
burst. What had arrived in one read with it belongs to the time before.

Source: dispatchThrottlingOnNonBacklogConsumerEnabled; in Pulsar `!cursor.isActive()`, by
managedLedgerCursorBackloggedThreshold.
"""

from collections.abc import Callable, Iterable
from functools import partial

from limiter.limiter import Stream

CALM_NS = 1_000_000_000
"""Longer than any broker takes to deliver what it has for permits that it was given."""

RECEIVER_QUEUE = 1_000
"""Messages that a client has a broker send ahead, unless it is told otherwise; of more permits a broker with a backlog
may still have some when that has passed."""

Subscription = tuple[str, str]
"""Full topic name, and name of the subscription."""


class Backlog:
    """One subscription.

    Args:
        clock: Monotonic nanoseconds.
        switch: Called with its consumers when they become limited or spared.
    """

    def __init__(self, clock: Callable[[], int], switch: Callable[[Iterable[Stream]], None]) -> None:
        self.is_limited = True
        self.consumers: dict[Stream, _Sign] = {}
        self._clock = clock
        self._switch = switch
        self._dry = 0
        self._calm_since = 0

    def arriving(self) -> None:
        """The broker delivers to one of them."""
        if not self.is_limited or self._dry or self._clock() - self._calm_since < CALM_NS:
            return
        if sum(stream.usage.held_messages for stream in self.consumers) > RECEIVER_QUEUE:
            self.found()
        else:
            self._become(is_limited=False)

    def found(self) -> None:
        """There is a backlog, whatever permits say, and the calm before this is no sign."""
        self._calm_since = self._clock()
        if not self.is_limited:
            self._become(is_limited=True)

    def ran_dry(self) -> None:
        """One of them has used up its permits, or has none yet."""
        self._dry += 1
        if not self.is_limited:
            self._become(is_limited=True)

    def refilled(self) -> None:
        """One of them has permits again, or is gone."""
        self._dry -= 1
        if self._dry == 0:
            self._calm_since = self._clock()

    def _become(self, *, is_limited: bool) -> None:
        self.is_limited = is_limited
        for stream in self.consumers:  # before the switch: what they hold may pass in it
            if is_limited:
                stream.usage.spare_no_longer()
            else:
                stream.usage.spare()
        self._switch(list(self.consumers))


class _Sign:
    """What one consumer's permits say."""

    def __init__(self, backlog: Backlog, clock: Callable[[], int]) -> None:
        self.is_dry = False
        self._backlog = backlog
        self._clock = clock
        self._since_sign = 0
        self._came_at = 0

    def arriving(self, messages: int, left: int) -> None:
        """The broker delivers so many to it, and has so many permits of it left then."""
        if left <= RECEIVER_QUEUE:
            self._since_sign = 0
            self._backlog.arriving()
            return
        now = self._clock()
        if now - self._came_at >= CALM_NS:
            self._since_sign = 0
        self._came_at = now
        self._since_sign += messages
        if self._since_sign > RECEIVER_QUEUE:
            self._backlog.found()
        else:
            self._backlog.arriving()

    def found(self) -> None:
        """The broker is to deliver again what it had delivered."""
        self._backlog.found()

    def turned(self, *, is_dry: bool) -> None:
        if is_dry == self.is_dry:
            return
        self.is_dry = is_dry
        if is_dry:
            self._backlog.ran_dry()
        else:
            self._backlog.refilled()


class Backlogs:
    """All subscriptions that have consumers here.

    Args:
        clock: Monotonic nanoseconds.
        switch: Called with the consumers of a subscription that become limited or spared.
    """

    def __init__(self, clock: Callable[[], int], switch: Callable[[Iterable[Stream]], None]) -> None:
        self._known: dict[Subscription, Backlog] = {}
        self._clock = clock
        self._new = partial(Backlog, clock, switch)

    def spares(self, stream: Stream) -> bool:
        """Whether no limit holds for it now."""
        backlog = self._known.get(_subscription_of(stream))
        return backlog is not None and not backlog.is_limited

    def join(self, stream: Stream) -> None:
        """A consumer opened."""
        if stream.permits is None:
            return
        key = _subscription_of(stream)
        backlog = self._known.get(key)
        if backlog is None:
            backlog = self._known[key] = self._new()
        sign = backlog.consumers[stream] = stream.permits.backlog = _Sign(backlog, self._clock)
        sign.turned(is_dry=True)

    def leave(self, stream: Stream) -> None:
        """A consumer ended."""
        backlog = self._known.get(_subscription_of(stream))
        sign = backlog.consumers.pop(stream, None) if backlog is not None else None
        if backlog is None or sign is None or stream.permits is None:
            return
        stream.permits.backlog = None
        sign.turned(is_dry=False)
        if not backlog.consumers:
            del self._known[_subscription_of(stream)]


def _subscription_of(stream: Stream) -> Subscription:
    return stream.name.topic, stream.name.subscription
