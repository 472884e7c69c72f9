"""Blocking and unblocking in a running process: who is told, what is counted and logged."""

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from proxy import block_rules as rules_module
from proxy.block_rules import Key, Rule, TooManyRulesError, read_key
from proxy.blocking import blocklist as blocklist_module
from proxy.blocking.blocklist import Blocklist, EndedByRule, LookAtSessions, Order, SetBy
from proxy.counters import Counters
from proxy.observe.connection import Connection

ROLE = read_key("role", "billing")
PRODUCER = read_key("producer", "p", namespace="a/b")


class Session:
    """Has one producer, which every rule means."""

    def __init__(self, connection_id: int, telling: "Telling") -> None:
        self._connection = Connection(connection_id, "192.0.2.7:4000")
        self._told = telling

    def rules_added(self, look: LookAtSessions) -> Iterator[None]:
        for rule, *_ in look.rules.values():
            self._told.blocklist.ended(rule, self._connection, topic="t")
        yield


class Telling:
    """A blocklist with a clock moved by hand and the lines that it logs."""

    def __init__(self, file_rules: list[Rule], lines: list[Any], sessions: int = 0) -> None:
        self.now, self.lines, self.counters = 1000, lines, Counters()
        self.sessions: list[Session] = []
        self.blocklist = Blocklist(file_rules, self.counters, self.sessions, lambda: self.now)
        self.sessions += [Session(number, self) for number in range(sessions)]

    def block(self, key: Key, reason: str) -> EndedByRule:
        return self.blocklist.put(key, self.blocklist.order_to_block(key, reason), SetBy("ann", "192.0.2.1"))

    def unblock(self, key: Key) -> EndedByRule:
        return self.blocklist.put(key, self.blocklist.order_to_unblock(key))

    def reload(self, rules: list[Rule]) -> bool:
        change = self.blocklist.compare(rules)
        has_changed = self.blocklist.lay(change)
        for _ in self.blocklist.laid(change):
            pass
        return has_changed

    def rule(self, key: Key) -> Rule | None:
        return self.blocklist.rules.get(key)


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


def test_every_session_is_told_and_what_ended_is_counted_and_logged(lines: list[Any]) -> None:
    telling = Telling([], lines, sessions=3)
    assert telling.block(PRODUCER, "too loud") == EndedByRule(0, 3)
    assert telling.counters.blocked == {"producer": 3}
    assert telling.blocklist.hits == {PRODUCER: 3}
    rule = {"kind": "producer", "name": "p", "within": "a/b", "reason": "too loud", "log_level": "warning"}
    stream = {"client": "192.0.2.7:4000", "topic": "t"}
    assert lines == [
        *({"event": "ended by a block", "connection": number, **rule, **stream} for number in range(3)),
        {"event": "blocked", "connections": 0, "streams": 3, "by": "ann", "address": "192.0.2.1", **rule},
    ]


def test_one_rule_does_not_flood_the_log(lines: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocklist_module, "MOST_ENDS_LOGGED", 2)
    telling = Telling([], lines, sessions=5)
    telling.block(PRODUCER, "")
    assert [line["event"] for line in lines] == ["ended by a block"] * 2 + ["blocked"]
    assert lines[-1]["streams"] == 5


def test_unblocking_is_logged_and_forgets_the_hits(lines: list[Any]) -> None:
    telling = Telling([], lines)
    telling.block(ROLE, "")
    telling.blocklist.refused(telling.blocklist.rules.all()[0])
    telling.unblock(ROLE)
    telling.unblock(ROLE)
    assert [line["event"] for line in lines] == ["blocked", "unblocked"]
    assert not telling.blocklist.hits
    assert telling.counters.blocked == {"role": 1}


def test_a_rule_that_is_set_again_keeps_its_age(lines: list[Any]) -> None:
    telling = Telling([], lines)
    telling.block(ROLE, "too loud")
    telling.now = 2000
    telling.block(ROLE, "")
    assert telling.rule(ROLE) == Rule(ROLE, "too loud", 1000, "rest")
    telling.block(ROLE, "still")
    assert telling.rule(ROLE) == Rule(ROLE, "still", 1000, "rest")


