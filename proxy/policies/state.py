"""The policies in memory: limits by layer, dynamic configuration, resource groups and their attachments.

A kept body is read once (`meaning`, which may fail), and then laid (`lay`, which cannot): at the start, at a small
change in place, and at a large change in a copy that replaces the state in one step. The functions below say what to
write so that one part of a resource group, or one limit, changes and everything else stays.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from limiter.levels import EACH, About, NameForm, Setting
from limiter.policies import Value
from limiter.token_bucket import DIRECTIONS, Direction, Limit, Rate, rate
from protocol.topic_name import parse_topic
from proxy.config.sources import cut
from proxy.policies.bodies import (
    NO_LIMIT,
    BodyError,
    KeptGroup,
    OwnGroup,
    ResourceGroup,
    group_limits,
    is_own_form,
    kept_as_own,
    kept_as_own_group,
    kept_as_pulsar_s,
    limit_of,
    own_group,
    read_body,
    section_of,
    section_text,
)
from proxy.policies.keys import (
    Layer,
    PolicyKey,
    PolicyKind,
    PolicyTarget,
    rate_key,
    setting_of,
    split_subscription,
    tenant_of,
)
from proxy.policies.layers import FilePolicies, Layers, check_dynamic, dynamic_value, place_of
from proxy.policies.store import Store


@dataclass(frozen=True, slots=True)
class Meaning:
    """The values that a kept body stands for.

    Args:
        key: Under which it is kept.
        kept: The kept body; None if the policy is taken back.
        values: The values that the body sets, by place; None takes a value back.
    """

    key: PolicyKey
    kept: str | None
    values: tuple[tuple[Layer, PolicyTarget, Value | None], ...] = ()


@dataclass(slots=True)
class _Said:
    """The policies that are no limits themselves.

    Args:
        file: The groups and attachments of the file; it has no values here.
        dynamic: Keys of the dynamic configuration that are set.
        groups: Names of the resource groups that were made at run time.
        attached: The attachments then: groups by name, of tenants and of namespaces.
    """

    file: FilePolicies = field(default_factory=lambda: FilePolicies({}, {}, {}))
    dynamic: dict[str, str] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    attached: dict[str, dict[str, str]] = field(default_factory=lambda: {"tenant": {}, "namespace": {}})

    def copy(self) -> "_Said":
        attached = {setting: dict(names) for setting, names in self.attached.items()}
        return _Said(self.file, dict(self.dynamic), set(self.groups), attached)


class PolicyState:
    """The policies of the file and of run time together.

    Args:
        layers: The limits.
        store: Where the bodies are that were written at run time.
    """

    def __init__(self, layers: Layers, store: Store) -> None:
        self.layers = layers
        self.store = store
        self._said = _Said()

    @property
    def dynamic(self) -> Mapping[str, str]:
        """Keys of the dynamic configuration that are set."""
        return self._said.dynamic

    @property
    def file(self) -> FilePolicies:
        """The policies of the configuration file."""
        return replace(self._said.file, values=self.layers.of_layer(Layer.FILE))

    def read(self, key: PolicyKey) -> str | None:
        """Return the text that was set at run time under a key; None if there is none."""
        return self.store.read(key)

    def groups(self) -> set[str]:
        """Return the names of all resource groups."""
        return self._said.groups | self.groups_of_file()

    def groups_of_file(self) -> frozenset[str]:
        """Return the names of the resource groups in the file."""
        return self._said.file.groups

    def attached(self, setting: str) -> Mapping[str, str]:
        """Return the attachments of run time: groups by namespace or tenant; an empty group hides the file's."""
        return self._said.attached[setting]

    def is_attached(self, group: str) -> bool:
        """Return whether a tenant or namespace is attached to a group."""
        policies = self.layers.policies
        return group in {*policies.groups_of_tenants.values(), *policies.groups_of_namespaces.values()}

    def attaches_as(self, file: FilePolicies) -> bool:
        """Return whether a file has the same groups and attachments as the file that holds."""
        return replace(file, values={}) == self._said.file

    def copy(self) -> "PolicyState":
        """Return a copy to be changed aside; any thread may, while the state does not change."""
        other = PolicyState(self.layers.copy(), self.store)
        other._said = self._said.copy()
        return other

    def exchange(self, other: "PolicyState") -> None:
        """Swap contents with another object in one step, whatever there is."""
        self.layers.exchange(other.layers)
        self._said, other._said = other._said, self._said  # noqa: SLF001 - of the same class

    def meaning(self, key: PolicyKey, kept: str | None) -> Meaning:
        """Return the values that a body stands for under the file that holds; some kinds are only checked.

        Raises:
            BodyError: If it cannot be read.
        """
        if key.kind is PolicyKind.BLOCK:
            raise BodyError(f"{key.shown}: blocks are not kept here")
        if key.kind is PolicyKind.DYNAMIC:
            check_dynamic(key.name, kept)
            return Meaning(key, kept)
        if key.kind is PolicyKind.ATTACHMENT:
            return Meaning(key, kept)
        values = [(where, self.layers.written(Layer.FILE, where[1])) for where in _where(key)]
        return Meaning(key, kept, tuple((*where, _value(where, key, kept, file)) for where, file in values))

    def lay(self, meanings: Iterable[Meaning]) -> None:
        """Put these policies in force."""
        is_attaching = False
        for meaning in meanings:
            key, kept = meaning.key, meaning.kept
            if key.kind is PolicyKind.ATTACHMENT:
                _put(self._said.attached[key.setting], key.name, kept)
                is_attaching = True
            elif key.kind is PolicyKind.DYNAMIC:
                _put(self._said.dynamic, key.name, kept)
                self._lay_dynamic(place_of(key.name))
            elif key.kind is PolicyKind.GROUP:
                (self._said.groups.discard if kept is None else self._said.groups.add)(key.name)
            for layer, place, value in meaning.values:
                self.layers.put(layer, place, value)
        if is_attaching:
            self._lay_attachments()

    def meanings_over(self, place: PolicyTarget, file: Value | None) -> Iterator[Meaning]:
        """Yield the run-time values of a place again, for a file that has `file` there from now on.

        The file's mode holds for Pulsar's bodies too.

        Raises:
            StoreError: If the store cannot be read.
            BodyError: If what is kept there cannot be.
        """
        for layer in (Layer.GLOBAL, Layer.REST):
            if self.layers.written(layer, place) is not None:
                key = key_of(place, layer)
                kept = self.store.read(key)
                yield Meaning(key, kept, ((layer, place, _value((layer, place), key, kept, file)),))

    def lay_file(
        self, file: FilePolicies, changed: Mapping[PolicyTarget, Value | None], over: Iterable[Meaning] = ()
    ) -> None:
        """Put another file's policies in force.

        Args:
            file: The groups and attachments of a file; its values are not looked at.
            changed: Where it has another value than the one before.
            over: The meanings from `meanings_over`.
        """
        self._said.file = replace(file, values={})
        for place, value in changed.items():
            self.layers.put(Layer.FILE, place, value)
        self.lay(over)
        for name in self._said.dynamic:
            self._lay_dynamic(place_of(name))
        self._lay_attachments()

    def _lay_dynamic(self, place: PolicyTarget) -> None:
        file = self.layers.written(Layer.FILE, place)
        self.layers.put(Layer.DYNAMIC, place, dynamic_value(place, self._said.dynamic, file))

    def _lay_attachments(self) -> None:
        of_tenants = {**self._said.file.groups_of_tenants, **self._said.attached["tenant"]}
        self.layers.attach(of_tenants, {**self._said.file.groups_of_namespaces, **self._said.attached["namespace"]})


