"""The configuration's `limits`: a value for each setting of `limiter.policies`."""

from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from limiter.rates import NOTHING_PUBLISHED, Limit, Mode, Rate, rate
from protocol.topic_name import parse_topic
from proxy.config.values import (
    Count,
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

_TENTH = "default: a tenth of a period's worth"
RELATIVE = "relativeToPublishRate"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RateLimit(_Section):
    """Messages and bytes per second (or `/min`, `/h`), with room for bursts."""

    messages: CountPerPeriod | None = Field(None, description="messages per second, or 30/min")
    bytes: PerPeriod | None = Field(None, description="bytes per second, or 10MB/min")
    burst_messages: Count | None = Field(None, gt=0, description=f"messages at once; {_TENTH}")
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
            raise ValueError(f"{RELATIVE} is for the dispatch of a topic or of a subscription; leave it out here")
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
        """The limits of this section, as the limiter takes them."""
        return Limit(
            _rate(self.messages, self.burst_messages),
            _rate(self.bytes, self.burst_bytes),
            _rate(self.peak_messages, None),
            _rate(self.peak_bytes, None),
            self.mode,
        )


class DispatchLimit(RateLimit):
    """The dispatch rate of consumers. It has no mode `reject`: a delivery cannot be refused."""

    mode: Literal["enforce", "observe"] = Field("enforce", description="`observe` counts what would be held")


class TopicDispatchLimit(DispatchLimit):
    """The dispatch rate of the consumers of one topic or of one subscription."""

    relativeToPublishRate: bool = Field(  # noqa: N815 - Pulsar's name
        default=False, description="dispatch of a topic or subscription only: the topic's publish rate comes on top"
    )

    def limit(self) -> Limit:
        """The limits of this section, as the limiter takes them."""
        limit = super().limit()
        return replace(limit, published=NOTHING_PUBLISHED) if self.relativeToPublishRate else limit


def _once(form: type[RateLimit]) -> BeforeValidator:
    """Reads equal sections once, as files of 100,000 topics say the same few things; wrong ones are left to be told."""

    @lru_cache(maxsize=1024)
    def read(items: tuple[tuple[str, type, Any], ...]) -> RateLimit:
        return form.model_validate({key: value for key, _, value in items})

    def known(value: Any) -> Any:
        try:
            return read(tuple((key, type(part), part) for key, part in value.items()))  # 1 is no True here
        except (AttributeError, TypeError, ValidationError):
            return value

    return BeforeValidator(known)


_PublishLimit = Annotated[RateLimit | None, _once(RateLimit)]
_DispatchLimit = Annotated[DispatchLimit | None, _once(DispatchLimit)]
_TopicDispatchLimit = Annotated[TopicDispatchLimit | None, _once(TopicDispatchLimit)]


def _rate(value: tuple[int, int] | None, burst: int | None) -> Rate | None:
    return None if value is None else rate(value[0], value[1], burst)


class Both(_Section):
    """A limit for each direction."""

    publish: _PublishLimit = Field(None, description="from producers to the broker")
    dispatch: _DispatchLimit = Field(None, description="from the broker to consumers")


class TopicBoth(_Section):
    """A limit of each topic for each direction."""

    publish: _PublishLimit = Field(None, description="from producers to the broker")
    dispatch: _TopicDispatchLimit = Field(None, description="from the broker to consumers")


class ProducerLimits(_Section):
    """The limit of a producer."""

    publish: _PublishLimit = Field(None, description="of that producer on each topic, partitions together")


class ResourceGroup(Both):
    """A limit that tenants and namespaces share."""

    tenants: tuple[TenantName, ...] = Field((), description="whose namespaces share it")
    namespaces: tuple[NamespaceName, ...] = Field((), description="which share it, whatever group their tenant is in")


class NamespaceLimits(_Section):
    """Limits of one namespace."""

    publish: _PublishLimit = Field(None, description="of each of its topics")
    dispatch: _TopicDispatchLimit = Field(None, description="of each of its topics")
    publish_total: _PublishLimit = Field(None, description="of all its topics together")
    dispatch_total: _DispatchLimit = Field(None, description="of all its topics together")
    subscription_dispatch: _TopicDispatchLimit = Field(None, description="of each subscription of its topics")
    subscribe: CountPerPeriod | None = Field(
        None, description="how often one consumer may subscribe to one of its topics, as 5/30s"
    )


class SubscriptionLimits(_Section):
    """The limit of one subscription."""

    dispatch: _TopicDispatchLimit = Field(None, description="of the subscription, on each partition")


class TopicLimits(_Section):
    """Limits of one topic; of a partitioned one, of each partition and of all together."""

    publish: _PublishLimit = Field(None, description="in place of the namespace's value")
    dispatch: _TopicDispatchLimit = Field(None, description="in place of the namespace's value")
    publish_total: _PublishLimit = Field(None, description="of all partitions together")
    dispatch_total: _DispatchLimit = Field(None, description="of all partitions together")
    subscription_dispatch: _TopicDispatchLimit = Field(None, description="of each of its subscriptions")
    subscribe: CountPerPeriod | None = Field(
        None, description="how often one consumer may subscribe to it, in place of the namespace's value"
    )
    subscriptions: dict[Name, SubscriptionLimits] = Field(
        default_factory=dict, description="NAME is a subscription's; in place of subscription_dispatch"
    )


class Limits(_Section):
    """All limits; they apply at once. Only a topic's own value, its namespace's and `each_topic` replace each other.

    Topics of Pulsar's own are under `exempt` alone.
    """

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
    exempt: Both | None = Field(
        None, description="of each topic of Pulsar's own, its partitions together; no other limit is of these"
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
