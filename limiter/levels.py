"""The levels at which limits hold, all at once: one record for each, with all that is particular to it.

    proxy ─ tenant ─ namespace ─ resource_group ─ partitioned_topic ─ topic ─ subscription or producer ─ role ─ address
    outermost                                                                                                innermost

Topics of Pulsar's own are exempt from all other levels, and have their own: `exempt`.

Within one level the narrowest setting with a value decides, as in Pulsar: topic > namespace > broker. A
namespace's policy in Pulsar's sense is the value of *each* of its topics; a *total* is a limit of Sluice's own, over
all topics of a tenant, a namespace or a partitioned topic together.

A new level is one more record in `LEVELS`: the limiter, the configuration file, REST, `sluice explain`, the metrics,
the access log and the report read it from there. A level by a new property of streams (see `Part`) also needs changes
elsewhere: CONTRIBUTING.md lists these. This module imports nothing of the limiter, as the report does not.

Source: https://pulsar.apache.org/docs/admin-api-namespaces/ (publish and dispatch rates)
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, Protocol, TypeVar

T = TypeVar("T")

IPV6_HOST = 64
"""Bits that distinguish IPv6 clients: a client has a whole /64."""
MOST_PARSED = 10_000
"""Parsed addresses in the cache: streams of one client have the same address."""


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
        """Return the value of the narrowest network around `address`; None without one, or if it is no address."""
        parsed = _parsed(address)
        if parsed is None:
            return None
        bits, most = int(parsed), parsed.max_prefixlen
        for version, length in self._lengths:
            if version != parsed.version:
                continue
            value = self._tables[version, length].get(bits >> (most - length) << (most - length))
            if value is not None:
                return value
        return None

    def copy(self) -> "Networks[T]":
        """Return an independent copy."""
        other = Networks[T]()
        other._tables = {key: dict(table) for key, table in self._tables.items()}
        other._lengths = list(self._lengths)
        return other

    def __bool__(self) -> bool:
        return bool(self._tables)


@lru_cache(MOST_PARSED)
def counted_as(address: str) -> str:
    """Return the name under which a client is counted: an IPv4 address itself, or the /64 of an IPv6 address."""
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


class Topic(Protocol):
    """A topic's name, as far as limits need it; `protocol.topic_name.TopicName` is one."""

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
        """True if the topic is Pulsar's own, and exempt from every limit but that of the level `exempt`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The properties of a stream's client that limits depend on; those that are not known are empty.

    Args:
        producer_name: Given by the client, or by the broker once it has accepted the producer.
        role: The role that the client authenticated as.
        address: The client's address, without the port.
        subscription: Of a consumer.
    """

    producer_name: str = ""
    role: str = ""
    address: str = ""
    subscription: str = ""


ANYBODY = Client()


class StreamIdentity(NamedTuple):
    """A stream's topic, client and resource group.

    Args:
        topic: The topic, or one partition.
        client: The client.
        group: The resource group that the topic's namespace or tenant is attached to; empty for none.
    """

    topic: Topic
    client: Client
    group: str


