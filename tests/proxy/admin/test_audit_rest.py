"""`/sluice/audit`."""

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


async def test_a_wrong_number_is_refused(make_admin) -> None:
    admin: Admin = await make_admin()
    for number in ("0", "x", "10001"):
        status, said = await admin.ask("GET", f"/sluice/audit?limit={number}")
        assert (status, said["reason"]) == (400, f"limit: '{number}' is not a number from 1 to 10000")