def _value(where: tuple[Layer, PolicyTarget], key: PolicyKey, kept: str | None, file: Value | None) -> Value | None:
    """A limit that the file observes or rejects by stays so where Pulsar's tools set its numbers only."""
    if kept is None:
        return None
    (layer, (about, _, name)), mode = where, file.limit.mode if file else "enforce"
    if layer is Layer.TENANT:
        mode = "enforce"  # where the file has another one, that holds: see `limiter.policies.stricter`
    limit = (
        group_limits(name, kept, {about: mode}).get(about)
        if key.kind is PolicyKind.GROUP
        else limit_of(key, kept, mode)
    )
    return None if limit is None else Value(limit, layer.origin)


def key_of(place: PolicyTarget, layer: Layer = Layer.REST) -> PolicyKey:
    """Return the key under which a layer of run time keeps the value of a place."""
    if place[1] is Setting.RESOURCE_GROUP:
        return PolicyKey(PolicyKind.GROUP, "", place[2])
    return rate_key(*place, layer)


def _where(key: PolicyKey) -> list[tuple[Layer, PolicyTarget]]:
    if key.kind is PolicyKind.GROUP:
        return [(Layer.REST, (direction, Setting.RESOURCE_GROUP, key.name)) for direction in DIRECTIONS]
    setting, layer = setting_of(key)
    about: About = (
        "publish" if key.kind is PolicyKind.PUBLISH else "dispatch" if key.kind is PolicyKind.DISPATCH else "subscribe"
    )
    return [(layer, (about, setting, key.name))]


