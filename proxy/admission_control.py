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

    CONNECTIONS = "max_connections"  # (address): some places are kept for addresses with few
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
"""Most characters of a key that is kept as it is. A longer key is kept as a digest: clients choose names freely, and a
rate keeps up to 100,000."""
AskedBound = tuple[BoundName, BoundKey]
BoundValue = int | tuple[int, int]
"""A number at once; or a number, and the period in nanoseconds."""

_BOUNDED = {
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
        bound: The bound.
        is_passing: There is room, and this client gets some when the broker has answered its earlier requests.
    """

    def __init__(self, bound: BoundName, message: str, *, is_passing: bool = False) -> None:
        super().__init__(message)
        self.bound = bound
        self.is_passing = is_passing


@dataclass(frozen=True, slots=True)
class _InForce:
    """A bound in force, and the texts for the clients that it refuses."""

    name: BoundName
    bound: KeyedBuckets | ConcurrencyLimit | ProvisionalLimit
    text: str
    passing_text: str = ""


class Admission:
    """The bounds of the configuration, and the subscribe rates of the policies.

    Args:
        config: The configuration.
        counters: Count refusals.
        clock: Monotonic nanoseconds.
        policies: The policies with the subscribe rates; call `subscribe_rates_changed` after changing them.
        bound_of_clients: The name of the bound on client connections: its key, or a shortage of descriptors.

    Attributes:
        of_connections: The bounds of connections that are in force.
        is_draining: No client is let in any more: all go on elsewhere.
    """

    def __init__(
        self,
        config: Config,
        counters: Counters,
        clock: Callable[[], int],
        policies: Policies,
        bound_of_clients: str = "max_connections",
    ) -> None:
        values: dict[BoundName, BoundValue] = {BoundName.CONNECTIONS: config.max_connections}
        values |= {
            BoundName(name): value for name, value in config.admission if value and name != BoundName.SUBSCRIBE_RATE
        }
        keys = dict.fromkeys(values, "") | {BoundName.CONNECTIONS: bound_of_clients}
        self._in_force = {
            name: _InForce(
                name, _bound(name, value), _text(name, value, keys[name]), _text(name, value, keys[name], _PASSING)
            )
            for name, value in values.items()
        }
        self.of_connections = tuple(name for name in OF_CONNECTIONS if name in values)
        self.is_draining = False
        self._policies = policies
        self._subscribes = Buckets()
        self._rates_since = clock()
        self._counters = counters
        self._clock = clock
        self._log = AdmissionLog(clock)

    def close(self) -> None:
        """Let no client in any more."""
        self.is_draining = True

    def open(self) -> None:
        """Let clients in again."""
        self.is_draining = False

    def admit(
        self, asked: Iterable[AskedBound], client: str, source: str, topic: Topic | None = None
    ) -> tuple[Slot, ...]:
        """Admit a request that all of `asked` concern, and return the places that it has taken.

        Args:
            asked: The bounds, each with the key by which it counts. The first bound without room refuses.
            client: The client's address, for the log.
            source: The address or network that the client is counted as (`limiter.names.counted_as`).
            topic: The topic of a subscribe rate, if that is among `asked`.

        Raises:
            NotAdmittedError: If one of the bounds refuses. Then nothing is taken from any.
        """
        in_force = [
            (entry, _key(name, key, source)) for name, key in asked if (entry := self._entry(name, topic)) is not None
        ]
        refusing = take_all([(entry.bound, key) for entry, key in in_force], self._clock())
        if refusing is not None:
            raise self._refusal(*next(pair for pair in in_force if pair[0].bound is refusing), client)
        return tuple([entry.bound.place(key) for entry, key in in_force if not isinstance(entry.bound, KeyedBuckets)])

    def subscribe_rates_changed(self) -> None:
        """Put changed subscribe rates in force from now on."""
        self._rates_since = self._clock()

    @property
    def taken(self) -> int:
        """Number of keys that have places taken."""
        return sum(len(entry.bound) for entry in self._in_force.values() if not isinstance(entry.bound, KeyedBuckets))

    @property
    def provisional(self) -> int:
        """Number of pairs of a key and a client's address that have places which a broker has not accepted yet."""
        entries = self._in_force.values()
        return sum(entry.bound.sources for entry in entries if isinstance(entry.bound, ProvisionalLimit))

    def _entry(self, name: BoundName, topic: Topic | None) -> _InForce | None:
        if name is not BoundName.SUBSCRIBE_RATE:
            return self._in_force.get(name)
        policy = self._policies.subscribe_rate(topic) if topic is not None else None
        if policy is None:
            return None
        rate, source = policy
        bound = KeyedBuckets(rate, self._subscribes, self._rates_since)
        return _InForce(name, bound, _text(name, (rate.tokens, rate.period_ns), source))

    def _refusal(self, refusing: _InForce, key: Hashable, client: str) -> NotAdmittedError:
        is_passing = isinstance(refusing.bound, ProvisionalLimit) and refusing.bound.free(key) > 0
        text = refusing.passing_text if is_passing else refusing.text
        self._counters.not_admitted[refusing.name] += 1
        self._log.refused(refusing.name, text, client)
        return NotAdmittedError(refusing.name, text, is_passing=is_passing)


def kept_as(key: BoundKey) -> str | bytes | tuple[str | int, ...]:
    """Return the key itself, or a digest of 16 bytes in the place of a long one."""
    parts = (key,) if isinstance(key, str) else key
    length = sum([len(part) for part in parts if isinstance(part, str)])
    return key if length <= LONGEST_KEY else blake2b(repr(parts).encode(), digest_size=16).digest()


def _key(name: BoundName, key: BoundKey, source: str) -> Hashable:
    kept = kept_as(key)
    return (kept, source) if name in _OPENED else kept


def _bound(name: BoundName, value: BoundValue) -> KeyedBuckets | ConcurrencyLimit | ProvisionalLimit:
    if isinstance(value, int):
        if name is BoundName.CONNECTIONS:
            return SharedPlaces(value)
        return ProvisionalLimit(value) if name in _OPENED else ConcurrencyLimit(value)
    tokens, period_ns = value
    return KeyedBuckets(Rate(tokens, period_ns, burst=tokens), Buckets())


_PASSING = ", and one address may have no more waiting for the broker than are free"


def _text(name: BoundName, value: BoundValue, source: str = "", passing: str = "") -> str:
    """Return the text for a refused client: the bound, its value, and its key or the place where it was set."""
    key = "" if name is BoundName.CONNECTIONS else f"admission.{name}"
    kept_back = SharedPlaces(value).kept_back if name is BoundName.CONNECTIONS and isinstance(value, int) else 0
    for_others = f", {kept_back} of them for addresses with fewer than {FEW}" if kept_back else ""
    most = str(value) if isinstance(value, int) else f"{value[0]} per {value[1] / NANOS_PER_SECOND:g} s"
    return f"{_BOUNDED[name]}: at most {most}{for_others}{passing} ({', '.join(filter(None, (key, source)))})"
