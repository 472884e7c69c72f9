"""The explanation of a stream's limits: every level, every value that was written for it, and which one holds."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from limiter.levels import ANYBODY, LEVELS, About, Client, Level, Lookup, Setting, StreamIdentity, Topic
from limiter.names import EACH
from limiter.policies import SUBSCRIBE_LOOKUPS, Policies, PolicyTarget, Value, stricter
from limiter.token_bucket import Direction
from proxy.policies.bodies import Section, section_of
from proxy.policies.keys import OF_OPERATOR, Layer
from proxy.policies.layers import Layers
from proxy.policies.state import PolicyState, targets_from

ValueState = Literal["holds", "hidden", "no limit"]


@dataclass(frozen=True, slots=True)
class ExplainedValue:
    """A value that was written for a level.

    Args:
        setting: The setting that the value is for.
        name: The setting's name.
        origin: The value's layer: rest, global, dynamic, file or tenant.
        limit: The limit as the configuration writes it; empty if it limits nothing.
        state: Whether the value holds. `no limit`: it is the top layer of its target, so the target counts as not set.
        by: The value that hides this one; else empty.
        author: The principal who set the value, if the caller asked for it; empty for a file's.
        plan: The plan of the file that gives the value; empty if the value is of the name itself.
    """

    setting: Setting
    name: str
    origin: str
    limit: Section
    state: ValueState
    by: str = ""
    author: str = ""
    plan: str = ""


@dataclass(frozen=True, slots=True)
class LevelLines:
    """A level, and every value that was written for it.

    Args:
        level: Its word.
        asked: Whether the stream has a name at this level; without a role, no limit of roles is looked up.
        lines: The values written for it, the narrowest first and the highest layer first.
        name: The name of the stream's limit at this level.
    """

    level: str
    asked: bool
    lines: tuple[ExplainedValue, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class ExplainedGroup:
    """The resource group of a topic, and the attachment by which the topic is in it.

    Args:
        name: The group's name.
        member: The attached tenant or namespace, as `tenant acme`.
        origin: The attachment's layer: rest or file.
    """

    name: str
    member: str
    origin: str


@dataclass(frozen=True, slots=True)
class Explained:
    """The levels of one stream in one direction, outermost first; of Pulsar's own topics the level `exempt` only."""

    topic: str
    is_exempt: bool
    group: ExplainedGroup | None
    levels: tuple[LevelLines, ...]


def explain(state: PolicyState, direction: Direction, topic: Topic, client: Client = ANYBODY) -> Explained:
    """Return the limits of messages and bytes that hold, and why."""
    group = group_of(state, topic)
    is_system, identity = topic.is_system, StreamIdentity(topic, client, group.name if group else "")
    levels = tuple(_level(state, direction, level, identity) for level in LEVELS if level.is_of_system is is_system)
    return Explained(topic.full, is_system, group, levels)


def explain_level(state: PolicyState, direction: Direction, level: Level, topic: Topic, client: Client) -> LevelLines:
    """Return the values of one level for a stream, and which one holds."""
    group = group_of(state, topic)
    return _level(state, direction, level, StreamIdentity(topic, client, group.name if group else ""))


def holders_at(
    state: PolicyState, direction: Direction, level: Level, topic: Topic, client: Client
) -> list[tuple[PolicyTarget, Value]]:
    """Return the values of one level that hold for a stream, with their targets, as `explain_level` has them.

    That costs no more than a look-up. There are two where a tenant's own value is stricter in a part.
    """
    policies = state.layers.policies
    identity = StreamIdentity(topic, client, policies.group_of(topic))
    operators = next(limiting(policies, direction, level, identity), None)
    own = None if policies.tenants is None else next(limiting(policies.tenants, direction, level, identity), None)
    if operators and own:
        together = stricter(operators[1].limit, own[1].limit)
        if together in {operators[1].limit, own[1].limit}:
            return [operators if together == operators[1].limit else own]
    return [each for each in (operators, own) if each]


def limiting(
    policies: Policies, direction: Direction, level: Level, identity: StreamIdentity
) -> Iterator[tuple[PolicyTarget, Value]]:
    """Yield the values of a level that are for a stream and limit something, with their targets, the narrowest first.

    The first one holds.
    """
    for setting, naming, _ in level.lookups if level.exists(identity) else ():
        for name in policies.names_for(direction, setting, naming(identity)):
            value = policies.get(direction, setting, name)
            if value is not None and value.limit:
                yield (direction, setting, name), value


def explain_subscribes(state: PolicyState, topic: Topic) -> LevelLines:
    """Return the rate of subscribing that holds for one consumer, and why."""
    identity = StreamIdentity(topic, ANYBODY, "")
    if topic.is_system:
        return LevelLines("subscribe", asked=False, lines=())
    targets = list(_targets(state.layers.policies, "subscribe", SUBSCRIBE_LOOKUPS, identity))
    return LevelLines(
        "subscribe", asked=True, lines=_with_tenants(state.layers, targets, list(_lines(state.layers, targets)))
    )


def hidden_at(layers: Layers, target: PolicyTarget) -> frozenset[str]:
    """Return the origins of the values at a target that another value there hides."""
    lines = _with_tenants(layers, [target], list(_lines(layers, [target])))
    return frozenset(line.origin for line in lines if line.state == "hidden")


def wider_from(state: PolicyState, target: PolicyTarget) -> Iterator[PolicyTarget]:
    """Yield a target, and the wider ones whose values hold where it has none, the narrowest first."""
    _, setting, name = target
    if name == EACH or setting is Setting.RESOURCE_GROUP:
        yield target
    else:
        yield from targets_from(target, state.layers.policies)


