"""The blocklist of one process, and how its changes reach live sessions.

A rule is in force for whatever connects or opens from the moment at which it is set. Live sessions are looked at in
slices, one look at all of them for all rules that were set since the last look began:

    rules are set ─▶ coming ─no look is under way─▶ a look: each session asks for the rules in force ─▶ logged
                       ▲                                                                                 │
                       └──────────────── rules that are set meanwhile wait for the next look ◀───────────┘
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, Protocol

import structlog

from proxy.block_rules import Key, Rule, Rules, TooManyRulesError, in_order_of_keys
from proxy.counters import Counters
from proxy.observe.connection import Connection
from proxy.slices import letting_go, noting_failure

MOST_ENDS_LOGGED = 100
"""Most lines of the operator's log about what one look at the sessions ended; the lines about the rules count all."""
MOST_RULES_LOGGED = 20
"""Most lines of the operator's log about the rules of one look, or of one reload; a further line counts the rest."""
_LOOKED_AT: Final = 20
"""Sessions, or streams, that are looked at in one unit of work; rules that are reported."""
_MOST_NAMED: Final = 5


@dataclass(slots=True)
class EndedByRule:
    """The numbers of connections and streams that a new rule ended; streams of ended connections count as well.

    Attributes:
        over: Set when the last one has ended: many sessions take some turns of the loop.
    """

    connections: int = 0
    streams: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event, compare=False, repr=False)


class SetBy(NamedTuple):
    """The author of a change of a rule.

    Args:
        name: The author; of the configuration file `file`; empty if it is not known.
        address: The author's address; of another member's change that member as well; empty for none.
    """

    name: str = ""
    address: str = ""


_FILE, _UNKNOWN = SetBy("file"), SetBy()


class _SetRule(NamedTuple):
    """A rule for which sessions are yet to be looked at.

    Attributes:
        rule: The rule.
        ended: Counts what it ends.
        by: The author of it.
        is_quiet: Whether no line of the log is written for it.
    """

    rule: Rule
    ended: EndedByRule
    by: SetBy
    is_quiet: bool = False


class LookAtSessions:
    """One look at all sessions, for all rules that were set before it began.

    Args:
        rules: These rules.
        is_at_clients: Whether some of them block addresses or roles.
        is_at_streams: Whether some of them block topics or names.
    """

    def __init__(self, rules: dict[Key, _SetRule], *, is_at_clients: bool, is_at_streams: bool) -> None:
        self.rules = rules
        self.is_at_clients, self.is_at_streams = is_at_clients, is_at_streams
        self._looked_at = 0

    def is_unit_over(self, *, is_dear: bool = False) -> bool:
        """Count a session or stream that was looked at; return whether that ends a unit of work.

        Args:
            is_dear: Whether it took as long as a unit of work.
        """
        self._looked_at += 1
        if is_dear or self._looked_at >= _LOOKED_AT:
            self._looked_at = 0
            return True
        return False


class Blockable(Protocol):
    """A session, as the blocklist sees it."""

    def rules_added(self, look: LookAtSessions) -> Iterator[None]:
        """End what rules block, one stream or the session in each step; a step without an end looks at some streams."""


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


