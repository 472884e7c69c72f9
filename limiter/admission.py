"""Admission control: bounds on how often and how many at once, each by key (an address, a consumer, a topic …).

A request over a bound is refused, not held as a message is. All bounds are asked before any is taken, so a request that
one bound refuses takes nothing from the others.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import TypeVar

from limiter.token_bucket import Rate, TokenBucket

MOST_KEYS = 100_000
"""Most buckets that one bound keeps."""


class Bound:
    """A bound that may refuse a request."""

    def admits(self, key: Hashable, now: int) -> bool:
        """Return whether one more of `key` is within the bound; nothing changes."""
        raise NotImplementedError

    def take(self, key: Hashable, now: int) -> None:
        """Count one more of `key` as admitted."""
        raise NotImplementedError


B = TypeVar("B", bound=Bound)


def take_all(asked: Sequence[tuple[B, Hashable]], now: int) -> B | None:
    """Take one from each bound; if a bound refuses, take nothing and return that bound."""
    for bound, key in asked:
        if not bound.admits(key, now):
            return bound
    for bound, key in asked:
        bound.take(key, now)
    return None


class Buckets:
    """Token buckets by key.

    The number of buckets is bounded. A full bucket equals a new one and is forgotten. When all are in use, the least
    recently used one is forgotten. Its key is then admitted up to a burst too early, after `most_keys` other keys were
    admitted within one period.

    Args:
        most_keys: Most buckets that are kept.
    """

    def __init__(self, most_keys: int = MOST_KEYS) -> None:
        self._most_keys = most_keys
        self._buckets: OrderedDict[Hashable, TokenBucket] = OrderedDict()
        """In order of use, the least recently used first."""

    def __len__(self) -> int:
        return len(self._buckets)

    def find(self, key: Hashable) -> TokenBucket | None:
        """Return the bucket of a key, or None if it has none."""
        return self._buckets.get(key)

    def use(self, key: Hashable, rate: Rate, now: int) -> TokenBucket:
        """Return the bucket of a key, made at `rate` if it has none, and mark it as most recently used."""
        bucket = self._buckets.get(key)
        if bucket is None:
            self._forget(now)
            bucket = self._buckets[key] = TokenBucket(rate, now)
        self._buckets.move_to_end(key)
        return bucket

    def _forget(self, now: int) -> None:
        """Make room for one bucket: looking at two for each new one frees more than are added."""
        for _ in range(2):
            if not self._buckets:
                return
            oldest = next(iter(self._buckets))
            if not self._buckets[oldest].is_full(now) and len(self._buckets) < self._most_keys:
                return
            del self._buckets[oldest]


class KeyedBuckets(Bound):
    """A token bucket for each key: in t seconds at most `rate.burst + rate · t` of one key are admitted.

    A key's bucket that has another rate changes to this one. Earlier requests still count: a larger burst adds only the
    tokens that it has grown by. For the rest see `TokenBucket.change`.

    Args:
        rate: The rate of each key.
        buckets: The buckets, which other rates may share.
        since: When this rate came into force. Until then a bucket has earned at its former rate.
    """

    def __init__(self, rate: Rate, buckets: Buckets, since: int = 0) -> None:
        self.rate = rate
        self._buckets = buckets
        self._since = since

    def __len__(self) -> int:
        return len(self._buckets)

    def admits(self, key: Hashable, now: int) -> bool:
        """Return whether the key's bucket holds a token."""
        bucket = self._buckets.find(key)
        if bucket is None:
            return True
        self._follow(bucket, now)
        return bucket.holds(1, now)

    def take(self, key: Hashable, now: int) -> None:
        """Take a token from the key's bucket."""
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
    """A taken place, which is given back once."""

    def accepted(self) -> None:
        """Record that the holder was accepted elsewhere: the place is no longer provisional."""
        raise NotImplementedError

    def give_back(self) -> None:
        """Free the place: its holder is gone."""
        raise NotImplementedError


