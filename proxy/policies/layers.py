"""Where each value was written, and which of several holds.

    rest        set for this very place by the admin address          }
    global      the same, by Pulsar's tools with `--global`            } kept by the store
    dynamic     the broker's dynamic configuration, by its own names   }
    file        the configuration file

The upper one hides the lower, and gives it free again when it is taken back; only `global` is not hidden by a `rest`
that limits nothing, as with Pulsar. This is about one place of
`limiter.policies` (say, what each topic of one namespace may publish); precedence between places (topic over
namespace over broker) is not decided here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from limiter.changes import Change, change_of
from limiter.levels import About, Setting
from limiter.policies import Policies, Value
from limiter.rates import DIRECTIONS

Place = tuple[About, Setting, str]
"""What a value is for: what it is about, setting, and the setting's name."""


@dataclass(frozen=True, slots=True)
class FilePolicies:
    """What the configuration file says.

    Args:
        values: Limits by place.
        groups_of_tenants: Resource groups by the tenant that is attached to them.
        groups_of_namespaces: The same by namespace.
        groups: The names of all resource groups, of those too that limit nothing and to which nothing is attached.
    """

    values: Mapping[Place, Value]
    groups_of_tenants: Mapping[str, str]
    groups_of_namespaces: Mapping[str, str]
    groups: frozenset[str] = frozenset()


class Layer(IntEnum):
    """Who wrote a value; the higher hides the lower."""

    FILE = 0
    DYNAMIC = 1
    GLOBAL = 2
    REST = 3

    @property
    def origin(self) -> str:
        """As people see it."""
        return _ORIGINS[self]


_ORIGINS = {layer: layer.name.lower() for layer in Layer}
_FROM_THE_TOP = tuple(reversed(Layer))


class Layers:
    """Every value that was written, and the visible ones in `policies`.

    Args:
        policies: Gets what holds; nobody else may put values there.
    """

    def __init__(self, policies: Policies) -> None:
        self.policies = policies
        self._written: dict[Layer, dict[Place, Value]] = {layer: {} for layer in Layer}
        self._before: dict[Place, Value | None] = {}
        self._regrouped: set[tuple[Setting, str]] = set()

    def copy(self) -> "Layers":
        """The same, over policies of its own; in any thread, while nobody writes here."""
        other = Layers(self.policies.copy())
        other._written = {layer: dict(values) for layer, values in self._written.items()}
        return other

    def exchange(self, other: "Layers") -> None:
        """Hold what another one holds, and it what this one does, in one step; `policies` stays the same object."""
        self.policies.exchange(other.policies)
        self._written, other._written = other._written, self._written  # noqa: SLF001 - of the same class

    def put(self, layer: Layer, place: Place, value: Value | None) -> None:
        """Write a value; None takes it back."""
        if value is None:
            self._written[layer].pop(place, None)
        else:
            self._written[layer][place] = value
        self._show(place)

    def difference(self, layer: Layer, values: Mapping[Place, Value]) -> dict[Place, Value | None]:
        """What to write for a layer to hold `values`; in any thread, while nobody writes that layer."""
        before = self._written[layer]
        changed: dict[Place, Value | None] = {
            place: value for place, value in values.items() if before.get(place) != value
        }
        changed.update((place, None) for place in before if place not in values)
        return changed

    def written(self, layer: Layer, place: Place) -> Value | None:
        """What one layer says, be it hidden or not."""
        return self._written[layer].get(place)

    def of_layer(self, layer: Layer) -> Mapping[Place, Value]:
        """Everything that one layer says."""
        return self._written[layer]

    def attach(self, of_tenants: dict[str, str], of_namespaces: dict[str, str]) -> None:
        """Say which resource group each tenant and namespace is attached to that is."""
        policies = self.policies
        self._regrouped |= _differing(Setting.TENANT, policies.groups_of_tenants, of_tenants)
        self._regrouped |= _differing(Setting.NAMESPACE, policies.groups_of_namespaces, of_namespaces)
        policies.groups_of_tenants, policies.groups_of_namespaces = of_tenants, of_namespaces

    def changes(self) -> list[Change]:
        """Where another value holds than when this was last called, and whose resource group is another."""
        found = [change_of(place, before, self._visible(place)) for place, before in self._before.items()]
        found += [Change(about, *whose) for about in DIRECTIONS for whose in self._regrouped]
        self.forget_changes()
        return [change for change in found if change is not None]

    def forget_changes(self) -> None:
        """Nobody is there yet whom they concern."""
        self._before.clear()
        self._regrouped.clear()

    def dissolve(self) -> None:
        """Take everything out, in any thread: to free 100,000 values in one go would hold all other threads up."""
        held = [item for values in self._written.values() for item in values.items()]
        for values in self._written.values():
            values.clear()
        self.policies.clear()
        while held:
            held.pop()

    def _visible(self, place: Place) -> Value | None:
        about, setting, name = place
        return self.policies.put_under(about, setting).get(name)

    def _show(self, place: Place) -> None:
        self._before.setdefault(place, self._visible(place))
        self.policies.put(*place, self._first(place))

    def _first(self, place: Place) -> Value | None:
        for layer in _FROM_THE_TOP:
            found = self._written[layer].get(place)
            if found is not None and not (layer is Layer.REST and self._yields(place, found)):
                return found
        return None

    def _yields(self, place: Place, rest: Value) -> bool:
        return not rest.limit and place in self._written[Layer.GLOBAL]


def _differing(setting: Setting, before: Mapping[str, str], after: Mapping[str, str]) -> set[tuple[Setting, str]]:
    return {(setting, name) for name, _ in before.items() ^ after.items()}
