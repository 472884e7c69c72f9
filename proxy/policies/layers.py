"""The layers in which values are written, and which of several values holds.

    rest        set for this very target by the admin address         }
    global      the same, by Pulsar's tools with `--global`            } kept by the store
    dynamic     the broker's dynamic configuration, by its own names   }
    file        the configuration file

    tenant      set for this very target by a token for some tenants     the stricter of this and the others holds

The upper layer hides the lower one until its value is taken back; `tenant` is hidden by none, and hides none. One
exception, as with Pulsar: a `rest` value that limits nothing does not hide `global`. Layers are about one target of
`limiter.policies` (say, the publish rate of each topic of one namespace). `limiter.policies` decides the precedence
between targets (topic over namespace over broker).

Each key of the dynamic configuration is a part of one limit. A key that is set replaces that part of the file's limit;
the other part stays. Values of 0 and below mean no limit.

Source: broker.conf, and GET /admin/v2/brokers/configuration of a broker (which keys are dynamic)
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

from pydantic import BaseModel

from limiter.levels import Setting
from limiter.policies import Change, Policies, PolicyTarget, Value, change_of, stricter
from limiter.token_bucket import DIRECTIONS, NANOS_PER_SECOND, Limit, Rate, rate
from proxy.config.limits import Limits, Plan, RateLimit
from proxy.policies.bodies import MOST_BYTES, MOST_MESSAGES, BodyError
from proxy.policies.keys import OF_OPERATOR, Layer


@dataclass(frozen=True, slots=True)
class FilePolicies:
    """The policies of a configuration file.

    Args:
        values: Limits by target.
        groups_of_tenants: Resource groups by the tenant that is attached to them.
        groups_of_namespaces: Resource groups by namespace.
        groups: The names of all resource groups, even without limits and attachments.
    """

    values: Mapping[PolicyTarget, Value]
    groups_of_tenants: Mapping[str, str]
    groups_of_namespaces: Mapping[str, str]
    groups: frozenset[str] = frozenset()


class Layers:
    """All values that were written, by layer, and those that hold in `policies`.

    Args:
        policies: Gets the values that hold; only this object puts values there.
    """

    def __init__(self, policies: Policies) -> None:
        self.policies = policies
        self._written: dict[Layer, dict[PolicyTarget, Value]] = {layer: {} for layer in Layer}
        self._before: dict[PolicyTarget, Value | None] = {}
        self._tenants_before: dict[PolicyTarget, Value | None] = {}
        self._regrouped: set[tuple[Setting, str]] = set()

    def copy(self) -> "Layers":
        """Return a copy over policies of its own; any thread may, while no value is written here."""
        other = Layers(self.policies.copy())
        other._written = {layer: dict(values) for layer, values in self._written.items()}
        return other

    def exchange(self, other: "Layers") -> None:
        """Swap values with another object in one step; `policies` stays the same object."""
        self.policies.exchange(other.policies)
        self._written, other._written = other._written, self._written  # noqa: SLF001 - of the same class

    def put(self, layer: Layer, target: PolicyTarget, value: Value | None) -> None:
        """Write a value; None takes it back."""
        if value is None:
            self._written[layer].pop(target, None)
        else:
            self._written[layer][target] = value
        if layer is Layer.TENANT:
            self._tenants_before.setdefault(target, self.of_tenant(target))
            self.policies.put_tenants(*target, value)
        else:
            self._show(target)

    def difference(self, layer: Layer, values: Mapping[PolicyTarget, Value]) -> dict[PolicyTarget, Value | None]:
        """Return the values to write for a layer to hold `values`; any thread may, while no value is written there."""
        before = self._written[layer]
        changed: dict[PolicyTarget, Value | None] = {
            target: value for target, value in values.items() if before.get(target) != value
        }
        changed.update((target, None) for target in before if target not in values)
        return changed

    def written(self, layer: Layer, target: PolicyTarget) -> Value | None:
        """Return the value of one layer, even where a higher layer hides it."""
        return self._written[layer].get(target)

    def of_layer(self, layer: Layer) -> Mapping[PolicyTarget, Value]:
        """Return all values of one layer."""
        return self._written[layer]

    def attach(self, member: Setting, name: str, group: str | None) -> None:
        """Attach a tenant or a namespace to a resource group; None: to none."""
        if self.policies.attach(member, name, group):
            self._regrouped.add((member, name))

    def changes(self) -> list[Change]:
        """Return the targets with another value, and the names with another resource group, than at the last call."""
        changes = [change_of(target, before, self.of_operator(target)) for target, before in self._before.items()]
        if self.policies.tenants is not None or self._tenants_before:
            changes = [
                change and replace(change, only_tunes=change.only_tunes and not self._observes(change))
                for change in changes
            ]
        of_tenants = [change_of(target, old, self.of_tenant(target)) for target, old in self._tenants_before.items()]
        changes += [
            change and replace(change, only_tunes=False) for change in of_tenants
        ]  # it may begin or cease to hold
        changes += [Change(about, *member) for about in DIRECTIONS for member in self._regrouped]
        self.forget_changes()
        return [change for change in changes if change is not None]

    def forget_changes(self) -> None:
        """Drop the noted changes: they concern no stream yet."""
        self._before.clear()
        self._tenants_before.clear()
        self._regrouped.clear()

    def dissolve(self) -> None:
        """Remove all values, in any thread: freeing 100,000 values at once would hold up all other threads."""
        items = [item for values in self._written.values() for item in values.items()]
        for values in self._written.values():
            values.clear()
        self.policies.clear()
        while items:
            items.pop()

    def of_operator(self, target: PolicyTarget) -> Value | None:
        """Return the operator's value at a target, without regard to a tenant's."""
        about, setting, name = target
        return self.policies.by_name(about, setting).get(name)

    def of_tenant(self, target: PolicyTarget) -> Value | None:
        """Return the value that a tenant set for itself at a target."""
        about, setting, name = target
        tenants = self.policies.tenants
        return None if tenants is None else tenants.by_name(about, setting).get(name)

    def at(self, target: PolicyTarget) -> Value | None:
        """Return the stricter of the operator's value and the tenant's; its origin is the one that made it strict."""
        operators, own = self.of_operator(target), self.of_tenant(target)
        if operators is None or own is None:
            return operators or own
        limit = stricter(operators.limit, own.limit)
        return operators if limit == operators.limit else Value(limit, own.origin)

    def _observes(self, change: Change) -> bool:
        """Return whether a value observes: then a tenant's own may hold in its place."""
        value = self.of_operator((change.about, change.setting, change.name))
        return value is not None and value.limit.mode == "observe"

    def _show(self, target: PolicyTarget) -> None:
        self._before.setdefault(target, self.of_operator(target))
        self.policies.put(*target, self._first(target))

    def _first(self, target: PolicyTarget) -> Value | None:
        for layer in OF_OPERATOR:
            value = self._written[layer].get(target)
            if value is None:
                continue
            if layer is Layer.REST and not value.limit and target in self._written[Layer.GLOBAL]:
                continue
            return value
        return None


