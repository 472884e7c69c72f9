"""The policies in memory: limits by layer, dynamic configuration, resource groups and their attachments.

A kept body is read once (`meaning`, which may fail), and then laid (`lay`, which cannot fail). A small change is laid
in place, a large one in a copy that replaces the state in one step. The functions below plan the bodies to write so
that one part of a resource group, or one limit, changes and everything else stays.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from limiter.levels import About, Setting
from limiter.names import EACH, MOST_FORMS, PatternForm, form_of, is_pattern
from limiter.policies import Policies, PolicyTarget, Value
from limiter.token_bucket import DIRECTIONS, Direction, Limit, rate
from proxy.bulk import keys_of
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
from proxy.policies.keys import Layer, PolicyKey, PolicyKind, parts_of, rate_key, setting_of, tenant_of
from proxy.policies.layers import FilePolicies, Layers, check_dynamic, dynamic_target, dynamic_value
from proxy.policies.store import Store

_MEMBERS: Final = {"tenant": Setting.TENANT, "namespace": Setting.NAMESPACE}
"""The settings of those that may be attached to a resource group, by the word in the keys of attachments."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The values of a kept body.

    Args:
        key: The key of the body.
        kept: The kept body; None if the policy is taken back.
        values: The values that the body sets, by target; None takes a value back.
    """

    key: PolicyKey
    kept: str | None
    values: tuple[tuple[Layer, PolicyTarget, Value | None], ...] = ()


@dataclass(slots=True)
class _OtherPolicies:
    """The policies that are no limits themselves.

    Args:
        file: The groups and attachments of the file; it has no values here.
        dynamic: Keys of the dynamic configuration that are set.
        groups: Names of the resource groups that were made at run time.
        attached: The attachments of run time: groups by name, of tenants and of namespaces.
    """

    file: FilePolicies = field(default_factory=lambda: FilePolicies({}, {}, {}))
    dynamic: dict[str, str] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    attached: dict[str, dict[str, str]] = field(default_factory=lambda: {"tenant": {}, "namespace": {}})

    def copy(self) -> "_OtherPolicies":
        attached = {setting: dict(names) for setting, names in self.attached.items()}
        return _OtherPolicies(self.file, dict(self.dynamic), set(self.groups), attached)


class PolicyState:
    """The policies of the file and of run time together.

    Args:
        layers: The limits.
        store: The store of the bodies that were written at run time.
    """

    def __init__(self, layers: Layers, store: Store) -> None:
        self.layers = layers
        self.store = store
        self._others = _OtherPolicies()

    @property
    def dynamic(self) -> Mapping[str, str]:
        """Keys of the dynamic configuration that are set."""
        return self._others.dynamic

    @property
    def file(self) -> FilePolicies:
        """The policies of the configuration file."""
        return replace(self._others.file, values=self.layers.of_layer(Layer.FILE))

    def read(self, key: PolicyKey) -> str | None:
        """Return the text that was set at run time under a key; None if there is none."""
        return self.store.read(key)

    def groups(self) -> set[str]:
        """Return the names of all resource groups."""
        return self._others.groups | self.groups_of_file()

    def has_group(self, name: str) -> bool:
        """Return whether there is a resource group of this name."""
        return name in self._others.groups or name in self.groups_of_file()

    def groups_of_file(self) -> frozenset[str]:
        """Return the names of the resource groups in the file."""
        return self._others.file.groups

    def attached(self, setting: str) -> Mapping[str, str]:
        """Return the attachments of run time: groups by namespace or tenant; an empty group hides the file's."""
        return self._others.attached[setting]

    def is_attached(self, group: str) -> bool:
        """Return whether a tenant or namespace is attached to a group."""
        return self.layers.policies.has_members(group)

    def attaches_as(self, file: FilePolicies) -> bool:
        """Return whether a file has the same groups and attachments as the file that holds."""
        return replace(file, values={}) == self._others.file

    def copy(self) -> "PolicyState":
        """Return a copy to be changed aside; any thread may, while the state does not change."""
        other = PolicyState(self.layers.copy(), self.store)
        other._others = self._others.copy()
        return other

    def exchange(self, other: "PolicyState") -> None:
        """Swap contents with another object in one step."""
        self.layers.exchange(other.layers)
        self._others, other._others = other._others, self._others  # noqa: SLF001 - of the same class

    def meaning(self, key: PolicyKey, kept: str | None) -> Meaning:
        """Return the values of a body under the present file; bodies of some kinds are only checked.

        Raises:
            BodyError: If the body cannot be read.
        """
        if key.kind is PolicyKind.BLOCK:
            raise BodyError(f"{key.shown}: blocks are not kept here")
        if key.kind is PolicyKind.DYNAMIC:
            check_dynamic(key.name, kept)
            return Meaning(key, kept)
        if key.kind is PolicyKind.ATTACHMENT:
            return Meaning(key, kept)
        targets = layered_targets(key)
        files = [self.layers.written(Layer.FILE, target) for _, target in targets]
        values = tuple(
            (*layered, _value(*layered, key, kept, file)) for layered, file in zip(targets, files, strict=True)
        )
        return Meaning(key, kept, values)

    def lay(self, meanings: Iterable[Meaning]) -> None:
        """Put these policies in force."""
        for meaning in meanings:
            key, kept = meaning.key, meaning.kept
            if key.kind is PolicyKind.ATTACHMENT:
                _put(self._others.attached[key.setting], key.name, kept)
                self._lay_attachment(key.setting, key.name)
            elif key.kind is PolicyKind.DYNAMIC:
                _put(self._others.dynamic, key.name, kept)
                self._lay_dynamic(dynamic_target(key.name))
            elif key.kind is PolicyKind.GROUP:
                (self._others.groups.discard if kept is None else self._others.groups.add)(key.name)
            for layer, target, value in meaning.values:
                self.layers.put(layer, target, value)

    def meanings_over(self, target: PolicyTarget, file: Value | None) -> Iterator[Meaning]:
        """Yield the run-time values of a target, read again under the file's new value.

        The file's mode holds for bodies in Pulsar's form.

        Raises:
            StoreError: If the store cannot be read.
            BodyError: If a kept body cannot be read.
        """
        for layer in (Layer.GLOBAL, Layer.REST):
            if self.layers.written(layer, target) is not None:
                key = key_of(target, layer)
                kept = self.store.read(key)
                yield Meaning(key, kept, ((layer, target, _value(layer, target, key, kept, file)),))

    def regrouped(self, file: FilePolicies) -> list[tuple[str, str]]:
        """Return the tenants and namespaces that a file attaches otherwise than the file that holds, each as two words.

        Any thread may call this, while the state does not change.
        """
        before = self._groups_in(self._others.file)
        return [
            (member, name)
            for member, after in self._groups_in(file).items()
            for name in keys_of(before[member], after)
            if before[member].get(name) != after.get(name)
        ]

    def lay_file(
        self,
        file: FilePolicies,
        changed: Mapping[PolicyTarget, Value | None],
        over: Iterable[Meaning] = (),
        regrouped: Sequence[tuple[str, str]] | None = None,
    ) -> None:
        """Put another file's policies in force.

        Args:
            file: The groups and attachments of a file; its values are not looked at.
            changed: The targets whose value differs from the file before, with the new value.
            over: The meanings from `meanings_over`.
            regrouped: What `regrouped` returns; None: it is found out here.
        """
        regrouped = self.regrouped(file) if regrouped is None else regrouped
        self._others.file = replace(file, values={})
        for target, value in changed.items():
            self.layers.put(Layer.FILE, target, value)
        self.lay(over)
        for name in self._others.dynamic:
            self._lay_dynamic(dynamic_target(name))
        for member, name in regrouped:
            self._lay_attachment(member, name)

    def _lay_dynamic(self, target: PolicyTarget) -> None:
        file = self.layers.written(Layer.FILE, target)
        self.layers.put(Layer.DYNAMIC, target, dynamic_value(target, self._others.dynamic, file))

    def _lay_attachment(self, member: str, name: str) -> None:
        group = self._others.attached[member].get(name)
        if group is None:
            group = self._groups_in(self._others.file)[member].get(name)
        self.layers.attach(_MEMBERS[member], name, group)

    @staticmethod
    def _groups_in(file: FilePolicies) -> dict[str, Mapping[str, str]]:
        return {"tenant": file.groups_of_tenants, "namespace": file.groups_of_namespaces}


