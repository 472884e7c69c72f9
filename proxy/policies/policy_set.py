"""The limits and blocks that are in force, or that a file has, as values: to export, compare and apply.

Applying a set writes run-time values that make the limits in force equal to it. Where the proxy's own file differs, a
run-time value hides the file's. If the set has no limit where the file has one, the run-time value limits nothing; it
stays until it is taken back.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import msgspec

from limiter.levels import ABOUTS, NAME, About, Setting
from limiter.policies import PolicyTarget, Value
from limiter.token_bucket import DIRECTIONS, Direction, Limit
from proxy import typed_json
from proxy.block_rules import Block, Key, Kind, Rule
from proxy.bulk import in_order, in_pieces, keys_of
from proxy.config.limits import Limits
from proxy.config.showing import TakenValue, yaml_lines
from proxy.policies.bodies import (
    NO_LIMIT,
    OwnGroup,
    kept_as_own,
    kept_as_own_group,
    kept_as_pulsar_s,
    limit_of,
    section_of,
    section_text,
)
from proxy.policies.keys import Layer, PolicyKey, PolicyKind, rate_key, split_subscription
from proxy.policies.layers import FilePolicies, dynamic_target, file_policies
from proxy.policies.state import PolicyState

MemberKind = Literal["tenant", "namespace"]
MEMBERS: tuple[MemberKind, ...] = ("tenant", "namespace")


@dataclass(frozen=True, slots=True)
class Attached:
    """The resource group of a tenant or namespace, and where that was written."""

    group: str
    origin: str


@dataclass(frozen=True, slots=True)
class PolicySet:
    """A set of limits, attachments and resource groups; limits that limit nothing are not in it.

    Args:
        values: Limits by target.
        attached: Resource groups, by tenant or namespace and its name.
        groups: The names of all resource groups.
        lasting: The groups in the proxy's own file: at run time they cannot end, only lose limits and attachments.
        blocks: The blocks by key; None: the set is not about blocks.
    """

    values: dict[PolicyTarget, Value] = field(default_factory=dict)
    attached: dict[tuple[MemberKind, str], Attached] = field(default_factory=dict)
    groups: frozenset[str] = frozenset()
    lasting: frozenset[str] = frozenset()
    blocks: Mapping[Key, Rule] | None = None

    def used_groups(self) -> set[str]:
        """Return the groups that have a limit or an attachment."""
        limited = {name for _, setting, name in self.values if setting is Setting.RESOURCE_GROUP}
        return limited | {attached.group for attached in self.attached.values()}


def in_force(state: PolicyState) -> PolicySet:
    """Return the set that holds now."""
    policies, attached = state.layers.policies, dict[tuple[MemberKind, str], Attached]()
    of_members = {"tenant": policies.groups_of_tenants, "namespace": policies.groups_of_namespaces}
    for member in MEMBERS:
        at_run_time = state.attached(member)
        for name, group in of_members[member].items():
            layer = Layer.REST if name in at_run_time else Layer.FILE
            attached[member, name] = Attached(group, layer.origin)
    values = (
        ((about, setting, name), value)
        for about in ABOUTS
        for setting in Setting
        for name, value in policies.by_name(about, setting).items()
    )
    return replace(_limiting(values, attached, state.groups()), lasting=state.groups_of_file())


def of_file(limits: Limits, subscribe: tuple[int, int] | None, blocks: tuple[Block, ...] | None = None) -> PolicySet:
    """Return the set of a configuration.

    Args:
        limits: Its `limits`.
        subscribe: Its `admission.subscribe_rate_per_consumer`.
        blocks: Its `blocks`; None if it has no such key.
    """
    file = file_policies(limits, subscribe)
    policies = _limiting(file.values.items(), attached_by(file), {*limits.resource_groups})
    return policies if blocks is None else replace(policies, blocks=rules_by_key(block.rule() for block in blocks))


def rules_by_key(rules: Iterable[Rule]) -> dict[Key, Rule]:
    """Return blocks as a `PolicySet` has them."""
    return {rule.key: rule for rule in rules}


def attached_by(file: FilePolicies) -> dict[tuple[MemberKind, str], Attached]:
    """Return the attachments of a file."""
    of_members = zip(MEMBERS, (file.groups_of_tenants, file.groups_of_namespaces), strict=True)
    return {
        (member, name): Attached(group, Layer.FILE.origin)
        for member, names in of_members
        for name, group in names.items()
    }


def _limiting(
    values: Iterable[tuple[PolicyTarget, Value]],
    attached: Mapping[tuple[MemberKind, str], Attached],
    groups: set[str],
) -> PolicySet:
    limiting = {target: value for target, value in values if value.limit}
    to_some = {name: attachment for name, attachment in attached.items() if attachment.group}
    used = PolicySet(limiting, to_some).used_groups()
    return PolicySet(limiting, to_some, frozenset(groups | used))


def path_of(target: PolicyTarget) -> tuple[str, ...]:
    """Return the keys under which the configuration has a target's limit."""
    about, setting, name = target
    record = setting.record
    names = tuple(reversed(split_subscription(name))) if record.file.count(NAME) > 1 else (name,)
    return record.path(about, names)


