"""Who is let in: so often per period, and so many at once, each counted by a key (an address, a consumer, a topic …).

Unlike a message, what asks here is refused rather than held. So a bound is asked before anything is taken, and who is
refused by one of several bounds has taken nothing from the others.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import TypeVar

from limiter.rates import Rate
from limiter.token_bucket import TokenBucket

MOST_KEYS = 100_000
"""Buckets of one bound that are remembered."""


class Bound:
    """What may refuse."""

    def admits(self, key: Hashable, now: int) -> bool:
        """Whether one more of `key` may come in; nothing changes."""
        raise NotImplementedError

    def take(self, key: Hashable, now: int) -> None:
        """One more of `key` comes in."""
        raise NotImplementedError


B = TypeVar("B", bound=Bound)


def take_all(asked: Sequence[tuple[B, Hashable]], now: int) -> B | None:
    """Take one from each bound. If one refuses, nothing is taken, and it is given."""
    for bound, key in asked:
        if not bound.admits(key, now):
            return bound
    for bound, key in asked:
        bound.take(key, now)
    return None


class Buckets:
    """Buckets by key.

    Bounded: full buckets, which are as new ones, are forgotten; when all are in use, the one that was used longest ago
    goes. Then its key may come in a burst too early, after `most_keys` others have come in within one period.

    Args:
        most_keys: Buckets that are remembered.
    """

    def __init__(self, most_keys: int = MOST_KEYS) -> None:
        self._most_keys = most_keys
        self._buckets: OrderedDict[Hashable, TokenBucket] = OrderedDict()
        """Who was used longest ago comes first."""

    def __len__(self) -> int:
        return len(self._buckets)

    def find(self, key: Hashable) -> TokenBucket | None:
        """The bucket of a key that has one."""
        return self._buckets.get(key)

    def use(self, key: Hashable, rate: Rate, now: int) -> TokenBucket:
        """The bucket of a key; a new one at `rate` if it has none."""
        bucket = self._buckets.get(key)
        if bucket is None:
            self._forget(now)
            bucket = self._buckets[key] = TokenBucket(rate, now)
        self._buckets.move_to_end(key)
        return bucket

    def _forget(self, now: int) -> None:
        """Make room for one; two looks at a time keep ahead of the newcomers."""
        for _ in range(2):
            if not self._buckets:
                return
            oldest = next(iter(self._buckets))
            if not self._buckets[oldest].is_full(now) and len(self._buckets) < self._most_keys:
                return
            del self._buckets[oldest]


class KeyedBuckets(Bound):
    """A bucket for each key: in t seconds at most `rate.burst + rate · t` of one key come in.

    Where a key's bucket has another rate, it changes: what has come in still counts, so of a larger burst there is at
    hand what it has grown by; for the rest see `TokenBucket.change`.

    Args:
        rate: Of each key.
        buckets: Where they are; other rates may be asked for there.
        since: When this rate came into force. Until then a bucket has earned at the one before.
    """

    def __init__(self, rate: Rate, buckets: Buckets, since: int = 0) -> None:
        self.rate = rate
        self._buckets = buckets
        self._since = since

    def __len__(self) -> int:
        return len(self._buckets)

    def admits(self, key: Hashable, now: int) -> bool:
        """Whether one more of `key` may come in."""
        bucket = self._buckets.find(key)
        if bucket is None:
            return True
        self._follow(bucket, now)
        return bucket.holds(1, now)

    def take(self, key: Hashable, now: int) -> None:
        """One more of `key` comes in."""
        bucket = self._buckets.use(key, self.rate, now)
        self._follow(bucket, now)
        bucket.take(1, now)

    def _follow(self, bucket: TokenBucket, now: int) -> None:
        if bucket.rate == self.rate:
            return
        grown_by = self.rate.burst - bucket.rate.burst
        bucket.change(self.rate, min(self._since, now))
        if grown_by > 0:
            bucket.give_back(grown_by)


class Slot:
    """One that somebody has; to be given back once."""

    def accepted(self) -> None:
        """It is known that he may have it."""
        raise NotImplementedError

    def give_back(self) -> None:
        """He is gone."""
        raise NotImplementedError


class ConcurrencyLimit(Bound):
    """At most `most` of one key at once; whoever took a place gives it back.

    It remembers as many keys as have a place taken, and no others.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._taken: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._taken)

    def taken(self, key: Hashable) -> int:
        """How many have a place of this key."""
        return self._taken.get(key, 0)

    def admits(self, key: Hashable, now: int) -> bool:  # noqa: ARG002 - as a Bound is asked
        """Whether a place is free."""
        return self._taken.get(key, 0) < self.most

    def take(self, key: Hashable, now: int) -> None:  # noqa: ARG002 - as a Bound is asked
        """Take one."""
        self._taken[key] = self._taken.get(key, 0) + 1

    def give_back(self, key: Hashable) -> None:
        """One is free again.

        Raises:
            ValueError: If none is taken.
        """
        left = self._taken.get(key, 0) - 1
        if left < 0:
            raise ValueError(f"no place of {key!r} is taken")
        self._taken[key] = left
        if left == 0:
            del self._taken[key]

    def place(self, key: Hashable) -> Slot:
        """The place of `key` that was just taken."""
        return _Taken(self, key)


