"""The blocklist of one process, and how its changes reach live sessions."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import structlog

from proxy.block_rules import Key, Rule, Rules, TooManyRulesError
from proxy.counters import Counters
from proxy.observe.connection import Connection

MOST_ENDS_LOGGED = 100
"""Most lines of the operator's log about what one new rule ended; the line about the rule counts all."""


_LOOKED_AT = 20
"""Sessions that are looked at in one unit of work."""


@dataclass(slots=True)
class EndedByRule:
    """The numbers of connections and streams that a new rule ended.

    Attributes:
        over: Set when the last one has ended: many sessions take some turns of the loop.
    """

    connections: int = 0
    streams: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event, compare=False, repr=False)


class Blockable(Protocol):
    """A session, as the blocklist sees it."""

    def rule_added(self, rule: Rule, ended: EndedByRule) -> Iterator[None]:
        """End what the rule blocks, one stream or the session in each step, and count it in `ended`."""


def _at_once(units: Iterator[None], then: Callable[[], None]) -> None:
    for _ in units:
        pass
    then()


@dataclass(frozen=True, slots=True)
class Order:
    """A decision on a key at run time; it overrides the configuration file.

    Args:
        reason: Why the key is blocked.
        since_ns: When the order was set, nanoseconds since 1970.
        lifts: The key is not blocked, although the file has it.
    """

    reason: str = ""
    since_ns: int = 0
    lifts: bool = False