def file_policies(limits: Limits, subscribe: tuple[int, int] | None) -> FilePolicies:
    """Return the limits of the file, which lie under those that are set at run time.

    Args:
        limits: The section.
        subscribe: How often one consumer may subscribe to a topic without a narrower value.
    """
    values = dict(_subscribe_rates(limits, subscribe))
    for setting in Setting:
        sections = _sections(limits, setting.record.file[:-1])
        for direction, key in ((direction, setting.record.file[-1].format(direction)) for direction in DIRECTIONS):
            for name, section in sections.items():
                value, plan = _given(section, key, limits.plans)
                if value is not None:
                    values[direction, setting, name] = _value(value, plan)
    groups = limits.resource_groups.items()
    return FilePolicies(
        values,
        {tenant: group for group, section in groups for tenant in section.tenants},
        {namespace: group for group, section in groups for namespace in section.namespaces},
        frozenset(limits.resource_groups),
    )


def _given(section: BaseModel, key: str, plans: Mapping[str, Plan]) -> tuple[Any, str]:
    """Return the value that a section has for a key, and the plan that it is from; None and none if it has no value."""
    if key in section.model_fields_set:
        return getattr(section, key), ""
    plan: str | None = getattr(section, "plan", None)
    if plan is None or key not in plans[plan].model_fields_set:
        return None, ""
    return getattr(plans[plan], key), plan


@lru_cache(maxsize=1024)
def _value(section: RateLimit, plan: str) -> Value:
    """Return one value for all equal sections: 100,000 topics have few different ones."""
    return Value(section.limit(), Layer.FILE.origin, plan)


def _subscribe_rates(limits: Limits, of_broker: tuple[int, int] | None) -> Iterator[tuple[PolicyTarget, Value]]:
    """Yield the subscribe rates; a whole period's worth may come at once, as with Pulsar."""
    rates = [(Setting.TOPIC_OF_BROKER, "", of_broker, "")]
    for setting in Setting:
        if setting.record.subscribe[:1] == ("limits",):
            _, *way, key = setting.record.subscribe
            sections = _sections(limits, tuple(way))
            rates += [(setting, name, *_given(section, key, limits.plans)) for name, section in sections.items()]
    for setting, name, value, plan in rates:
        if value is not None:
            limit = Limit(rate(value[0], value[1], burst=value[0]))
            yield ("subscribe", setting, name), Value(limit, Layer.FILE.origin, plan)


def _sections(inside: BaseModel, keys: tuple[str, ...]) -> Mapping[str, BaseModel]:
    """Return the sections at keys of `SettingRecord.file`, by name; a section within another by `inner@outer`."""
    section = getattr(inside, keys[0])
    if len(keys) == 1:
        return {} if section is None else {"": section}
    if len(keys) == 2:
        return cast("Mapping[str, BaseModel]", section)
    return {
        f"{inner}@{outer}": inner_section
        for outer, outer_section in section.items()
        for inner, inner_section in _sections(outer_section, keys[2:]).items()
    }


