"""Which keys of a broker's configuration are about limits, what they become here, and why others become nothing.

Source: org.apache.pulsar.broker.ServiceConfiguration of Pulsar 4.0
"""

import re
from dataclasses import dataclass

INT_MOST, LONG_MOST = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True, slots=True)
class NumberKey:
    """A key whose value is a whole number.

    Args:
        path: What it becomes.
        most: What the field holds in Pulsar.
        unset: What it is at Pulsar if nobody sets it; None: that depends on the broker's machine.
        has_off: Whether 0 and -1 mean "no limit"; else the value is to be above 0.
        unit: Written behind the number.
        when_off: What is to be told if it is off at the broker and cannot be off here.
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
"""Keys of `dispatch:`, which have the same name here, with what they are at Pulsar if nobody sets them."""

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
    """Why a key that is not imported is not, None if it is not about limits at all."""
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
"""What Pulsar 4.0 takes where nobody sets a key, None where the machine decides; of keys not here nothing, or 0."""
