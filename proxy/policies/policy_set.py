"""All limits that are in force, or that a file says, as values: to export, compare and apply."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from limiter.levels import About, Setting
from limiter.policies import Value
from limiter.rates import Limit
from protocol.topic_name import parse_topic
from proxy.config.limits import Limits
from proxy.config.yaml_text import Taken
from proxy.policies.contents import Contents
from proxy.policies.file_policies import file_policies
from proxy.policies.layers import FilePolicies, Layer, Place
from proxy.policies.sections import section_of

ABOUTS: tuple[About, ...] = ("publish", "dispatch", "subscribe")
Member = Literal["tenant", "namespace"]
MEMBERS: tuple[Member, ...] = ("tenant", "namespace")


@dataclass(frozen=True, slots=True)
class Attached:
    """The resource group of a tenant or namespace, and where that was written."""

    group: str
    origin: str


@dataclass(frozen=True, slots=True)
class PolicySet:
    """Everything of which limits are made; what limits nothing is not in it.

    Args:
        values: Limits by place.
        attached: Resource groups, by tenant or namespace and its name.
        groups: The names of all resource groups.
        lasting: Those of them that the proxy's own file names: they cannot be ended at run time, only be made idle.
    """

    values: Mapping[Place, Value] = field(default_factory=dict)
    attached: Mapping[tuple[Member, str], Attached] = field(default_factory=dict)
    groups: frozenset[str] = frozenset()
    lasting: frozenset[str] = frozenset()

    def used_groups(self) -> set[str]:
        """Groups that limit something or that something is attached to."""
        limited = {name for _, setting, name in self.values if setting is Setting.RESOURCE_GROUP}
        return limited | {one.group for one in self.attached.values()}


def in_force(book: Contents) -> PolicySet:
    """What holds now."""
    policies, attached = book.layers.policies, dict[tuple[Member, str], Attached]()
    of_members = {"tenant": policies.groups_of_tenants, "namespace": policies.groups_of_namespaces}
    for member in MEMBERS:
        at_run_time = book.attached(member)
        for name, group in of_members[member].items():
            layer = Layer.REST if name in at_run_time else Layer.FILE
            attached[member, name] = Attached(group, layer.origin)
    values = {
        (about, setting, name): value
        for about in ABOUTS
        for setting in Setting
        for name, value in policies.put_under(about, setting).items()
    }
    return replace(_limiting(values, attached, book.groups()), lasting=book.groups_of_file())


def of_file(limits: Limits, subscribe: tuple[int, int] | None) -> PolicySet:
    """What a configuration says.

    Args:
        limits: Its `limits`.
        subscribe: Its `admission.subscribe_rate_per_consumer`.
    """
    file = file_policies(limits, subscribe)
    return _limiting(file.values, attached_by(file), {*limits.resource_groups})


def attached_by(file: FilePolicies) -> dict[tuple[Member, str], Attached]:
    """What a file attaches."""
    of_members = zip(MEMBERS, (file.groups_of_tenants, file.groups_of_namespaces), strict=True)
    return {
        (member, name): Attached(group, Layer.FILE.origin)
        for member, names in of_members
        for name, group in names.items()
    }


def _limiting(
    values: Mapping[Place, Value], attached: Mapping[tuple[Member, str], Attached], groups: set[str]
) -> PolicySet:
    limiting = {place: value for place, value in values.items() if value.limit}
    to_some = {name: one for name, one in attached.items() if one.group}
    used = PolicySet(limiting, to_some).used_groups()
    return PolicySet(limiting, to_some, frozenset(groups | used))


_PATHS: dict[Setting, Callable[[str, str], tuple[str, ...]]] = {
    Setting.PROXY: lambda about, _: ("proxy", about),
    Setting.TENANT: lambda about, name: ("tenants", name, about),
    Setting.NAMESPACE: lambda about, name: ("namespaces", name, f"{about}_total"),
    Setting.RESOURCE_GROUP: lambda about, name: ("resource_groups", name, about),
    Setting.PARTITIONED_TOPIC: lambda about, name: ("topics", name, f"{about}_total"),
    Setting.TOPIC: lambda about, name: ("topics", name, about),
    Setting.TOPIC_OF_NAMESPACE: lambda about, name: ("namespaces", name, about),
    Setting.TOPIC_OF_BROKER: lambda about, _: ("each_topic", about),
    Setting.SUBSCRIPTION: lambda about, name: _of_subscription(name, about),
    Setting.SUBSCRIPTION_OF_TOPIC: lambda about, name: ("topics", name, f"subscription_{about}"),
    Setting.SUBSCRIPTION_OF_NAMESPACE: lambda about, name: ("namespaces", name, f"subscription_{about}"),
    Setting.SUBSCRIPTION_OF_BROKER: lambda about, _: ("each_subscription", about),
    Setting.PRODUCER: lambda about, name: ("producers", name, about),
    Setting.ROLE: lambda about, name: ("roles", name, about),
    Setting.ADDRESS: lambda about, name: ("addresses", name, about),
    Setting.EXEMPT: lambda about, _: ("exempt", about),
}


def path_of(place: Place) -> tuple[str, ...]:
    """The keys under which the configuration has a place's limit."""
    about, setting, name = place
    if about == "subscribe" and setting is Setting.TOPIC_OF_BROKER:
        return "admission", "subscribe_rate_per_consumer"
    return ("limits", *_PATHS[setting](about, name))