def _value(layer: Layer, target: PolicyTarget, key: PolicyKey, kept: str | None, file: Value | None) -> Value | None:
    """Return the value of a body at a target; numbers that Pulsar's tools set have the mode of the file's limit."""
    if kept is None:
        return None
    (about, _, name), mode = target, file.limit.mode if file else "enforce"
    if layer is Layer.TENANT:
        mode = "enforce"  # the file's mode holds: see `limiter.policies.stricter`
    limit = (
        group_limits(name, kept, {about: mode}).get(about)
        if key.kind is PolicyKind.GROUP
        else limit_of(key, kept, mode)
    )
    return None if limit is None else Value(limit, layer.origin)


def key_of(target: PolicyTarget, layer: Layer = Layer.REST) -> PolicyKey:
    """Return the key under which a layer of run time keeps the value of a target."""
    if target[1] is Setting.RESOURCE_GROUP:
        return PolicyKey(PolicyKind.GROUP, "", target[2])
    return rate_key(*target, layer)


def layered_targets(key: PolicyKey) -> list[tuple[Layer, PolicyTarget]]:
    """Return the targets of a limit's key, each with the layer that keeps its value; two for a resource group."""
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


class FormsAfter:
    """The forms of patterns after changes that are made together, which are few; see `limiter.names.PatternValues`.

    Args:
        state: The policies in force.
        changes: The changes; patterns that they take back make room for others.
    """

    def __init__(self, state: PolicyState, changes: Iterable[Meaning] = ()) -> None:
        self._layers = state.layers
        self._taken_back: dict[PolicyTarget, set[Layer]] = {}
        for layer, target, value in (each for meaning in changes for each in meaning.values):
            if value is None and _is_pattern(target):
                self._taken_back.setdefault(target, set()).add(layer)
        self._forms: dict[tuple[About, Setting], set[PatternForm]] = {}

    def check(self, meaning: Meaning) -> None:
        """Add the patterns that a change sets.

        Raises:
            BodyError: If one is of one form too many.
        """
        for _, target, value in meaning.values:
            if value is None or not _is_pattern(target):
                continue
            about, setting, name = target
            forms = self._forms.get((about, setting))
            if forms is None:
                forms = self._forms[about, setting] = self._left(about, setting)
            form = form_of(name)
            if form not in forms and len(forms) >= MOST_FORMS:
                raise BodyError(
                    f"{meaning.key.shown}: the {about} limits of {setting} have patterns of {MOST_FORMS} forms; use a "
                    "pattern with as many characters before and after each * as one of these, or take some back"
                )
            forms.add(form)

    def _left(self, about: About, setting: Setting) -> set[PatternForm]:
        names = self._layers.policies.by_name(about, setting)
        return {form_of(each) for each in names if is_pattern(each) and not self._is_gone((about, setting, each))}

    def _is_gone(self, target: PolicyTarget) -> bool:
        layers = self._taken_back.get(target)
        return layers is not None and all(
            layer in layers or self._layers.written(layer, target) is None for layer in Layer
        )


