"""Admission control of a proxy: bounds on connections, lookups, producers and consumers."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

from limiter.admission import (
    FEW,
    Buckets,
    ConcurrencyLimit,
    KeyedBuckets,
    ProvisionalLimit,
    SharedPlaces,
    Slot,
    take_all,
)
from limiter.levels import Topic
from limiter.policies import Policies
from limiter.token_bucket import NANOS_PER_SECOND, Rate
from proxy.config.model import Config
from proxy.counters import Counters
from proxy.observe.operator_log import AdmissionLog


class BoundName(StrEnum):
    """A bound, named by its configuration key; in parentheses, the key by which it counts."""

    __hash__ = str.__hash__  # an enumeration's own is a call of Python, and each look into a table makes one

    CONNECTIONS = "max_connections"  # (address), for what is kept back for others
    CONNECTION_RATE = "connection_rate"  # ()
    CONNECTION_RATE_PER_ADDRESS = "connection_rate_per_address"  # (address)
    CONNECTIONS_PER_ADDRESS = "max_connections_per_address"  # (address)
    LOOKUP_RATE = "lookup_rate_per_address"  # (address)
    SUBSCRIBE_RATE = "subscribe_rate_per_consumer"  # (topic, address, consumer name, consumer id)
    PRODUCERS = "max_producers_per_topic"  # (topic)
    CONSUMERS = "max_consumers_per_topic"  # (topic)
    CONSUMERS_OF_SUBSCRIPTION = "max_consumers_per_subscription"  # (topic, subscription)


OF_CONNECTIONS = (
    BoundName.CONNECTIONS,
    BoundName.CONNECTIONS_PER_ADDRESS,
    BoundName.CONNECTION_RATE,
    BoundName.CONNECTION_RATE_PER_ADDRESS,
)
"""Bounds that a new connection must pass, in this order."""
_OPENED = frozenset({BoundName.PRODUCERS, BoundName.CONSUMERS, BoundName.CONSUMERS_OF_SUBSCRIPTION})
"""Bounds of streams, which a broker accepts or refuses later."""

BoundKey = str | tuple[str | int, ...]
LONGEST_KEY = 64
"""Most characters of a key that is kept as it is. Of a longer one a digest is kept: clients choose names freely, and
100,000 of them are kept for a rate."""
AskedBound = tuple[BoundName, BoundKey]
BoundValue = int | tuple[int, int]
"""A number at once; or a number, and the period in nanoseconds."""

_SAID = {
    BoundName.CONNECTIONS: "connections of this proxy",
    BoundName.CONNECTION_RATE: "new connections of this proxy",
    BoundName.CONNECTION_RATE_PER_ADDRESS: "new connections of one address",
    BoundName.CONNECTIONS_PER_ADDRESS: "connections of one address",
    BoundName.LOOKUP_RATE: "lookups of one address",
    BoundName.SUBSCRIBE_RATE: "subscribes of one consumer",
    BoundName.PRODUCERS: "producers of one topic",
    BoundName.CONSUMERS: "consumers of one topic",
    BoundName.CONSUMERS_OF_SUBSCRIPTION: "consumers of one subscription",
}


class NotAdmittedError(Exception):
    """A bound refuses; the text is for the client, and names the bound's value and key.

    Attributes:
        what: The bound.
        is_passing: There is room, and this client gets some when the broker has answered its earlier requests.
    """

    def __init__(self, what: BoundName, message: str, *, is_passing: bool = False) -> None:
        super().__init__(message)
        self.what = what
        self.is_passing = is_passing


@dataclass(frozen=True, slots=True)
class _InForce:
    """A bound at work, and the texts for the clients that it refuses."""

    bound: KeyedBuckets | ConcurrencyLimit | ProvisionalLimit
    said: str
    said_passing: str = ""


class Admission:
    """The bounds of the configuration, and the subscribe rates of the policies.

    Args:
        config: The configuration.
        counters: Count refusals.
        clock: Monotonic nanoseconds.
        policies: The policies with the subscribe rates; call `subscribe_rates_changed` after changing them.

    Attributes:
        of_connections: The bounds of connections that are in force.
    """

    def __init__(self, config: Config, counters: Counters, clock: Callable[[], int], policies: Policies) -> None:
        values: dict[BoundName, BoundValue] = {BoundName.CONNECTIONS: config.max_connections}
        values |= {
            BoundName(name): value for name, value in config.admission if value and name != BoundName.SUBSCRIBE_RATE
        }
        self._in_force = {what: _in_force(what, value) for what, value in values.items()}
        self.of_connections = tuple(what for what in OF_CONNECTIONS if what in values)
        self._policies = policies
        self._subscribes = Buckets()
        self._rates_since = clock()
        self._counters = counters
        self._clock = clock
        self._log = AdmissionLog(clock)

    def admit(
        self, asked: Iterable[AskedBound], whose: str, source: str, topic: Topic | None = None
    ) -> tuple[Slot, ...]:
        """Admit a request that all of `asked` concern, and return the places that it has taken.

        Args:
            asked: The bounds, in the order in which they are to refuse, each with the key that counts there.
            whose: The client's address, for the log.
            source: The address or network that the client is counted as (`limiter.levels.counted_as`).
            topic: The topic of a subscribe rate, if that is among `asked`.

        Raises:
            NotAdmittedError: If one of the bounds refuses. Then nothing is taken from any.
        """
        in_force = [
            (one, _key(what, key, source), what) for what, key in asked if (one := self._found(what, topic)) is not None
        ]
        refusing = take_all([(one.bound, key) for one, key, _ in in_force], self._clock())
        if refusing is not None:
            raise self._refusal(*next(found for found in in_force if found[0].bound is refusing), whose)
        return tuple([one.bound.place(key) for one, key, _ in in_force if not isinstance(one.bound, KeyedBuckets)])

    def subscribe_rates_changed(self) -> None:
        """Put changed subscribe rates in force from now on."""
        self._rates_since = self._clock()

    @property
    def taken(self) -> int:
        """Number of keys that have places taken."""
        return sum(len(one.bound) for one in self._in_force.values() if not isinstance(one.bound, KeyedBuckets))

    @property
    def provisional(self) -> int:
        """Number of pairs of a key and a client's address that have places which a broker has not accepted yet."""
        return sum(one.bound.sources for one in self._in_force.values() if isinstance(one.bound, ProvisionalLimit))

    def _found(self, what: BoundName, topic: Topic | None) -> _InForce | None:
        if what is not BoundName.SUBSCRIBE_RATE:
            return self._in_force.get(what)
        found = self._policies.subscribe_rate(topic) if topic is not None else None
        if found is None:
            return None
        rate, source = found
        bound = KeyedBuckets(rate, self._subscribes, self._rates_since)
        return _InForce(bound, _told(what, (rate.tokens, rate.period_ns), source))

    def _refusal(self, refusing: _InForce, key: Hashable, what: BoundName, whose: str) -> NotAdmittedError:
        is_passing = isinstance(refusing.bound, ProvisionalLimit) and refusing.bound.free(key) > 0
        said = refusing.said_passing if is_passing else refusing.said
        self._counters.not_admitted[what] += 1
        self._log.refused(what, said, whose)
        return NotAdmittedError(what, said, is_passing=is_passing)


