"""Values that were in force before a change, whatever their source, for the audit log: as JSON, and in words.

The new value is in the same words, with the mode that the file gives it at the time of the change. That of a key of the
dynamic configuration, which is a part of one limit, is the whole limit with the key.

A body of run time hides the file's value, a plan's, or that of a wider setting. The body before says nothing of these.
"""

from collections.abc import Iterator

import msgspec

from limiter.levels import Setting
from limiter.names import EACH
from limiter.policies import PolicyTarget, Value
from limiter.token_bucket import Limit
from proxy import typed_json
from proxy.block_rules import Rule
from proxy.policies.bodies import Section, section_of, section_text
from proxy.policies.keys import Layer, PolicyKey, PolicyKind
from proxy.policies.layers import dynamic_target, dynamic_value
from proxy.policies.state import PolicyState, layered_targets, targets_from


class ValueBefore(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value that was in force.

    Args:
        kind: `publish`, `dispatch`, `subscribe`, `attachment` or `block`.
        setting: The setting that had the value: perhaps a wider one than that of the change.
        name: The name that the value was for: perhaps a pattern.
        limit: The limit, as the configuration writes it; empty: no limit.
        text: The group of an attachment, the reason of a block.
        origin: The layer: `file`, `dynamic`, `global`, `rest` or `tenant`.
        plan: The plan that the file's value is from.
    """

    kind: str
    setting: str = ""
    name: str = ""
    limit: Section = {}
    text: str = ""
    origin: str = ""
    plan: str = ""

    def words(self) -> str:
        """Return the value and its source in one line."""
        source = ", ".join(part for part in (self.origin, self.plan and f"plan {self.plan}") if part)
        if self.kind == PolicyKind.BLOCK:
            return f"{_blocked(self.text)} ({source})"
        value = _in_group(self.text) if self.kind == PolicyKind.ATTACHMENT else section_text(self.limit)
        return f"{value} ({source})"


def words_after(state: PolicyState, key: PolicyKey, kept: str | None) -> str:
    """Return the value that a change sets, in the words of the values before it.

    Args:
        state: The policies before the change.
        key: The key of the policy.
        kept: The new body, as the store keeps it; None: it is taken back.

    Raises:
        BodyError: If the body cannot be read.
    """
    if kept is None:
        return "taken back"
    layer = Layer.DYNAMIC if key.kind is PolicyKind.DYNAMIC else key.setting_and_layer[1]
    return f"{_value_words(state, key, kept)} ({layer.origin})"


def _value_words(state: PolicyState, key: PolicyKey, kept: str) -> str:
    if key.kind is PolicyKind.BLOCK:
        order = typed_json.decode(kept, _Blocked)
        return "not blocked, whatever the file says" if order.lifts else _blocked(order.reason)
    if key.kind is PolicyKind.ATTACHMENT:
        return _in_group(kept) if kept else "in no group"
    if key.kind is PolicyKind.DYNAMIC:
        target = dynamic_target(key.name)
        value = dynamic_value(target, {**state.dynamic, key.name: kept}, state.layers.written(Layer.FILE, target))
        return section_text(section_of(target[0], value.limit if value else Limit()))
    texts = {
        target[0]: section_text(section_of(target[0], value.limit))
        for _, target, value in state.meaning(key, kept).values
        if value is not None
    }
    if key.kind is PolicyKind.GROUP:
        return "; ".join(f"{about}: {text}" for about, text in texts.items()) or "no limit"
    return next(iter(texts.values()))


class _Blocked(msgspec.Struct, frozen=True):
    """The part of a kept block that people read."""

    reason: str = ""
    lifts: bool = False


def _blocked(reason: str) -> str:
    return f"blocked{reason and ': '}{reason}"


def _in_group(name: str) -> str:
    return f"in group {name}"


def held_by(state: PolicyState, key: PolicyKey) -> list[ValueBefore]:
    """Return the values that are in force for the policy of a key; none if nothing is limited there.

    Args:
        state: The policies before a change.
        key: The key of the policy; no block.
    """
    if key.kind is PolicyKind.ATTACHMENT:
        return list(_attachment(state, key))
    if key.kind is PolicyKind.DYNAMIC:
        targets = [dynamic_target(key.name)]
    else:
        targets = [target for _, target in layered_targets(key)]
    return [held for target in targets if (held := _held(state, target)) is not None]


def held_of_block(rule: Rule | None) -> list[ValueBefore]:
    """Return the same for a block."""
    if rule is None:
        return []
    return [ValueBefore(PolicyKind.BLOCK, rule.key.kind, rule.key.name, text=rule.reason, origin=rule.origin)]


def _attachment(state: PolicyState, key: PolicyKey) -> Iterator[ValueBefore]:
    policies = state.layers.policies
    groups = policies.groups_of_tenants if key.setting == "tenant" else policies.groups_of_namespaces
    if group := groups.get(key.name):
        origin = Layer.REST if key.name in state.attached(key.setting) else Layer.FILE
        yield ValueBefore(key.kind, key.setting, key.name, text=group, origin=origin.origin)


def _held(state: PolicyState, target: PolicyTarget) -> ValueBefore | None:
    for about, setting, name in _wider(state, target):
        value: Value | None = state.layers.at((about, setting, name))
        if value is not None:
            limit = section_of(about, value.limit)
            return ValueBefore(about, setting.value, name, limit, origin=value.origin, plan=value.plan)
    return None


def _wider(state: PolicyState, target: PolicyTarget) -> Iterator[PolicyTarget]:
    """Yield the target, and the wider ones whose values hold where it has none."""
    _, setting, name = target
    if name == EACH or setting is Setting.RESOURCE_GROUP:
        yield target
    else:
        yield from targets_from(target, state.layers.policies)


def written(held: list[ValueBefore]) -> str:
    """Return values as text, for the store."""
    return msgspec.json.encode(held).decode()


def read(text: str) -> list[ValueBefore]:
    """Return the values in a text of the store.

    Raises:
        ValueError: If it is of another form.
    """
    return typed_json.decode(text, list[ValueBefore])
