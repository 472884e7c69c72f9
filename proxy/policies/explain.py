"""Why a stream is limited as it is: every level, every value that was written for it, and which one holds."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Literal

from limiter.levels import ANYBODY, EACH, LEVELS, Client, Level, Setting, StreamIdentity, Topic
from limiter.policies import SUBSCRIBE_LOOKUPS
from limiter.rates import Direction
from proxy.policies.bodies import Section, section_of
from proxy.policies.keys import PolicyTarget
from proxy.policies.layers import Layer, Layers
from proxy.policies.state import PolicyState

State = Literal["holds", "hidden", "no limit"]
_FROM_THE_TOP = tuple(reversed(Layer))


@dataclass(frozen=True, slots=True)
class ExplainedValue:
    """A value that was written for a level.

    Args:
        setting: For what, with `name`.
        name: Of the setting.
        origin: In which layer: rest, global, dynamic or file.
        limit: As the configuration writes it; empty for one that limits nothing.
        state: Whether it holds. `no limit`: it is on top at its place, and so makes it count as not set.
        by: What hides it; else empty.
    """

    setting: Setting
    name: str
    origin: str
    limit: Section
    state: State
    by: str = ""


@dataclass(frozen=True, slots=True)
class LevelLines:
    """A level, and every value that was written for it.

    Args:
        level: Its word.
        asked: Whether the stream has anything there; without a role, say, no limit of roles is looked for.
        lines: What was written for it, the narrowest first and the highest layer first.
    """

    level: str
    asked: bool
    lines: tuple[ExplainedValue, ...]


@dataclass(frozen=True, slots=True)
class ExplainedGroup:
    """The resource group of a topic, and how it comes to it.

    Args:
        name: The group's.
        member: Which of tenant or namespace is attached, and its name.
        origin: Where that was written: rest or file.
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
    is_system, whose = topic.is_system, StreamIdentity(topic, client, group.name if group else "")
    levels = tuple(_level(state, direction, level, whose) for level in LEVELS if level.is_of_system is is_system)
    return Explained(topic.full, is_system, group, levels)


def explain_subscribes(state: PolicyState, topic: Topic) -> LevelLines:
    """Return the rate of subscribing that holds for one consumer, and why."""
    whose = StreamIdentity(topic, ANYBODY, "")
    places: list[PolicyTarget] = [("subscribe", setting, naming(whose)) for setting, naming, _ in SUBSCRIBE_LOOKUPS]
    if topic.is_system:
        return LevelLines("subscribe", asked=False, lines=())
    return LevelLines("subscribe", asked=True, lines=tuple(_lines(state.layers, places)))


def group_of(state: PolicyState, topic: Topic) -> ExplainedGroup | None:
    """Return the resource group that a topic's limits come from: its namespace's, or else its tenant's."""
    policies = state.layers.policies
    of_namespace = policies.groups_of_namespaces.get(topic.namespace_name, "")
    name = of_namespace or policies.groups_of_tenants.get(topic.tenant, "")
    if not name:
        return None
    member, whose = ("namespace", topic.namespace_name) if of_namespace else ("tenant", topic.tenant)
    layer = Layer.REST if whose in state.attached(member) else Layer.FILE
    return ExplainedGroup(name, f"{member} {whose}", layer.origin)


def _level(state: PolicyState, direction: Direction, level: Level, whose: StreamIdentity) -> LevelLines:
    if not level.exists(whose):
        return LevelLines(level.word, asked=False, lines=())
    places: list[PolicyTarget] = []
    for setting, naming, _ in level.lookups:
        place: PolicyTarget = (direction, setting, naming(whose))
        places += _networks_around(state.layers, place) if setting.record.form == "network" else (place,)
    return LevelLines(level.word, asked=True, lines=tuple(_lines(state.layers, places)))


def _lines(layers: Layers, places: list[PolicyTarget]) -> Iterator[ExplainedValue]:
    """Of several places the first one that limits holds; of its layers, the one that is shown to the limiter."""
    holds = ""
    for place in places:
        about, setting, name = place
        shown = layers.policies.put_under(about, setting).get(name)
        if shown is None:
            continue
        yield from _at_place(layers, place, shown.origin, holds)
        if shown.limit and not holds:
            holds = _told(setting, name, shown.origin)


def _at_place(layers: Layers, place: PolicyTarget, top: str, hidden_by: str) -> Iterator[ExplainedValue]:
    about, setting, name = place
    for layer in _FROM_THE_TOP:
        value = layers.written(layer, place)
        if value is None:
            continue
        section = section_of(about, value.limit)
        if layer.origin != top:
            yield ExplainedValue(setting, name, layer.origin, section, "hidden", _told(setting, name, top))
        elif not section:
            yield ExplainedValue(setting, name, layer.origin, section, "no limit")
        elif hidden_by:
            yield ExplainedValue(setting, name, layer.origin, section, "hidden", hidden_by)
        else:
            yield ExplainedValue(setting, name, layer.origin, section, "holds")


def _networks_around(layers: Layers, place: PolicyTarget) -> Iterator[PolicyTarget]:
    """Networks with a value that hold an address, the narrowest first."""
    about, setting, address = place
    try:
        parsed = ip_address(address)
    except ValueError:
        return
    parsed = getattr(parsed, "ipv4_mapped", None) or parsed
    written = layers.policies.put_under(about, setting)
    for length in range(parsed.max_prefixlen, -1, -1):
        network = str(ip_network(f"{parsed}/{length}", strict=False))
        if network in written:
            yield about, setting, network


def _told(setting: Setting, name: str, origin: str) -> str:
    return " ".join(part for part in (setting.value, "each" if name == EACH else name, f"({origin})") if part)
