"""A broker's configuration keys about limits: how their values are written, and the values that they become here.

Every key that cannot become a value of Sluice's configuration is reported, with the reason.

Source: org.apache.pulsar.broker.ServiceConfiguration of Pulsar 4.0
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from proxy.config.showing import TakenValue, YamlValue
from proxy.importing.result import ImportFailed, ImportResult, LeftOut

INT_MOST, LONG_MOST = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True, slots=True)
class NumberKey:
    """A key whose value is a whole number.

    Args:
        path: The keys of Sluice's configuration that it becomes.
        most: The largest number that Pulsar's field holds.
        unset: Pulsar's default; None: that depends on the broker's machine.
        has_off: Whether 0 and -1 mean "no limit"; else the value must be above 0.
        unit: The unit, written after the number.
        when_off: The note if the key is off at the broker and cannot be off here.
    """

    path: tuple[str, ...]
    most: int = INT_MOST
    unset: str | None = "0"
    has_off: bool = True
    unit: str = ""
    when_off: str = ""


def _rate(*path: str, most: int = INT_MOST) -> NumberKey:
    return NumberKey(("limits", *path), most)


def _places(key: str) -> NumberKey:
    return NumberKey(("admission", key))


PER_ADDRESS = "brokerMaxConnectionsPerIp"
NUMBERS: dict[str, NumberKey] = {
    "brokerPublisherThrottlingMaxMessageRate": _rate("proxy", "publish", "messages"),
    "brokerPublisherThrottlingMaxByteRate": _rate("proxy", "publish", "bytes", most=LONG_MOST),
    "dispatchThrottlingRateInMsg": _rate("proxy", "dispatch", "messages"),
    "dispatchThrottlingRateInByte": _rate("proxy", "dispatch", "bytes", most=LONG_MOST),
    "maxPublishRatePerTopicInMessages": _rate("each_topic", "publish", "messages"),
    "maxPublishRatePerTopicInBytes": _rate("each_topic", "publish", "bytes", most=LONG_MOST),
    "dispatchThrottlingRatePerTopicInMsg": _rate("each_topic", "dispatch", "messages"),
    "dispatchThrottlingRatePerTopicInByte": _rate("each_topic", "dispatch", "bytes", most=LONG_MOST),
    "dispatchThrottlingRatePerSubscriptionInMsg": _rate("each_subscription", "dispatch", "messages"),
    "dispatchThrottlingRatePerSubscriptionInByte": _rate("each_subscription", "dispatch", "bytes", most=LONG_MOST),
    "maxConcurrentLookupRequest": NumberKey(("max_lookups_in_flight",), unset="50000", has_off=False),
    "brokerMaxConnections": NumberKey(
        ("max_connections",),
        when_off="any number there; here max_connections is always bounded, at 10000 unless configured",
    ),
    PER_ADDRESS: _places("max_connections_per_address"),
    "maxProducersPerTopic": _places("max_producers_per_topic"),
    "maxConsumersPerTopic": _places("max_consumers_per_topic"),
    "maxConsumersPerSubscription": _places("max_consumers_per_subscription"),
    "maxPendingPublishRequestsPerConnection": NumberKey(("publish", "max_pending"), unset="1000"),
    "maxMessagePublishBufferSizeInMB": NumberKey(
        ("publish", "hold_total"),
        unset=None,
        unit="MiB",
        when_off="no bound there; here what is held is always bounded, at publish.hold_total 64MiB unless configured",
    ),
}
SUBSCRIBE_RATE = "subscribeThrottlingRatePerConsumer"
SUBSCRIBE_PERIOD = "subscribeRatePeriodPerConsumerInSecond"
SUBSCRIBE_PERIOD_UNSET = 30
SUBSCRIBE_PATH = ("admission", "subscribe_rate_per_consumer")
RELATIVE = "dispatchThrottlingRateRelativeToPublishRate"
PRECISE = "preciseDispatcherFlowControl"
BY_ENTRY = "dispatchThrottlingOnBatchMessageEnabled"
EVEN_WITHOUT_BACKLOG = "dispatchThrottlingOnNonBacklogConsumerEnabled"
FLAGS: dict[str, str] = {PRECISE: "false", BY_ENTRY: "false", EVEN_WITHOUT_BACKLOG: "true"}
"""Keys of `dispatch:`, which have the same names here, with Pulsar's defaults."""

IMPORTED = frozenset({*NUMBERS, *FLAGS, SUBSCRIBE_RATE, SUBSCRIBE_PERIOD, RELATIVE})