def _put(kept: dict[str, str], name: str, value: str | None) -> None:
    if value is None:
        kept.pop(name, None)
    else:
        kept[name] = value


class BeyondError(Exception):
    """A change goes beyond what its author may change; nothing has changed. The text says what the author may."""


def check_within(state: PolicyState, meaning: Meaning | None, key: PolicyKey, tenants: Collection[str]) -> None:
    """Check that a change stays within the part of some tenants, and that the limit is as strict as the operator's.

    A limit that were less strict would change nothing, as the stricter of both holds: its author is to know.

    Args:
        state: The policies in force.
        meaning: The change; None for policies that are no limits.
        key: The key that it changes.
        tenants: The tenants.

    Raises:
        BeyondError: If it does not.
    """
    if meaning is None or key.kind not in _RATES or setting_of(key)[1] is not Layer.TENANT:
        raise BeyondError(f"{key.shown}: a token for some tenants sets limits of theirs, and nothing of the operator's")
    ((_, place, value),) = meaning.values
    if tenant_of(place[1], place[2]) not in tenants:
        raise BeyondError(f"{key.shown}: belongs to no tenant of this token")
    held = next((found for at in places_from(place) if (found := state.layers.of_operator(at)) and found.limit), None)
    if value is not None and held is not None:
        problem = _looser(held.limit, value.limit, place[0], is_own_form=is_own_form(meaning.kept))
        if problem:
            given = f"{section_text(section_of(place[0], held.limit))} here ({held.origin})"
            raise BeyondError(
                f"{cut(' '.join(place))}: {problem}; the operator gives {given}, and a token for some tenants sets "
                "limits within that"
            )


_RATES = {PolicyKind.PUBLISH, PolicyKind.DISPATCH, PolicyKind.SUBSCRIBE}
_FIGURES = (("messages", "peak_messages"), ("size", "peak_size"))


def _looser(held: Limit, own: Limit, about: About, *, is_own_form: bool) -> str:
    """Say in what a tenant's limit is looser than the operator's; empty if it is not. What it leaves out stays."""
    if not own:
        return "no limit is more than the limit"
    if own.mode == "observe" and held.mode != "observe":
        return "mode: observe would hold nothing"
    if own.published is not None and held.published is None:
        return "relativeToPublishRate adds to the limit"
    if about == "subscribe" and own.messages and held.messages and own.messages.burst > held.messages.burst:
        return f"messages: {own.messages.burst} at once are more than {held.messages.burst}"
    found = (_looser_figure(held, own, *figure, is_own_form=is_own_form) for figure in _FIGURES)
    return next(filter(None, found), "")


def _looser_figure(held: Limit, own: Limit, sustained: str, peak: str, *, is_own_form: bool) -> str:
    mine, its = getattr(own, sustained), getattr(held, sustained)
    my_peak, its_peak = getattr(own, peak), getattr(held, peak)
    word = "bytes" if sustained == "size" else sustained
    if mine is None or its is None:
        return ""
    if _exceeds(mine, its):
        return f"{word}: the rate is higher"
    if is_own_form and mine.burst > its.burst:  # Pulsar's form knows none: there the operator's holds
        default = " by default" if mine.burst == rate(mine.tokens, mine.period_ns).burst else ""
        return f"burst_{word}: {mine.burst}{default} is more than {its.burst}"
    if my_peak is not None and its_peak is not None and _exceeds(my_peak, its_peak):
        return f"peak_{word}: the rate is higher"
    return ""


def _exceeds(one: Rate, other: Rate) -> bool:
    return one.tokens * other.period_ns > other.tokens * one.period_ns


def places_from(place: PolicyTarget) -> Iterator[PolicyTarget]:
    """Yield the place of a tenant's limit, and the wider places whose values would hold there, the narrowest first."""
    about, setting, name = place
    records = setting.level.settings
    topic = split_subscription(name)[1] if setting.record.form == "subscription" else name
    namespace = parse_topic(topic).namespace_name if "://" in topic else topic
    names: dict[NameForm, str] = {"": "", "namespace": namespace, "topic": topic, "subscription": name, "tenant": name}
    for record in records[records.index(setting.record) :]:
        if about in record.abouts:
            yield about, Setting(record.word), names[record.form]
            if record.has_each:
                yield about, Setting(record.word), EACH


WantedBodies = dict[PolicyKey, str | None]


def to_set_direction(
    state: PolicyState, name: str, direction: Direction, section: dict[str, Any] | None
) -> WantedBodies:
    """Return the change that gives one direction a limit of Sluice's own form; None limits nothing there."""
    kept = _kept_group(state, name)
    numbers = tuple(one for one in kept.numbers if one != direction)
    return {_group_key(name): kept_as_own_group({**kept.body, direction: section}, numbers)}


