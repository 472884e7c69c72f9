"""Which limits apply to a stream: values by setting, and Pulsar's precedence topic > namespace > broker.

A namespace's policy in Pulsar's sense is the value of *each* of its topics; a *total* is a limit of Sluice's own, over
all topics of a tenant, a namespace or a partitioned topic together. All levels apply at once (AND); within the level
`topic` the narrowest setting that is there gives the value.

    proxy ─ tenant ─ namespace ─ resource_group ─ partitioned_topic ─ topic ─ subscription or producer ─ role ─ address
    outermost                                                                                                innermost

Source: https://pulsar.apache.org/docs/admin-api-namespaces/ (publish and dispatch rates)
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol

from limiter.limiter import Scope
from limiter.networks import Networks, counted_as
from limiter.rates import Direction, Limit


class Setting(StrEnum):
    """What a value can be set for; beside it, how its name is written. `*` is for all that have none of their own."""

    PROXY = "proxy"  # the name is empty
    TENANT = "tenant"  # tenant, or *: each tenant's total
    NAMESPACE = "namespace"  # tenant/namespace: its total
    RESOURCE_GROUP = "resource_group"  # group: the total of what is attached to it
    PARTITIONED_TOPIC = "partitioned_topic"  # full name without partition: its total
    TOPIC = "topic"  # full name without partition: each partition
    TOPIC_OF_NAMESPACE = "topic_of_namespace"  # tenant/namespace: each of its topics
    TOPIC_OF_BROKER = "topic_of_broker"  # the name is empty: each topic
    SUBSCRIPTION = "subscription"  # subscription@topic, the topic without partition: on each partition
    SUBSCRIPTION_OF_TOPIC = "subscription_of_topic"  # full name without partition: each of its subscriptions
    SUBSCRIPTION_OF_NAMESPACE = "subscription_of_namespace"  # tenant/namespace: each subscription there
    SUBSCRIPTION_OF_BROKER = "subscription_of_broker"  # the name is empty: each subscription
    PRODUCER = "producer"  # producer name, or *: on each topic, its partitions together
    ROLE = "role"  # what clients authenticated as, or *: each role
    ADDRESS = "address"  # address or network: each address in it


About = Literal["publish", "dispatch", "subscribe"]
"""What a value is about: messages in one direction, or how often one consumer may subscribe."""

EACH = "*"
OF_ONE_TOPIC = frozenset(
    {
        *(Setting.TOPIC, Setting.TOPIC_OF_NAMESPACE, Setting.TOPIC_OF_BROKER),
        *(Setting.SUBSCRIPTION, Setting.SUBSCRIPTION_OF_TOPIC),
        *(Setting.SUBSCRIPTION_OF_NAMESPACE, Setting.SUBSCRIPTION_OF_BROKER),
    }
)
"""Whose deliveries are those of one topic, and so may be limited relative to its publish rate."""
_WITH_DEFAULT = frozenset({Setting.TENANT, Setting.PRODUCER, Setting.ROLE})


class Topic(Protocol):
    """What limits need to know of a topic's name; `protocol.topic_name.TopicName` is one."""

    @property
    def full(self) -> str:
        """The full name, partition suffix included."""

    @property
    def partitioned(self) -> str:
        """The full name without a partition suffix."""

    @property
    def tenant(self) -> str: ...  # noqa: D102

    @property
    def namespace(self) -> str: ...  # noqa: D102

    @property
    def namespace_name(self) -> str:
        """`tenant/namespace`."""

    @property
    def is_system(self) -> bool:
        """Whether the topic is Pulsar's own and exempt from every limit."""


@dataclass(frozen=True, slots=True)
class Client:
    """Whose stream it is; what is not known is empty.

    Args:
        producer_name: Given by the client, or by the broker once it has accepted the producer.
        role: What the client authenticated as.
        address: Where it connects from, without the port.
        subscription: Of a consumer.
    """

    producer_name: str = ""
    role: str = ""
    address: str = ""
    subscription: str = ""


ANYBODY = Client()


@dataclass(frozen=True, slots=True)
class Value:
    """A limit and where it was written: `file` or `rest`."""

    limit: Limit
    origin: str


@dataclass(frozen=True, slots=True)
class InForce:
    """One limit that applies: what it limits, its value, and its source for people (`namespace rest`)."""

    scope: Scope
    limit: Limit
    source: str