_REPLICATION = "replication between clusters does not pass a proxy; it stays in force at the broker"
_TICKS = "nothing ticks here, and Pulsar itself has not used it since 3.2"
_KIND = "there is one kind of limiter here"
_UNACKED = "the broker counts what is not acknowledged; it stays in force there"
_STORED = "it bounds what the broker keeps, not what passes; it stays in force there"
_STORAGE = "it is between the broker and its storage; it stays in force there"
_HTTP = "it is about the broker's HTTP; it stays in force there"
_SOCKETS = "it is about the broker's own sockets; Sluice stops reading where nobody takes what it passes on"
_SAME_ADDRESS = (
    "Sluice does not bound it, and behind a proxy the broker takes all clients for one address: set it to 0 there"
)
_SHARED = "brokers tell each other their use of resource groups so; proxies do not yet"

WITHOUT_MEANING: dict[str, str] = {
    "dispatchThrottlingRatePerReplicatorInMsg": _REPLICATION,
    "dispatchThrottlingRatePerReplicatorInByte": _REPLICATION,
    "topicPublisherThrottlingTickTimeMillis": _TICKS,
    "brokerPublisherThrottlingTickTimeMillis": _TICKS,
    "preciseTopicPublishRateLimiterEnable": _KIND,
    "dispatchRateLimiterFactoryClassName": _KIND,
    "dispatchThrottlingForFilteredEntriesEnabled": "what the broker filters out never comes here",
    "maxSameAddressProducersPerTopic": _SAME_ADDRESS,
    "maxSameAddressConsumersPerTopic": _SAME_ADDRESS,
    "maxUnackedMessagesPerConsumer": _UNACKED,
    "maxUnackedMessagesPerSubscription": _UNACKED,
    "maxUnackedMessagesPerBroker": _UNACKED,
    "maxUnackedMessagesPerSubscriptionOnBrokerBlocked": _UNACKED,
    "maxConcurrentNonPersistentMessagePerConnection": "the broker drops what is over it; it stays in force there",
    "maxConcurrentTopicLoadRequest": "topics are loaded by the broker; it stays in force there",
    "maxMessageSize": "each broker says its own when a client connects, and Sluice keeps to that",
    "maxTenants": _STORED,
    "maxNamespacesPerTenant": _STORED,
    "maxTopicsPerNamespace": _STORED,
    "maxSubscriptionsPerTopic": _STORED,
    "maxNumPartitionsPerPartitionedTopic": _STORED,
    "backlogQuotaDefaultLimitGB": _STORED,
    "backlogQuotaDefaultLimitBytes": _STORED,
    "backlogQuotaDefaultLimitSecond": _STORED,
    "managedLedgerDefaultMarkDeleteRateLimit": _STORAGE,
    "managedLedgerMaxReadsInFlightSizeInMB": _STORAGE,
    "bookkeeperClientThrottleValue": _STORAGE,
    "maxConcurrentHttpRequests": _HTTP,
    "maxHttpServerConnections": _HTTP,
    "httpRequestsLimitEnabled": _HTTP,
    "httpRequestsMaxPerSecond": _HTTP,
    "pulsarChannelPauseReceivingRequestsIfUnwritable": _SOCKETS,
    "pulsarChannelPauseReceivingCooldownMs": _SOCKETS,
    "pulsarChannelPauseReceivingCooldownRateLimitPermits": _SOCKETS,
    "pulsarChannelPauseReceivingCooldownRateLimitPeriodMs": _SOCKETS,
    "resourceUsageTransportClassName": _SHARED,
    "resourceUsageTransportPublishIntervalInSecs": _SHARED,
}

_LIMITING_NAME = re.compile(r"throttl|ratelimit|rateper|maxrate|ratein(msg|byte)", re.IGNORECASE)
_UNKNOWN = "its name says that it limits, but Sluice does not know it"


def why_left(key: str) -> str | None:
    """Return why a key is not imported; None if it is not about limits at all."""
    known = WITHOUT_MEANING.get(key)
    if known is not None:
        return known
    return _UNKNOWN if _LIMITING_NAME.search(key) else None


