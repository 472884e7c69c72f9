"""Blocking by REST."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from proxy import block_rules as rules
from proxy.block_rules import read_key
from tests.proxy.admin.test_kick_rest import Client
from tests.proxy.admin_client import Admin

PATH = "/sluice/blocks"
BY_NAME = {"kind": "producer", "name": "p", "topic": "persistent://a/b/c", "namespace": "", "reason": "too loud"}


async def test_what_is_blocked_is_shown_and_can_be_unblocked(make_admin) -> None:
    admin: Admin = await make_admin()
    assert await admin.ask("GET", PATH) == (200, {"blocks": [], "lifted": []})
    status, answer = await admin.ask("POST", PATH, json=BY_NAME)
    assert (status, answer["ended"]) == (200, {"connections": 0, "streams": 0})
    assert BY_NAME.items() < answer["block"].items()
    _, shown = await admin.ask("GET", PATH)
    assert shown["blocks"] == [answer["block"]]
    assert (answer["block"]["origin"], answer["block"]["hits"]) == ("rest", 0)
    query = {"kind": "producer", "name": "p", "topic": "persistent://a/b/c"}
    assert await admin.ask("DELETE", PATH, params=query) == (200, {"unblocked": True, "note": ""})
    assert await admin.ask("GET", PATH) == (200, {"blocks": [], "lifted": []})


async def test_dry_block_counts_what_would_end_and_sets_nothing(make_admin) -> None:
    admin: Admin = await make_admin()
    clients = [Client() for _ in range(3)]
    admin.engine.sessions.update(clients)
    status, would = await admin.ask("POST", f"{PATH}?dry_run=1", json={"kind": "role", "name": "app", "reason": "loud"})
    assert (status, would["blocked"], would["connections"], would["streams"]) == (200, False, 3, 6)
    assert would["ended"] == {"connections": 0, "streams": 0}
    assert (would["block"]["name"], would["block"]["reason"], would["block"]["origin"]) == ("app", "loud", "rest")
    assert [choice.is_dry for choice in clients[0].kicks] == [True]
    in_body = {"kind": "role", "name": "app", "reason": "loud", "dry_run": True}
    _, same = await admin.ask("POST", PATH, json=in_body)
    assert {**same, "block": None} == {**would, "block": None}
    assert (admin.engine.blocklist.rules.all(), admin.store.audited(1)) == ([], [])
    assert (await admin.ask("POST", f"{PATH}?dry_run=yes", json=BY_NAME))[0] == 400
    _, done = await admin.ask("POST", f"{PATH}?dry_run=0", json=BY_NAME)
    assert (done["blocked"], done["was_blocked"], done["connections"], done["streams"]) == (True, False, 0, 0)
    _, again = await admin.ask("POST", PATH, json={**BY_NAME, "dry_run": True})
    assert (again["blocked"], again["was_blocked"]) == (False, True)


async def test_log_says_who_blocked_and_unblocked(make_admin) -> None:
    admin: Admin = await make_admin()
    with capture_logs() as lines:
        await admin.ask("POST", PATH, json=BY_NAME)
        await admin.ask("DELETE", PATH, params={"kind": "producer", "name": "p", "topic": "persistent://a/b/c"})
    events = [(line["event"], line["by"], line["address"]) for line in lines if line["event"].endswith("blocked")]
    assert events == [("blocked", "anonymous", "127.0.0.1"), ("unblocked", "anonymous", "127.0.0.1")]


async def test_saying_it_again_changes_the_reason_and_nothing_else(make_admin) -> None:
    admin: Admin = await make_admin()
    _, first = await admin.ask("POST", PATH, json=BY_NAME)
    admin.engine.blocklist.refused(admin.engine.blocklist.rules.all()[0])
    _, again = await admin.ask("POST", PATH, json={**BY_NAME, "reason": "still too loud"})
    assert again["block"] == {**first["block"], "reason": "still too loud", "hits": 1}
    _, without = await admin.ask("POST", PATH, json={**BY_NAME, "reason": ""})
    assert without["block"]["reason"] == "still too loud"


async def test_unblocking_what_is_not_blocked_is_no_error(make_admin) -> None:
    admin: Admin = await make_admin()
    answer = await admin.ask("DELETE", PATH, params={"kind": "role", "name": "nobody"})
    assert answer == (200, {"unblocked": False, "note": ""})


async def test_a_rule_narrowed_to_a_topic_is_not_the_rule_for_everywhere(make_admin) -> None:
    admin: Admin = await make_admin()
    await admin.ask("POST", PATH, json=BY_NAME)
    _, answer = await admin.ask("DELETE", PATH, params={"kind": "producer", "name": "p"})
    assert answer["unblocked"] is False


async def test_the_files_rules_are_known_as_such_and_their_lifting_is_never_silent(make_admin) -> None:
    admin: Admin = await make_admin(blocks=[{"address": "10.0.0.0/8", "reason": "elsewhere"}])
    _, shown = await admin.ask("GET", PATH)
    assert [(rule["name"], rule["origin"]) for rule in shown["blocks"]] == [("10.0.0.0/8", "file")]
    _, answer = await admin.ask("DELETE", PATH, params={"kind": "address", "name": "10.0.0.0/8"})
    assert answer["unblocked"]
    assert answer["note"].startswith("the configuration file has it as well")
    _, shown = await admin.ask("GET", PATH)
    assert (shown["blocks"], [rule["name"] for rule in shown["lifted"]]) == ([], ["10.0.0.0/8"])
    await admin.ask("POST", PATH, json={"kind": "address", "name": "10.0.0.0/8"})
    _, shown = await admin.ask("GET", PATH)
    assert ([rule["origin"] for rule in shown["blocks"]], shown["lifted"]) == (["file"], [])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is not a block: "),
        (b"[]", "the body is not a block: "),
        (b'{"kind": "role"}', "the body is not a block: Object missing required field `name`"),
        (
            b'{"kind": "role", "name": "r", "reson": "x"}',
            "the body is not a block: Object contains unknown field `reson`",
        ),
        (b'{"kind": "role", "name": 7}', "the body is not a block: Expected `str`, got `int`"),
        (b'{"kind": "user", "name": "u"}', "'user' cannot be blocked; write one of address, role, producer, "),
        (b'{"kind": "role", "name": "r", "reason": "two\\nlines"}', "write the reason in one line of at most 200"),
        (b'{"kind": "role", "name": "r", "topic": "t"}', "a block of role has no topic or namespace"),
        (b'{"kind": "address", "name": "localhost"}', "'localhost' does not appear to be an IPv4 or IPv6 network; "),
        (b'{"kind": "topic", "name": "a/b/__change_events"}', "persistent://a/b/__change_events is Pulsar's own topic"),
    ],
)
async def test_a_bad_body_is_refused_with_what_is_wrong_and_the_remedy(make_admin, body: bytes, reason: str) -> None:
    admin: Admin = await make_admin()
    status, answer = await admin.ask("POST", PATH, data=body)
    assert status == 400
    assert answer["reason"].startswith(reason)
    assert len(admin.engine.blocklist.rules) == 0


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({}, "kind: is needed: the kind of name that is blocked"),
        ({"kind": "role"}, "name: is needed: whose"),
        ({"kind": "role", "name": "r", "why": "x"}, "'why' is not known here: ask by kind, name, topic, namespace"),
        ({"kind": "user", "name": "u"}, "kind: 'user' is not one of address, role"),
    ],
)
async def test_a_bad_question_is_refused_too(make_admin, query: dict[str, Any], reason: str) -> None:
    admin: Admin = await make_admin()
    status, answer = await admin.ask("DELETE", PATH, params=query)
    assert status == 400
    assert answer["reason"].startswith(reason)


async def test_their_number_is_bounded(make_admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MOST_RULES", 1)
    admin: Admin = await make_admin()
    await admin.ask("POST", PATH, json=BY_NAME)
    status, answer = await admin.ask("POST", PATH, json={"kind": "role", "name": "r"})
    assert (status, answer["reason"]) == (409, "1 rules are set, the most that can be; unblock some first")
    assert (await admin.ask("POST", f"{PATH}?dry_run=1", json={"kind": "role", "name": "r"}))[0] == 409
    assert (await admin.ask("POST", PATH, json=BY_NAME))[0] == 200
    assert admin.engine.blocklist.rules.get(read_key("role", "r")) is None
