"""Which limits apply to a topic: values by level, and Pulsar's precedence topic > namespace > broker.

A namespace's policy in Pulsar's sense is the value of *each* of its topics; a namespace's *total* is a limit of
Sluice's own, over all of its topics together. Both apply at once.

Source: https://pulsar.apache.org/docs/admin-api-namespaces/ (publish and dispatch rates)
"""

from dataclasses import dataclass, field
from typing import Protocol

from limiter.limiter import Scope
from limiter.rates import Direction, Limit


class Topic(Protocol):
    """What limits need to know of a topic's name; `protocol.topic_name.TopicName` is one."""

    @property
    def full(self) -> str:
        """The full name, partition suffix included."""

    @property
    def partitioned(self) -> str:
        """The full name without a partition suffix."""

    @property
    def tenant(self) -> str: ...  # noqa: D102

    @property
    def namespace(self) -> str: ...  # noqa: D102

    @property
    def namespace_name(self) -> str:
        """`tenant/namespace`."""

    @property
    def is_system(self) -> bool:
        """Whether the topic is Pulsar's own and exempt from every limit."""


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
    """Every configured value. Keys: (direction, full topic name without partition) or (direction, tenant/namespace)."""

    topics: dict[tuple[Direction, str], Value] = field(default_factory=dict)
    namespaces: dict[tuple[Direction, str], Value] = field(default_factory=dict)
    namespace_totals: dict[tuple[Direction, str], Value] = field(default_factory=dict)

    def in_force(self, direction: Direction, topic: Topic) -> tuple[InForce, ...]:
        """The limits of one topic (one partition of a partitioned one), outermost first."""
        if topic.is_system:
            return ()
        found = []
        total = self.namespace_totals.get((direction, topic.namespace_name))
        if total is not None:
            scope = Scope(direction, "namespace", topic.namespace_name, topic.tenant, topic.namespace)
            found.append(InForce(scope, total.limit, f"total {total.origin}"))
        level, own = "topic", self.topics.get((direction, topic.partitioned))
        if own is None:
            level, own = "namespace", self.namespaces.get((direction, topic.namespace_name))
        if own is not None:
            scope = Scope(direction, "topic", topic.full, topic.tenant, topic.namespace)
            found.append(InForce(scope, own.limit, f"{level} {own.origin}"))
        return tuple(entry for entry in found if entry.limit)