class Blocklist:
    """The rules of the configuration file and of orders; counts and logs refusals and ends.

    Args:
        file_rules: The rules of the configuration file.
        counters: Count refusals and ends.
        sessions: The live sessions; the caller keeps the collection up to date.
        wall: Nanoseconds since 1970.
        in_slices: Does all steps of an iterator, some in each turn of the loop, and calls a function then.
    """

    def __init__(
        self,
        file_rules: Collection[Rule],
        counters: Counters,
        sessions: Collection[Blockable],
        wall: Callable[[], int] = time.time_ns,
        in_slices: Callable[[Iterator[None], Callable[[], None]], None] = _at_once,
    ) -> None:
        self._in_slices = in_slices
        self.rules = Rules()
        self.hits: Counter[Key] = Counter()
        """Number of connections and streams that each rule has refused or ended since it was set."""
        self._counters = counters
        self._sessions = sessions
        self._wall = wall
        self._log = structlog.get_logger()
        self._ends_to_log = 0
        self._orders: dict[Key, Order] = {}
        self._file = {rule.key: Rule(rule.key, rule.reason, wall(), "file") for rule in file_rules}
        for rule in self._file.values():
            self.rules.put(rule)

    def lifted(self) -> list[Rule]:
        """Return the rules of the file that orders lift, by kind and name."""
        return sorted((rule for rule in self._file.values() if self._is_lifted(rule.key)), key=lambda rule: rule.key)

    def stands_in_file(self, key: Key) -> bool:
        """Return whether the file blocks the key, were there no order."""
        return key in self._file

    def needless(self) -> list[Key]:
        """Return the keys that orders lift although the file does not have them any more."""
        return [key for key, order in self._orders.items() if order.lifts and key not in self._file]

    def order_to_block(self, key: Key, reason: str, *, is_room_made: bool = False) -> Order | None:
        """Return the order that is needed to block `key`; None if the file blocks it already.

        A key that is blocked keeps its age, and its reason if none is given.

        Args:
            key: The subject of the block.
            reason: Why the key is blocked.
            is_room_made: Whether the caller makes room before the order is put in force.

        Raises:
            TooManyRulesError: If there is no room.
        """
        if not is_room_made:
            self.rules.check_room(key)
        file, rule = self._file.get(key), self.rules.get(key)
        if file is not None and reason in {"", file.reason} and (rule is None or rule.origin == "file" or reason):
            return None
        return Order(reason or (rule.reason if rule else ""), rule.since_ns if rule else self._wall())

    def order_to_unblock(self, key: Key) -> Order | None:
        """Return the order that is needed to unblock `key`; None if the file does not have it."""
        return Order(since_ns=self._wall(), lifts=True) if key in self._file else None

    def put(self, key: Key, order: Order | None, *, quietly: bool = False) -> EndedByRule:
        """Put an order in force, or remove it (None); return what that ends.

        Args:
            key: The subject of the order.
            order: The order.
            quietly: Write no line of the log for it, because the process starts.
        """
        if order is None:
            self._orders.pop(key, None)
        else:
            self._orders[key] = order
        return self._settle(key, quietly=quietly)

    def reload(self, file_rules: Collection[Rule]) -> bool:
        """Put the rules of another file in force; return whether that changes anything.

        Keys that only the old file blocked are unblocked. Orders stay in force: keys in both files that were lifted at
        run time stay lifted, and keys blocked at run time stay blocked.
        """
        before, now = self._file, self._wall()
        new = {rule.key: before.get(rule.key, Rule(rule.key, since_ns=now)) for rule in file_rules}
        self._file = {rule.key: Rule(rule.key, rule.reason, new[rule.key].since_ns, "file") for rule in file_rules}
        for key in (*(before.keys() - self._file.keys()), *self._file):  # first what makes room
            self._settle(key)
        return before != self._file

    def _is_lifted(self, key: Key) -> bool:
        order = self._orders.get(key)
        return order is not None and order.lifts

    def _rule_for(self, key: Key) -> Rule | None:
        order = self._orders.get(key)
        if order is None:
            return self._file.get(key)
        return None if order.lifts else Rule(key, order.reason, order.since_ns, "rest")

    def _settle(self, key: Key, *, quietly: bool = False) -> EndedByRule:
        """Put the rule in force that the file and the orders give for a key."""
        before, rule = self.rules.get(key), self._rule_for(key)
        if rule == before:
            return nothing_ended()
        if rule is not None:
            return self._block(rule, quietly=quietly)
        self.rules.remove(key)
        del self.hits[key]
        if before is not None and not quietly:
            self._log.warning("unblocked", **_fields(before))
        return nothing_ended()

    def _block(self, rule: Rule, *, quietly: bool) -> EndedByRule:
        try:
            self.rules.put(rule)
        except TooManyRulesError as error:
            self._log.error("not blocked", **_fields(rule), error=str(error))
            return nothing_ended()
        self._ends_to_log = MOST_ENDS_LOGGED
        ended, sessions = EndedByRule(), list(self._sessions)
        then = partial(self._blocked, rule, ended, quietly=quietly)
        if sessions:
            self._in_slices(_ending(rule, sessions, ended), then)
        else:
            then()
        return ended

    def _blocked(self, rule: Rule, ended: EndedByRule, *, quietly: bool) -> None:
        ended.over.set()
        if not quietly:
            self._log.warning("blocked", **_fields(rule), connections=ended.connections, streams=ended.streams)

    def refused(self, rule: Rule) -> None:
        """Count that the rule refused something."""
        self.hits[rule.key] += 1
        self._counters.blocked[rule.key.kind.value] += 1

    def ended(self, rule: Rule, connection: Connection, **stream: object) -> None:
        """Count and log that the rule, when it was set, ended a connection, or the stream that `stream` names."""
        self.refused(rule)
        if self._ends_to_log > 0:
            self._ends_to_log -= 1
            self._log.warning(
                "ended by a block",
                **_fields(rule),
                client=connection.client_address,
                connection=connection.connection_id,
                **stream,
            )


def _ending(rule: Rule, sessions: list[Blockable], ended: EndedByRule) -> Iterator[None]:
    for number, session in enumerate(sessions, 1):
        before = ended.connections
        yield from session.rule_added(rule, ended)
        if ended.connections != before or number % _LOOKED_AT == 0:
            yield


def nothing_ended() -> EndedByRule:
    """Return the outcome of a change that ends nothing."""
    nothing = EndedByRule()
    nothing.over.set()
    return nothing


def _fields(rule: Rule) -> dict[str, str]:
    key = rule.key
    return {"kind": key.kind.value, "name": key.name, "within": key.within, "reason": rule.reason}
