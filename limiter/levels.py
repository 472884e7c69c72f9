"""The levels at which limits hold, all at once: one record for each, with all that is particular to it.

    proxy ─ tenant ─ namespace ─ resource_group ─ partitioned_topic ─ topic ─ subscription or producer ─ role ─ address
    outermost                                                                                                innermost

Topics of Pulsar's own are exempt from all other levels, and have their own: `exempt`.

Within one level the narrowest setting with a value decides, as in Pulsar: topic > namespace > broker. A
namespace's policy in Pulsar's sense is the value of *each* of its topics; a *total* is a limit of Sluice's own, over
all topics of a tenant, a namespace or a partitioned topic together.

A new level is one more record in `LEVELS`, and its word in `Setting`: the limiter, the configuration file, REST,
`sluice explain`, the metrics, the access log and the report read it from there. A level by a new property of streams
(see `Part`) also needs changes elsewhere: CONTRIBUTING.md lists these. This module imports nothing of the limiter, as
the report does not.

Source: https://pulsar.apache.org/docs/admin-api-namespaces/ (publish and dispatch rates)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

from limiter.names import EACH, NamedValues, NetworkValues, PatternValues, counted_as, is_pattern


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
        matched: The name of the setting whose value holds, for levels whose limiters are named by it.
    """

    topic: Topic
    client: Client
    group: str
    matched: str = ""


