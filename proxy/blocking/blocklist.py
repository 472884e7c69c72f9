"""The rules of one process, and how a change reaches its live sessions."""

import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import structlog

from proxy.blocking.rules import Key, Rule, Rules, TooManyRulesError
from proxy.observe.connection import Connection
from proxy.observe.counters import Counters

MOST_ENDS_LOGGED = 100
"""Lines of the operator's log about what one new rule ended; the line about the rule counts them all."""


class EndedByRule(NamedTuple):
    """What a new rule ended."""

    connections: int
    streams: int


NOTHING_ENDED = EndedByRule(0, 0)


class Blockable(Protocol):
    """A session, as far as blocking goes."""

    def rule_added(self, rule: Rule) -> EndedByRule:
        """End what the rule means, and say how much that was."""


@dataclass(frozen=True, slots=True)
class Order:
    """What was said of a key at run time; it goes before what the configuration file says of it.

    Args:
        reason: Why it is blocked.
        since_ns: When it was set, nanoseconds since 1970.
        lifts: It is not blocked, although it stands in the file.
    """

    reason: str = ""
    since_ns: int = 0
    lifts: bool = False


class Blocklist:
    """What the file and what orders block; counts and logs what comes of it.

    Args:
        file_rules: Those of the configuration file.
        counters: Where refusals and ends are counted.
        sessions: The live ones; others add to them.
        wall: Nanoseconds since 1970.
    """

    def __init__(
        self,
        file_rules: Collection[Rule],
        counters: Counters,
        sessions: Collection[Blockable],
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self.rules = Rules()
        self.hits: Counter[Key] = Counter()
        """How often each rule refused or ended something since it was set."""
        self.removed: Callable[[Key], None] = lambda _key: None
        """Called with whom nothing blocks any more."""
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
        """Rules of the file that orders lift, by kind and name."""
        return sorted((rule for rule in self._file.values() if self._is_lifted(rule.key)), key=lambda rule: rule.key)

    def stands_in_file(self, key: Key) -> bool:
        """Whether it would be blocked without any order."""
        return key in self._file

    def needless(self) -> list[Key]:
        """What orders lift although it does not stand in the file any more."""
        return [key for key, order in self._orders.items() if order.lifts and key not in self._file]

    def order_to_block(self, key: Key, reason: str) -> Order | None:
        """What it takes that `key` is blocked: an order, or none where the file says so already.

        What is blocked keeps its age, and its reason if none is given.

        Raises:
            TooManyRulesError: If there is no room.
        """
        self.rules.check_room(key)
        file, rule = self._file.get(key), self.rules.get(key)
        if file is not None and reason in {"", file.reason} and (rule is None or rule.origin == "file" or reason):
            return None
        return Order(reason or (rule.reason if rule else ""), rule.since_ns if rule else self._wall())

    def order_to_unblock(self, key: Key) -> Order | None:
        """What it takes that `key` is not blocked."""
        return Order(since_ns=self._wall(), lifts=True) if key in self._file else None

    def put(self, key: Key, order: Order | None, *, quietly: bool = False) -> EndedByRule:
        """An order holds from now on, or none; gives what that ended.

        Args:
            key: Whom it means.
            order: What is said of it.
            quietly: Without a line of the log for each, because the process starts.
        """
        if order is None:
            self._orders.pop(key, None)
        else:
            self._orders[key] = order
        return self._settle(key, quietly=quietly)

    def reload(self, file_rules: Collection[Rule]) -> bool:
        """Another file holds: what only the old one blocked goes free. Returns whether that changes anything.

        What was lifted at run time and stands in both stays so, and what was blocked at run time as well.
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

    def _wanted(self, key: Key) -> Rule | None:
        order = self._orders.get(key)
        if order is None:
            return self._file.get(key)
        return None if order.lifts else Rule(key, order.reason, order.since_ns, "rest")

    def _settle(self, key: Key, *, quietly: bool = False) -> EndedByRule:
        """Make the rules say what file and orders say of a key."""
        before, rule = self.rules.get(key), self._wanted(key)
        if rule == before:
            return NOTHING_ENDED
        if rule is not None:
            return self._block(rule, quietly=quietly)
        self.rules.remove(key)
        del self.hits[key]
        self.removed(key)
        if before is not None and not quietly:
            self._log.warning("unblocked", **_told(before))
        return NOTHING_ENDED

    def _block(self, rule: Rule, *, quietly: bool) -> EndedByRule:
        try:
            self.rules.put(rule)
        except TooManyRulesError as error:
            self._log.error("not blocked", **_told(rule), error=str(error))
            return NOTHING_ENDED
        self._ends_to_log = MOST_ENDS_LOGGED
        ended = [session.rule_added(rule) for session in list(self._sessions)]
        total = EndedByRule(sum(one.connections for one in ended), sum(one.streams for one in ended))
        if not quietly:
            self._log.warning("blocked", **_told(rule), **total._asdict())
        return total

    def refused(self, rule: Rule) -> None:
        """The rule kept something out."""
        self.hits[rule.key] += 1
        self._counters.blocked[rule.key.kind.value] += 1

    def ended(self, rule: Rule, connection: Connection, **what: object) -> None:
        """The rule, while it was set, ended something."""
        self.refused(rule)
        if self._ends_to_log > 0:
            self._ends_to_log -= 1
            who = {"client": connection.client_address, "connection": connection.connection_id}
            self._log.warning("ended by a block", **_told(rule), **who, **what)


def _told(rule: Rule) -> dict[str, str]:
    key = rule.key
    return {"kind": key.kind.value, "name": key.name, "within": key.within, "reason": rule.reason}