def split_subscription(name: str) -> tuple[str, str]:
    """Subscription and topic of `subscription@topic`, whatever is in the subscription's name.

    Raises:
        ValueError: If it is not of this form.
    """
    at = name.find("@")
    while at >= 0:
        if "://" in name[at:] and _is_topic(name[at + 1 :]):
            return name[:at], name[at + 1 :]
        at = name.find("@", at + 1)
    raise ValueError(f"{name!r}: write subscription@domain://tenant/namespace/topic")


def _is_topic(name: str) -> bool:
    try:
        return parse_topic(name).full == name
    except ValueError:
        return False


def _of_subscription(name: str, about: str) -> tuple[str, ...]:
    subscription, topic = split_subscription(name)
    return "topics", topic, "subscriptions", subscription, about


def written(policies: PolicySet) -> Iterator[Taken]:
    """Every value of a configuration that says the same, each with its origin."""
    for place in sorted(policies.values):
        value = policies.values[place]
        path = path_of(place)
        if place[0] == "subscribe":
            yield Taken(path, section_of("subscribe", value.limit)["messages"], value.origin)
            continue
        for key, part in section_of(place[0], value.limit).items():
            yield Taken((*path, key), part, value.origin)
    yield from _groups(policies)


def _groups(policies: PolicySet) -> Iterator[Taken]:
    members: dict[tuple[str, Member], list[str]] = {(group, "namespace"): [] for group in sorted(policies.groups)}
    origins: dict[tuple[str, Member], set[str]] = {}
    for (member, name), attached in sorted(policies.attached.items()):
        members.setdefault((attached.group, member), []).append(name)
        origins.setdefault((attached.group, member), set()).add(attached.origin)
    limited = {name for _, setting, name in policies.values if setting is Setting.RESOURCE_GROUP}
    for (group, member), names in members.items():
        if not names and (group in limited or (group, "tenant") in members):
            continue  # what else is said of the group says that it is there
        said = ", ".join(sorted(origins.get((group, member), ()))) or "none attached"
        yield Taken(("limits", "resource_groups", group, f"{member}s"), tuple(names), said)


def as_tree(policies: PolicySet) -> dict[str, Any]:
    """The same as the configuration's keys and values."""
    tree: dict[str, Any] = {}
    for taken in written(policies):
        section = tree
        for key in taken.path[:-1]:
            section = cast("dict[str, Any]", section.setdefault(key, {}))
        section[taken.path[-1]] = list(taken.value) if isinstance(taken.value, tuple) else taken.value
    return tree


def limit_at(policies: PolicySet, place: Place) -> Limit | None:
    """What limits at a place."""
    value = policies.values.get(place)
    return value.limit if value else None
