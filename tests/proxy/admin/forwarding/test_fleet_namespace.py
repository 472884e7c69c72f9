"""The namespace of a fleet's topics is made by the broker's admin, where Sluice has access of its own to that."""

from pathlib import Path

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from proxy.admin.forwarding.broker import BrokerAdmin
from proxy.admin.forwarding.fleet_namespace import FleetNamespace, may_make_namespaces
from proxy.config.model import Config
from tests.proxy.admin.forwarding.fake_broker import fake_broker


@pytest.mark.parametrize(
    ("status", "event"),
    [(204, "was missing, and is made"), (409, "its topics are not: create them"), (403, "does not make the namespace")],
)
async def test_the_namespace_is_made_with_sluice_s_token(tmp_path: Path, status: int, event: str) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=status)

    token = tmp_path / "token"
    token.write_text("secret")
    async with fake_broker(answer) as broker:
        admin = BrokerAdmin(Config.model_validate({"admin_forward": {"url": broker.url, "token": token}}))
        async with admin.connected():
            with capture_logs() as logs:
                await FleetNamespace("public/sluice", admin, lambda: True).make()
        [asked] = broker.asked
    assert (asked.method, asked.target, asked.body) == ("PUT", "/admin/v2/namespaces/public/sluice", b"")
    assert asked.headers["Authorization"] == "Bearer secret"
    assert [(log["log_level"], log["namespace"]) for log in logs] == [("warning", "public/sluice")]
    assert event in logs[0]["event"]


async def test_an_admin_that_is_not_reached_is_logged() -> None:
    admin = BrokerAdmin(Config.model_validate({"admin_forward": {"url": "http://127.0.0.1:9"}}))
    async with admin.connected():
        with capture_logs() as logs:
            await FleetNamespace("public/sluice", admin, lambda: True).make()
    assert [log["event"] for log in logs] == ["fleet: the namespace of its topics cannot be made by admin_forward"]


@pytest.mark.parametrize(
    ("section", "may"),
    [({}, False), ({"url": "http://b:8080"}, True), ({"url": "http://b:8080", "caller": "authorization"}, False)],
)
def test_the_namespace_is_made_with_access_of_sluice_s_own_only(*, section: dict[str, str], may: bool) -> None:
    assert may_make_namespaces(Config.model_validate({"admin_forward": section})) is may


async def test_looks_come_rarely_while_nothing_is_missing() -> None:
    pauses, missing = list[float](), [False] * 8 + [True] + [False] * 3
    left = iter(missing)

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)

    admin = BrokerAdmin(Config.model_validate({"admin_forward": {"url": "http://127.0.0.1:9"}}))
    async with admin.connected():
        with pytest.raises(RuntimeError, match="StopIteration"):
            await FleetNamespace("public/sluice", admin, lambda: next(left), sleep).keep()
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 300, 60, 60, 60]