DEFAULTS: dict[str, str | None] = {
    **{key: number.unset for key, number in NUMBERS.items()},
    **FLAGS,
    SUBSCRIBE_RATE: "0",
    SUBSCRIBE_PERIOD: str(SUBSCRIBE_PERIOD_UNSET),
    RELATIVE: "false",
    "topicPublisherThrottlingTickTimeMillis": "10",
    "brokerPublisherThrottlingTickTimeMillis": "50",
    "dispatchRateLimiterFactoryClassName": "org.apache.pulsar.broker.service.persistent."
    "DispatchRateLimiterFactoryAsyncTokenBucket",
    "maxUnackedMessagesPerConsumer": "50000",
    "maxUnackedMessagesPerSubscription": "200000",
    "maxUnackedMessagesPerSubscriptionOnBrokerBlocked": "0.16",
    "maxConcurrentNonPersistentMessagePerConnection": "1000",
    "maxConcurrentTopicLoadRequest": "5000",
    "maxMessageSize": "5242880",
    "managedLedgerDefaultMarkDeleteRateLimit": "1.0",
    "maxConcurrentHttpRequests": "1024",
    "maxHttpServerConnections": "2048",
    "httpRequestsMaxPerSecond": "100.0",
    "pulsarChannelPauseReceivingCooldownMs": "5000",
    "pulsarChannelPauseReceivingCooldownRateLimitPermits": "5",
    "pulsarChannelPauseReceivingCooldownRateLimitPeriodMs": "10",
    "resourceUsageTransportPublishIntervalInSecs": "60",
}
"""Defaults of Pulsar 4.0; None where the machine decides. Keys that are not here have no value by default, or 0."""


_NUMBER = re.compile(r"[+-]?[0-9]{1,40}")
_JAVA_BLANK = "".join(map(chr, range(33)))
_MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class BrokerKey:
    """A configuration key that a broker runs with.

    Args:
        key: Pulsar's name of the key.
        value: The value as it is written.
        where: The place for people: the file and line, or the broker.
    """

    key: str
    value: str
    where: str

    @property
    def plain(self) -> str:
        """The value as Pulsar takes it, without what Java calls white space around it; empty counts as not set."""
        return self.value.strip(_JAVA_BLANK)

    @property
    def shown(self) -> str:
        """`key=value`, for people."""
        return f"{self.key}={shown(self.plain)}"

    @property
    def shown_with_place(self) -> str:
        """The entry's place and its text."""
        return f"{self.where}: {self.shown}"


def one_line(name: str) -> str:
    """Return a name unchanged if it is printable, else its `repr`."""
    return name if name.isprintable() else repr(name)


def shown(value: str) -> str:
    """Return a value in one line of bounded length."""
    text = one_line(value)
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"


def read_number(text: str, most: int) -> int:
    """Return a number that limits; 0 where there is no limit.

    Raises:
        ValueError: If Pulsar's field could not hold the number, or it has no meaning.
    """
    value = int(text) if _NUMBER.fullmatch(text) else None
    if value is None:
        raise ValueError("this is not a whole number; write 0 for no limit")
    if value < -1:
        raise ValueError("-1 (no limit) is the only negative number allowed; write 0 or -1")
    if value > most:
        raise ValueError(f"Pulsar holds no more than {most} there; write 0 for no limit")
    return max(0, value)


def read_period(text: str) -> int:
    """Return a number of seconds.

    Raises:
        ValueError: If the text is no whole number, or below 1.
    """
    value = int(text) if _NUMBER.fullmatch(text) else 0
    if not 1 <= value <= INT_MOST:
        raise ValueError("write a period as whole seconds, 1 at least; leave the key out for 30")
    return value


def read_flag(text: str) -> bool:
    """Return the value of `true` or `false`.

    Raises:
        ValueError: For anything else, which Pulsar silently takes for false.
    """
    if text.lower() not in {"true", "false"}:
        raise ValueError("this is neither true nor false (Pulsar takes it for false); write one of them")
    return text.lower() == "true"


_OFF_WORDS = {"", "0", "-1", "0.0", "-1.0", "false"}
_RELATIVE_LEVELS = ("each_topic", "each_subscription")

T = TypeVar("T")


def take_keys(entries: Iterable[BrokerKey]) -> ImportResult:
    """Return the import of a broker's keys; each key occurs once.

    Raises:
        ImportFailed: With every invalid value, in the keys' order, each with place, key, value and remedy.
    """
    taking = _Taking({entry.key: entry for entry in entries})
    for key, number in NUMBERS.items():
        taking.number(key, number)
    taking.subscribe_rate()
    for key in FLAGS:
        taking.flag(key)
    taking.contradiction()
    taking.relative()
    taking.leave()
    if taking.problems:
        raise ImportFailed([problem for key in taking.entries for problem in taking.problems.get(key, [])])
    return taking.found