def _is_pattern(target: PolicyTarget) -> bool:
    return target[1].record.is_pattern(target[2])


class BeyondError(Exception):
    """The author may not make this change; nothing has changed. The text names what the author may change."""


def check_within(state: PolicyState, meaning: Meaning | None, key: PolicyKey, tenants: Collection[str]) -> None:
    """Check that a change sets a limit of these tenants, and that the limit is as strict as the operator's.

    A less strict limit would change nothing, as the stricter one holds: its author gets an error.

    Args:
        state: The policies in force.
        meaning: The change; None for policies that are no limits.
        key: The key that it changes.
        tenants: The tenants.

    Raises:
        BeyondError: If the author may not make the change.
    """
    if meaning is None or key.kind not in _RATES or setting_of(key)[1] is not Layer.TENANT:
        raise BeyondError(f"{key.shown}: a token for some tenants may set limits of these tenants, not the operator's")
    ((_, target, value),) = meaning.values
    if _is_pattern(target):
        raise BeyondError(f"{key.shown}: patterns are for operators; name one namespace, or the tenant")
    if tenant_of(target[1], target[2]) not in tenants:
        raise BeyondError(f"{key.shown}: belongs to no tenant of this token")
    values = map(state.layers.of_operator, targets_from(target, state.layers.policies))
    operators = next((each for each in values if each is not None and each.limit), None)
    if value is not None and operators is not None:
        problem = _looser(operators.limit, value.limit, target[0], is_own_form=is_own_form(meaning.kept))
        if problem:
            section = section_text(section_of(target[0], operators.limit))
            raise BeyondError(
                f"{cut(' '.join(target))}: {problem}; the operator gives {section} here ({operators.origin}), and a "
                "token for some tenants sets limits within that"
            )


_RATES = {PolicyKind.PUBLISH, PolicyKind.DISPATCH, PolicyKind.SUBSCRIBE}
_FIGURES = (("messages", "peak_messages"), ("size", "peak_size"))


def _looser(operators: Limit, own: Limit, about: About, *, is_own_form: bool) -> str:
    """Return why a tenant's limit is looser than the operator's; empty if it is not. Missing figures stay."""
    if not own:
        return "no limit is more than the limit"
    if own.mode == "observe" and operators.mode != "observe":
        return "mode: observe would hold nothing"
    if own.published is not None and operators.published is None:
        return "relativeToPublishRate adds to the limit"
    if about == "subscribe" and own.messages and operators.messages and own.messages.burst > operators.messages.burst:
        return f"messages: {own.messages.burst} at once are more than {operators.messages.burst}"
    problems = (_looser_figure(operators, own, *figure, is_own_form=is_own_form) for figure in _FIGURES)
    return next(filter(None, problems), "")