class ConcurrencyLimit(Bound):
    """Admits at most `most` of one key at once; each place taken must be given back.

    Memory: only the keys that have a place taken are remembered.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._taken: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._taken)

    def taken(self, key: Hashable) -> int:
        """Return the number of places that `key` has taken."""
        return self._taken.get(key, 0)

    def admits(self, key: Hashable, now: int) -> bool:  # noqa: ARG002 - as a Bound is asked
        """Return whether a place of `key` is free."""
        return self._taken.get(key, 0) < self.most

    def take(self, key: Hashable, now: int) -> None:  # noqa: ARG002 - as a Bound is asked
        """Take a place of `key`."""
        self._taken[key] = self._taken.get(key, 0) + 1

    def give_back(self, key: Hashable) -> None:
        """Free a place of `key`.

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
        """Return the place of `key` that was just taken."""
        return _Taken(self, key)


class _Taken(Slot):
    def __init__(self, places: ConcurrencyLimit, key: Hashable) -> None:
        self._places = places
        self._key = key

    def accepted(self) -> None:
        """Do nothing: these places are never provisional."""

    def give_back(self) -> None:
        """Free the place."""
        self._places.give_back(self._key)


class ProvisionalLimit(Bound):
    """Admits at most `most` of one key at once; a place is provisional until its holder is accepted elsewhere.

    A holder that will never be accepted keeps its place until it gives up, and may try again at any rate. So a source
    gets one more place of a key only while it has fewer provisional places there than are free: the dynamic threshold.
    Alone, a source gets half of the places at once. Of n sources each gets 1 / (n + 1), and as much is left for the
    next one. A source whose places are accepted gets all in the end.

    Keys are pairs: the counted key, and the source. Only keys that have a place taken are remembered.

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
        """Number of pairs of a key and a source that have provisional places."""
        return len(self._provisional)

    def admits(self, key: Hashable, now: int) -> bool:  # noqa: ARG002 - as a Bound is asked
        """Return whether a place is free for this source."""
        return self._provisional.get(key, 0) < self.free(key)

    def free(self, key: Hashable) -> int:
        """Return the number of places of a key that are not taken."""
        return self.most - self._taken.taken(_counted(key))

    def take(self, key: Hashable, now: int) -> None:
        """Take a place provisionally."""
        self._taken.take(_counted(key), now)
        self._provisional[key] = self._provisional.get(key, 0) + 1

    def place(self, key: Hashable) -> Slot:
        """Return the place of `key` that was just taken."""
        return _Provisional(self, key)

    def accept(self, key: Hashable) -> None:
        """Make one of the key's provisional places a lasting one."""
        left = self._provisional[key] - 1
        self._provisional[key] = left
        if left == 0:
            del self._provisional[key]

    def give_back(self, key: Hashable) -> None:
        """Free a place that is not provisional."""
        self._taken.give_back(_counted(key))


class _Provisional(Slot):
    def __init__(self, places: ProvisionalLimit, key: Hashable) -> None:
        self._places = places
        self._key = key
        self._is_accepted = False

    def accepted(self) -> None:
        """Make the place a lasting one; a second call does nothing."""
        if not self._is_accepted:
            self._is_accepted = True
            self._places.accept(self._key)

    def give_back(self) -> None:
        """Free the place."""
        self.accepted()
        self._places.give_back(self._key)


def _counted(key: Hashable) -> Hashable:
    assert isinstance(key, tuple)
    counted: Hashable = key[0]
    return counted


FEW = 10
"""A key with fewer shared places than this gets one as long as any is free."""


class SharedPlaces(ConcurrencyLimit):
    """Admits at most `most` of all keys together; the last tenth is for keys with few places, so none takes all."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.kept_back = most // 10
        self.all_taken = 0

    def admits(self, key: Hashable, now: int) -> bool:  # noqa: ARG002 - as a Bound is asked
        """Return whether a place is free for this key."""
        free = self.most - self.all_taken
        return free > (0 if self._taken.get(key, 0) < FEW else self.kept_back)

    def take(self, key: Hashable, now: int) -> None:
        """Take a place of `key`."""
        super().take(key, now)
        self.all_taken += 1

    def give_back(self, key: Hashable) -> None:
        """Free a place of `key`; errors as `ConcurrencyLimit.give_back`."""
        super().give_back(key)
        self.all_taken -= 1