def written(policies: PolicySet) -> Iterator[TakenValue]:
    """Yield each value of the configuration that has this set, with its origin."""
    for target in in_order(policies.values):
        value = policies.values[target]
        path = path_of(target)
        if target[0] == "subscribe":
            yield TakenValue(path, section_of("subscribe", value.limit)["messages"], value.shown_origin)
            continue
        for key, part in section_of(target[0], value.limit).items():
            yield TakenValue((*path, key), part, value.shown_origin)
    yield from _groups(policies)
    if policies.blocks is not None:
        rules = [policies.blocks[key] for key in sorted(policies.blocks)]
        origin = ", ".join(sorted({rule.origin for rule in rules})) or "nothing is blocked"
        yield TakenValue(("blocks",), tuple(_block(rule) for rule in rules), origin)


def _block(rule: Rule) -> dict[str, str]:
    """Return a rule as an entry of the configuration's list."""
    kind, name, within = rule.key
    target = {"topic" if "://" in within else "namespace": within} if within else {}
    return {kind.value: name, **target, **({"reason": rule.reason} if rule.reason else {})}


def _groups(policies: PolicySet) -> Iterator[TakenValue]:
    members: dict[tuple[str, MemberKind], list[str]] = {(group, "namespace"): [] for group in sorted(policies.groups)}
    origins: dict[tuple[str, MemberKind], set[str]] = {}
    for (member, name), attached in in_order(policies.attached.items()):
        members.setdefault((attached.group, member), []).append(name)
        origins.setdefault((attached.group, member), set()).add(attached.origin)
    limited = {name for _, setting, name in policies.values if setting is Setting.RESOURCE_GROUP}
    for (group, member), names in members.items():
        if not names and (group in limited or (group, "tenant") in members):
            continue  # the group's other keys show that it exists
        origin = ", ".join(sorted(origins.get((group, member), ()))) or "none attached"
        yield TakenValue(("limits", "resource_groups", group, f"{member}s"), tuple(names), origin)


def as_tree(policies: PolicySet) -> dict[str, Any]:
    """Return the set as the configuration's keys and values."""
    tree: dict[str, Any] = {}
    for taken in written(policies):
        section = tree
        for key in taken.path[:-1]:
            section = cast("dict[str, Any]", section.setdefault(key, {}))
        section[taken.path[-1]] = list(taken.value) if isinstance(taken.value, tuple) else taken.value
    return tree


def limit_at(policies: PolicySet, target: PolicyTarget) -> Limit | None:
    """Return the limit at a target."""
    value = policies.values.get(target)
    return value.limit if value else None


@dataclass(frozen=True, slots=True)
class Difference:
    """A target at which two sets differ.

    Args:
        key: The key of the configuration.
        wanted: The value of the file; empty for none.
        held: The value in force; empty for none.
        origin: The layer of the value in force.
    """

    key: str
    wanted: str
    held: str
    origin: str


def differences(wanted: PolicySet, held: PolicySet) -> Iterator[Difference]:
    """Yield the differences of two sets: limits by their keys, attachments, resource groups without either."""
    for target in in_order(keys_of(wanted.values, held.values)):
        if limit_at(wanted, target) != limit_at(held, target):
            value = held.values.get(target)
            yield Difference(
                ".".join(path_of(target)),
                _text(target, wanted.values.get(target)),
                _text(target, value),
                value.shown_origin if value else "",
            )
    for member, name in in_order(keys_of(wanted.attached, held.attached)):
        own, there = wanted.attached.get((member, name)), held.attached.get((member, name))
        groups = own.group if own else "", there.group if there else ""
        if groups[0] != groups[1]:
            yield Difference(f"resource group of {member} {name}", *groups, origin=there.origin if there else "")
    used = wanted.used_groups() | held.used_groups()
    for group in sorted((wanted.groups ^ held.groups) - held.lasting):
        if group not in used:
            words = ("there", "") if group in wanted.groups else ("", "there")
            yield Difference(f"limits.resource_groups.{group}", *words, "")
    if wanted.blocks is not None and held.blocks is not None:
        yield from _block_differences(wanted.blocks, held.blocks)