def kept_as(key: BoundKey) -> str | bytes | tuple[str | int, ...]:
    """Return the key itself, or a digest of 16 bytes in the place of a long one."""
    parts = (key,) if isinstance(key, str) else key
    length = sum([len(part) for part in parts if isinstance(part, str)])
    return key if length <= LONGEST_KEY else blake2b(repr(parts).encode(), digest_size=16).digest()


def _key(what: BoundName, key: BoundKey, source: str) -> Hashable:
    kept = kept_as(key)
    return (kept, source) if what in _OPENED else kept


def _in_force(what: BoundName, value: BoundValue) -> _InForce:
    return _InForce(_bound(what, value), _told(what, value), _told(what, value, passing=_PASSING))


def _bound(what: BoundName, value: BoundValue) -> KeyedBuckets | ConcurrencyLimit | ProvisionalLimit:
    if isinstance(value, int):
        if what is BoundName.CONNECTIONS:
            return SharedPlaces(value)
        return ProvisionalLimit(value) if what in _OPENED else ConcurrencyLimit(value)
    tokens, period_ns = value
    return KeyedBuckets(Rate(tokens, period_ns, burst=tokens), Buckets())


_PASSING = ", and of one address no more that the broker has not accepted yet than are free"


def _told(what: BoundName, value: BoundValue, source: str = "", passing: str = "") -> str:
    """Return the text for a refused client: the bound, its value, and its key or the place where it was set."""
    key = str(what) if what is BoundName.CONNECTIONS else f"admission.{what}"
    kept_back = SharedPlaces(value).kept_back if what is BoundName.CONNECTIONS and isinstance(value, int) else 0
    for_others = f", {kept_back} of them for addresses with fewer than {FEW}" if kept_back else ""
    return f"{_SAID[what]}: at most {_text(value)}{for_others}{passing} ({f'{key}, {source}' if source else key})"


def _text(value: BoundValue) -> str:
    if isinstance(value, int):
        return str(value)
    return f"{value[0]} per {value[1] / NANOS_PER_SECOND:g} s"
