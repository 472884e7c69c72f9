"""Who may have what passed on, in whose name, and who is told of it."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.proxy.admin.forwarding.fake_broker import FakeBroker, Front, front

TENANTS = "/admin/v2/tenants"


async def test_credentials_and_what_speaks_for_others_stay_here(broker: FakeBroker, sluice: Front) -> None:
    secret = {
        "Authorization": "Bearer mine",
        "Cookie": "a=b",
        "X-Original-Principal": "admin",
        "Proxy-Authorization": "Basic eA==",
        "X-HTTP-Method-Override": "DELETE",
    }
    await sluice.ask("GET", TENANTS, headers={**secret, "Accept": "text/plain", "User-Agent": "me"})
    headers = broker.asked[0].headers
    assert not set(secret) & set(headers)
    assert (headers["Accept"], headers["User-Agent"], headers["Host"]) == ("text/plain", "me", broker.url[7:])


async def test_the_broker_gets_sluices_own_token_as_it_is_at_that_moment(broker: FakeBroker, tmp_path: Any) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    async with front(broker.url, token=token) as sluice:
        await sluice.ask("GET", TENANTS, headers={"Authorization": "Bearer mine"})
        token.write_text("second\n")
        await sluice.ask("GET", TENANTS)
        assert [asked.headers.getall("Authorization") for asked in broker.asked] == [
            ["Bearer first"],
            ["Bearer second"],
        ]
        token.unlink()
        status, reason = await sluice.reason("GET", TENANTS)
    assert (status, len(broker.asked)) == (502, 2)
    assert reason.startswith(
        f"GET {TENANTS}: admin_forward.token: {token}: cannot be read: No such file or directory; "
    )


async def test_changes_are_told_with_who_made_them_and_readings_are_not(broker: FakeBroker, tmp_path: Any) -> None:
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text("ann: {access: write, token: 0123456789abcdef0}\nbob: {access: read, token: fedcba98765432100}\n")
    tokens.chmod(0o600)
    ann, bob = ({"Authorization": f"Bearer {token}"} for token in ("0123456789abcdef0", "fedcba98765432100"))
    async with front(broker.url, {"tokens": str(tokens)}) as sluice:
        with capture_logs() as logs:
            assert (await sluice.ask("GET", TENANTS, headers=bob))[0] == 200
            assert (await sluice.ask("DELETE", f"{TENANTS}/a%2Fb?force=true", headers=ann))[0] == 200
        assert [(await sluice.ask("PUT", TENANTS, headers=each))[0] for each in (bob, {})] == [403, 401]
        assert len(broker.asked) == 2
    (line,) = logs
    assert line == {
        "event": "passed on to the broker",
        "log_level": "info",
        "method": "DELETE",
        "path": f"{TENANTS}/a%2Fb?force=true",
        "status": 200,
        "outcome": "done",
        "by": "ann",
        "address": "127.0.0.1",
    }


@pytest.mark.parametrize(
    "target",
    [
        "/admin/v2/brokers/backlog-quota-check",
        "/admin/v2/persistent/a/b/c/partitions?checkAllowAutoCreation=TRUE",
    ],
)
async def test_the_gets_that_change_something_take_write_access(broker: FakeBroker, tmp_path: Any, target: str) -> None:
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text("ann: {access: write, token: 0123456789abcdef0}\nbob: {access: read, token: fedcba98765432100}\n")
    tokens.chmod(0o600)
    async with front(broker.url, {"tokens": str(tokens)}) as sluice:
        headers = {"Authorization": "Bearer fedcba98765432100"}
        assert (await sluice.ask("GET", target, headers=headers))[0] == 403
        assert (await sluice.ask("GET", target.partition("?")[0] + "/x", headers=headers))[0] == 200
        headers = {"Authorization": "Bearer 0123456789abcdef0"}
        assert (await sluice.ask("GET", target, headers=headers))[0] == 200
        assert (await sluice.ask("GET", target, headers={**headers, "Origin": "http://evil.example"}))[0] == 403
        assert len(broker.asked) == 2
        assert sluice.admin.engine.counters.admin_refused["read_only"] == 1
