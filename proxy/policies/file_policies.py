"""The configuration's `limits` as the values of `limiter.policies`, as they are laid under those set at run time."""

from collections.abc import Iterator, Mapping
from functools import lru_cache

from pydantic import BaseModel

from limiter.levels import Setting
from limiter.policies import Value
from limiter.rates import DIRECTIONS, Limit, rate
from proxy.config.limits import Limits, RateLimit
from proxy.policies.layers import FilePolicies, Layer, Place


def file_policies(limits: Limits, subscribe: tuple[int, int] | None) -> FilePolicies:
    """The limits of the file, as they are laid under those that are set at run time.

    Args:
        limits: The section.
        subscribe: How often one consumer may subscribe to a topic for which nothing narrower has a value.
    """
    values = dict(_subscribe_rates(limits, subscribe))
    for setting, sections, key in _sections(limits):
        for direction, inner in ((direction, key.format(direction)) for direction in DIRECTIONS):
            for name, section in sections.items():
                value: RateLimit | None = getattr(section, inner, None) if inner in section.model_fields_set else None
                if value is not None:
                    values[direction, setting, name] = _value(value)
    groups = limits.resource_groups.items()
    return FilePolicies(
        values,
        {tenant: group for group, section in groups for tenant in section.tenants},
        {namespace: group for group, section in groups for namespace in section.namespaces},
        frozenset(limits.resource_groups),
    )


@lru_cache(maxsize=1024)
def _value(section: RateLimit) -> Value:
    """One for all equal sections: 100,000 topics have few different ones."""
    return Value(section.limit(), Layer.FILE.origin)


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
    yield Setting.EXEMPT, _alone(limits.exempt), "{}"


def _alone(section: BaseModel | None) -> Mapping[str, BaseModel]:
    return {} if section is None else {"": section}


def _subscriptions(limits: Limits) -> Mapping[str, BaseModel]:
    return {
        f"{name}@{topic}": section
        for topic, topic_section in limits.topics.items()
        for name, section in topic_section.subscriptions.items()
    }