Naming = Callable[[StreamIdentity], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A property of a stream that limits depend on.

    Args:
        of: Returns the property of a stream.
        missing: The text of `sluice explain` for a stream without the property, which levels by it do not limit; empty
            for a property that each stream has.
    """

    of: Naming
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPart(Part):
    """A property of a stream's client: a query key of `GET /sluice/explain`, and an option of `sluice explain`.

    Args:
        word: The name of the key and of the option.
        field: The field of `Client`.
        meaning: The meaning of its value, for people.
        directions: Directions whose streams have it.
    """

    word: str
    field: str
    meaning: str
    directions: "tuple[About, ...]" = ("publish", "dispatch")


TENANT = Part(of=lambda identity: identity.topic.tenant)
NAMESPACE = Part(of=lambda identity: identity.topic.namespace_name)
PARTITIONED_TOPIC = Part(of=lambda identity: identity.topic.partitioned)
TOPIC = Part(of=lambda identity: identity.topic.full)
GROUP = Part(of=lambda identity: identity.group, missing="not attached to any")
SUBSCRIPTION = ClientPart(
    of=lambda identity: identity.client.subscription,
    missing="asked only for a --subscription",
    word="subscription",
    field="subscription",
    meaning="Subscription of a consumer",
    directions=("dispatch",),
)
PRODUCER = ClientPart(
    of=lambda identity: identity.client.producer_name,
    missing="asked only for a --producer",
    word="producer",
    field="producer_name",
    meaning="Name of a producer",
    directions=("publish",),
)
ROLE = ClientPart(
    of=lambda identity: identity.client.role,
    missing="asked only for a --role",
    word="role",
    field="role",
    meaning="Role that the client is authenticated as",
)
ADDRESS = ClientPart(
    of=lambda identity: identity.client.address,
    missing="asked only for an --address",
    word="address",
    field="address",
    meaning="Address that the client connects from, as 10.1.2.3",
)
COUNTED_ADDRESS = Part(of=lambda identity: counted_as(identity.client.address), missing=ADDRESS.missing)
CLIENT_PARTS = (SUBSCRIPTION, PRODUCER, ROLE, ADDRESS)

About = Literal["publish", "dispatch", "subscribe"]
"""The subject of a value: messages in one direction, or how often one consumer may subscribe."""
ABOUTS: tuple[About, ...] = ("publish", "dispatch", "subscribe")
NameForm = Literal["", "tenant", "namespace", "topic", "subscription", "name", "role", "network"]
"""The form of a setting's name: no name, a tenant (or `*`), `tenant/namespace`, a full topic name without partition,
`subscription@topic`, any name (or `*`), a role (or `*`), an address or network."""

EACH = "*"
"""The name of a setting that is for all names without a value of their own."""
NAME = "NAME"
"""In `SettingRecord.file`: any name, as the file's author chooses it."""


def joined(parts: tuple[Part, ...]) -> Naming:
    """Return the naming of a stream by these parts, with an @ between them."""
    if len(parts) == 1:
        return parts[0].of
    return lambda identity: "@".join([part.of(identity) for part in parts])


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRecord:
    """A place where a value of a level may be set.

    Args:
        word: The word of REST and the access log for it.
        source: The word of limits whose value is from here; see `accesslog.record.LimitLine.source`.
        form: The form of its names.
        named: The parts of a stream that are looked up among these names.
        file: The keys in the configuration, below `limits`; `{}` in the last key is the direction. Two names are those
            of `inner@outer`.
        meaning: The meaning of the rate in the configuration's reference; by default that of its direction.
        section_meaning: The meaning of the section around it, if that is of this setting alone.
        abouts: The subjects of values there.
        subscribe: The keys in the configuration of the subscribe rate of one consumer; empty if it has none.
        has_each: Whether the name `*` is for all names without a value of their own.
    """

    word: str
    source: str
    form: NameForm
    named: tuple[Part, ...]
    file: tuple[str, ...]
    meaning: str = ""
    section_meaning: str = ""
    abouts: tuple[About, ...] = ("publish", "dispatch")
    subscribe: tuple[str, ...] = ()
    has_each: bool = False

    def path(self, about: About, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the keys of one value in the configuration; `names` are the `NAME` keys, the outer one first."""
        keys = self.subscribe if about == "subscribe" and self.subscribe else ("limits", *self.file)
        left = iter(names)
        return tuple(next(left) if key == NAME else key.format(about) for key in keys)


@dataclass(frozen=True, kw_only=True)
class Level:
    """A level of limits.

    Args:
        word: The word of metrics, `sluice explain`, the access log and the report for it.
        limited: The parts of a stream that are limited; streams with the same parts share a limiter.
        settings: The settings of its values, the narrowest first.
        members: The members of one limit in the report: streams, or the streams of one topic, namespace or tenant.
        within: Whether a limit is within one tenant or one namespace; empty for neither.
        is_of_system: Whether it is of topics of Pulsar's own; all other levels are of all other topics.
        may_be_shared: Whether a fleet may share its limits. Others are each proxy's own: of the proxy, of a client's
            address, and of Pulsar's own topics.
    """

    word: str
    limited: tuple[Part, ...]
    settings: tuple[SettingRecord, ...]
    members: Literal["stream", "topic", "namespace", "tenant"]
    within: Literal["", "tenant", "namespace"] = ""
    is_of_system: bool = False
    may_be_shared: bool = True

    def exists(self, identity: StreamIdentity) -> bool:
        """Return whether a stream has the properties of this level; a producer without a name has no limit by name."""
        return all(needed(identity) for needed in self._needed)

    @property
    def missing(self) -> str:
        """The reason why `sluice explain` has no values of this level; empty if each stream has the level."""
        return next((part.missing for part in self.limited if part.missing), "")

    @cached_property
    def name(self) -> Naming:
        """The name of a stream's limiter at this level."""
        return joined(self.limited)

    @cached_property
    def lookups(self) -> "tuple[tuple[Setting, Naming, str], ...]":
        """The settings to look up, narrowest first: each with a stream's name there, and the source."""
        lookups = list[tuple[Setting, Naming, str]]()
        for record in self.settings:
            setting = Setting(record.word)
            lookups.append((setting, joined(record.named), record.source))
            if record.has_each:
                lookups.append((setting, lambda _identity: EACH, f"each {record.source}"))
        return tuple(lookups)

    @property
    def is_of_one_topic(self) -> bool:
        """True if each limit is of one topic, and so may be relative to the topic's publish rate."""
        return TOPIC in self.limited

    @property
    def is_of_addresses(self) -> bool:
        """True if its limits are named by clients' addresses, which the access log may have to hide."""
        return COUNTED_ADDRESS in self.limited

    @cached_property
    def _needed(self) -> tuple[Naming, ...]:
        return tuple(part.of for part in self.limited if part.missing)


LEVELS = (
    Level(
        word="proxy",
        limited=(),
        settings=(
            SettingRecord(
                word="proxy",
                source="proxy",
                form="",
                named=(),
                file=("proxy", "{}"),
                section_meaning="of all that this proxy passes",
            ),
        ),
        members="tenant",
        may_be_shared=False,
    ),
    Level(
        word="tenant",
        limited=(TENANT,),
        settings=(
            SettingRecord(
                word="tenant",
                source="total",
                form="tenant",
                named=(TENANT,),
                file=("tenants", NAME, "{}"),
                section_meaning="NAME is a tenant, or * for each other; of all its topics together",
                has_each=True,
            ),
        ),
        members="namespace",
        within="tenant",
    ),
    Level(
        word="namespace",
        limited=(NAMESPACE,),
        settings=(
            SettingRecord(
                word="namespace",
                source="total",
                form="namespace",
                named=(NAMESPACE,),
                file=("namespaces", NAME, "{}_total"),
                meaning="of all its topics together",
            ),
        ),
        members="topic",
        within="namespace",
    ),
    Level(
        word="resource_group",
        limited=(GROUP,),
        settings=(
            SettingRecord(
                word="resource_group", source="group", form="name", named=(GROUP,), file=("resource_groups", NAME, "{}")
            ),
        ),
        members="namespace",
    ),
    Level(
        word="partitioned_topic",
        limited=(PARTITIONED_TOPIC,),
        settings=(
            SettingRecord(
                word="partitioned_topic",
                source="total",
                form="topic",
                named=(PARTITIONED_TOPIC,),
                file=("topics", NAME, "{}_total"),
                meaning="of all partitions together",
            ),
        ),
        members="topic",
        within="namespace",
    ),
    Level(
        word="topic",
        limited=(TOPIC,),
        settings=(
            SettingRecord(
                word="topic",
                source="topic",
                form="topic",
                named=(PARTITIONED_TOPIC,),
                file=("topics", NAME, "{}"),
                meaning="in place of the namespace's value",
                abouts=ABOUTS,
                subscribe=("limits", "topics", NAME, "subscribe"),
            ),
            SettingRecord(
                word="topic_of_namespace",
                source="namespace",
                form="namespace",
                named=(NAMESPACE,),
                file=("namespaces", NAME, "{}"),
                meaning="of each of its topics",
                abouts=ABOUTS,
                subscribe=("limits", "namespaces", NAME, "subscribe"),
            ),
            SettingRecord(
                word="topic_of_broker",
                source="broker",
                form="",
                named=(),
                file=("each_topic", "{}"),
                section_meaning="of each topic that neither it nor its namespace has a value for",
                abouts=ABOUTS,
                subscribe=("admission", "subscribe_rate_per_consumer"),
            ),
        ),
        members="stream",
        within="namespace",
    ),
    Level(
        word="subscription",
        limited=(SUBSCRIPTION, TOPIC),
        settings=(
            SettingRecord(
                word="subscription",
                source="subscription",
                form="subscription",
                named=(SUBSCRIPTION, PARTITIONED_TOPIC),
                file=("topics", NAME, "subscriptions", NAME, "{}"),
                abouts=("dispatch",),
            ),
            SettingRecord(
                word="subscription_of_topic",
                source="topic",
                form="topic",
                named=(PARTITIONED_TOPIC,),
                file=("topics", NAME, "subscription_{}"),
                meaning="of each of its subscriptions",
                abouts=("dispatch",),
            ),
            SettingRecord(
                word="subscription_of_namespace",
                source="namespace",
                form="namespace",
                named=(NAMESPACE,),
                file=("namespaces", NAME, "subscription_{}"),
                meaning="of each subscription of its topics",
                abouts=("dispatch",),
            ),
            SettingRecord(
                word="subscription_of_broker",
                source="broker",
                form="",
                named=(),
                file=("each_subscription", "{}"),
                meaning="of the subscription, on each partition",
                section_meaning="of each subscription for which nothing narrower has a value",
                abouts=("dispatch",),
            ),
        ),
        members="stream",
        within="namespace",
    ),
    Level(
        word="producer",
        limited=(PRODUCER, PARTITIONED_TOPIC),
        settings=(
            SettingRecord(
                word="producer",
                source="producer",
                form="name",
                named=(PRODUCER,),
                file=("producers", NAME, "{}"),
                meaning="of that producer on each topic, partitions together",
                section_meaning="NAME is a producer's name, or * for each other",
                abouts=("publish",),
                has_each=True,
            ),
        ),
        members="stream",
        within="namespace",
    ),
    Level(
        word="role",
        limited=(ROLE,),
        settings=(
            SettingRecord(
                word="role",
                source="role",
                form="role",
                named=(ROLE,),
                file=("roles", NAME, "{}"),
                section_meaning="NAME is what clients authenticated as, or * for each other",
                has_each=True,
            ),
        ),
        members="topic",
    ),
    Level(
        word="address",
        limited=(COUNTED_ADDRESS,),
        settings=(
            SettingRecord(
                word="address",
                source="address",
                form="network",
                named=(ADDRESS,),
                file=("addresses", NAME, "{}"),
                section_meaning="NAME is an address or network; of each client address in it",
            ),
        ),
        members="topic",
        may_be_shared=False,
    ),
    Level(
        word="exempt",
        limited=(PARTITIONED_TOPIC,),
        settings=(
            SettingRecord(
                word="exempt",
                source="exempt",
                form="",
                named=(),
                file=("exempt", "{}"),
                section_meaning="of each topic of Pulsar's own, its partitions together; no other limit is of these",
            ),
        ),
        members="stream",
        within="namespace",
        is_of_system=True,
        may_be_shared=False,
    ),
)
"""Outermost first."""
SHAREABLE = tuple(level.word for level in LEVELS if level.may_be_shared)
"""Levels whose limits a fleet may share."""
SHARED_BY_PROCESSES = tuple(level.word for level in LEVELS if level.word != "exempt")
"""Levels whose limits the processes of one `sluice serve` share: those of the proxy and of client addresses as well."""
LEVEL_OF_WORD = {level.word: level for level in LEVELS}
LEVEL_OF_SETTING = {record.word: level for level in LEVELS for record in level.settings}
_RECORDS = {record.word: record for level in LEVELS for record in level.settings}


class _SettingWord(StrEnum):
    """The settings of values."""

    @property
    def record(self) -> SettingRecord:
        """The record of this setting."""
        return _RECORDS[self]

    @property
    def level(self) -> Level:
        """The level of the limits whose values this setting gives."""
        return LEVEL_OF_SETTING[self]


if TYPE_CHECKING:

    class Setting(_SettingWord):
        """The settings of LEVELS, for type checkers, which do not see names that are made at run time."""

        PROXY = "proxy"
        TENANT = "tenant"
        NAMESPACE = "namespace"
        RESOURCE_GROUP = "resource_group"
        PARTITIONED_TOPIC = "partitioned_topic"
        TOPIC = "topic"
        TOPIC_OF_NAMESPACE = "topic_of_namespace"
        TOPIC_OF_BROKER = "topic_of_broker"
        SUBSCRIPTION = "subscription"
        SUBSCRIPTION_OF_TOPIC = "subscription_of_topic"
        SUBSCRIPTION_OF_NAMESPACE = "subscription_of_namespace"
        SUBSCRIPTION_OF_BROKER = "subscription_of_broker"
        PRODUCER = "producer"
        ROLE = "role"
        ADDRESS = "address"
        EXEMPT = "exempt"
else:
    Setting = _SettingWord("Setting", {word.upper(): word for word in _RECORDS}, module=__name__)
    Setting.__doc__ = _SettingWord.__doc__
