"""What a book says, in memory: limits by layer, dynamic configuration, resource groups and who is attached to them.

A kept body is read once (`meaning`, which may fail), and then laid (`lay`, which cannot): at the start, at a change of
little here and now, and at a change of much in a copy that takes this one's place in one step.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from limiter.levels import About, Setting
from limiter.policies import Value
from limiter.rates import DIRECTIONS
from proxy.policies.bodies import BodyError, limit_of
from proxy.policies.dynamic import check_dynamic, dynamic_value, place_of
from proxy.policies.group_body import group_limits
from proxy.policies.key import Key, Kind, rate_key, setting_of
from proxy.policies.layers import FilePolicies, Layer, Layers, Place
from proxy.policies.store import Store


@dataclass(frozen=True, slots=True)
class Meaning:
    """What is to be laid for a key.

    Args:
        key: Under which it is kept.
        kept: What is kept; None if nothing is any more.
        values: What that puts where; None takes a value back.
    """

    key: Key
    kept: str | None
    values: tuple[tuple[Layer, Place, Value | None], ...] = ()


@dataclass(slots=True)
class _Said:
    """What is no limit itself.

    Args:
        file: Which groups the file has and attaches to whom; it has no values here.
        dynamic: Keys of the dynamic configuration that are set.
        groups: Names of the resource groups that were made at run time.
        attached: What was attached then: groups by name, of tenants and of namespaces.
    """

    file: FilePolicies = field(default_factory=lambda: FilePolicies({}, {}, {}))
    dynamic: dict[str, str] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    attached: dict[str, dict[str, str]] = field(default_factory=lambda: {"tenant": {}, "namespace": {}})

    def copy(self) -> "_Said":
        attached = {setting: dict(names) for setting, names in self.attached.items()}
        return _Said(self.file, dict(self.dynamic), set(self.groups), attached)


class Contents:
    """Everything that was written, be it in the file or at run time.

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
        """What the configuration file says."""
        return replace(self._said.file, values=self.layers.of_layer(Layer.FILE))

    def read(self, key: Key) -> str | None:
        """What was set at run time under a key, as it was written; None if nothing was."""
        return self.store.read(key)

    def groups(self) -> set[str]:
        """The names of all resource groups."""
        return self._said.groups | self.groups_of_file()

    def groups_of_file(self) -> frozenset[str]:
        """Those that the file names."""
        return self._said.file.groups

    def attached(self, setting: str) -> Mapping[str, str]:
        """What was attached at run time: groups by namespace or tenant; empty is none, whatever the file says."""
        return self._said.attached[setting]

    def is_attached(self, group: str) -> bool:
        """Whether a tenant or namespace is attached to it."""
        policies = self.layers.policies
        return group in {*policies.groups_of_tenants.values(), *policies.groups_of_namespaces.values()}

    def attaches_as(self, file: FilePolicies) -> bool:
        """Whether another file has the same groups, attached to the same, as the one that holds."""
        return replace(file, values={}) == self._said.file

    def copy(self) -> "Contents":
        """The same, to be changed aside; in any thread, while nobody changes this one."""
        other = Contents(self.layers.copy(), self.store)
        other._said = self._said.copy()
        return other

    def exchange(self, other: "Contents") -> None:
        """Say what another one says, and it what this one does; in one step, whatever there is."""
        self.layers.exchange(other.layers)
        self._said, other._said = other._said, self._said  # noqa: SLF001 - of the same class

    def meaning(self, key: Key, kept: str | None) -> Meaning:
        """What a body means under the file that holds; of some kinds it is only checked.

        Raises:
            BodyError: If it cannot be read.
        """
        if key.kind is Kind.BLOCK:
            raise BodyError(f"{key}: nobody here keeps blocks")
        if key.kind is Kind.DYNAMIC:
            check_dynamic(key.name, kept)
            return Meaning(key, kept)
        if key.kind is Kind.ATTACHMENT:
            return Meaning(key, kept)
        values = [(where, self.layers.written(Layer.FILE, where[1])) for where in _where(key)]
        return Meaning(key, kept, tuple((*where, _value(where, key, kept, file)) for where, file in values))

    def lay(self, meanings: Iterable[Meaning]) -> None:
        """Hold what these say."""
        is_attaching = False
        for meaning in meanings:
            key, kept = meaning.key, meaning.kept
            if key.kind is Kind.ATTACHMENT:
                _put(self._said.attached[key.setting], key.name, kept)
                is_attaching = True
            elif key.kind is Kind.DYNAMIC:
                _put(self._said.dynamic, key.name, kept)
                self._lay_dynamic(place_of(key.name))
            elif key.kind is Kind.GROUP:
                (self._said.groups.discard if kept is None else self._said.groups.add)(key.name)
            for layer, place, value in meaning.values:
                self.layers.put(layer, place, value)
        if is_attaching:
            self._lay_attachments()

    def meanings_over(self, place: Place, file: Value | None) -> Iterator[Meaning]:
        """What is written at run time over a place where the file says `file` from now on.

        The file's mode holds for Pulsar's bodies too.

        Raises:
            StoreError: If the store cannot be read.
            BodyError: If what is kept there cannot be.
        """
        for layer in (Layer.GLOBAL, Layer.REST):
            if self.layers.written(layer, place) is not None:
                key = _key_of(layer, place)
                kept = self.store.read(key)
                yield Meaning(key, kept, ((layer, place, _value((layer, place), key, kept, file)),))

    def lay_file(self, file: FilePolicies, changed: Mapping[Place, Value | None], over: Iterable[Meaning] = ()) -> None:
        """Hold another file.

        Args:
            file: Which groups it attaches to whom; its values are not looked at.
            changed: Where it has another value than the one before.
            over: What `meanings_over` these.
        """
        self._said.file = replace(file, values={})
        for place, value in changed.items():
            self.layers.put(Layer.FILE, place, value)
        self.lay(over)
        for name in self._said.dynamic:
            self._lay_dynamic(place_of(name))
        self._lay_attachments()

    def _lay_dynamic(self, place: Place) -> None:
        file = self.layers.written(Layer.FILE, place)
        self.layers.put(Layer.DYNAMIC, place, dynamic_value(place, self._said.dynamic, file))

    def _lay_attachments(self) -> None:
        of_tenants = {**self._said.file.groups_of_tenants, **self._said.attached["tenant"]}
        self.layers.attach(of_tenants, {**self._said.file.groups_of_namespaces, **self._said.attached["namespace"]})


