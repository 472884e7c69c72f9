"""`/sluice/audit`."""

from proxy.policies.keys import ActionKind
from proxy.policies.store import Action
from tests.proxy.admin_client import Admin

_PATH = "/admin/v2/namespaces/acme/shop/publishRate"


async def test_changes_are_told_newest_first_with_who_and_what(make_admin) -> None:
    admin: Admin = await make_admin()
    for messages in (5, 6):
        await admin.ask("POST", _PATH, json={"publishThrottlingRateInMsg": messages})
    status, said = await admin.ask("GET", "/sluice/audit")
    newest, oldest = said["changes"]
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
    _, said = await admin.ask("GET", "/sluice/audit")
    newest, oldest = said["changes"]
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
    _, said = await admin.ask("GET", "/sluice/audit")
    (change,) = said["changes"]
    assert [held["words"] for held in change["held"]] == ["blocked: spam (file)"]


async def test_actions_are_listed_with_their_effect(make_admin) -> None:
    admin: Admin = await make_admin()
    admin.store.note(Action(ActionKind.DRAIN, "", "began to drain"), 1, "ops", "192.0.2.7")
    _, said = await admin.ask("GET", "/sluice/audit")
    (action,) = said["changes"]
    assert (action["kind"], action["who"], action["origin"], action["after"]) == ("drain", "ops", "", "began to drain")


async def test_a_wrong_number_is_refused(make_admin) -> None:
    admin: Admin = await make_admin()
    for number in ("0", "x", "10001"):
        status, said = await admin.ask("GET", f"/sluice/audit?limit={number}")
        assert (status, said["reason"]) == (400, f"limit: '{number}' is not a number from 1 to 10000")
