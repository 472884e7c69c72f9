"""What one process lets in: connections, lookups, producers and consumers, each within its bounds."""

from collections.abc import Callable, Hashable, Iterable
from enum import StrEnum
from functools import partial

from limiter.admissions import KeyedBuckets, Places, take_all
from limiter.rates import NANOS_PER_SECOND, Rate
from proxy.config import Config
from proxy.observe.admission_log import AdmissionLog
from proxy.observe.counters import Counters

Key = Hashable
Asked = tuple["What", Key]
GiveBack = Callable[[], None]
Value = int | tuple[int, int]
"""So many at once; or so many per nanoseconds."""


class What(StrEnum):
    """A bound, by its key in the configuration; in parentheses, what is counted apart."""

    CONNECTIONS = "max_connections"  # ()
    CONNECTION_RATE = "connection_rate"  # ()
    CONNECTION_RATE_PER_ADDRESS = "connection_rate_per_address"  # (address)
    CONNECTIONS_PER_ADDRESS = "max_connections_per_address"  # (address)
    LOOKUP_RATE = "lookup_rate_per_address"  # (address)
    SUBSCRIBE_RATE = "subscribe_rate_per_consumer"  # (topic, address, consumer name, consumer id)
    PRODUCERS = "max_producers_per_topic"  # (topic)
    CONSUMERS = "max_consumers_per_topic"  # (topic)
    CONSUMERS_OF_SUBSCRIPTION = "max_consumers_per_subscription"  # (topic, subscription)


_SAID = {
    What.CONNECTIONS: "connections of this proxy",
    What.CONNECTION_RATE: "new connections of this proxy",
    What.CONNECTION_RATE_PER_ADDRESS: "new connections of one address",
    What.CONNECTIONS_PER_ADDRESS: "connections of one address",
    What.LOOKUP_RATE: "lookups of one address",
    What.SUBSCRIBE_RATE: "subscribes of one consumer",
    What.PRODUCERS: "producers of one topic",
    What.CONSUMERS: "consumers of one topic",
    What.CONSUMERS_OF_SUBSCRIPTION: "consumers of one subscription",
}


class NotAdmittedError(Exception):
    """A bound refuses; the text is for the client, and names the bound's value and key."""

    def __init__(self, what: What, message: str) -> None:
        super().__init__(message)
        self.what = what


class Admission:
    """All bounds of the configuration.

    Args:
        config: The configuration.
        counters: Told of what is refused.
        clock: Monotonic nanoseconds.
    """

    def __init__(self, config: Config, counters: Counters, clock: Callable[[], int]) -> None:
        values: dict[What, Value] = {What.CONNECTIONS: config.max_connections}
        values |= {What(name): value for name, value in config.admission if value}
        self._bounds = {what: _bound(value) for what, value in values.items()}
        self._said = {what: f"{_SAID[what]}: at most {_text(value)} ({_key(what)})" for what, value in values.items()}
        self._counters = counters
        self._clock = clock
        self._log = AdmissionLog(clock)

    def admit(self, asked: Iterable[Asked], whose: str) -> tuple[GiveBack, ...]:
        """Let somebody in whom all of `asked` concern; gives what is to be called when he is gone, each once.

        Args:
            asked: The bounds, in the order in which they are to refuse, each with the key that counts there.
            whose: The client's address, for the log.

        Raises:
            NotAdmittedError: If one of the bounds refuses. Then nothing is taken from any.
        """
        in_force = [(self._bounds[what], key, what) for what, key in asked if what in self._bounds]
        refusing = take_all([(bound, key) for bound, key, _ in in_force], self._clock())
        if refusing is not None:
            raise self._refusal(next(what for bound, _, what in in_force if bound is refusing), whose)
        return tuple(partial(bound.give_back, key) for bound, key, _ in in_force if isinstance(bound, Places))

    @property
    def taken(self) -> int:
        """Keys of which there is somebody."""
        return sum(len(bound) for bound in self._bounds.values() if isinstance(bound, Places))

    def _refusal(self, what: What, whose: str) -> NotAdmittedError:
        self._counters.not_admitted[what] += 1
        self._log.refused(what, self._said[what], whose)
        return NotAdmittedError(what, self._said[what])


def _bound(value: Value) -> KeyedBuckets | Places:
    if isinstance(value, int):
        return Places(value)
    tokens, period_ns = value
    return KeyedBuckets(Rate(tokens, period_ns, burst=tokens))


def _text(value: Value) -> str:
    if isinstance(value, int):
        return str(value)
    return f"{value[0]} per {value[1] / NANOS_PER_SECOND:g} s"


def _key(what: What) -> str:
    return str(what) if what is What.CONNECTIONS else f"admission.{what}"
