"""The admin address."""

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client.core import Metric
from structlog.testing import capture_logs

from proxy.admin import limit_metrics
from proxy.admin.metrics import SluiceCollector
from proxy.admin.shared_work import TooManyWaitError
from tests.proxy.admin.test_stream_rest import open_streams
from tests.proxy.admin_client import Admin
from tests.waiting import until

RATE = "/admin/v2/namespaces/acme/shop/publishRate"


async def test_the_process_says_that_it_lives(make_admin) -> None:
    admin: Admin = await make_admin()
    assert await admin.ask("GET", "/healthz") == (200, "alive\n")


async def test_metrics_are_in_prometheus_form(make_admin) -> None:
    admin: Admin = await make_admin()
    async with admin.client.get("/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain; version=")
        text = await response.text()
    assert "# HELP sluice_connections_accepted_total " in text
    assert "\nsluice_connections_accepted_total 0.0\n" in text


async def test_metrics_of_all_limits_are_made_on_request(make_admin, monkeypatch: pytest.MonkeyPatch) -> None:
    admin: Admin = await make_admin(limits={"each_topic": {"publish": {"messages": 5}}})
    status, text = await admin.ask("GET", "/metrics?limits=all")
    assert (status, "# HELP sluice_limit_per_second " in text) == (200, True)
    status, answer = await admin.ask("GET", "/metrics?limits=some")
    assert (status, "limits" in answer["reason"]) == (400, True)
    open_streams(admin, 1)
    monkeypatch.setattr(limit_metrics, "MOST_ALL", 0)
    status, answer = await admin.ask("GET", "/metrics?limits=all")
    assert status == 409
    assert "name those that matter in metrics_limits" in answer["reason"]
    assert (await admin.ask("GET", "/metrics?limits=chosen"))[0] == 200


async def test_concurrent_scrapes_of_all_limits_share_one_answer(make_admin, monkeypatch: pytest.MonkeyPatch) -> None:
    admin: Admin = await make_admin()
    runs, parts = list[bool](), SluiceCollector.parts

    def counted(collector: SluiceCollector, *, all_limits: bool = False) -> Iterator[Metric | None]:
        runs.append(all_limits)
        return parts(collector, all_limits=all_limits)

    monkeypatch.setattr(SluiceCollector, "parts", counted)
    monkeypatch.setattr("proxy.admin.shared_work.MOST_WAITING", 2)
    asked = [admin.metrics.text(all_limits=True) for _ in range(3)]
    first, second, refused = await asyncio.gather(*asked, return_exceptions=True)
    assert (first is second, type(refused), runs) == (True, TooManyWaitError, [True])


async def test_readiness_says_what_stands_in_the_way(make_admin) -> None:
    admin: Admin = await make_admin()
    assert await admin.ask("GET", "/readyz") == (503, "not accepting connections\n")


async def test_look_at_the_streams_has_the_brokers_asked(make_admin) -> None:
    admin: Admin = await make_admin(broker="pulsar://127.0.0.1:1")
    admin.readiness.is_accepting = True
    assert admin.engine.counters.broker_up == {}
    await admin.ask("GET", "/sluice/streams")
    await until(lambda: admin.engine.counters.broker_up == {"pulsar://127.0.0.1:1": 0})
    assert admin.brokers.problem is not None
    admin.brokers.stop()


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("GET", "/nothing/here", 404, "GET /nothing/here: Not Found"),
        (
            "GET",
            "/admin/v2/namespaces/acme/publishRate",
            404,
            "Not Found; Sluice serves limits only: ask the broker's own",
        ),
        ("GET", "/lookup/v2/topic/persistent/acme/orders/x", 404, "Sluice serves limits only: ask the broker's own"),
        ("GET", "/admin/v2/brokers/configuration/runtime", 405, "Method Not Allowed; Sluice serves limits only: ask"),
        ("PUT", RATE, 405, f"PUT {RATE}: Method Not Allowed"),
        ("POST", "/metrics", 405, "POST /metrics: Method Not Allowed"),
    ],
)
async def test_errors_look_as_pulsars_own_do(make_admin, method: str, path: str, status: int, reason: str) -> None:
    admin: Admin = await make_admin()
    code, answer = await admin.ask(method, path)
    assert code == status
    assert list(answer) == ["reason"]
    assert reason in answer["reason"]


async def test_who_asks_by_a_wrong_method_is_told_the_right_ones(make_admin) -> None:
    admin: Admin = await make_admin()
    async with admin.client.request("PATCH", "/sluice/limits") as response:
        assert (response.status, response.headers["Allow"]) == (405, "DELETE,GET,HEAD,PUT")


async def test_a_body_that_is_too_large_is_refused(make_admin) -> None:
    admin: Admin = await make_admin()
    status, answer = await admin.ask("POST", RATE, data=b" " * 70_000)
    assert status == 413
    assert "more than 65536 bytes (admin_access.max_body)" in answer["reason"]


async def test_an_error_of_our_own_costs_one_request_and_shows_no_traceback(
    make_admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin: Admin = await make_admin()

    def broken() -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(admin.engine.registry, "live", broken)
    with capture_logs() as logs:
        status, answer = await admin.ask("GET", "/sluice/streams")
    assert (status, answer) == (500, {"reason": "internal error; the proxy's log says more"})
    assert "secret detail" in logs[0]["error"]
    assert (await admin.ask("GET", "/healthz"))[0] == 200
