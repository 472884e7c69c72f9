"""Which limits apply to a stream: values by setting, and Pulsar's precedence topic > namespace > broker."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from limiter.levels import ANYBODY, LEVELS, About, Client, Level, Setting, Topic, Whose
from limiter.limiter import Scope
from limiter.networks import Networks
from limiter.rates import Direction, Limit, Rate


@dataclass(frozen=True, slots=True)
class Value:
    """A limit and where it was written: `file` or `rest`."""

    limit: Limit
    origin: str


@dataclass(frozen=True, slots=True)
class InForce:
    """One limit that applies: what it limits, its value, and its source for people (`namespace rest`)."""

    scope: Scope
    limit: Limit
    source: str


@dataclass(slots=True)
class Policies:
    """Every configured value, and which resource group a tenant or namespace is attached to."""

    groups_of_namespaces: dict[str, str] = field(default_factory=dict)
    """Resource group by `tenant/namespace`."""
    groups_of_tenants: dict[str, str] = field(default_factory=dict)
    """Resource group by tenant, for namespaces without one of their own."""
    _values: dict[About, dict[Setting, dict[str, Value]]] = field(default_factory=dict)
    _networks: dict[About, Networks[Value]] = field(default_factory=dict)

    def put(self, about: About, setting: Setting, name: str, value: Value | None) -> None:
        """Set a value; None takes it back.

        Raises:
            ValueError: If an address or a network is not one.
        """
        if setting is Setting.ADDRESS:  # what limits nothing must not hide the wider network's value
            self._networks.setdefault(about, Networks()).put(name, value if value and value.limit else None)
        values = self._values.setdefault(about, {})
        if value is not None:
            values.setdefault(setting, {})[name] = value
        elif setting in values:
            values[setting].pop(name, None)
            if not values[setting]:
                del values[setting]

    def get(self, about: About, setting: Setting, name: str) -> Value | None:
        """What was put there; of an address, what holds for it."""
        if setting is Setting.ADDRESS:
            networks = self._networks.get(about)
            return networks.find(name) if networks else None
        return self.put_under(about, setting).get(name)

    def clear(self) -> None:
        """Take everything back: values and attachments."""
        self.groups_of_namespaces.clear()
        self.groups_of_tenants.clear()
        self._values.clear()
        self._networks.clear()

    def put_under(self, about: About, setting: Setting) -> Mapping[str, Value]:
        """Every value of one setting, by name."""
        return self._values.get(about, {}).get(setting, {})

    def in_force(self, direction: Direction, topic: Topic, client: Client = ANYBODY) -> tuple[InForce, ...]:
        """The limits of one topic (one partition of a partitioned one) for one client's stream, outermost first."""
        values = self._values.get(direction)
        if not values or topic.is_system:
            return ()
        whose = Whose(topic, client, self.group_of(topic))
        found = (self._at_level(level, direction, whose, values) for level in LEVELS)
        return tuple(entry for entry in found if entry is not None)

    def in_force_at(self, level: Level, direction: Direction, topic: Topic, client: Client) -> InForce | None:
        """The one of these limits that is of `level`, if there is one."""
        values = self._values.get(direction)
        if not values or topic.is_system:
            return None
        return self._at_level(level, direction, Whose(topic, client, self.group_of(topic)), values)

    def subscribe_rate(self, topic: Topic) -> tuple[Rate, str] | None:
        """How often each consumer may subscribe to a topic, and the source for people (`namespace rest`).

        The narrowest value that is there holds, as with Pulsar.
        """
        if topic.is_system or "subscribe" not in self._values:
            return None
        for setting, name, source in (
            (Setting.TOPIC, topic.partitioned, "topic"),
            (Setting.TOPIC_OF_NAMESPACE, topic.namespace_name, "namespace"),
            (Setting.TOPIC_OF_BROKER, "", "broker"),
        ):
            value = self.get("subscribe", setting, name)
            if value and value.limit.messages:
                return value.limit.messages, f"{source} {value.origin}"
        return None

    def group_of(self, topic: Topic) -> str:
        """The resource group that the topic's namespace is attached to, or else its tenant; empty for none."""
        return self.groups_of_namespaces.get(topic.namespace_name) or self.groups_of_tenants.get(topic.tenant, "")

    def _at_level(
        self, level: Level, direction: Direction, whose: Whose, values: Mapping[Setting, object]
    ) -> InForce | None:
        """The narrowest value that is there; one that limits nothing counts as not set, as with Pulsar."""
        if level.exists is not None and not level.exists(whose):
            return None
        for setting, name, source in level.settings:
            if setting in values:
                value = self.get(direction, setting, name(whose))
                if value and value.limit:
                    return InForce(level.scope(direction, whose), value.limit, f"{source} {value.origin}")
        return None