Naming = Callable[[StreamIdentity], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A property of a stream that limits depend on.

    Args:
        of: Returns the property of a stream.
        columns: The fields of a stream's line in the access log that give it, together.
        names: The form of the names that settings have for it, and the look-up among them.
        missing: The text of `sluice explain` for a stream without the property, which levels by it do not limit; empty
            for a property that each stream has.
        by: The property by which settings are looked up, if that is another one: limits by topic have values by
            partitioned topic.
        is_from_limit: Whether `columns` have the name of the stream's limit; else the stream has them by itself.
    """

    of: Naming
    columns: tuple[str, ...]
    names: type[NamedValues[Any]] = NamedValues
    missing: str = ""
    by: "Part | None" = None
    is_from_limit: bool = False

    @property
    def needed(self) -> Naming:
        """The property that a stream must have, for levels by this part to limit it."""
        return self.of


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedPart(Part):
    """The name of the setting whose value holds for a stream's `by`: all streams that it matches share a limiter."""

    by: Part
    of: Naming = field(default=lambda identity: identity.matched)
    is_from_limit: bool = True

    @property
    def needed(self) -> Naming:
        """The property that is matched."""
        return self.by.of


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPart(Part):
    """A property of a stream's client: a query key of `GET /sluice/explain`, and an option of `sluice explain`.

    Args:
        word: The name of the key and of the option.
        field: The field of `Client`.
        meaning: The meaning of its value, for people.
        directions: Directions whose streams have it.
        is_of_topic: Whether the tenant of a topic may ask about it.
    """

    word: str
    field: str
    meaning: str
    directions: "tuple[About, ...]" = ("publish", "dispatch")
    is_of_topic: bool = False


TENANT = Part(of=lambda identity: identity.topic.tenant, columns=("tenant",), names=PatternValues)
NAMESPACE = Part(
    of=lambda identity: identity.topic.namespace_name, columns=("tenant", "namespace"), names=PatternValues
)
PARTITIONED_TOPIC = Part(of=lambda identity: identity.topic.partitioned, columns=("topic",))
TOPIC = Part(of=lambda identity: identity.topic.full, columns=("topic",), by=PARTITIONED_TOPIC)
GROUP = Part(
    of=lambda identity: identity.group,
    columns=("resource_group",),
    missing="not attached to any",
    is_from_limit=True,
)
SUBSCRIPTION = ClientPart(
    of=lambda identity: identity.client.subscription,
    columns=("subscription",),
    missing="asked only for a --subscription",
    word="subscription",
    field="subscription",
    meaning="Subscription of a consumer",
    directions=("dispatch",),
    is_of_topic=True,
)
PRODUCER = ClientPart(
    of=lambda identity: identity.client.producer_name,
    columns=("producer_name",),
    missing="asked only for a --producer",
    word="producer",
    field="producer_name",
    meaning="Name of a producer",
    directions=("publish",),
    is_of_topic=True,
)
ROLE = ClientPart(
    of=lambda identity: identity.client.role,
    columns=("client_role",),
    missing="asked only for a --role",
    word="role",
    field="role",
    meaning="Role that the client is authenticated as",
)
ADDRESS = ClientPart(
    of=lambda identity: identity.client.address,
    columns=("client_address",),
    names=NetworkValues,
    missing="asked only for an --address",
    word="address",
    field="address",
    meaning="Address that the client connects from, as 10.1.2.3",
)
COUNTED_ADDRESS = Part(
    of=lambda identity: counted_as(identity.client.address),
    columns=("client_network", "client_address"),
    missing=ADDRESS.missing,
    by=ADDRESS,
)
INDEXED = (PARTITIONED_TOPIC, NAMESPACE, TENANT)
"""Parts by which open streams are found without a search through all."""

About = Literal["publish", "dispatch", "subscribe"]
"""The subject of a value: messages in one direction, or how often one consumer may subscribe."""
ABOUTS: tuple[About, ...] = ("publish", "dispatch", "subscribe")
NAME = "NAME"
"""In `SettingRecord.file`: any name, as the file's author chooses it."""


def joined(parts: tuple[Part, ...]) -> Naming:
    """Return the naming of a stream by these parts, with an @ between them."""
    if len(parts) == 1:
        return parts[0].of
    return lambda identity: "@".join([part.of(identity) for part in parts])


class Setting(StrEnum):
    """A setting of values; each has a record in LEVELS."""

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

    @property
    def record(self) -> "SettingRecord":
        """The record of this setting."""
        return _RECORDS[self]

    @property
    def level(self) -> "Level":
        """The level of the limits whose values this setting gives."""
        return LEVEL_OF_SETTING[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRecord:
    """A place where a value of a level may be set.

    Args:
        word: The setting, whose word REST and the access log have.
        source: The word of limits whose value is from here; see `accesslog.record.LimitLine.source`.
        named: The parts of a stream that are looked up among its names; of two, a name is `one@other`. None: the
            setting has one value, without a name.
        file: The keys in the configuration, below `limits`; `{}` in the last key is the direction. Two names are those
            of `inner@outer`.
        meaning: The meaning of the rate in the configuration's reference; by default that of its direction.
        section_meaning: The meaning of the section around it, if that is of this setting alone.
        abouts: The subjects of values there.
        subscribe: The keys in the configuration of the subscribe rate of one consumer; empty if it has none.
        has_each: Whether the name `*` is for all names without a value of their own.
    """

    word: Setting
    source: str
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

    @property
    def names(self) -> type[NamedValues[Any]]:
        """The form of its names, and the look-up among them."""
        return self.named[0].names if len(self.named) == 1 else NamedValues

    @property
    def has_patterns(self) -> bool:
        """True if all names are patterns, and the source of a limit does not tell a pattern's value from a name's."""
        return self.names not in {NamedValues, PatternValues}

    @property
    def may_have_forms(self) -> bool:
        """True if names may be patterns with `*`, of few forms; see `limiter.names.PatternValues`."""
        return issubclass(self.names, PatternValues)

    def is_pattern(self, name: str) -> bool:
        """Return whether a name is a pattern with `*`, for several names of streams."""
        return self.may_have_forms and is_pattern(name)

    @property
    def pattern_source(self) -> str:
        """The source of limits whose value is that of a pattern with `*`."""
        return f"pattern {self.source}" if self.may_have_forms else self.source

    def is_each(self, name: str) -> bool:
        """Return whether a name is for all names without a value of their own."""
        return self.has_each and name == EACH

    def streams_of(self, name: str) -> tuple[Part, tuple[str, ...]] | None:
        """Return the part of `INDEXED` and its values by which the streams that a name concerns are found.

        Several are candidates, as an @ may also be part of a name. None: any stream may be concerned.
        """
        if not self.named or self.named[-1] not in INDEXED or self.is_each(name) or self.is_pattern(name):
            return None
        if len(self.named) == 1:
            return self.named[0], (name,)
        return self.named[-1], tuple([name[at + 1 :] for at, letter in enumerate(name) if letter == "@"])


Lookup = tuple[Setting, Naming, str]
"""A setting to look up, a stream's own name there, and the source of its values."""


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
        """The name of a stream's limiter at this level; see `is_by_match`."""
        return joined(self.limited)

    @cached_property
    def is_by_match(self) -> bool:
        """True if the setting whose value holds gives limiters their names: naming needs `StreamIdentity.matched`."""
        return any(isinstance(part, MatchedPart) for part in self.limited)

    @cached_property
    def lookups(self) -> "tuple[Lookup, ...]":
        """The settings to look up, narrowest first."""
        lookups = list[Lookup]()
        for record in self.settings:
            lookups.append((record.word, joined(record.named), record.source))
            if record.has_each:
                lookups.append((record.word, lambda _identity: EACH, f"each {record.source}"))
        return tuple(lookups)

    @property
    def is_of_one_topic(self) -> bool:
        """True if each limit is of one topic, and so may be relative to the topic's publish rate."""
        return TOPIC in self.limited

    @property
    def names_clients(self) -> bool:
        """True if its limits are named by what clients are, or say of themselves."""
        parts = {of for part in self.limited for of in (part, part.by) if isinstance(of, ClientPart)}
        return bool(parts - {SUBSCRIPTION})

    @property
    def is_wide(self) -> bool:
        """True if a limit of it is of many topics; of such limits there are few, unless they are named by clients."""
        return self.is_of_system or not {TOPIC, PARTITIONED_TOPIC} & {*self.limited}

    @property
    def is_of_addresses(self) -> bool:
        """True if its limits are named by clients' addresses, which the access log may have to hide."""
        return COUNTED_ADDRESS in self.limited

    @cached_property
    def _needed(self) -> tuple[Naming, ...]:
        return tuple([part.needed for part in self.limited if part.missing])


LEVELS = (
    Level(
        word="proxy",
        limited=(),
        settings=(
            SettingRecord(
                word=Setting.PROXY,
                source="proxy",
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
                word=Setting.TENANT,
                source="total",
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
                word=Setting.NAMESPACE,
                source="total",
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
                word=Setting.RESOURCE_GROUP, source="group", named=(GROUP,), file=("resource_groups", NAME, "{}")
            ),
        ),
        members="namespace",
    ),
    Level(
        word="partitioned_topic",
        limited=(PARTITIONED_TOPIC,),
        settings=(
            SettingRecord(
                word=Setting.PARTITIONED_TOPIC,
                source="total",
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
                word=Setting.TOPIC,
                source="topic",
                named=(PARTITIONED_TOPIC,),
                file=("topics", NAME, "{}"),
                meaning="in place of the namespace's value",
                abouts=ABOUTS,
                subscribe=("limits", "topics", NAME, "subscribe"),
            ),
            SettingRecord(
                word=Setting.TOPIC_OF_NAMESPACE,
                source="namespace",
                named=(NAMESPACE,),
                file=("namespaces", NAME, "{}"),
                meaning="of each of its topics",
                abouts=ABOUTS,
                subscribe=("limits", "namespaces", NAME, "subscribe"),
            ),
            SettingRecord(
                word=Setting.TOPIC_OF_BROKER,
                source="broker",
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
                word=Setting.SUBSCRIPTION,
                source="subscription",
                named=(SUBSCRIPTION, PARTITIONED_TOPIC),
                file=("topics", NAME, "subscriptions", NAME, "{}"),
                abouts=("dispatch",),
            ),
            SettingRecord(
                word=Setting.SUBSCRIPTION_OF_TOPIC,
                source="topic",
                named=(PARTITIONED_TOPIC,),
                file=("topics", NAME, "subscription_{}"),
                meaning="of each of its subscriptions",
                abouts=("dispatch",),
            ),
            SettingRecord(
                word=Setting.SUBSCRIPTION_OF_NAMESPACE,
                source="namespace",
                named=(NAMESPACE,),
                file=("namespaces", NAME, "subscription_{}"),
                meaning="of each subscription of its topics",
                abouts=("dispatch",),
            ),
            SettingRecord(
                word=Setting.SUBSCRIPTION_OF_BROKER,
                source="broker",
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
                word=Setting.PRODUCER,
                source="producer",
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
                word=Setting.ROLE,
                source="role",
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
                word=Setting.ADDRESS,
                source="address",
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
                word=Setting.EXEMPT,
                source="exempt",
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
CLIENT_PARTS = tuple(
    dict.fromkeys(
        [part for level in LEVELS for record in level.settings for part in record.named if isinstance(part, ClientPart)]
    )
)
"""Properties of clients by which limits are set: the questions of `explain`."""
LEVEL_OF_WORD = {level.word: level for level in LEVELS}
LEVEL_OF_SETTING: Mapping[str, Level] = {record.word: level for level in LEVELS for record in level.settings}
_RECORDS = {record.word: record for level in LEVELS for record in level.settings}