class FileChange:
    """The difference between the rules in force and those of another file, ready to be laid in one step.

    Args:
        file: The rules of that file.
        rules: The rules that are in force then.

    Attributes:
        rules: None: the same as before.
        set_rules: Rules that are new, or have another reason.
        gone: Rules that are in force no longer.
        refused: Rules for which there is no room, each with the error.
        needless: Rules of the file that now have another reason.
        is_at_clients: Whether some of `set_rules` block addresses or roles.
        is_at_streams: Whether some of them block topics or names.
    """

    def __init__(self, file: dict[Key, Rule], rules: Rules) -> None:
        self.file = file
        self.rules: Rules | None = rules
        self.set_rules: dict[Key, _SetRule] = {}
        self.gone: list[Rule] = []
        self.refused: list[tuple[Rule, TooManyRulesError]] = []
        self.needless: list[Rule] = []
        self.is_at_clients = self.is_at_streams = False


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
        self._look: LookAtSessions | None = None
        """The look at sessions that is under way."""
        self._coming: dict[Key, _SetRule] = {}
        """Rules for which the next look is."""
        self._is_for_clients = self._is_for_streams = False
        """Whether the next look is at clients, and at streams."""
        self._orders: dict[Key, Order] = {}
        self._file = {rule.key: Rule(rule.key, rule.reason, wall(), "file") for rule in file_rules}
        for rule in self._file.values():
            self.rules.put(rule)

    def all_and_lifted(self) -> tuple[list[Rule], list[Rule]]:
        """Return all rules in force, and those of the file that orders lift. May be called in any thread."""
        lifted = {rule.key: rule for rule in self.lifted()}
        rules = self.rules.all()
        for rule in rules:
            lifted.pop(rule.key, None)  # blocked again meanwhile
        return rules, [*lifted.values()]

    def lifted(self) -> list[Rule]:
        """Return the rules of the file that orders lift, by kind and name. May be called in any thread."""
        file, lifted = self._file, self._lifted_keys()
        return in_order_of_keys(file[key] for key in lifted if key in file)

    def stands_in_file(self, key: Key) -> bool:
        """Return whether the file blocks the key, were there no order."""
        return key in self._file

    def needless(self) -> list[Key]:
        """Return the keys that orders lift although the file does not have them any more.

        May be called in any thread.
        """
        file = self._file
        return [key for key in self._lifted_keys() if key not in file]

    def _lifted_keys(self) -> list[Key]:
        return [key for key, order in self._orders.copy().items() if order.lifts]

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

    def would_be(self, key: Key, reason: str) -> Rule:
        """Return the rule that would be in force if `key` were blocked.

        Raises:
            TooManyRulesError: If there is no room.
        """
        order = self.order_to_block(key, reason)
        return self._file[key] if order is None else Rule(key, order.reason, order.since_ns, "rest")

    def order_to_unblock(self, key: Key) -> Order | None:
        """Return the order that is needed to unblock `key`; None if the file does not have it."""
        return Order(since_ns=self._wall(), lifts=True) if key in self._file else None

    def put(self, key: Key, order: Order | None, by: SetBy = _UNKNOWN, *, quietly: bool = False) -> EndedByRule:
        """Put an order in force, or remove it (None); return what that ends.

        Args:
            key: The subject of the order.
            order: The order.
            by: The author of it, for the log.
            quietly: Write no line of the log for it, because the process starts.
        """
        if order is None:
            self._orders.pop(key, None)
        else:
            self._orders[key] = order
        return self._settle(key, by, quietly=quietly)

    def compare(self, file_rules: Iterable[Rule]) -> FileChange:
        """Return how the rules of another file differ from those in force. May be called in any thread.

        Keys that only the old file blocked are unblocked. Orders stay in force: keys in both files that were lifted at
        run time stay lifted, and keys blocked at run time stay blocked. No order must be put, and no other file be
        laid, until the change is.
        """
        before, now, ended = self._file, self._wall(), asyncio.Event()
        change = FileChange({}, self.rules.copy())
        rules, file = change.rules, change.file
        assert rules is not None, "so far"
        for rule in file_rules:
            old = before.get(rule.key)
            is_same = old is not None and old.reason == rule.reason
            file[rule.key] = (
                old if is_same and old else Rule(rule.key, rule.reason, old.since_ns if old else now, "file")
            )
            if old is not None and not is_same:
                change.needless.append(old)
        for key in (*(key for key in before if key not in file), *file):  # first what makes room
            old, new = rules.get(key), self._rule_for(key, file)
            if old == new:
                continue
            if new is None and old is not None:
                rules.remove(key)
                change.gone.append(old)
                continue
            assert new is not None, "else it is as before"
            try:
                rules.put(new)
            except TooManyRulesError as error:
                change.refused.append((new, error))
                continue
            change.set_rules[key] = _SetRule(new, EndedByRule(over=ended), _FILE)
            change.is_at_clients |= key.kind.is_of_connections
            change.is_at_streams |= not key.kind.is_of_connections
        if not (change.set_rules or change.gone):
            change.rules = None
        if file == before:
            change.file = before
        return change

    def lay(self, change: FileChange) -> bool:
        """Put the rules of another file in force in one step; return whether that changes the file's rules.

        What `laid` yields follows.
        """
        has_changed = change.file is not self._file
        self._file = change.file
        if change.rules is not None:
            self.rules, change.rules = change.rules, self.rules
        if change.set_rules:
            for key, earlier in self._coming.items():
                if change.set_rules.setdefault(key, earlier) is not earlier:
                    earlier.ended.over.set()
            self._coming, change.set_rules = change.set_rules, {}
            self._is_for_clients |= change.is_at_clients
            self._is_for_streams |= change.is_at_streams
            self._look_at_sessions()
        return has_changed

    def laid(self, change: FileChange) -> Iterator[None]:
        """Log, a few in each step, which rules of a change are in force no longer, or could not be set."""
        for number, rule in enumerate(change.gone):
            if self.rules.get(rule.key) is None:
                self.hits.pop(rule.key, None)
            if number < MOST_RULES_LOGGED:
                self._log.warning("unblocked", **_fields(rule), by=_FILE.name, address=_FILE.address)
            if number % _LOOKED_AT == 0:
                yield
        if len(change.gone) > MOST_RULES_LOGGED:
            rest = change.gone[MOST_RULES_LOGGED:]
            self._log.warning("further blocks are not in force any more", blocks=len(rest), first=_first(rest))
        for rule, error in change.refused[:MOST_RULES_LOGGED]:
            self._log.error("not blocked", **_fields(rule), error=str(error))
        if len(change.refused) > MOST_RULES_LOGGED:
            refused = [rule for rule, _ in change.refused[MOST_RULES_LOGGED:]]
            self._log.error("further blocks could not be set", blocks=len(refused), first=_first(refused))
        change.rules = None
        for needless in (change.gone, change.needless, change.refused):
            while needless:
                del needless[-_LOOKED_AT:]
                yield

    def _rule_for(self, key: Key, file: dict[Key, Rule]) -> Rule | None:
        order = self._orders.get(key)
        if order is None:
            return file.get(key)
        return None if order.lifts else Rule(key, order.reason, order.since_ns, "rest")

    def _settle(self, key: Key, by: SetBy, *, quietly: bool) -> EndedByRule:
        """Put the rule in force that the file and the orders give for a key."""
        before, rule = self.rules.get(key), self._rule_for(key, self._file)
        if rule == before:
            return nothing_ended()
        if rule is not None:
            return self._block(rule, by, quietly=quietly)
        self.rules.remove(key)
        self.hits.pop(key, None)
        if before is not None and not quietly:
            self._log.warning("unblocked", **_fields(before), by=by.name, address=by.address)
        return nothing_ended()

    def _block(self, rule: Rule, by: SetBy, *, quietly: bool) -> EndedByRule:
        key, ended = rule.key, EndedByRule()
        try:
            self.rules.put(rule)
        except TooManyRulesError as error:
            self._log.error("not blocked", **_fields(rule), error=str(error))
            return nothing_ended()
        earlier = self._coming.get(key)
        if earlier is not None:
            ended = earlier.ended
        self._coming[key] = _SetRule(rule, ended, by, quietly)
        self._is_for_clients |= key.kind.is_of_connections
        self._is_for_streams |= not key.kind.is_of_connections
        self._look_at_sessions()
        return ended

    def _look_at_sessions(self) -> None:
        """Begin to look at all sessions for the rules that have come, unless a look is under way."""
        if self._look is not None or not self._coming:
            return
        look = LookAtSessions(self._coming, is_at_clients=self._is_for_clients, is_at_streams=self._is_for_streams)
        self._look, self._coming, self._is_for_clients, self._is_for_streams = look, {}, False, False
        self._ends_to_log = MOST_ENDS_LOGGED
        units = self._looking(look, list(self._sessions))
        if self._sessions or len(look.rules) > _LOOKED_AT:
            self._in_slices(units, partial(self._looked, look))
        else:
            _at_once(units, partial(self._looked, look))

    def _looked(self, look: LookAtSessions) -> None:
        """End a look, after its last unit or one that failed."""
        self._look = None
        for each in look.rules.values():  # most often none is left
            each.ended.over.set()
        self._look_at_sessions()

    def _looking(self, look: LookAtSessions, sessions: list[Blockable]) -> Iterator[None]:
        """Show the rules to all sessions, and report them; what fails in one session fails here when all is done."""
        failures = list[Exception]()
        for session in sessions:
            yield from noting_failure(session.rules_added(look), failures)
            if look.is_unit_over():
                yield
        yield from self._reporting(look)
        if failures:
            raise failures[0]

    def _reporting(self, look: LookAtSessions) -> Iterator[None]:
        """Log the rules of a look, and what each ended, some in each step; then free them."""
        rules, more = look.rules, list[Rule]()
        logged = blocks = connections = streams = 0
        for number, (rule, ended, by, is_quiet) in enumerate(rules.values(), 1):
            ended.over.set()
            if is_quiet:
                pass
            elif logged < MOST_RULES_LOGGED:
                logged += 1
                counts = {"connections": ended.connections, "streams": ended.streams}
                self._log.warning("blocked", **_fields(rule), **counts, by=by.name, address=by.address)
            else:
                blocks += 1
                connections, streams = connections + ended.connections, streams + ended.streams
                more += [rule] * (len(more) < _MOST_NAMED)
            if number % _LOOKED_AT == 0:
                yield
        if blocks:
            first = _first(more)
            counts = {"connections": connections, "streams": streams}
            self._log.warning("further blocks are in force", blocks=blocks, first=first, **counts)
        yield from letting_go(rules)

    def refused(self, rule: Rule) -> None:
        """Count that the rule refused something."""
        self.hits[rule.key] += 1
        self._counters.blocked[rule.key.kind.value] += 1

    def ended(self, rule: Rule, connection: Connection, *, streams: int = 0, **stream: object) -> None:
        """Count and log that the rule, when it was set, ended a connection with `streams`, or the stream `stream`."""
        self.refused(rule)
        looked_for = self._look.rules.get(rule.key) if self._look is not None else None
        its = looked_for or self._coming.get(rule.key)
        if its is not None and stream:
            its.ended.streams += 1
        elif its is not None:
            its.ended.connections += 1
            its.ended.streams += streams
        if self._ends_to_log > 0:
            self._ends_to_log -= 1
            self._log.warning(
                "ended by a block",
                **_fields(rule),
                client=connection.client_address,
                connection=connection.connection_id,
                **stream,
            )


def nothing_ended() -> EndedByRule:
    """Return the outcome of a change that ends nothing."""
    nothing = EndedByRule()
    nothing.over.set()
    return nothing


def _fields(rule: Rule) -> dict[str, str]:
    key = rule.key
    return {"kind": key.kind.value, "name": key.name, "within": key.within, "reason": rule.reason}


def _first(rules: Sequence[Rule]) -> list[str]:
    return [str(rule.key) for rule in rules[:_MOST_NAMED]]
