"""The configuration's `limits`: a value for each setting of `limiter.policies`."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidatorFunctionWrapHandler, field_validator, model_validator

from limiter.levels import Setting
from limiter.policies import Value
from limiter.rates import NOTHING_PUBLISHED, Direction, Limit, Mode, Rate, rate
from protocol.topic_name import parse_topic
from proxy.config.values import (
    CountPerPeriod,
    Name,
    NamespaceName,
    NetworkName,
    PerPeriod,
    Size,
    TenantName,
    WholeTopic,
    network_name,
)
from proxy.policies.layers import FilePolicies, Layer, Place

_TENTH = "default: a tenth of a period's worth"
RELATIVE = "relativeToPublishRate"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RateLimit(_Section):
    """Messages and bytes per second (or `/min`, `/h`), with room for bursts."""

    messages: CountPerPeriod | None = Field(None, description="messages per second, or 30/min")
    bytes: PerPeriod | None = Field(None, description="bytes per second, or 10MB/min")
    burst_messages: int | None = Field(None, gt=0, description=f"messages at once; {_TENTH}")
    burst_bytes: Size | None = Field(None, gt=0, description=f"bytes at once; {_TENTH}")
    peak_messages: CountPerPeriod | None = Field(None, description="highest rate while burst_messages last")
    peak_bytes: PerPeriod | None = Field(None, description="highest rate while burst_bytes last")
    mode: Mode = Field(
        "enforce", description="`observe` holds nothing and counts what would be held; `reject` (publish only) refuses"
    )

    @model_validator(mode="before")
    @classmethod
    def _relative_where_one_topic_is(cls, values: Any) -> Any:
        if isinstance(values, dict) and RELATIVE in values and RELATIVE not in cls.model_fields:
            raise ValueError(
                f"{RELATIVE} is for the dispatch of a topic or of a subscription, whose publish rate can be measured; "
                "leave it out here"
            )
        return values

    @model_validator(mode="after")
    def _rate_for_each_burst(self) -> "RateLimit":
        for kind in ("messages", "bytes"):
            if getattr(self, f"burst_{kind}") is not None and getattr(self, kind) is None:
                raise ValueError(f"burst_{kind} needs {kind}: a burst without a rate limits nothing")
            if getattr(self, f"peak_{kind}") is not None:
                self._check_peak(kind)
        if self.messages is None and self.bytes is None:
            raise ValueError("write messages, bytes or both; leave the section out for no limit")
        return self

    def _check_peak(self, kind: str) -> None:
        peak, sustained = getattr(self, f"peak_{kind}"), getattr(self, kind)
        if sustained is None or getattr(self, f"burst_{kind}") is None:
            raise ValueError(f"peak_{kind} needs {kind} and burst_{kind}: the peak holds while that burst lasts")
        if peak[0] * sustained[1] <= sustained[0] * peak[1]:
            raise ValueError(f"peak_{kind} is to be above {kind}: a peak at or below it would be the limit itself")

    def limit(self) -> Limit:
        """The same, as the limiter takes it."""
        return Limit(
            _rate(self.messages, self.burst_messages),
            _rate(self.bytes, self.burst_bytes),
            _rate(self.peak_messages, None),
            _rate(self.peak_bytes, None),
            self.mode,
        )


class DispatchLimit(RateLimit):
    """The same for consumers, who cannot be refused."""

    mode: Literal["enforce", "observe"] = Field("enforce", description="`observe` counts what would be held")


class TopicDispatchLimit(DispatchLimit):
    """The same for the consumers of one topic, or of one subscription."""

    relativeToPublishRate: bool = Field(  # noqa: N815 - Pulsar's name
        default=False, description="dispatch of a topic or subscription only: the topic's publish rate comes on top"
    )

    def limit(self) -> Limit:
        """The same, as the limiter takes it."""
        limit = super().limit()
        return replace(limit, published=NOTHING_PUBLISHED) if self.relativeToPublishRate else limit


def _rate(value: tuple[int, int] | None, burst: int | None) -> Rate | None:
    return None if value is None else rate(value[0], value[1], burst)


class Both(_Section):
    """A limit for each direction."""

    publish: RateLimit | None = Field(None, description="from producers to the broker")
    dispatch: DispatchLimit | None = Field(None, description="from the broker to consumers")


class TopicBoth(_Section):
    """A limit of each topic for each direction."""

    publish: RateLimit | None = Field(None, description="from producers to the broker")
    dispatch: TopicDispatchLimit | None = Field(None, description="from the broker to consumers")


class ProducerLimits(_Section):
    """The limit of a producer."""

    publish: RateLimit | None = Field(None, description="of that producer on each topic, partitions together")


class ResourceGroup(Both):
    """A limit that tenants and namespaces share."""

    tenants: tuple[TenantName, ...] = Field((), description="whose namespaces share it")
    namespaces: tuple[NamespaceName, ...] = Field((), description="which share it, whatever group their tenant is in")


class NamespaceLimits(_Section):
    """Limits of one namespace."""

    publish: RateLimit | None = Field(None, description="of each of its topics")
    dispatch: TopicDispatchLimit | None = Field(None, description="of each of its topics")
    publish_total: RateLimit | None = Field(None, description="of all its topics together")
    dispatch_total: DispatchLimit | None = Field(None, description="of all its topics together")
    subscription_dispatch: TopicDispatchLimit | None = Field(None, description="of each subscription of its topics")
    subscribe: CountPerPeriod | None = Field(
        None, description="how often one consumer may subscribe to one of its topics, as 5/30s"
    )


class SubscriptionLimits(_Section):
    """The limit of one subscription."""

    dispatch: TopicDispatchLimit | None = Field(None, description="of the subscription, on each partition")


class TopicLimits(_Section):
    """Limits of one topic; of a partitioned one, of each partition and of all together."""

    publish: RateLimit | None = Field(None, description="in place of the namespace's value")
    dispatch: TopicDispatchLimit | None = Field(None, description="in place of the namespace's value")
    publish_total: RateLimit | None = Field(None, description="of all partitions together")
    dispatch_total: DispatchLimit | None = Field(None, description="of all partitions together")
    subscription_dispatch: TopicDispatchLimit | None = Field(None, description="of each of its subscriptions")
    subscribe: CountPerPeriod | None = Field(
        None, description="how often one consumer may subscribe to it, in place of the namespace's value"
    )
    subscriptions: dict[Name, SubscriptionLimits] = Field(
        default_factory=dict, description="NAME is a subscription's; in place of subscription_dispatch"
    )


class Limits(_Section):
    """All limits; they apply at once. Only a topic's own value, its namespace's and `each_topic` replace each other."""

    proxy: Both | None = Field(None, description="of all that this proxy passes")
    tenants: dict[TenantName, Both] = Field(
        default_factory=dict, description="NAME is a tenant, or * for each other; of all its topics together"
    )
    namespaces: dict[NamespaceName, NamespaceLimits] = Field(
        default_factory=dict, description="NAME is tenant/namespace"
    )
    resource_groups: dict[Name, ResourceGroup] = Field(
        default_factory=dict, description="of all topics together that are attached to the group"
    )
    topics: dict[WholeTopic, TopicLimits] = Field(default_factory=dict, description="NAME is the full topic name")
    each_topic: TopicBoth | None = Field(
        None, description="of each topic that neither it nor its namespace has a value for"
    )
    each_subscription: SubscriptionLimits | None = Field(
        None, description="of each subscription for which nothing narrower has a value"
    )
    producers: dict[Name, ProducerLimits] = Field(
        default_factory=dict, description="NAME is a producer's name, or * for each other"
    )
    roles: dict[Name, Both] = Field(
        default_factory=dict, description="NAME is what clients authenticated as, or * for each other"
    )
    addresses: dict[NetworkName, Both] = Field(
        default_factory=dict, description="NAME is an address or network; of each client address in it"
    )

    @field_validator("topics")
    @classmethod
    def _whole_names(cls, value: dict[str, TopicLimits]) -> dict[str, TopicLimits]:
        named: dict[str, TopicLimits] = {}
        for name, limits in value.items():
            topic = name if "://" in name else parse_topic(name).full
            if topic in named:
                raise ValueError(f"{name!r} names {topic!r}, which stands here twice")
            named[topic] = limits
        return named

    @field_validator("addresses", mode="wrap")
    @classmethod
    def _one_network_each(cls, value: Any, read: ValidatorFunctionWrapHandler) -> dict[str, Both]:
        limits: dict[str, Both] = read(value)
        seen: set[str] = set()
        for name in value:
            network = network_name(name)
            if network in seen:
                raise ValueError(f"{name!r} names {network!r}, which stands here twice")
            seen.add(network)
        return limits

    @field_validator("resource_groups")
    @classmethod
    def _one_group_each(cls, value: dict[str, ResourceGroup]) -> dict[str, ResourceGroup]:
        attached: dict[str, str] = {}
        for group, section in value.items():
            for name in (*section.tenants, *section.namespaces):
                if name in attached:
                    raise ValueError(f"{name!r} is attached to {attached[name]!r} and to {group!r}: leave one out")
                attached[name] = group
        return value


def file_policies(limits: Limits, subscribe: tuple[int, int] | None) -> FilePolicies:
    """The limits of the file, as they are laid under those that are set at run time.

    Args:
        limits: The section.
        subscribe: How often one consumer may subscribe to a topic for which nothing narrower has a value.
    """
    values = dict(_subscribe_rates(limits, subscribe))
    origin, directions = Layer.FILE.origin, get_args(Direction)
    for setting, sections, key in _sections(limits):
        for direction, inner in ((direction, key.format(direction)) for direction in directions):
            for name, section in sections.items():
                value: RateLimit | None = getattr(section, inner, None) if inner in section.model_fields_set else None
                if value is not None:
                    values[direction, setting, name] = Value(value.limit(), origin)
    groups = limits.resource_groups.items()
    return FilePolicies(
        values,
        {tenant: group for group, section in groups for tenant in section.tenants},
        {namespace: group for group, section in groups for namespace in section.namespaces},
    )


def _subscribe_rates(limits: Limits, of_broker: tuple[int, int] | None) -> Iterator[tuple[Place, Value]]:
    """A whole period's worth may come at once, as with Pulsar."""
    written = [
        (Setting.TOPIC_OF_BROKER, "", of_broker),
        *((Setting.TOPIC_OF_NAMESPACE, name, section.subscribe) for name, section in limits.namespaces.items()),
        *((Setting.TOPIC, name, section.subscribe) for name, section in limits.topics.items()),
    ]
    for setting, name, value in written:
        if value is not None:
            limit = Limit(rate(value[0], value[1], burst=value[0]))
            yield ("subscribe", setting, name), Value(limit, Layer.FILE.origin)


