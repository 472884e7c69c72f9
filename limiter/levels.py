"""The levels at which limits hold, all at once, and where the value of each may be set.

    proxy ─ tenant ─ namespace ─ resource_group ─ partitioned_topic ─ topic ─ subscription or producer ─ role ─ address
    outermost                                                                                                innermost

Topics of Pulsar's own are exempt from all of these, and under one of their own: `exempt`.

Within one level the narrowest setting that is there gives the value, as in Pulsar: topic > namespace > broker. A
namespace's policy in Pulsar's sense is the value of *each* of its topics; a *total* is a limit of Sluice's own, over
all topics of a tenant, a namespace or a partitioned topic together.

Source: https://pulsar.apache.org/docs/admin-api-namespaces/ (publish and dispatch rates)
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

from limiter.limiter import Scope
from limiter.rates import Direction

T = TypeVar("T")

IPV6_HOST = 64
"""Bits that tell IPv6 clients apart: whoever has one address there has a whole /64 of them."""
MOST_PARSED = 10_000
"""Addresses of which it is remembered how they are read: streams of one client have the same."""


class Networks(Generic[T]):
    """Values by network: the narrowest network that holds an address decides.

    A look-up takes as many steps as there are different prefix lengths.
    """

    def __init__(self) -> None:
        self._tables: dict[tuple[int, int], dict[int, T]] = {}
        self._lengths: list[tuple[int, int]] = []

    def put(self, network: str, value: T | None) -> None:
        """Set the value of `10.0.0.0/8`, `10.1.2.3`, `2001:db8::/32` …; None takes it back.

        Raises:
            ValueError: If it is neither a network nor an address.
        """
        parsed = ip_network(network)
        key, bits = (parsed.version, parsed.prefixlen), int(parsed.network_address)
        if value is not None:
            self._tables.setdefault(key, {})[bits] = value
        elif key in self._tables:
            self._tables[key].pop(bits, None)
            if not self._tables[key]:
                del self._tables[key]
        self._lengths = sorted(self._tables, reverse=True)

    def find(self, address: str) -> T | None:
        """The value of the narrowest network around `address`; None if there is none, or that is no address."""
        parsed = _parsed(address)
        if parsed is None:
            return None
        bits, most = int(parsed), parsed.max_prefixlen
        for version, length in self._lengths:
            if version != parsed.version:
                continue
            found = self._tables[version, length].get(bits >> (most - length) << (most - length))
            if found is not None:
                return found
        return None

    def copy(self) -> "Networks[T]":
        """The same values, to be changed aside."""
        other = Networks[T]()
        other._tables = {key: dict(table) for key, table in self._tables.items()}
        other._lengths = list(self._lengths)
        return other

    def __bool__(self) -> bool:
        return bool(self._tables)


@lru_cache(MOST_PARSED)
def counted_as(address: str) -> str:
    """Under which name the client at `address` is counted: an IPv4 address is itself, an IPv6 address its /64."""
    parsed = _parsed(address)
    if isinstance(parsed, IPv6Address):
        return str(ip_network((int(parsed), IPV6_HOST), strict=False))
    return str(parsed) if parsed else address


@lru_cache(MOST_PARSED)
def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        parsed = ip_address(address)
    except ValueError:
        return None
    return parsed.ipv4_mapped or parsed if isinstance(parsed, IPv6Address) else parsed


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
    EXEMPT = "exempt"  # the name is empty: each topic of Pulsar's own, its partitions together


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
        """Whether the topic is Pulsar's own, and exempt from every limit but that of the level `exempt`."""


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


class StreamIdentity(NamedTuple):
    """One stream, as far as limits look at it.

    Args:
        topic: Its topic, or one partition of it.
        client: Its client.
        group: The resource group that its namespace or tenant is attached to; empty for none.
    """

    topic: Topic
    client: Client
    group: str


Naming = Callable[[StreamIdentity], str]


def _whole(_whose: StreamIdentity) -> str:
    return ""


def _each(_whose: StreamIdentity) -> str:
    return EACH