def holding(state: PolicyState, target: PolicyTarget) -> tuple[PolicyTarget, Value] | None:
    """Return the value that holds at a target, perhaps of a pattern or a wider setting, and the target that has it."""
    values = ((each, state.layers.at(each)) for each in wider_from(state, target))
    return next(((each, value) for each, value in values if value and value.limit), None)


def beneath(
    state: PolicyState, target: PolicyTarget, layer: Layer, *, is_null: bool = False
) -> tuple[PolicyTarget, Value] | None:
    """Return the operator's value that holds at a target without its value in a layer, and the target that has it.

    It may be that of a pattern or a wider setting. A value that limits nothing counts as not set. With `is_null` the
    layer has such a value there, which hides those of lower layers.
    """
    layers, others = state.layers, [each for each in OF_OPERATOR if each is not layer]
    if is_null and layer in OF_OPERATOR:
        others = [*OF_OPERATOR[: OF_OPERATOR.index(layer)]]
    for each in wider_from(state, target):
        if each == target and layer is not Layer.TENANT:
            value = next((candidate for other in others if (candidate := layers.written(other, each))), None)
        else:
            value = layers.of_operator(each)
        if value is not None and value.limit:
            return each, value
    return None


def group_of(state: PolicyState, topic: Topic) -> ExplainedGroup | None:
    """Return the resource group that a topic's limits come from: its namespace's, or else its tenant's."""
    policies = state.layers.policies
    of_namespace = policies.groups_of_namespaces.get(topic.namespace_name, "")
    name = of_namespace or policies.groups_of_tenants.get(topic.tenant, "")
    if not name:
        return None
    member, member_name = ("namespace", topic.namespace_name) if of_namespace else ("tenant", topic.tenant)
    layer = Layer.REST if member_name in state.attached(member) else Layer.FILE
    return ExplainedGroup(name, f"{member} {member_name}", layer.origin)


def _level(state: PolicyState, direction: Direction, level: Level, identity: StreamIdentity) -> LevelLines:
    if not level.exists(identity):
        return LevelLines(level.word, asked=False, lines=())
    policies = state.layers.policies
    targets = list(_targets(policies, direction, level.lookups, identity))
    lines = _with_tenants(state.layers, targets, list(_lines(state.layers, targets)))
    in_force = policies.in_force_at(level, direction, identity.topic, identity.client)
    name = in_force.scope.name if in_force else level.name(identity)
    return LevelLines(level.word, asked=True, lines=lines, name=name)


def _targets(
    policies: Policies, about: About, lookups: Iterable[Lookup], identity: StreamIdentity
) -> Iterator[PolicyTarget]:
    """Yield the targets with a value that is for a stream, in the order in which they are looked up."""
    for setting, naming, _ in lookups:
        own = naming(identity)
        of_tenants = policies.tenants.names_for(about, setting, own) if policies.tenants else ()
        for name in dict.fromkeys((*policies.names_for(about, setting, own), *of_tenants)):
            yield about, setting, name


def _with_tenants(
    layers: Layers, targets: list[PolicyTarget], lines: list[ExplainedValue]
) -> tuple[ExplainedValue, ...]:
    """Add the values that tenants set: of these and the operator's the stricter figures hold."""
    own = [(target, value) for target in targets if (value := layers.of_tenant(target)) is not None]
    if not own:
        return tuple(lines)
    chosen = next(((target, value) for target, value in own if value.limit), None)
    operators = next((value for target in targets if (value := layers.of_operator(target)) and value.limit), None)
    together = chosen and operators and stricter(operators.limit, chosen[1].limit)
    holder = next((line for line in lines if line.state == "holds"), None)
    if chosen and operators and holder and together == chosen[1].limit != operators.limit:
        hider = _label(*chosen[0][1:], chosen[1].origin)
        lines = [replace(line, state="hidden", by=hider) if line.state == "holds" else line for line in lines]
    for target, value in own:
        about, setting, name = target
        shown = ExplainedValue(setting, name, value.origin, section_of(about, value.limit), "no limit")
        if chosen and value is not chosen[1] and value.limit:
            shown = replace(shown, state="hidden", by=_label(*chosen[0][1:], value.origin))
        elif value.limit and operators and holder and together == operators.limit:
            shown = replace(shown, state="hidden", by=_label(holder.setting, holder.name, holder.origin))
        elif value.limit:
            in_force = replace(value.limit, mode=together.mode) if together else value.limit
            shown = replace(shown, limit=section_of(about, in_force), state="holds")
        lines.append(shown)
    return tuple(lines)


def _lines(layers: Layers, targets: list[PolicyTarget]) -> Iterator[ExplainedValue]:
    """Yield the values at each target. The first target that limits holds; of its layers, the one in force."""
    holds = ""
    for target in targets:
        about, setting, name = target
        shown = layers.policies.by_name(about, setting).get(name)
        if shown is None:
            continue
        yield from _at_target(layers, target, shown.origin, holds)
        if shown.limit and not holds:
            holds = _label(setting, name, shown.origin)


def _at_target(layers: Layers, target: PolicyTarget, top: str, hidden_by: str) -> Iterator[ExplainedValue]:
    about, setting, name = target
    for layer in OF_OPERATOR:
        value = layers.written(layer, target)
        if value is None:
            continue
        section = section_of(about, value.limit)
        shown = ExplainedValue(setting, name, layer.origin, section, "holds", plan=value.plan)
        if layer.origin != top:
            yield replace(shown, state="hidden", by=_label(setting, name, top))
        elif not section:
            yield replace(shown, state="no limit")
        elif hidden_by:
            yield replace(shown, state="hidden", by=hidden_by)
        else:
            yield shown


def _label(setting: Setting, name: str, origin: str) -> str:
    shown = "each" if setting.record.is_each(name) else name
    return " ".join(part for part in (setting.value, shown, f"({origin})") if part)
