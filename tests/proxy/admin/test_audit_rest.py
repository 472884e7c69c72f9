"""`/sluice/audit`."""

import pytest

from proxy.config.limits import Limits
from proxy.policies.bodies import DispatchRate, PublishRate, kept_as_own, kept_as_own_group, kept_as_pulsar_s
from proxy.policies.held import words_after
from proxy.policies.keys import ActionKind, PolicyKey, PolicyKind
from proxy.policies.layers import file_policies
from proxy.policies.store import Action
from tests.proxy.admin_client import Admin

TOPIC = "persistent://a/b/c"
_PATH = "/admin/v2/namespaces/acme/shop/publishRate"


async def test_changes_are_told_newest_first_with_who_and_what(make_admin) -> None:
    admin: Admin = await make_admin()
    for messages in (5, 6):
        await admin.ask("POST", _PATH, json={"publishThrottlingRateInMsg": messages})
    status, answer = await admin.ask("GET", "/sluice/audit")
    newest, oldest = answer["changes"]
    assert (status, newest["who"], newest["address"]) == (200, "anonymous", "127.0.0.1")
    assert (newest["kind"], newest["setting"], newest["name"]) == ("publish", "topic_of_namespace", "acme/shop")
    assert (oldest["before"], newest["before"]) == (None, oldest["after"])
    assert newest["at"].endswith("+00:00")
    assert len((await admin.ask("GET", "/sluice/audit?limit=1"))[1]["changes"]) == 1


async def test_file_s_value_was_in_force_before_the_first_change(make_admin) -> None:
    limits = {"plans": {"gold": {"publish": {"messages": 9}}}, "namespaces": {"acme/*": "gold"}}
    admin: Admin = await make_admin(limits=limits)
    for messages in (5, 6):
        await admin.ask("POST", _PATH, json={"publishThrottlingRateInMsg": messages})
    _, answer = await admin.ask("GET", "/sluice/audit")
    newest, oldest = answer["changes"]
    assert oldest["held"] == [
        {
            "kind": "publish",
            "setting": "topic_of_namespace",
            "name": "acme/*",
            "limit": {"messages": 9},
            "text": "",
            "origin": "file",
            "plan": "gold",
            "words": "messages 9 (file, plan gold)",
        }
    ]
    assert [held["words"] for held in newest["held"]] == ["messages 5 (rest)"]


async def test_block_of_the_file_was_in_force_before_it_is_lifted(make_admin) -> None:
    admin: Admin = await make_admin(blocks=[{"role": "app", "reason": "spam"}])
    await admin.ask("DELETE", "/sluice/blocks?kind=role&name=app")
    _, answer = await admin.ask("GET", "/sluice/audit")
    (change,) = answer["changes"]
    assert [held["words"] for held in change["held"]] == ["blocked: spam (file)"]


@pytest.mark.parametrize(
    ("kind", "setting", "name", "kept", "words"),
    [
        ("publish", "topic", "persistent://a/b/c", kept_as_own({"messages": "100/s"}), "messages 100 (rest)"),
        ("publish", "topic", "persistent://a/b/c", kept_as_own({"bytes": "3MB/min"}), "bytes 3MB/min (rest)"),
        ("dispatch", "topic", "persistent://a/b/c", kept_as_pulsar_s(DispatchRate()), "no limit (rest)"),
        ("group", "", "gold", kept_as_own_group({"publish": {"messages": 5}}), "publish: messages 5 (rest)"),
        ("attachment", "tenant", "a", "gold", "in group gold (rest)"),
        ("attachment", "tenant", "a", "", "in no group (rest)"),
        ("dynamic", "", "maxPublishRatePerTopicInMessages", "50", "messages 50 (dynamic)"),
        ("block", "", "role r", '{"kind":"role","name":"r","reason":"spam","since_ns":17}', "blocked: spam (rest)"),
        (
            "block",
            "",
            "role r",
            '{"kind":"role","name":"r","lifts":true}',
            "not blocked, whatever the file says (rest)",
        ),
        ("publish", "topic", "persistent://a/b/c", None, "taken back; since then: no limit"),
        ("block", "", "role r", None, "taken back"),
    ],
)
async def test_new_value_is_in_words(
    make_admin, kind: str, setting: str, name: str, kept: str | None, words: str
) -> None:
    admin: Admin = await make_admin()
    assert words_after(admin.service, PolicyKey(PolicyKind(kind), setting, name), kept) == words


