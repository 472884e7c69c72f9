"""Values that were in force before a change, whatever their source, for the audit log: as JSON, and in words.

The new value is in the same words, with the mode that the file gives it at the time of the change. That of a key of the
dynamic configuration, which is a part of one limit, is the whole limit with the key.

A body of run time hides the file's value, a plan's, or that of a wider setting. The body before says nothing of these.
"""

from collections.abc import Collection, Iterator

import msgspec

from limiter.policies import PolicyTarget, Value, stricter
from limiter.token_bucket import Limit
from proxy import typed_json
from proxy.block_rules import Rule
from proxy.policies.bodies import Section, section_of, section_text
from proxy.policies.explain import beneath, wider_from
from proxy.policies.keys import Layer, PolicyKey, PolicyKind
from proxy.policies.layers import dynamic_target, dynamic_value
from proxy.policies.state import PolicyState, layered_targets


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


_NOTHING = section_text({})
MOST_COMPARED = 100
"""Changes made together, of which each that takes a value back is compared with all others."""


def words_after(state: PolicyState, key: PolicyKey, kept: str | None, together: Collection[PolicyKey] = ()) -> str:
    """Return the value that a change sets, in the words of the values before it.

    Args:
        state: The policies before the change.
        key: The key of the policy.
        kept: The new body, as the store keeps it; None: it is taken back. The value that holds since is added, unless
            another of the changes decides on it.
        together: The keys of all changes that are made at once.

    Raises:
        BodyError: If the body cannot be read.
    """
    if kept is None:
        return _taken_back(state, key, together)
    layer = Layer.DYNAMIC if key.kind is PolicyKind.DYNAMIC else key.setting_and_layer[1]
    words = _value_words(state, key, kept)
    return _limiting_nothing(state, key, layer, together) if words == _NOTHING else f"{words} ({layer.origin})"


def _limiting_nothing(state: PolicyState, key: PolicyKey, layer: Layer, together: Collection[PolicyKey]) -> str:
    """Return the words of a value that limits nothing: it counts as not set, so that a wider one may hold."""
    words, targets = f"{_NOTHING} ({layer.origin})", _targets(key)
    if len(targets) != 1 or layer is Layer.DYNAMIC or len(together) > MOST_COMPARED:
        return words
    target = targets[0][1]
    others = {other for each in together if each != key for _, other in _targets(each)}
    since = _since(state, key, layer, target, is_null=True)
    if since is None or any(each in others for each in wider_from(state, target)):
        return words
    return f"{words}, which counts as not set; since then: {since.words()}{_as_wider(since, target)}"


def _as_wider(held: ValueBefore, target: PolicyTarget) -> str:
    """Return the words of the setting that has a value, where that is another one than the target."""
    return "" if (held.setting, held.name) == target[1:] else f", as {held.setting} {held.name}".rstrip()


def _taken_back(state: PolicyState, key: PolicyKey, together: Collection[PolicyKey]) -> str:
    if key.kind is PolicyKind.BLOCK or len(together) > MOST_COMPARED:
        return "taken back"
    if key.kind is PolicyKind.ATTACHMENT:
        return f"taken back; since then: {_group_since(state, key)}"
    others = {target for other in together if other != key for _, target in _targets(other)}
    hidden, held = "", list[str]()
    for layer, target in _targets(key):
        if any(each in others for each in wider_from(state, target)):
            return "taken back"
        value, since = state.layers.written(layer, target), _since(state, key, layer, target)
        if value is not None and value != state.layers.at(target) and layer is not Layer.DYNAMIC:
            hidden = f" (it was {section_text(section_of(target[0], value.limit))})"
        if since is not None:
            wider = _as_wider(since, target)
            kind = f"{target[0]}: " if key.kind is PolicyKind.GROUP else ""
            held.append(f"{kind}{since.words()}{wider}")
    return f"taken back{hidden}; since then: {'; '.join(held) or 'no limit'}"


def _group_since(state: PolicyState, key: PolicyKey) -> str:
    """Return the group of a tenant or a namespace once its attachment of run time is taken back, in words."""
    groups = state.file.groups_of_tenants if key.setting == "tenant" else state.file.groups_of_namespaces
    if group := groups.get(key.name):
        return f"{_in_group(group)} (file)"
    tenant, is_namespace, _ = key.name.partition("/")
    of_tenant = state.layers.policies.groups_of_tenants.get(tenant) if is_namespace else None
    return f"{_in_group(of_tenant)}, as tenant {tenant}" if of_tenant else "in no group"


def _since(
    state: PolicyState, key: PolicyKey, layer: Layer, target: PolicyTarget, *, is_null: bool = False
) -> ValueBefore | None:
    """Return the value that holds at a target once that of a key is taken back, or is null; None for no limit."""
    fallback = beneath(state, target, layer, is_null=is_null)
    if layer is Layer.DYNAMIC and not any(state.layers.written(each, target) for each in (Layer.REST, Layer.GLOBAL)):
        left = {name: text for name, text in state.dynamic.items() if name != key.name}
        value = dynamic_value(target, left, state.layers.written(Layer.FILE, target))
        if value is not None:  # of the widest settings
            fallback = (target, value) if value.limit else None
    own = next(
        (
            (each, value)
            for each in wider_from(state, target)
            if (value := state.layers.of_tenant(each)) and value.limit and (layer, target) != (Layer.TENANT, each)
        ),
        None,
    )
    if fallback and own:
        limit = stricter(fallback[1].limit, own[1].limit)
        own = None if limit == fallback[1].limit else (own[0], Value(limit, own[1].origin))
    held = own or fallback
    return held and _before(*held)


def _targets(key: PolicyKey) -> list[tuple[Layer, PolicyTarget]]:
    """Return the targets of a limit's key, each with its layer; none for policies that are no limits."""
    if key.kind in {PolicyKind.BLOCK, PolicyKind.ATTACHMENT}:
        return []
    return [(Layer.DYNAMIC, dynamic_target(key.name))] if key.kind is PolicyKind.DYNAMIC else layered_targets(key)


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
    return [held for _, target in _targets(key) if (held := _held(state, target)) is not None]


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
    """Return the value that holds at a target; without one, a value that limits nothing there."""
    values = ((each, state.layers.at(each)) for each in wider_from(state, target))
    written = [(each, value) for each, value in values if value is not None]
    holding = next(((each, value) for each, value in written if value.limit), None)
    return _before(*(holding or written[0])) if written else None


def _before(target: PolicyTarget, value: Value) -> ValueBefore:
    about, setting, name = target
    return ValueBefore(about, setting.value, name, section_of(about, value.limit), origin=value.origin, plan=value.plan)


def written(held: list[ValueBefore]) -> str:
    """Return values as text, for the store."""
    return msgspec.json.encode(held).decode()


def read(text: str) -> list[ValueBefore]:
    """Return the values in a text of the store.

    Raises:
        ValueError: If it is of another form.
    """
    return typed_json.decode(text, list[ValueBefore])
