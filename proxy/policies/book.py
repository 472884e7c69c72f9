"""All policies of a process: what the file says, what was set at run time, and how a change comes into force.

change ─▶ checked ─▶ on disk, with its audit line ─▶ layers ─▶ live streams
"""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import structlog

from limiter.changes import Change as PolicyChange
from limiter.levels import About, Setting
from limiter.policies import Policies, Value
from limiter.rates import Direction
from proxy.policies.bodies import BodyError, limit_of
from proxy.policies.dynamic import check_dynamic, dynamic_value, place_of
from proxy.policies.group_body import group_limits
from proxy.policies.keeper import Keeper
from proxy.policies.key import Key, Kind, rate_key, setting_of
from proxy.policies.layers import FilePolicies, Layer, Layers, Place
from proxy.policies.store import Change, Store

_BOTH: tuple[Direction, ...] = ("publish", "dispatch")
Planner = Callable[[], Awaitable[Mapping[Key, str | None]]]
"""Finds out what is wanted."""


@dataclass(frozen=True, slots=True)
class Who:
    """Who changes something, for the audit log."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class Around:
    """What is called around a change.

    Args:
        before: Before values change, so that no line of the access log mixes two of them.
        after: After they changed, with what changed.
        changed: With each change, between the two.
        keepers: Who puts in force what is no limit; for these alone, neither `before` nor `after` is called.
    """

    before: Callable[[], None]
    after: Callable[[list[PolicyChange]], None]
    changed: Callable[[Change, Who], None] = lambda _change, _who: None
    keepers: Mapping[Kind, Keeper] = field(default_factory=dict)


class Book:
    """Keeps policies, and puts them in force.

    Args:
        policies: What the limiter looks at.
        file: What the configuration file says.
        store: Where the others are kept.
        around: Called around changes.
        wall: Nanoseconds since 1970.

    Raises:
        StoreError: If the store cannot be read.
    """

    def __init__(
        self,
        policies: Policies,
        file: FilePolicies,
        store: Store,
        around: Around,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self.store = store
        self.layers = Layers(policies)
        self.file = file
        self.dynamic: dict[str, str] = {}
        """Keys of the dynamic configuration that are set."""
        self._attached: dict[Key, str] = {}
        self._groups: set[str] = set()
        self._around, self._wall = around, wall
        self._turn = asyncio.Lock()
        self._changing: set[asyncio.Task[list[Change]]] = set()
        self._lay_file(file, file.values)
        for key, kept in store.policies():
            keeper = around.keepers.get(key.kind)
            if keeper is not None:
                keeper.load(key, kept)
            else:
                self._load(key, kept)
        self._lay_attachments()
        self.layers.changes()  # nobody is there yet whom they concern

    def read(self, key: Key) -> str | None:
        """What was set at run time under a key, as it was written; None if nothing was."""
        return self.store.read(key)

    def groups(self) -> set[str]:
        """The names of all resource groups."""
        return self._groups | self.groups_of_file()

    def groups_of_file(self) -> set[str]:
        """Those that the file names."""
        limited = {name for _, setting, name in self.file.values if setting is Setting.RESOURCE_GROUP}
        return limited | {*self.file.groups_of_tenants.values(), *self.file.groups_of_namespaces.values()}

    def attached(self, setting: str) -> dict[str, str]:
        """What was attached at run time: groups by namespace or tenant; empty is none, whatever the file says."""
        return {key.name: group for key, group in self._attached.items() if key.setting == setting}

    def is_attached(self, group: str) -> bool:
        """Whether a tenant or namespace is attached to it."""
        policies = self.layers.policies
        return group in {*policies.groups_of_tenants.values(), *policies.groups_of_namespaces.values()}

    async def change(self, wanted: Mapping[Key, str | None], who: Who) -> list[Change]:
        """Set and take back, all or nothing: on disk first, then in force on live streams.

        Args:
            wanted: The new bodies as `proxy.policies.bodies` keeps them; None takes one back.
            who: For the audit log.

        Returns:
            What changed; what was as wanted already is not in it.

        Raises:
            BodyError: If a body cannot be read. Nothing has changed then.
            StoreError: If the store cannot be written. Nothing has changed then.
        """
        return await self.rework(lambda: wanted, who)

    async def rework(self, plan: Callable[[], Mapping[Key, str | None]], who: Who) -> list[Change]:
        """The same, with what is wanted found out when no other change is under way, and by what is in force then."""

        async def planner() -> Mapping[Key, str | None]:
            return plan()

        return await self.rework_slowly(planner, who)

    async def rework_slowly(self, plan: Planner, who: Who) -> list[Change]:
        """The same, where finding it out takes a while."""
        changing = asyncio.get_running_loop().create_task(self._change(plan, who))
        self._changing.add(changing)
        changing.add_done_callback(self._changing.discard)
        return await asyncio.shield(changing)  # what is on disk comes into force, whoever hangs up

    def prepare(self, file: FilePolicies) -> Callable[[], bool]:
        """Get another file ready to hold: compare it with the one that does, in any thread, one at a time.

        Returns:
            Puts it in force, in the loop's thread, at the cost of what is another. Says whether anything is.
        """
        changed = self.layers.difference(Layer.FILE, file.values)
        groups = replace(file, values={})
        if not changed and groups == replace(self.file, values={}):
            return lambda: False
        return functools.partial(self._take, groups, changed)

    def _take(self, file: FilePolicies, changed: Mapping[Place, Value | None]) -> bool:
        self._around.before()
        self._lay_file(file, changed)
        self._around.after(self.layers.changes())
        return True

    async def _change(self, plan: Planner, who: Who) -> list[Change]:
        async with self._turn:
            wanted = await plan()
            for key, kept in wanted.items():
                self._check(key, kept)
            before = {key: self.store.read(key) for key in wanted}
            changes = [Change(key, before[key], kept) for key, kept in wanted.items() if before[key] != kept]
            if changes:
                await asyncio.to_thread(self.store.write, changes, self._wall(), who.name, who.address)
                self._put_in_force(changes, who)
        for change in changes:
            _log(change, who)
        return changes

    def _check(self, key: Key, kept: str | None) -> None:
        keeper = self._around.keepers.get(key.kind)
        if keeper is not None:
            keeper.check(key, kept)
        else:
            self._effects(key, kept)

    def _put_in_force(self, changes: Iterable[Change], who: Who) -> None:
        keepers = self._around.keepers
        limits = [change for change in changes if change.key.kind not in keepers]
        if limits:
            self._around.before()
        for change in changes:
            self._around.changed(change, who)
            if change.key.kind in keepers:
                keepers[change.key.kind].take(change.key, change.after)
        if limits:
            self._put_limits(limits)

    def _put_limits(self, changes: Iterable[Change]) -> None:
        for change in changes:
            self._load(change.key, change.after)
        self._lay_attachments()
        self._around.after(self.layers.changes())

    def _load(self, key: Key, kept: str | None) -> None:
        """Make memory say what the store says; attachments are laid when all are there."""
        if key.kind is Kind.ATTACHMENT:
            _put(self._attached, key, kept)
        elif key.kind is Kind.DYNAMIC:
            _put(self.dynamic, key.name, kept)
            self._lay_dynamic(place_of(key.name))
        else:
            if key.kind is Kind.GROUP:
                (self._groups.discard if kept is None else self._groups.add)(key.name)
            for layer, place, value in self._effects(key, kept):
                self.layers.put(layer, place, value)

    def _effects(self, key: Key, kept: str | None) -> list[tuple[Layer, Place, Value | None]]:
        """The values that a kept body means; of some kinds there are none, but the body is checked."""
        if key.kind is Kind.DYNAMIC:
            check_dynamic(key.name, kept)
            return []
        if key.kind is Kind.ATTACHMENT:
            return []
        if key.kind is Kind.GROUP:
            return _of_group(key.name, kept)
        if key.kind is Kind.BLOCK:
            raise BodyError(f"{key}: nobody here keeps blocks")
        layer, place = _where(key)
        return [(layer, place, None if kept is None else self._value(layer, place, key, kept))]

    def _value(self, layer: Layer, place: Place, key: Key, kept: str) -> Value:
        """A limit that the file observes or rejects by stays so where Pulsar's tools set its numbers only."""
        file = self.layers.written(Layer.FILE, place)
        return Value(limit_of(key, kept, file.limit.mode if file else "enforce"), layer.origin)

    def _lay_dynamic(self, place: Place) -> None:
        file = self.layers.written(Layer.FILE, place)
        self.layers.put(Layer.DYNAMIC, place, dynamic_value(place, self.dynamic, file))

    def _lay_file(self, file: FilePolicies, changed: Mapping[Place, Value | None]) -> None:
        for place, value in changed.items():
            self.layers.put(Layer.FILE, place, value)
            self._refresh(place)
        self.file = replace(file, values=self.layers.of_layer(Layer.FILE))
        for name in self.dynamic:
            self._lay_dynamic(place_of(name))
        self._lay_attachments()

    def _refresh(self, place: Place) -> None:
        """The file's mode holds for Pulsar's bodies over it too."""
        for layer in (Layer.GLOBAL, Layer.REST):
            if self.layers.written(layer, place) is not None and place[1] is not Setting.RESOURCE_GROUP:
                key = rate_key(*place, is_global=layer is Layer.GLOBAL)
                self._load(key, self.store.read(key))

    def _lay_attachments(self) -> None:
        of_tenants = {**self.file.groups_of_tenants, **self.attached("tenant")}
        self.layers.attach(of_tenants, {**self.file.groups_of_namespaces, **self.attached("namespace")})


def _of_group(name: str, kept: str | None) -> list[tuple[Layer, Place, Value | None]]:
    limits = group_limits(name, kept) if kept is not None else {}
    values = {direction: Value(limit, Layer.REST.origin) for direction, limit in limits.items()}
    return [(Layer.REST, (about, Setting.RESOURCE_GROUP, name), values.get(about)) for about in _BOTH]


def _where(key: Key) -> tuple[Layer, Place]:
    setting, is_global = setting_of(key)
    about: About = "publish" if key.kind is Kind.PUBLISH else "dispatch" if key.kind is Kind.DISPATCH else "subscribe"
    return Layer.GLOBAL if is_global else Layer.REST, (about, setting, key.name)


K = TypeVar("K")


def _put(kept: dict[K, str], key: K, value: str | None) -> None:
    if value is None:
        kept.pop(key, None)
    else:
        kept[key] = value


def _log(change: Change, who: Who) -> None:
    structlog.get_logger().info(
        "policy changed",
        policy=str(change.key),
        before=change.before,
        after=change.after,
        by=who.name,
        address=who.address,
    )