OBSERVED = {"publish": {"messages": 9, "mode": "observe"}}


@pytest.mark.parametrize(
    ("kind", "setting", "name", "kept", "words"),
    [
        ("publish", "topic", TOPIC, kept_as_pulsar_s(PublishRate(5, -1)), "messages 5, mode observe (rest)"),
        (
            "publish",
            "topic",
            TOPIC,
            kept_as_pulsar_s(PublishRate(-1, -1)),
            "no limit (rest), which counts as not set; since then: messages 9, mode observe (file), as topic_of_broker",
        ),
        ("publish", "topic", TOPIC, kept_as_own({"messages": 5}), "messages 5 (rest)"),
        ("publish", "tenants_topic", TOPIC, kept_as_pulsar_s(PublishRate(5, -1)), "messages 5 (tenant)"),
        (
            "group",
            "",
            "gold",
            '{"publishRateInMsgs":5}',
            "publish: messages 5, mode observe; dispatch: no limit (rest)",
        ),
        ("dynamic", "", "maxPublishRatePerTopicInMessages", "50", "messages 50, mode observe (dynamic)"),
    ],
)
async def test_new_value_has_the_mode_of_the_file(
    make_admin, kind: str, setting: str, name: str, kept: str, words: str
) -> None:
    limits = {"topics": {TOPIC: OBSERVED}, "resource_groups": {"gold": OBSERVED}, "each_topic": OBSERVED}
    admin: Admin = await make_admin(limits=limits)
    assert words_after(admin.service, PolicyKey(PolicyKind(kind), setting, name), kept) == words


async def test_words_of_a_change_stay_when_the_file_s_mode_changes(make_admin) -> None:
    admin: Admin = await make_admin(limits={"namespaces": {"acme/shop": OBSERVED}})
    await admin.ask("POST", _PATH, json={"publishThrottlingRateInMsg": 5})
    enforced = Limits.model_validate({"namespaces": {"acme/shop": {"publish": {"messages": 9}}}})
    await admin.service.take_file(file_policies(enforced, None), lambda _: None, lambda _seen, _at_ns: None)
    await admin.ask("POST", _PATH, json={"publishThrottlingRateInMsg": 6})
    newest, oldest = (await admin.ask("GET", "/sluice/audit"))[1]["changes"]
    assert oldest["words"] == "messages 5, mode observe (rest)"
    assert ([held["words"] for held in newest["held"]], newest["words"]) == (["messages 5 (rest)"], "messages 6 (rest)")


async def test_audit_words_a_value_alike_as_new_and_as_old(make_admin) -> None:
    admin: Admin = await make_admin()
    for rate in (5, 6):
        await admin.ask("POST", _PATH, json={"publishThrottlingRateInMsg": rate})
        await admin.ask("POST", "/sluice/blocks", json={"kind": "role", "name": "r", "reason": f"test {rate}"})
    _, answer = await admin.ask("GET", "/sluice/audit")
    second_block, second_rate, first_block, first_rate = answer["changes"]
    assert [held["words"] for held in second_rate["held"]] == [first_rate["words"]] == ["messages 5 (rest)"]
    assert [held["words"] for held in second_block["held"]] == [first_block["words"]] == ["blocked: test 5 (rest)"]
    assert first_rate["after"]["body"]["publishThrottlingRateInMsg"] == 5
    assert (second_block["before"]["reason"], second_block["after"]["reason"]) == ("test 5", "test 6")


async def test_actions_are_listed_with_their_effect(make_admin) -> None:
    admin: Admin = await make_admin()
    admin.store.note(Action(ActionKind.DRAIN, "", "began to drain"), 1, "ops", "192.0.2.7")
    _, answer = await admin.ask("GET", "/sluice/audit")
    (action,) = answer["changes"]
    assert (action["kind"], action["who"], action["origin"], action["after"]) == ("drain", "ops", "", "began to drain")


async def test_a_wrong_number_is_refused(make_admin) -> None:
    admin: Admin = await make_admin()
    for number in ("0", "x", "10001"):
        status, answer = await admin.ask("GET", f"/sluice/audit?limit={number}")
        assert (status, answer["reason"]) == (400, f"limit: '{number}' is not a number from 1 to 10000")