def _value(where: tuple[Layer, Place], key: Key, kept: str | None, file: Value | None) -> Value | None:
    """A limit that the file observes or rejects by stays so where Pulsar's tools set its numbers only."""
    if kept is None:
        return None
    (layer, (about, _, name)), mode = where, file.limit.mode if file else "enforce"
    limit = group_limits(name, kept, {about: mode}).get(about) if key.kind is Kind.GROUP else limit_of(key, kept, mode)
    return None if limit is None else Value(limit, layer.origin)


def _key_of(layer: Layer, place: Place) -> Key:
    if place[1] is Setting.RESOURCE_GROUP:
        return Key(Kind.GROUP, "", place[2])
    return rate_key(*place, is_global=layer is Layer.GLOBAL)


def _where(key: Key) -> list[tuple[Layer, Place]]:
    if key.kind is Kind.GROUP:
        return [(Layer.REST, (direction, Setting.RESOURCE_GROUP, key.name)) for direction in DIRECTIONS]
    setting, is_global = setting_of(key)
    about: About = "publish" if key.kind is Kind.PUBLISH else "dispatch" if key.kind is Kind.DISPATCH else "subscribe"
    return [(Layer.GLOBAL if is_global else Layer.REST, (about, setting, key.name))]


def _put(kept: dict[str, str], name: str, value: str | None) -> None:
    if value is None:
        kept.pop(name, None)
    else:
        kept[name] = value