class _Taken(Slot):
    def __init__(self, places: ConcurrencyLimit, key: Hashable) -> None:
        self._places = places
        self._key = key

    def accepted(self) -> None:
        """Nothing is asked of others here: who has it may have it."""

    def give_back(self) -> None:
        """It is free again."""
        self._places.give_back(self._key)


class ProvisionalLimit(Bound):
    """At most `most` of one key at once, of which some are provisional: others have not accepted who has them yet.

    Who will never be accepted holds a place meanwhile, and may come again as often as he likes. So one source gets one
    more of a key while it has fewer provisional ones there than are free, the dynamic threshold: alone it gets half of
    them at once, n get 1 / (n + 1) each, and as much is left for the next one. Who is accepted gets all, by and by.

    Keys are pairs: what is counted, and the source. It remembers as many as have a place taken, and no others.

    Source: Choudhury & Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", IEEE/ACM ToN 6(2),
    1998
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._taken = ConcurrencyLimit(most)
        self._provisional: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._taken)

    @property
    def sources(self) -> int:
        """Keys with provisional places, for each source one."""
        return len(self._provisional)

    def admits(self, key: Hashable, now: int) -> bool:  # noqa: ARG002 - as a Bound is asked
        """Whether a place is free for this source."""
        return self._provisional.get(key, 0) < self.free(key)

    def free(self, key: Hashable) -> int:
        """Places of a key that nobody has."""
        return self.most - self._taken.taken(_counted(key))

    def take(self, key: Hashable, now: int) -> None:
        """Take one, provisionally."""
        self._taken.take(_counted(key), now)
        self._provisional[key] = self._provisional.get(key, 0) + 1

    def place(self, key: Hashable) -> Slot:
        """The place of `key` that was just taken."""
        return _Provisional(self, key)

    def accept(self, key: Hashable) -> None:
        """One that was provisional is not any more."""
        left = self._provisional[key] - 1
        self._provisional[key] = left
        if left == 0:
            del self._provisional[key]

    def give_back(self, key: Hashable) -> None:
        """One that is not provisional is free again."""
        self._taken.give_back(_counted(key))


class _Provisional(Slot):
    def __init__(self, places: ProvisionalLimit, key: Hashable) -> None:
        self._places = places
        self._key = key
        self._is_accepted = False

    def accepted(self) -> None:
        """It is provisional no longer."""
        if not self._is_accepted:
            self._is_accepted = True
            self._places.accept(self._key)

    def give_back(self) -> None:
        """It is free again."""
        self.accepted()
        self._places.give_back(self._key)


def _counted(key: Hashable) -> Hashable:
    assert isinstance(key, tuple)
    counted: Hashable = key[0]
    return counted


FEW = 10
"""Of shared places, a key that has fewer gets one as long as any is free."""


class SharedPlaces(ConcurrencyLimit):
    """At most `most` of all keys together, of which the last tenth is for keys that have few: none can take it all."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.kept_back = most // 10
        self.all_taken = 0

    def admits(self, key: Hashable, now: int) -> bool:  # noqa: ARG002 - as a Bound is asked
        """Whether a place is free for this key."""
        free = self.most - self.all_taken
        return free > (0 if self._taken.get(key, 0) < FEW else self.kept_back)

    def take(self, key: Hashable, now: int) -> None:
        """Take one."""
        super().take(key, now)
        self.all_taken += 1

    def give_back(self, key: Hashable) -> None:
        """One is free again; errors as `ConcurrencyLimit.give_back`."""
        super().give_back(key)
        self.all_taken -= 1
