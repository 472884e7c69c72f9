"""The rules of one process, and how a change reaches its live sessions."""

import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol

import structlog

from proxy.blocking.rules import Key, Rule, Rules, TooManyRulesError
from proxy.observe.connection import Connection
from proxy.observe.counters import Counters

MOST_ENDS_LOGGED = 100
"""Lines of the operator's log about what one new rule ended; the line about the rule counts them all."""


class Ended(NamedTuple):
    """What a new rule ended."""

    connections: int
    streams: int


class Blockable(Protocol):
    """A session, as far as blocking goes."""

    def rule_added(self, rule: Rule) -> Ended:
        """End what the rule means, and say how much that was."""


class Blocklist:
    """Blocks and unblocks, counts and logs.

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
        self._counters = counters
        self._sessions = sessions
        self._wall = wall
        self._log = structlog.get_logger()
        self._ends_to_log = 0
        self._file: dict[Key, str] = {}
        for rule in file_rules:
            self._file[rule.key] = rule.reason
            self.rules.put(Rule(rule.key, rule.reason, wall(), "file"))

    def reload(self, file_rules: Collection[Rule]) -> bool:
        """Another file holds: what only the old one blocked goes free. Returns whether that changes anything.

        What was lifted at run time and stands in both stays so, and what was blocked at run time as well.
        """
        before, self._file = self._file, {rule.key: rule.reason for rule in file_rules}
        for key in before.keys() - self._file.keys():
            rule = self.rules.get(key)
            if rule is not None and rule.origin == "file":
                self.unblock(key)
            self.rules.lifted.pop(key, None)
        for key, reason in self._file.items():
            if before.get(key) != reason and key not in self.rules.lifted:
                self._block_by_file(key, reason)
        return before != self._file

    def _block_by_file(self, key: Key, reason: str) -> None:
        try:
            self._block(key, reason, "file")
        except TooManyRulesError as error:
            self._log.error("not blocked", kind=key.kind.value, name=key.name, within=key.within, error=str(error))

    def block(self, key: Key, reason: str) -> tuple[Rule, Ended]:
        """Set a rule, and end what it means. One that is there keeps its age, and its reason if none is given.

        Raises:
            TooManyRulesError: If there is no room.
        """
        return self._block(key, reason, "file" if key in self.rules.lifted else "rest")

    def _block(self, key: Key, reason: str, origin: str) -> tuple[Rule, Ended]:
        before = self.rules.get(key)
        rule = Rule(key, reason, self._wall(), origin)
        if before is not None:
            rule = Rule(key, reason or before.reason, before.since_ns, before.origin)
        self.rules.put(rule)
        self._ends_to_log = MOST_ENDS_LOGGED
        ended = [session.rule_added(rule) for session in list(self._sessions)]
        total = Ended(sum(one.connections for one in ended), sum(one.streams for one in ended))
        self._log.warning("blocked", **_told(rule), **total._asdict())
        return rule, total

    def unblock(self, key: Key) -> Rule | None:
        """Take a rule back; gives it, or None if there was none."""
        rule = self.rules.remove(key)
        if rule is not None:
            del self.hits[key]
            self._log.warning("unblocked", **_told(rule))
        return rule

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