def _looser_figure(operators: Limit, own: Limit, sustained: str, peak: str, *, is_own_form: bool) -> str:
    own_rate, most = getattr(own, sustained), getattr(operators, sustained)
    own_peak, most_peak = getattr(own, peak), getattr(operators, peak)
    word = "bytes" if sustained == "size" else sustained
    if own_rate is None or most is None:
        return ""
    if own_rate.is_above(most):
        return f"{word}: the rate is higher"
    if is_own_form and own_rate.burst > most.burst:  # Pulsar's form has no burst: the operator's holds for it
        default = " by default" if own_rate.burst == rate(own_rate.tokens, own_rate.period_ns).burst else ""
        return f"burst_{word}: {own_rate.burst}{default} is more than {most.burst}"
    if own_peak is not None and most_peak is not None and own_peak.is_above(most_peak):
        return f"peak_{word}: the rate is higher"
    return ""


def targets_from(target: PolicyTarget, policies: Policies) -> Iterator[PolicyTarget]:
    """Yield the target of a tenant's limit, and the wider targets whose values would hold there, narrowest first."""
    about, setting, name = target
    records, parts = setting.level.settings, parts_of(setting, name)
    for record in records[records.index(setting.record) :]:
        if about in record.abouts:
            wider, own = Setting(record.word), "@".join([parts[part] for part in record.named])
            yield about, wider, own
            yield from ((about, wider, pattern) for pattern in policies.names_for(about, wider, own) if pattern != own)
            if record.has_each:
                yield about, Setting(record.word), EACH


WantedBodies = dict[PolicyKey, str | None]


def to_set_direction(
    state: PolicyState, name: str, direction: Direction, section: dict[str, Any] | None
) -> WantedBodies:
    """Return the change that gives one direction a limit of Sluice's own form; None limits nothing there."""
    kept = _kept_group(state, name)
    numbers = tuple(each for each in kept.numbers if each != direction)
    return {_group_key(name): kept_as_own_group({**kept.body, direction: section}, numbers)}


def to_take_back_direction(state: PolicyState, name: str, direction: Direction) -> WantedBodies:
    """Return the change after which the file's value holds for one direction.

    A group that has neither a body nor an attachment any more ends.
    """
    if state.read(_group_key(name)) is None:
        return {}
    kept = _kept_group(state, name)
    body: OwnGroup = {each: section for each, section in kept.body.items() if each != direction}
    ends = not body and (name in state.groups_of_file() or not state.is_attached(name))
    numbers = tuple(each for each in kept.numbers if each != direction)
    return {_group_key(name): None if ends else kept_as_own_group(body, numbers)}


def to_set_numbers(state: PolicyState, name: str, group: ResourceGroup) -> WantedBodies:
    """Return the change that sets the rates in Pulsar's body; of the four rates, those that it leaves out stay."""
    kept = state.read(_group_key(name))
    if kept is None and not any(_group_limit(state, name, direction) for direction in DIRECTIONS):
        kept = "{}"
    if kept is None or own_group(kept) is not None:
        return _merged_group(state, name, group)
    rates = {field: value for field, value in msgspec.structs.asdict(group).items() if value is not None}
    return {
        _group_key(name): msgspec.json.encode(msgspec.structs.replace(read_body(kept, ResourceGroup), **rates)).decode()
    }


def _merged_group(state: PolicyState, name: str, group: ResourceGroup) -> WantedBodies:
    """Merge rates into a group of Sluice's own form; a direction without rates keeps its value, even the file's."""
    kept = _kept_group(state, name)
    body, numbers = dict(kept.body), set(kept.numbers)
    for direction, messages, size in (
        (DIRECTIONS[0], group.publishRateInMsgs, group.publishRateInBytes),
        (DIRECTIONS[1], group.dispatchRateInMsgs, group.dispatchRateInBytes),
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
    """Return a kept body in Sluice's own form, converted if it has Pulsar's."""
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
    state: PolicyState, target: PolicyTarget, section: dict[str, Any] | None, layer: Layer = Layer.REST
) -> dict[PolicyKey, str | None]:
    """Return the change that sets a limit at a target; None limits nothing there, even if the file does."""
    if target[1] is Setting.RESOURCE_GROUP:
        return to_set_direction(state, target[2], _direction(target), section)
    key = rate_key(*target, layer)
    kept = kept_as_pulsar_s(NO_LIMIT[key.kind]) if section is None else kept_as_own(section)
    return {key: kept}


def to_take_back(state: PolicyState, target: PolicyTarget, layer: Layer = Layer.REST) -> dict[PolicyKey, str | None]:
    """Return the change that takes back the run-time value at a target, so that the file's value holds."""
    if target[1] is Setting.RESOURCE_GROUP:
        return to_take_back_direction(state, target[2], _direction(target))
    return {rate_key(*target, layer): None}


def _direction(target: PolicyTarget) -> Direction:
    return "dispatch" if target[0] == "dispatch" else "publish"
