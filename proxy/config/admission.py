"""The configuration's `admission`: bounds on connections, lookups, producers and consumers."""

from pydantic import BaseModel, ConfigDict, Field

from proxy.config.values import CountPerPeriod, Whole

_OFF = "0: any number"


class AdmissionBounds(BaseModel):
    """What comes in over one of these is refused.

    Each key is one of `proxy.admission.What`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    connection_rate: CountPerPeriod | None = Field(None, description="new client connections, as 200/s or 50/10s")
    connection_rate_per_address: CountPerPeriod | None = Field(
        None, description="new connections of one client address (IPv6: of its /64)"
    )
    max_connections_per_address: Whole = Field(
        0,
        ge=0,
        description="connections of one client address (IPv6: of its /64) at once "
        f"(maxConcurrentInboundConnectionsPerIp, brokerMaxConnectionsPerIp); {_OFF}",
    )
    lookup_rate_per_address: CountPerPeriod | None = Field(
        None, description="lookups, questions for partitions and for a namespace's topics of one client address"
    )
    subscribe_rate_per_consumer: CountPerPeriod | None = Field(
        None,
        description="how often one consumer may subscribe to one topic, as 5/30s, where neither the topic nor its "
        "namespace has a value (subscribeThrottlingRatePerConsumer per subscribeRatePeriodPerConsumerInSecond)",
    )
    max_producers_per_topic: Whole = Field(
        0, ge=0, description=f"producers of one topic or partition at once (maxProducersPerTopic); {_OFF}"
    )
    max_consumers_per_topic: Whole = Field(
        0, ge=0, description=f"consumers of one topic or partition at once (maxConsumersPerTopic); {_OFF}"
    )
    max_consumers_per_subscription: Whole = Field(
        0,
        ge=0,
        description=f"consumers of one subscription of one topic or partition at once (maxConsumersPerSubscription); "
        f"{_OFF}",
    )