def to_take_back_direction(state: PolicyState, name: str, direction: Direction) -> WantedBodies:
    """Return the change after which the file's value holds for one direction.

    A group of which nothing is said any more, and to which nothing is attached, ends.
    """
    if state.read(_group_key(name)) is None:
        return {}
    kept = _kept_group(state, name)
    body: OwnGroup = {one: section for one, section in kept.body.items() if one != direction}
    ends = not body and (name in state.groups_of_file() or not state.is_attached(name))
    numbers = tuple(one for one in kept.numbers if one != direction)
    return {_group_key(name): None if ends else kept_as_own_group(body, numbers)}


def to_set_numbers(state: PolicyState, name: str, said: ResourceGroup) -> WantedBodies:
    """Return the change that Pulsar's tools want, which name some of the four rates; the other rates stay."""
    kept = state.read(_group_key(name))
    if kept is None and not any(_group_limit(state, name, direction) for direction in DIRECTIONS):
        kept = "{}"
    if kept is None or own_group(kept) is not None:
        return _merged_group(state, name, said)
    rates = {field: value for field, value in msgspec.structs.asdict(said).items() if value is not None}
    return {
        _group_key(name): msgspec.json.encode(msgspec.structs.replace(read_body(kept, ResourceGroup), **rates)).decode()
    }


def _merged_group(state: PolicyState, name: str, said: ResourceGroup) -> WantedBodies:
    """A direction of which nothing is said stays the file's, if it is."""
    kept = _kept_group(state, name)
    body, numbers = dict(kept.body), set(kept.numbers)
    for direction, messages, size in (
        (DIRECTIONS[0], said.publishRateInMsgs, said.publishRateInBytes),
        (DIRECTIONS[1], said.dispatchRateInMsgs, said.dispatchRateInBytes),
    ):
        if messages is None and size is None:
            continue
        if body.get(direction) is None:
            numbers.add(direction)
        limit = _with_rates(_group_limit(state, name, direction) or Limit(), messages, size)
        body[direction] = dict(section_of(direction, limit)) or None
    return {_group_key(name): kept_as_own_group(body, tuple(sorted(numbers)))}


def _with_rates(limit: Limit, messages: int | None, size: int | None) -> Limit:
    """Return a limit with other rates per second, of the default burst; a rate of 0 or below is none."""
    if messages is not None:
        limit = replace(limit, messages=rate(messages) if messages > 0 else None, peak_messages=None)
    if size is not None:
        limit = replace(limit, size=rate(size) if size > 0 else None, peak_size=None)
    return limit


def _kept_group(state: PolicyState, name: str) -> KeptGroup:
    """Return a kept body in Sluice's own form, whatever form it has."""
    kept = state.read(_group_key(name))
    if kept is None:
        return KeptGroup("sluice", {})
    own = own_group(kept)
    if own is not None:
        return own
    body: OwnGroup = {}
    for direction in DIRECTIONS:
        value = state.layers.written(Layer.REST, (direction, Setting.RESOURCE_GROUP, name))
        if value is not None:
            body[direction] = dict(section_of(direction, value.limit)) or None
    return KeptGroup("sluice", body, tuple(body))


def _group_limit(state: PolicyState, name: str, direction: Direction) -> Limit | None:
    value = state.layers.policies.get(direction, Setting.RESOURCE_GROUP, name)
    return value.limit if value else None


def _group_key(name: str) -> PolicyKey:
    return PolicyKey(PolicyKind.GROUP, "", name)


def to_set(
    state: PolicyState, place: PolicyTarget, section: dict[str, Any] | None, layer: Layer = Layer.REST
) -> dict[PolicyKey, str | None]:
    """Return the change that sets a limit at a place; None limits nothing there, whatever the file says."""
    if place[1] is Setting.RESOURCE_GROUP:
        return to_set_direction(state, place[2], _direction(place), section)
    key = rate_key(*place, layer)
    kept = kept_as_pulsar_s(NO_LIMIT[key.kind]) if section is None else kept_as_own(section)
    return {key: kept}


def to_take_back(state: PolicyState, place: PolicyTarget, layer: Layer = Layer.REST) -> dict[PolicyKey, str | None]:
    """Return the change that takes back what this address set at a place, so that the file's value holds."""
    if place[1] is Setting.RESOURCE_GROUP:
        return to_take_back_direction(state, place[2], _direction(place))
    return {rate_key(*place, layer): None}


def _direction(place: PolicyTarget) -> Direction:
    return "dispatch" if place[0] == "dispatch" else "publish"
