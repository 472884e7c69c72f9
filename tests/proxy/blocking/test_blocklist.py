"""Blocking and unblocking in a running process: who is told, what is counted and logged."""

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from proxy.blocking import blocklist as blocklist_module
from proxy.blocking.blocklist import Blocklist, Ended
from proxy.blocking.rules import Rule, read_key
from proxy.observe.connection import Connection
from proxy.observe.counters import Counters

ROLE = read_key("role", "billing")
PRODUCER = read_key("producer", "p", namespace="a/b")


class Session:
    """Has one producer, which every rule means."""

    def __init__(self, connection_id: int, told: "Telling") -> None:
        self._connection = Connection(connection_id, "192.0.2.7:4000")
        self._told = told

    def rule_added(self, rule: Rule) -> Ended:
        self._told.blocklist.ended(rule, self._connection, topic="t")
        return Ended(0, 1)


class Telling:
    """A blocklist with a clock moved by hand and the lines that it logs."""

    def __init__(self, file_rules: list[Rule], lines: list[Any], sessions: int = 0) -> None:
        self.now, self.lines, self.counters = 1000, lines, Counters()
        self.sessions: list[Session] = []
        self.blocklist = Blocklist(file_rules, self.counters, self.sessions, lambda: self.now)
        self.sessions += [Session(number, self) for number in range(sessions)]


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


def test_every_session_is_told_and_what_ended_is_counted_and_logged(lines: list[Any]) -> None:
    telling = Telling([], lines, sessions=3)
    _, ended = telling.blocklist.block(PRODUCER, "too loud")
    assert ended == Ended(0, 3)
    assert telling.counters.blocked == {"producer": 3}
    assert telling.blocklist.hits == {PRODUCER: 3}
    rule = {"kind": "producer", "name": "p", "within": "a/b", "reason": "too loud", "log_level": "warning"}
    who = {"client": "192.0.2.7:4000", "topic": "t"}
    assert lines == [
        *({"event": "ended by a block", "connection": number, **rule, **who} for number in range(3)),
        {"event": "blocked", "connections": 0, "streams": 3, **rule},
    ]


def test_one_rule_does_not_flood_the_log(lines: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocklist_module, "MOST_ENDS_LOGGED", 2)
    telling = Telling([], lines, sessions=5)
    telling.blocklist.block(PRODUCER, "")
    assert [line["event"] for line in lines] == ["ended by a block"] * 2 + ["blocked"]
    assert lines[-1]["streams"] == 5


def test_unblocking_is_logged_and_forgets_the_hits(lines: list[Any]) -> None:
    telling = Telling([], lines)
    telling.blocklist.block(ROLE, "")
    telling.blocklist.refused(telling.blocklist.rules.all()[0])
    assert telling.blocklist.unblock(ROLE)
    assert telling.blocklist.unblock(ROLE) is None
    assert [line["event"] for line in lines] == ["blocked", "unblocked"]
    assert not telling.blocklist.hits
    assert telling.counters.blocked == {"role": 1}


def test_a_rule_that_is_set_again_keeps_its_age(lines: list[Any]) -> None:
    telling = Telling([], lines)
    telling.blocklist.block(ROLE, "too loud")
    telling.now = 2000
    assert telling.blocklist.block(ROLE, "")[0] == Rule(ROLE, "too loud", 1000, "rest")
    assert telling.blocklist.block(ROLE, "still")[0] == Rule(ROLE, "still", 1000, "rest")


def test_the_files_rules_hold_from_the_start_and_stay_the_files(lines: list[Any]) -> None:
    telling = Telling([Rule(ROLE, "from the file", origin="file")], lines)
    assert telling.blocklist.rules.all() == [Rule(ROLE, "from the file", 1000, "file")]
    assert telling.blocklist.block(ROLE, "")[0].origin == "file"
    telling.blocklist.unblock(ROLE)
    assert telling.blocklist.block(ROLE, "")[0].origin == "file"


def test_another_file_frees_what_only_the_old_one_blocked_and_blocks_what_is_new(lines: list[Any]) -> None:
    at = Telling([Rule(ROLE, "old")], lines, sessions=1)

    assert at.blocklist.reload([Rule(PRODUCER, "new")])

    assert [(rule.key, rule.reason, rule.origin) for rule in at.blocklist.rules.all()] == [(PRODUCER, "new", "file")]
    assert at.blocklist.hits[PRODUCER] == 1
    assert not at.blocklist.reload([Rule(PRODUCER, "new")])


def test_what_was_blocked_or_lifted_at_run_time_stays_so_whatever_the_file_says(lines: list[Any]) -> None:
    at = Telling([Rule(ROLE, "old")], lines)
    at.blocklist.unblock(ROLE)
    at.blocklist.block(PRODUCER, "by hand")

    at.blocklist.reload([Rule(ROLE, "other")])
    assert [rule.key for rule in at.blocklist.rules.all()] == [PRODUCER]

    at.blocklist.reload([])
    assert [rule.key for rule in at.blocklist.rules.all()] == [PRODUCER]
    assert at.blocklist.rules.lifted == {}