def test_the_files_rules_hold_from_the_start_and_stay_the_files(lines: list[Any]) -> None:
    telling = Telling([Rule(ROLE, "from the file", origin="file")], lines)
    of_the_file = Rule(ROLE, "from the file", 1000, "file")
    assert telling.blocklist.rules.all() == [of_the_file]
    telling.block(ROLE, "")
    assert telling.rule(ROLE) == of_the_file
    telling.unblock(ROLE)
    assert (telling.rule(ROLE), telling.blocklist.lifted()) == (None, [of_the_file])
    telling.block(ROLE, "")
    assert (telling.rule(ROLE), telling.blocklist.lifted()) == (of_the_file, [])


def test_a_reason_of_its_own_is_set_over_the_files_until_the_files_is_said_again(lines: list[Any]) -> None:
    telling = Telling([Rule(ROLE, "from the file")], lines)
    telling.now = 2000
    telling.block(ROLE, "mine")
    assert telling.rule(ROLE) == Rule(ROLE, "mine", 1000, "rest")
    telling.block(ROLE, "")
    assert telling.rule(ROLE) == Rule(ROLE, "mine", 1000, "rest")
    telling.block(ROLE, "from the file")
    assert telling.rule(ROLE) == Rule(ROLE, "from the file", 1000, "file")


def test_what_is_said_again_is_neither_logged_nor_told_again(lines: list[Any]) -> None:
    telling = Telling([], lines, sessions=1)
    telling.block(ROLE, "")
    lines.clear()
    assert telling.block(ROLE, "") == EndedByRule(0, 0)
    assert lines == []
    assert telling.blocklist.hits == {ROLE: 1}


def test_orders_of_an_earlier_run_are_not_logged_one_by_one(lines: list[Any]) -> None:
    telling = Telling([Rule(PRODUCER)], lines)
    telling.blocklist.put(ROLE, Order("x", 5), quietly=True)
    telling.blocklist.put(PRODUCER, Order(lifts=True), quietly=True)
    assert [rule.key for rule in telling.blocklist.rules.all()] == [ROLE]
    assert lines == []


def test_new_file_lifts_blocks_of_the_old_one_and_adds_its_own(lines: list[Any]) -> None:
    at = Telling([Rule(ROLE, "old")], lines, sessions=1)

    assert at.reload([Rule(PRODUCER, "new")])

    assert [(rule.key, rule.reason, rule.origin) for rule in at.blocklist.rules.all()] == [(PRODUCER, "new", "file")]
    assert at.blocklist.hits[PRODUCER] == 1
    events = [(line["event"], line["by"]) for line in lines if line["event"].endswith("blocked")]
    assert events == [("blocked", "file"), ("unblocked", "file")]
    assert not at.reload([Rule(PRODUCER, "new")])


def test_what_was_blocked_or_lifted_at_run_time_stays_so_whatever_the_file_says(lines: list[Any]) -> None:
    at = Telling([Rule(ROLE, "old")], lines)
    at.unblock(ROLE)
    at.block(PRODUCER, "by hand")

    at.reload([Rule(ROLE, "other")])
    assert [rule.key for rule in at.blocklist.rules.all()] == [PRODUCER]

    at.reload([])
    assert [rule.key for rule in at.blocklist.rules.all()] == [PRODUCER]
    assert (at.blocklist.lifted(), at.blocklist.needless()) == ([], [ROLE])


def test_a_block_set_over_the_files_outlives_its_entry_there(lines: list[Any]) -> None:
    at = Telling([Rule(ROLE, "old")], lines)
    at.block(ROLE, "mine")
    at.reload([])
    assert at.rule(ROLE) == Rule(ROLE, "mine", 1000, "rest")


def test_an_entry_of_the_file_keeps_its_age_and_takes_its_new_reason(lines: list[Any]) -> None:
    at = Telling([Rule(ROLE, "old")], lines)
    at.now = 2000
    assert at.reload([Rule(ROLE, "new"), Rule(PRODUCER)])
    assert at.blocklist.rules.all() == [Rule(PRODUCER, "", 2000, "file"), Rule(ROLE, "new", 1000, "file")]


def test_what_does_not_fit_is_said_whoever_wrote_it(lines: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules_module, "MOST_RULES", 1)
    at = Telling([Rule(ROLE)], lines)
    with pytest.raises(TooManyRulesError):
        at.block(PRODUCER, "")
    at.blocklist.put(PRODUCER, Order("kept"), quietly=True)
    at.reload([Rule(PRODUCER), Rule(ROLE)])
    assert [rule.key for rule in at.blocklist.rules.all()] == [ROLE]
    assert {line["event"] for line in lines} == {"not blocked"}