def _tenant(whose: StreamIdentity) -> str:
    return whose.topic.tenant


def _namespace(whose: StreamIdentity) -> str:
    return whose.topic.namespace_name


def _group(whose: StreamIdentity) -> str:
    return whose.group


def _partitioned(whose: StreamIdentity) -> str:
    return whose.topic.partitioned


def _role(whose: StreamIdentity) -> str:
    return whose.client.role


def _address(whose: StreamIdentity) -> str:
    return whose.client.address


def _producer(whose: StreamIdentity) -> str:
    return whose.client.producer_name


def _subscription(whose: StreamIdentity) -> str:
    return whose.client.subscription


def _subscription_at(whose: StreamIdentity) -> str:
    return f"{whose.client.subscription}@{whose.topic.partitioned}"


@dataclass(frozen=True, slots=True)
class Level:
    """One level: what its limits are of, and where their values may be set.

    Args:
        word: As people see it.
        settings: Where a value may be set, the narrowest first: the setting, its name there, and the source's name.
        limited: What is limited; streams for which it is the same share a limiter.
        within: What that lies within.
        exists: Empty for streams without anything of this level, say a producer without a name.
        is_of_system: Whether it is of topics of Pulsar's own; all others are of all other topics.
    """

    word: str
    settings: tuple[tuple[Setting, Naming, str], ...]
    limited: Naming
    within: Literal["", "tenant", "namespace"] = ""
    exists: Naming | None = None
    is_of_system: bool = False

    def scope(self, direction: Direction, whose: StreamIdentity) -> Scope:
        """What is limited of one stream."""
        tenant = whose.topic.tenant if self.within else ""
        namespace = whose.topic.namespace if self.within == "namespace" else ""
        return Scope(direction, self.word, self.limited(whose), tenant, namespace)


LEVELS = (
    Level("proxy", ((Setting.PROXY, _whole, "proxy"),), _whole),
    Level("tenant", ((Setting.TENANT, _tenant, "total"), (Setting.TENANT, _each, "each total")), _tenant, "tenant"),
    Level("namespace", ((Setting.NAMESPACE, _namespace, "total"),), _namespace, "namespace"),
    Level("resource_group", ((Setting.RESOURCE_GROUP, _group, "group"),), _group, exists=_group),
    Level("partitioned_topic", ((Setting.PARTITIONED_TOPIC, _partitioned, "total"),), _partitioned, "namespace"),
    Level(
        "topic",
        (
            (Setting.TOPIC, _partitioned, "topic"),
            (Setting.TOPIC_OF_NAMESPACE, _namespace, "namespace"),
            (Setting.TOPIC_OF_BROKER, _whole, "broker"),
        ),
        lambda whose: whose.topic.full,
        "namespace",
    ),
    Level(
        "subscription",
        (
            (Setting.SUBSCRIPTION, _subscription_at, "subscription"),
            (Setting.SUBSCRIPTION_OF_TOPIC, _partitioned, "topic"),
            (Setting.SUBSCRIPTION_OF_NAMESPACE, _namespace, "namespace"),
            (Setting.SUBSCRIPTION_OF_BROKER, _whole, "broker"),
        ),
        lambda whose: f"{whose.client.subscription}@{whose.topic.full}",
        "namespace",
        _subscription,
    ),
    Level(
        "producer",
        ((Setting.PRODUCER, _producer, "producer"), (Setting.PRODUCER, _each, "each producer")),
        lambda whose: f"{whose.client.producer_name}@{whose.topic.partitioned}",
        "namespace",
        _producer,
    ),
    Level("role", ((Setting.ROLE, _role, "role"), (Setting.ROLE, _each, "each role")), _role, exists=_role),
    Level(
        "address",
        ((Setting.ADDRESS, _address, "address"),),
        lambda whose: counted_as(whose.client.address),
        exists=_address,
    ),
    Level("exempt", ((Setting.EXEMPT, _whole, "exempt"),), _partitioned, "namespace", is_of_system=True),
)
"""Outermost first."""