def _sections(limits: Limits) -> Iterator[tuple[Setting, Mapping[str, BaseModel], str]]:
    """Each setting with its sections by name, and their key for a direction."""
    yield Setting.PROXY, _alone(limits.proxy), "{}"
    yield Setting.TOPIC_OF_BROKER, _alone(limits.each_topic), "{}"
    yield Setting.SUBSCRIPTION_OF_BROKER, _alone(limits.each_subscription), "{}"
    yield Setting.TENANT, limits.tenants, "{}"
    yield Setting.NAMESPACE, limits.namespaces, "{}_total"
    yield Setting.TOPIC_OF_NAMESPACE, limits.namespaces, "{}"
    yield Setting.RESOURCE_GROUP, limits.resource_groups, "{}"
    yield Setting.PARTITIONED_TOPIC, limits.topics, "{}_total"
    yield Setting.TOPIC, limits.topics, "{}"
    yield Setting.SUBSCRIPTION_OF_NAMESPACE, limits.namespaces, "subscription_{}"
    yield Setting.SUBSCRIPTION_OF_TOPIC, limits.topics, "subscription_{}"
    yield Setting.SUBSCRIPTION, _subscriptions(limits), "{}"
    yield Setting.PRODUCER, limits.producers, "{}"
    yield Setting.ROLE, limits.roles, "{}"
    yield Setting.ADDRESS, limits.addresses, "{}"


def _alone(section: BaseModel | None) -> Mapping[str, BaseModel]:
    return {} if section is None else {"": section}


def _subscriptions(limits: Limits) -> Mapping[str, BaseModel]:
    return {
        f"{name}@{topic}": section
        for topic, topic_section in limits.topics.items()
        for name, section in topic_section.subscriptions.items()
    }
