"""What a broker says about its limits, as it says it; only what is set.

Source: org.apache.pulsar.common.policies.data.Policies (namespaces), TopicPolicies
"""

from dataclasses import dataclass, field

from msgspec import Struct
from msgspec import field as named

from proxy.policies.bodies import DispatchRate, PublishRate, ResourceGroup, SubscribeRate


class NamespacePolicies(Struct, frozen=True):
    """What a namespace's policies hold about limits; rates are by cluster. Null and absent mean not set."""

    publish: dict[str, PublishRate] | None = named(default=None, name="publishMaxMessageRate")
    dispatch: dict[str, DispatchRate] | None = named(default=None, name="topicDispatchRate")
    dispatch_of_old: dict[str, DispatchRate] | None = named(default=None, name="clusterDispatchRate")
    """Where Pulsar looks if there is none in the other."""
    subscription_dispatch: dict[str, DispatchRate] | None = named(default=None, name="subscriptionDispatchRate")
    replicator_dispatch: dict[str, DispatchRate] | None = named(default=None, name="replicatorDispatchRate")
    subscribe: dict[str, SubscribeRate] | None = named(default=None, name="clusterSubscribeRate")
    resource_group: str | None = named(default=None, name="resource_group_name")
    max_producers_per_topic: int | None = None
    max_consumers_per_topic: int | None = None
    max_consumers_per_subscription: int | None = None
    max_subscriptions_per_topic: int | None = None
    max_topics_per_namespace: int | None = None
    max_unacked_messages_per_consumer: int | None = None
    max_unacked_messages_per_subscription: int | None = None


@dataclass(frozen=True, slots=True, order=True)
class OfTopic:
    """What of a topic a rate is for: `publish`, `dispatch`, `subscribe`, `subscription_dispatch`, or a subscription."""

    kind: str
    subscription: str = ""


@dataclass(slots=True)
class TopicPolicies:
    """Policies of one topic: those of this cluster hold, and where there is none those for all clusters."""

    local: dict[OfTopic, PublishRate | DispatchRate | SubscribeRate] = field(default_factory=dict)
    everywhere: dict[OfTopic, PublishRate | DispatchRate | SubscribeRate] = field(default_factory=dict)


@dataclass(slots=True)
class BrokerState:
    """Everything that was asked for.

    Args:
        running: Each key of the broker's configuration with the value it runs with.
        dynamic: Those keys that were set at run time.
    """

    running: dict[str, str]
    dynamic: dict[str, str]
    groups: dict[str, ResourceGroup] = field(default_factory=dict)
    namespaces: dict[str, NamespacePolicies] = field(default_factory=dict)
    topics: dict[str, TopicPolicies] = field(default_factory=dict)
    """Only those that have policies of their own."""
    has_topic_policies: bool = True
    strange: list[str] = field(default_factory=list)
    """Names of namespaces and topics that are not `tenant/namespace` or `domain://tenant/namespace/topic`."""
    unseen: set[str] = field(default_factory=set)
    """Topics, of partitioned ones the whole, whose names cannot be printed: they are not asked for."""
    unlisted: list[str] = field(default_factory=list)
    """Topics whose subscriptions the broker could not list."""

    @property
    def cluster(self) -> str:
        """The broker's own; the rates of others are not in force here."""
        return self.running.get("clusterName", "")