_PUBLISH_BROKER: PolicyTarget = ("publish", Setting.PROXY, "")
_PUBLISH_TOPIC: PolicyTarget = ("publish", Setting.TOPIC_OF_BROKER, "")
_DISPATCH_BROKER: PolicyTarget = ("dispatch", Setting.PROXY, "")
_DISPATCH_TOPIC: PolicyTarget = ("dispatch", Setting.TOPIC_OF_BROKER, "")
_DISPATCH_SUBSCRIPTION: PolicyTarget = ("dispatch", Setting.SUBSCRIPTION_OF_BROKER, "")
_SUBSCRIBE: PolicyTarget = ("subscribe", Setting.TOPIC_OF_BROKER, "")
_SUBSCRIBE_PERIOD_NS = 30 * NANOS_PER_SECOND
"""Pulsar's default of subscribeRatePeriodPerConsumerInSecond."""


def _messages(limit: Limit, value: int) -> Limit:
    return replace(limit, messages=rate(value) if value > 0 else None, peak_messages=None)


def _size(limit: Limit, value: int) -> Limit:
    return replace(limit, size=rate(value) if value > 0 else None, peak_size=None)


def _subscribes(limit: Limit, value: int) -> Limit:
    period_ns = limit.messages.period_ns if limit.messages else _SUBSCRIBE_PERIOD_NS
    return replace(limit, messages=Rate(value, period_ns, value) if value > 0 else None)


def _subscribe_period(limit: Limit, value: int) -> Limit:
    if limit.messages is None or value <= 0:
        return limit
    return replace(limit, messages=replace(limit.messages, period_ns=value * NANOS_PER_SECOND))


_PARTS: dict[str, tuple[PolicyTarget, Callable[[Limit, int], Limit]]] = {
    "brokerPublisherThrottlingMaxMessageRate": (_PUBLISH_BROKER, _messages),
    "brokerPublisherThrottlingMaxByteRate": (_PUBLISH_BROKER, _size),
    "maxPublishRatePerTopicInMessages": (_PUBLISH_TOPIC, _messages),
    "maxPublishRatePerTopicInBytes": (_PUBLISH_TOPIC, _size),
    "dispatchThrottlingRateInMsg": (_DISPATCH_BROKER, _messages),
    "dispatchThrottlingRateInByte": (_DISPATCH_BROKER, _size),
    "dispatchThrottlingRatePerTopicInMsg": (_DISPATCH_TOPIC, _messages),
    "dispatchThrottlingRatePerTopicInByte": (_DISPATCH_TOPIC, _size),
    "dispatchThrottlingRatePerSubscriptionInMsg": (_DISPATCH_SUBSCRIPTION, _messages),
    "dispatchThrottlingRatePerSubscriptionInByte": (_DISPATCH_SUBSCRIPTION, _size),
    "subscribeThrottlingRatePerConsumer": (_SUBSCRIBE, _subscribes),
    "subscribeRatePeriodPerConsumerInSecond": (_SUBSCRIBE, _subscribe_period),
}
"""The target of each key of the dynamic configuration, and the function that changes the limit there."""

DYNAMIC_KEYS = frozenset(_PARTS)
_NUMBER = re.compile(r"-?[0-9]{1,19}")


def read_dynamic(name: str, text: str) -> int:
    """Return the value of a key.

    Raises:
        ValueError: If it is not a number that Pulsar could hold.
    """
    value, most = int(text) if _NUMBER.fullmatch(text) else None, _most(name)
    if value is None or not -most - 1 <= value <= most:
        bits = most.bit_length() + 1
        raise ValueError(f"{name}: {text[:60]!r} is not a whole number of {bits} bits; 0 or -1 means no limit")
    return value


def _most(name: str) -> int:
    """Return the most that Pulsar's field can hold: bytes are `long`, messages, subscribes and seconds `int`."""
    return MOST_BYTES if name in _PARTS and _PARTS[name][1] is _size else MOST_MESSAGES


def dynamic_target(name: str) -> PolicyTarget:
    """Return the target of the limit that a key is a part of."""
    return _PARTS[name][0]


def dynamic_value(target: PolicyTarget, values: Mapping[str, str], file: Value | None) -> Value | None:
    """Return the limit at a target under the keys that are set; None if no set key is about this target.

    Args:
        target: The target of the limit.
        values: All keys that are set.
        file: The file's value at the target.
    """
    limit, is_set = file.limit if file else Limit(), False
    for name, (of, part) in _PARTS.items():
        if of == target and name in values:
            limit, is_set = part(limit, read_dynamic(name, values[name])), True
    return Value(limit, Layer.DYNAMIC.origin) if is_set else None


def check_dynamic(name: str, kept: str | None) -> None:
    """Check that a key of the dynamic configuration can have this value.

    Raises:
        BodyError: If it cannot.
    """
    if name not in DYNAMIC_KEYS:
        raise BodyError(f"{name}: Sluice serves no such key of the dynamic configuration")
    if kept is not None:
        try:
            read_dynamic(name, kept)
        except ValueError as error:
            raise BodyError(str(error)) from None
