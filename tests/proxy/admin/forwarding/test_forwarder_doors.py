"""Who may have what passed on, in whose name, and who is told of it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from tests.proxy.admin.forwarding.fake_broker import FakeBroker, Front, front, until
from tests.proxy.hung_call import HungCall

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


async def test_token_whose_file_system_hangs_holds_no_request(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    async with front(broker.url, token=token) as sluice:
        reading = HungCall(monkeypatch, "proxy.admin.forwarding.broker.broker_token")
        answers = await asyncio.gather(*(sluice.reason("GET", TENANTS) for _ in range(3)))
    hung = f"GET {TENANTS}: admin_forward.token: {token}: its file system does not answer"
    assert (answers, broker.asked) == ([(502, hung)] * 3, [])
    assert reading.calls == 1, "the others find it hung"
    reading.end()


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


async def test_tenants_leave_places_at_the_broker_for_others(broker: FakeBroker, tmp_path: Any) -> None:
    go_on = asyncio.Event()

    async def handler(_request: web.Request) -> web.Response:
        await go_on.wait()
        return web.Response()

    broker.handler = handler
    names = ["acme", "shop", "late"]
    (tmp_path / "tokens.yaml").write_text(
        "ops: {access: read, token: of-ops-0123456789}\n"
        + "".join(f"{name}: {{access: read, token: of-{name}-0123456789, tenants: [{name}]}}\n" for name in names)
    )
    async with front(broker.url, {"tokens": tmp_path / "tokens.yaml"}, max_in_flight=8) as sluice:

        def ask(name: str, path: str) -> asyncio.Future[tuple[int, bytes]]:
            headers = {"Authorization": f"Bearer of-{name}-0123456789"}
            return asyncio.ensure_future(sluice.ask("GET", path, headers=headers))

        for name, count in zip(names, (2, 1, 1), strict=True):
            asked = [ask(name, f"/admin/v2/persistent/{name}/orders") for _ in range(5)]
            done, waiting = set[asyncio.Future[tuple[int, bytes]]](), set(asked)
            while len(waiting) > count:
                more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                done |= more
            assert [each.result()[0] for each in done] == [503] * (5 - count)
        operators = [ask("ops", TENANTS) for _ in range(2)]
        await until(lambda: broker.paths.count(TENANTS) == 2)
        assert len(broker.asked) == 6
        go_on.set()
        assert [status for status, _ in await asyncio.gather(*operators)] == [200, 200]
