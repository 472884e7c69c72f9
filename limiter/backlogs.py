"""Detect subscriptions with a backlog, where subscriptions without one are not limited.

A broker knows the backlog from the cursor. Sluice infers it from the permits of all consumers of one subscription (a
topic or one partition, and the subscription's name) on this proxy:

          one consumer has used up its permits, or is new; delivered messages are asked
          for again; much is delivered to one with more permits than a receiver queue
               ┌──────────────────────────────────────────────────────────────┐
               ▼                                                              │
           limited ──a delivery comes, and for CALM_NS before it every────▶ spared
                     consumer had permits that the broker did not use

A broker that has a message for a consumer with permits sends it, in far less than CALM_NS. Permits that were only just
granted are no sign, as limited consumers get them in small portions: hence the time. A new consumer counts as one that
has used up its permits, so a backlog that it begins with is limited from the first message on.

A consumer makes a backlog by asking for messages that were already delivered: by REDELIVER, of all or of some messages,
or by SEEK. The proxy sees the command before any such message comes, so CALM_NS begins again with the command.

A consumer that asks for more than the broker delivers in that time never uses its permits up, backlog or not: unused
permits are then no sign. Clients ask for a receiver queue, 1,000 messages by default, and for more as it empties. While
at most RECEIVER_QUEUE permits are unused, a broker with a backlog would use them all up. So unused permits are then a
sign, however fast and long messages come, and an honest consumer at the end of its topic stays spared. With more unused
permits, only CALM_NS without any delivery is a sign. When more than RECEIVER_QUEUE messages have come since the last
sign, the subscription has a backlog: brokers regard a cursor as backlogged beyond that number of entries. This rule
misjudges one kind of consumer as having a backlog: it chose a queue of more than twice RECEIVER_QUEUE, and is never
without a delivery for CALM_NS.

Messages that the proxy holds are a backlog as well: a subscription with more than RECEIVER_QUEUE held messages is not
spared. So a client that makes calm times itself, by not reading, gains about that many messages from each, and no more.

Messages that pass while a subscription is spared are charged to no limit. The delivery that uses up a consumer's
permits ends this: from then on all limits hold for all consumers of the subscription, with the tokens at hand, never
more than a burst. Messages that arrived in one read with that delivery are still spared.

Source: dispatchThrottlingOnNonBacklogConsumerEnabled; in Pulsar `!cursor.isActive()`, by
managedLedgerCursorBackloggedThreshold.
"""

from collections.abc import Callable, Iterable
from functools import partial

from limiter.limiter import Stream

CALM_NS = 1_000_000_000
"""Longer than any broker takes to deliver its messages after it gets permits."""

RECEIVER_QUEUE = 1_000
"""A client's default receiver queue, in messages; a broker with a backlog may not use up more permits within
CALM_NS."""

SubscriptionKey = tuple[str, str]
"""Full topic name, and name of the subscription."""


class Backlog:
    """The backlog state of one subscription: limited or spared.

    Args:
        clock: Monotonic nanoseconds.
        switch: Called with the subscription's consumers when they become limited or spared.
    """

    def __init__(self, clock: Callable[[], int], switch: Callable[[Iterable[Stream]], None]) -> None:
        self.is_limited = True
        self.consumers: dict[Stream, _Sign] = {}
        self._clock = clock
        self._switch = switch
        self._dry = 0
        self._calm_since = 0

    def arriving(self) -> None:
        """Note that the broker delivers to a consumer: after CALM_NS of calm the subscription is spared."""
        if not self.is_limited or self._dry or self._clock() - self._calm_since < CALM_NS:
            return
        if sum(stream.usage.held_messages for stream in self.consumers) > RECEIVER_QUEUE:
            self.found()
        else:
            self._become(is_limited=False)

    def found(self) -> None:
        """Limit the subscription: it has a backlog, whatever its permits. CALM_NS begins again."""
        self._calm_since = self._clock()
        if not self.is_limited:
            self._become(is_limited=True)

    def ran_dry(self) -> None:
        """Note that a consumer has used up its permits, or has none yet: the subscription is limited."""
        self._dry += 1
        if not self.is_limited:
            self._become(is_limited=True)

    def refilled(self) -> None:
        """Note that a consumer has permits again, or has ended."""
        self._dry -= 1
        if self._dry == 0:
            self._calm_since = self._clock()

    def _become(self, *, is_limited: bool) -> None:
        self.is_limited = is_limited
        for stream in self.consumers:  # before the switch, in which held messages may pass
            if is_limited:
                stream.usage.spare_no_longer()
            else:
                stream.usage.spare()
        self._switch(list(self.consumers))


class _Sign:
    """The signs of a backlog in one consumer's permits."""

    def __init__(self, backlog: Backlog, clock: Callable[[], int]) -> None:
        self.is_dry = False
        self._backlog = backlog
        self._clock = clock
        self._since_sign = 0
        self._came_at = 0

    def arriving(self, messages: int, left: int) -> None:
        """Note a delivery of `messages` messages, after which the broker has `left` permits of this consumer."""
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
        """Note that the broker will deliver messages again."""
        self._backlog.found()

    def on_dry_changed(self, *, is_dry: bool) -> None:
        if is_dry == self.is_dry:
            return
        self.is_dry = is_dry
        if is_dry:
            self._backlog.ran_dry()
        else:
            self._backlog.refilled()


class Backlogs:
    """The backlog states of all subscriptions that have consumers here.

    Args:
        clock: Monotonic nanoseconds.
        switch: Called with the consumers of a subscription that become limited or spared.
    """

    def __init__(self, clock: Callable[[], int], switch: Callable[[Iterable[Stream]], None]) -> None:
        self._backlogs: dict[SubscriptionKey, Backlog] = {}
        self._clock = clock
        self._new = partial(Backlog, clock, switch)

    def spares(self, stream: Stream) -> bool:
        """Return whether the subscription of this consumer is spared now."""
        backlog = self._backlogs.get(_subscription_of(stream))
        return backlog is not None and not backlog.is_limited

    def join(self, stream: Stream) -> None:
        """Add a consumer that opened; it counts as having used up its permits."""
        if stream.permits is None:
            return
        key = _subscription_of(stream)
        backlog = self._backlogs.get(key)
        if backlog is None:
            backlog = self._backlogs[key] = self._new()
        sign = backlog.consumers[stream] = stream.permits.backlog = _Sign(backlog, self._clock)
        sign.on_dry_changed(is_dry=True)

    def leave(self, stream: Stream) -> None:
        """Remove a consumer that ended; its subscription is forgotten with its last consumer."""
        backlog = self._backlogs.get(_subscription_of(stream))
        sign = backlog.consumers.pop(stream, None) if backlog is not None else None
        if backlog is None or sign is None or stream.permits is None:
            return
        stream.permits.backlog = None
        sign.on_dry_changed(is_dry=False)
        if not backlog.consumers:
            del self._backlogs[_subscription_of(stream)]


def _subscription_of(stream: Stream) -> SubscriptionKey:
    return stream.name.topic, stream.name.subscription