@dataclass(slots=True)
class Policies:
    """Every configured value, and which resource group a tenant or namespace is attached to."""

    groups_of_namespaces: dict[str, str] = field(default_factory=dict)
    """Resource group by `tenant/namespace`."""
    groups_of_tenants: dict[str, str] = field(default_factory=dict)
    """Resource group by tenant, for namespaces without one of their own."""
    _values: dict[tuple[About, Setting, str], Value] = field(default_factory=dict)
    _networks: dict[About, Networks[Value]] = field(default_factory=dict)

    def put(self, about: About, setting: Setting, name: str, value: Value | None) -> None:
        """Set a value; None takes it back.

        Raises:
            ValueError: If an address or a network is not one.
        """
        if setting is Setting.ADDRESS:
            self._networks.setdefault(about, Networks()).put(name, value)
        if value is None:
            self._values.pop((about, setting, name), None)
        else:
            self._values[about, setting, name] = value

    def get(self, about: About, setting: Setting, name: str) -> Value | None:
        """What was put there; of an address, what holds for it."""
        if setting is Setting.ADDRESS:
            networks = self._networks.get(about)
            return networks.find(name) if networks else None
        return self._values.get((about, setting, name))

    def clear(self) -> None:
        """Take everything back: values and attachments."""
        self.groups_of_namespaces.clear()
        self.groups_of_tenants.clear()
        self._values.clear()
        self._networks.clear()

    def put_under(self, about: About, setting: Setting) -> dict[str, Value]:
        """Every value of one setting, by name."""
        return {name: value for (of, kind, name), value in self._values.items() if (of, kind) == (about, setting)}

    def in_force(self, direction: Direction, topic: Topic, client: Client = ANYBODY) -> tuple[InForce, ...]:
        """The limits of one topic (one partition of a partitioned one) for one client's stream, outermost first."""
        if topic.is_system or not self._values:
            return ()
        applicable = (*self._of_topic(direction, topic), *self._of_client(direction, topic, client))
        return tuple(entry for entry in applicable if entry is not None)

    def subscribe_rate(self, topic: Topic) -> Value | None:
        """How often each consumer may subscribe to a topic: the narrowest value that is there, as with Pulsar."""
        if topic.is_system:
            return None
        found = (
            self._values.get(("subscribe", setting, name))
            for setting, name in (
                (Setting.TOPIC, topic.partitioned),
                (Setting.TOPIC_OF_NAMESPACE, topic.namespace_name),
                (Setting.TOPIC_OF_BROKER, ""),
            )
        )
        return next((value for value in found if value and value.limit), None)

    def group_of(self, topic: Topic) -> str:
        """The resource group that the topic's namespace is attached to, or else its tenant; empty for none."""
        return self.groups_of_namespaces.get(topic.namespace_name) or self.groups_of_tenants.get(topic.tenant, "")

    def _of_topic(self, direction: Direction, topic: Topic) -> Iterator[InForce | None]:
        tenant, namespace, name = topic.tenant, topic.namespace, topic.namespace_name
        yield self._found(Scope(direction, "proxy", "", "", ""), Setting.PROXY, "", "proxy")
        yield self._found(Scope(direction, "tenant", tenant, tenant, ""), Setting.TENANT, tenant, "total")
        yield self._found(Scope(direction, "namespace", name, tenant, namespace), Setting.NAMESPACE, name, "total")
        group = self.group_of(topic)
        yield self._found(Scope(direction, "resource_group", group, "", ""), Setting.RESOURCE_GROUP, group, "group")
        whole = Scope(direction, "partitioned_topic", topic.partitioned, tenant, namespace)
        yield self._found(whole, Setting.PARTITIONED_TOPIC, topic.partitioned, "total")
        one = Scope(direction, "topic", topic.full, tenant, namespace)
        yield (
            self._found(one, Setting.TOPIC, topic.partitioned, "topic")
            or self._found(one, Setting.TOPIC_OF_NAMESPACE, name, "namespace")
            or self._found(one, Setting.TOPIC_OF_BROKER, "", "broker")
        )

    def _of_client(self, direction: Direction, topic: Topic, client: Client) -> Iterator[InForce | None]:
        if client.subscription:
            yield self._of_subscription(direction, topic, client.subscription)
        if client.producer_name:
            known_as = f"{client.producer_name}@{topic.partitioned}"
            producer = Scope(direction, "producer", known_as, topic.tenant, topic.namespace)
            yield self._found(producer, Setting.PRODUCER, client.producer_name, "producer")
        if client.role:
            yield self._found(Scope(direction, "role", client.role, "", ""), Setting.ROLE, client.role, "role")
        if client.address:
            address = Scope(direction, "address", counted_as(client.address), "", "")
            yield self._found(address, Setting.ADDRESS, client.address, "address")

    def _of_subscription(self, direction: Direction, topic: Topic, subscription: str) -> InForce | None:
        scope = Scope(direction, "subscription", f"{subscription}@{topic.full}", topic.tenant, topic.namespace)
        own = f"{subscription}@{topic.partitioned}"
        return (
            self._found(scope, Setting.SUBSCRIPTION, own, "subscription")
            or self._found(scope, Setting.SUBSCRIPTION_OF_TOPIC, topic.partitioned, "topic")
            or self._found(scope, Setting.SUBSCRIPTION_OF_NAMESPACE, topic.namespace_name, "namespace")
            or self._found(scope, Setting.SUBSCRIPTION_OF_BROKER, "", "broker")
        )

    def _found(self, scope: Scope, setting: Setting, name: str, where: str) -> InForce | None:
        """What is set here; a value that limits nothing counts as not set, as with Pulsar."""
        value = self.get(scope.direction, setting, name)
        if not (value and value.limit) and setting in _WITH_DEFAULT:
            value, where = self.get(scope.direction, setting, EACH), f"each {where}"
        return InForce(scope, value.limit, f"{where} {value.origin}") if value and value.limit else None