def _block_differences(wanted: Mapping[Key, Rule], held: Mapping[Key, Rule]) -> Iterator[Difference]:
    for key in sorted(wanted.keys() | held.keys()):
        rule, there = wanted.get(key), held.get(key)
        if not is_kept(rule, there):
            wants, holds = (f"blocked {each.reason}".strip() if each else "" for each in (rule, there))
            yield Difference(f"block of {key}", wants, holds, there.origin if there else "")


def is_kept(wanted: Rule | None, held: Rule | None) -> bool:
    """Return whether a block is as wanted; a wanted one without a reason may have any."""
    if wanted is None or held is None:
        return wanted is held
    return wanted.reason in {"", held.reason}


def _text(target: PolicyTarget, value: Value | None) -> str:
    return section_text(section_of(target[0], value.limit)) if value else ""


class SetLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A limit of a setting's name; `limit` is a section of the configuration."""

    direction: About
    setting: Setting
    name: str
    limit: dict[str, Any]
    origin: str


class SetAttachment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The resource group of a tenant or namespace."""

    member: MemberKind
    name: str
    group: str
    origin: str


class SetBlock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A block; `within` is a topic or a namespace, empty for everywhere."""

    kind: Kind
    name: str
    within: str
    reason: str
    origin: str


class Exchanged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON form of a set."""

    limits: tuple[SetLimit, ...]
    attached: tuple[SetAttachment, ...]
    groups: tuple[str, ...]
    lasting: tuple[str, ...] = ()
    blocks: tuple[SetBlock, ...] | None = None


def encoded(policies: PolicySet) -> Iterator[bytes]:
    """Yield the set as JSON, in pieces."""
    limits = (
        SetLimit(*target, limit=dict(section_of(target[0], value.limit)), origin=value.origin)
        for target, value in policies.values.items()
    )
    attached = (
        SetAttachment(*name, attachment.group, attachment.origin) for name, attachment in policies.attached.items()
    )
    blocks = None
    if policies.blocks is not None:
        blocks = (SetBlock(*rule.key, rule.reason, rule.origin) for rule in policies.blocks.values())
    lists = {"limits": limits, "attached": attached, "groups": policies.groups, "lasting": policies.lasting}
    for number, (name, values) in enumerate({**lists, "blocks": blocks}.items()):
        yield f'{"," if number else "{"}"{name}":'.encode()
        yield from (b"null",) if values is None else _encoded_list(values)
    yield b"}"


def _encoded_list(values: Iterable[object]) -> Iterator[bytes]:
    before = b"["
    for piece in in_pieces(values):
        yield before + msgspec.json.encode(piece)[1:-1]
        before = b","
    yield b"]" if before == b"," else b"[]"


def decoded(text: bytes) -> PolicySet:
    """Return the set that `encoded` wrote.

    Raises:
        msgspec.DecodeError: If the text is no set.
        BodyError: If a limit in it cannot be read.
    """
    exchanged = typed_json.decode(text, Exchanged)
    values = {
        (each.direction, each.setting, each.name): Value(
            limit_of(rate_key(each.direction, each.setting, each.name), kept_as_own(each.limit)), each.origin
        )
        for each in exchanged.limits
    }
    attached = {(each.member, each.name): Attached(each.group, each.origin) for each in exchanged.attached}
    blocks = None if exchanged.blocks is None else rules_by_key(map(_rule, exchanged.blocks))
    return PolicySet(values, attached, frozenset(exchanged.groups), frozenset(exchanged.lasting), blocks)


def _rule(block: SetBlock) -> Rule:
    return Rule(Key(block.kind, block.name, block.within), block.reason, origin=block.origin)


_HEADING = """\
Made by `sluice export`: the limits and blocks that were in force, with the layer that they were written in.
Nothing else is in it: no listen, broker and admin."""


def as_yaml(policies: PolicySet) -> Iterator[bytes]:
    """Yield, in pieces, a configuration file that `sluice check` accepts."""
    for piece in in_pieces(yaml_lines(_HEADING, written(policies))):
        yield "".join(piece).encode()
    if not policies.values and not policies.groups:
        yield b"limits: {}\n"


@dataclass(slots=True)
class ApplyPlan:
    """The changes that make a set hold.

    Args:
        wanted: New bodies; None takes one back.
        hidden: Keys of the proxy's own file that a run-time value which limits nothing now hides.
    """

    wanted: dict[PolicyKey, str | None] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)


def plan(state: PolicyState, wanted: PolicySet, held: PolicySet) -> ApplyPlan:
    """Return the changes that put `wanted` in force.

    Args:
        state: The policies to change. For 100,000 limits a thread may plan, while no change is under way.
        wanted: The set to put in force.
        held: The set in force.
    """
    made = ApplyPlan()
    for target in in_order(keys_of(wanted.values, held.values)):
        is_other = limit_at(wanted, target) != limit_at(held, target)
        if is_other and target[1] is not Setting.RESOURCE_GROUP:
            _plan_value(state, made, target, limit_at(wanted, target))
    _plan_groups(state, made, wanted, held)
    for member in MEMBERS:
        groups = {name: attached.group for (kind, name), attached in wanted.attached.items() if kind == member}
        _plan_attached(state, made, member, groups)
    return made


def _plan_value(state: PolicyState, made: ApplyPlan, target: PolicyTarget, wanted: Limit | None) -> None:
    made.wanted.update(_taken_back(state, target))
    file = _file_limit(state, target)
    if file == wanted:
        return
    key = rate_key(*target)
    if wanted is None:
        made.wanted[key] = kept_as_pulsar_s(NO_LIMIT[key.kind])
        made.hidden.append(".".join(path_of(target)))
    else:
        made.wanted[key] = kept_as_own(section_of(target[0], wanted))


def _taken_back(state: PolicyState, target: PolicyTarget) -> Iterator[tuple[PolicyKey, None]]:
    """Yield the keys of all run-time values at a target, to be taken back."""
    for layer in (Layer.GLOBAL, Layer.REST):
        if state.layers.written(layer, target) is not None:
            yield rate_key(*target, layer), None
    for name in state.dynamic:
        if dynamic_target(name) == target:
            yield PolicyKey(PolicyKind.DYNAMIC, "", name), None


def _file_limit(state: PolicyState, target: PolicyTarget) -> Limit | None:
    value = state.layers.written(Layer.FILE, target)
    return value.limit if value and value.limit else None


def _plan_groups(state: PolicyState, made: ApplyPlan, wanted: PolicySet, held: PolicySet) -> None:
    names = {target[2] for target in (*wanted.values, *held.values) if target[1] is Setting.RESOURCE_GROUP}
    groups = state.groups()
    for name in in_order(names | wanted.groups | groups):
        is_there = name in wanted.groups or name in held.lasting
        if _limits_of(wanted, name) == _limits_of(held, name) and is_there == (name in groups):
            continue
        key = PolicyKey(PolicyKind.GROUP, "", name)
        body = _group_body(state, made, name, _limits_of(wanted, name))
        if body or (is_there and name not in held.lasting):
            made.wanted[key] = kept_as_own_group(body)
        elif state.read(key) is not None:
            made.wanted[key] = None


def _group_body(state: PolicyState, made: ApplyPlan, name: str, wanted: Mapping[Direction, Limit | None]) -> OwnGroup:
    body: OwnGroup = {}
    for direction in DIRECTIONS:
        target: PolicyTarget = (direction, Setting.RESOURCE_GROUP, name)
        limit = wanted[direction]
        if limit == _file_limit(state, target):
            continue
        body[direction] = dict(section_of(direction, limit)) if limit else None
        if limit is None:
            made.hidden.append(".".join(path_of(target)))
    return body


def _limits_of(policies: PolicySet, name: str) -> dict[Direction, Limit | None]:
    return {direction: limit_at(policies, (direction, Setting.RESOURCE_GROUP, name)) for direction in DIRECTIONS}


def _plan_attached(state: PolicyState, made: ApplyPlan, member: MemberKind, wanted: Mapping[str, str]) -> None:
    """Plan attachments; an empty group hides the file's."""
    file = {name: attached.group for (kind, name), attached in attached_by(state.file).items() if kind == member}
    at_run_time = state.attached(member)
    held = {**file, **at_run_time}
    for name in in_order(keys_of(held, wanted)):
        group = wanted.get(name, "")
        if group == held.get(name, ""):
            continue
        is_the_file_s = group == file.get(name, "")
        made.wanted[PolicyKey(PolicyKind.ATTACHMENT, member, name)] = None if is_the_file_s else group
        if not is_the_file_s and not group:
            made.hidden.append(f"resource group of {member} {name}")