class _Taking:
    """The state of one import: each method takes the keys that it is about from `entries`."""

    def __init__(self, entries: dict[str, BrokerKey]) -> None:
        self.entries = entries
        self.found = ImportResult()
        self.problems: dict[str, list[str]] = {}

    def number(self, key: str, number: NumberKey) -> None:
        entry = self._set(key)
        value = self._read(entry, partial(read_number, most=number.most))
        if entry is None or value is None:
            return
        if value > 0:
            self._take(number.path, f"{value}{number.unit}" if number.unit else value, entry)
        elif number.has_off:
            self._is_off(entry, number.when_off)
        else:
            self._problem(entry, "nothing at all would be let in; write a number above 0")

    def subscribe_rate(self) -> None:
        entry, period = self._set(SUBSCRIBE_RATE), self._set(SUBSCRIBE_PERIOD)
        span = self._read(period, read_period) if period else SUBSCRIBE_PERIOD_UNSET
        count = self._read(entry, partial(read_number, most=INT_MOST)) if entry else 0
        if entry and count and span:
            period_text = period.shown if period else f"{SUBSCRIBE_PERIOD} is {span} by default"
            self.found.taken.append(TakenValue(SUBSCRIBE_PATH, f"{count}/{span}s", f"{entry.shown}, {period_text}"))
        elif count == 0 and span:
            self.found.off += [broker_key.key for broker_key in (entry, period) if broker_key]

    def flag(self, key: str) -> None:
        entry = self._set(key)
        value = self._read(entry, read_flag)
        if entry is None or value is None:
            return
        self._take(("dispatch", key), value, entry)
        if key == PRECISE and not value:
            self.found.notes.append(
                f"{entry.shown_with_place}: this is Pulsar's default; Sluice's own is better (docs/limits.md, "
                "Deliveries): take the line out of the result unless it was set on purpose"
            )

    def contradiction(self) -> None:
        precise, by_entry = self._set(PRECISE), self._set(BY_ENTRY)
        if not precise or not by_entry or (precise.plain.lower(), by_entry.plain.lower()) != ("true", "true"):
            return
        for entry, other in ((precise, by_entry), (by_entry, precise)):
            self._problem(
                entry,
                f"this and {other.key} ({other.where}) exclude each other, as one counts the messages of an entry and "
                "the other does not; set one of them to false",
            )

    def relative(self) -> None:
        entry = self._set(RELATIVE)
        is_relative = self._read(entry, read_flag)
        if entry is None or is_relative is None:
            return
        if not is_relative:
            self._is_off(entry)
            return
        limited = {taken.path[1] for taken in self.found.taken if taken.path[2:3] == ("dispatch",)}
        for level in _RELATIVE_LEVELS:
            if level in limited:
                self._take(("limits", level, "dispatch", "relativeToPublishRate"), is_relative, entry)
        if limited.isdisjoint(_RELATIVE_LEVELS):
            self.found.left.append(
                LeftOut(entry.shown_with_place, "no rate of topics or subscriptions is set that it would add to")
            )

    def leave(self) -> None:
        """Sort all other keys, and keys without a value, into those that are off, left, or not about limits."""
        for key, entry in self.entries.items():
            why = why_left(key)
            if key in IMPORTED:
                self.found.off += [] if entry.plain else [key]
            elif why is None:
                self.found.others.append(key)
            elif entry.plain.lower() in _OFF_WORDS:
                self.found.off.append(key)
            else:
                self.found.left.append(LeftOut(entry.shown_with_place, why))

    def _set(self, key: str) -> BrokerKey | None:
        entry = self.entries.get(key)
        return entry if entry and entry.plain else None

    def _read(self, entry: BrokerKey | None, read: Callable[[str], T]) -> T | None:
        if entry is None:
            return None
        try:
            return read(entry.plain)
        except ValueError as error:
            self._problem(entry, str(error))
            return None

    def _take(self, path: tuple[str, ...], value: YamlValue, entry: BrokerKey) -> None:
        self.found.taken.append(TakenValue(path, value, entry.shown))

    def _is_off(self, entry: BrokerKey, note: str = "") -> None:
        self.found.off.append(entry.key)
        if note:
            self.found.notes.append(f"{entry.shown_with_place}: {note}")

    def _problem(self, entry: BrokerKey, reason: str) -> None:
        problem = f"{entry.where}: {entry.key}: {shown(entry.plain)!r}: {reason}"
        self.problems.setdefault(entry.key, []).append(problem)
