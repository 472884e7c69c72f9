"""Two views of the same producers and consumers, and where they differ."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from limiter.rates import Direction
from proxy.importing.values import shown


@dataclass(frozen=True, slots=True)
class Seen:
    """A producer or consumer, as the broker or Sluice has it.

    Args:
        direction: `publish` for a producer, `dispatch` for a consumer.
        topic: Full name.
        subscription: Empty for a producer.
        name: Of the producer or consumer.
        connection: The broker's name for it (an address) or Sluice's (a number).
        number: A producer's id on its connection; None where it is not said.
    """

    direction: Direction
    topic: str
    subscription: str
    name: str
    connection: str
    number: int | None = None

    def __str__(self) -> str:
        what = f"producer {shown(self.name)!r}" if self.direction == "publish" else f"consumer {shown(self.name)!r}"
        of = f" of subscription {shown(self.subscription)!r}" if self.direction == "dispatch" else ""
        number = "" if self.number is None else f", id {self.number}"
        return f"{what}{of} on {shown(self.topic)} (connection {self.connection}{number})"


_Key = tuple[Direction, str, str, str]
"""Direction, topic, subscription and name: a broker has each producer's once, and may have a consumer's often."""


def differences(at_broker: Iterable[Seen], here: Iterable[Seen]) -> list[str]:
    """What only one of the two has, and what both have differently; a line each, sorted.

    Connections have different names on the two sides. So two are the same where one name on the one side stands for one
    on the other in everything that both have.
    """
    theirs, ours = _by_key(at_broker), _by_key(here)
    pairs: list[tuple[Seen, Seen]] = []
    found: list[str] = []
    for key in theirs.keys() | ours.keys():
        there, own = theirs[key], ours[key]
        pairs += zip(there, own, strict=False) if len(there) == len(own) == 1 else ()
        extra = len(there) - len(own)
        if extra:
            found += _only("only the broker has", there, extra) if extra > 0 else _only("only Sluice has", own, -extra)
    found += [
        f"another id: the broker has {there}, Sluice {own}"
        for there, own in pairs
        if there.number is not None and own.number is not None and there.number != own.number
    ]
    return sorted([*found, *_connections(pairs)])


def alike(seen: Iterable[Seen]) -> int:
    """How many have direction, topic, subscription and name in common with another: only their number is compared."""
    return sum(len(of) for of in _by_key(seen).values() if len(of) > 1)


def _by_key(seen: Iterable[Seen]) -> defaultdict[_Key, list[Seen]]:
    by_key: defaultdict[_Key, list[Seen]] = defaultdict(list)
    for one in seen:
        by_key[one.direction, one.topic, one.subscription, one.name].append(one)
    return by_key


def _only(where: str, seen: list[Seen], extra: int) -> list[str]:
    """As many as there are too many, of those that nothing else tells apart."""
    if extra == len(seen):
        return [f"{where} {one}" for one in seen]
    return [f"{where} {extra} more of {seen[0]}"]


def _connections(pairs: list[tuple[Seen, Seen]]) -> Iterator[str]:
    """Where one connection of the one side is several of the other's."""
    for where, others, at in (("the broker", "Sluice", 0), ("Sluice", "the broker", 1)):
        first: dict[str, tuple[Seen, Seen]] = {}
        for pair in pairs:
            known = first.setdefault(pair[at].connection, pair)
            if known[1 - at].connection != pair[1 - at].connection:
                same = f"{where} has both on connection {pair[at].connection}"
                yield f"another connection: {same}, {others} has {known[1 - at]} and {pair[1 - at]}"
