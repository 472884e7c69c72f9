"""The export of metrics by OTLP, to a collector that decodes with the protocol's own messages."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from proxy.admin import metrics
from proxy.admin.metrics import SluiceCollector
from proxy.admin.otlp import MOST_POINTS, encoding
from proxy.assembly import Proxy
from proxy.config.model import Config, ConfigError
from proxy.observe.totals import DirectionTotals
from proxy.start_check import StartCheck
from tests.proxy.admin.test_metrics import collector, scrape
from tests.proxy.conversation import World, publisher
from tests.proxy.hung_call import HungCall
from tests.proxy.test_serve import given
from tests.proxy.wire import TOPIC, sends
from tests.waiting import until

BEGUN_NS, NOW_NS = 1_000, 2_000
LIMITS = {"limits": {"topics": {TOPIC: {"publish": {"messages": 1}}}}}


def encoded(by: SluiceCollector) -> list[ExportMetricsServiceRequest]:
    bodies: list[bytes] = []
    for _ in encoding(by.parts(), {"service.name": "sluice"}, bodies, BEGUN_NS, NOW_NS):
        pass
    return [ExportMetricsServiceRequest.FromString(body) for body in bodies]


def metrics_of(request: ExportMetricsServiceRequest) -> list[Any]:
    (resource,) = request.resource_metrics
    (scope,) = resource.scope_metrics
    return list(scope.metrics)


def labels_of(point: Any) -> frozenset[tuple[str, str]]:
    return frozenset((each.key, each.value.string_value) for each in point.attributes)


def test_sums_and_gauges_are_those_of_the_text(make_world: Any) -> None:
    world = make_world(**LIMITS)
    client, _ = publisher(world)
    client >> sends(3, size=100)
    in_text = scrape(world)
    for metric in (each for request in encoded(collector(world)) for each in metrics_of(request)):
        points = metric.sum.data_points or metric.gauge.data_points
        suffix = "_total" if metric.HasField("sum") else ""
        assert metric.sum.is_monotonic is metric.HasField("sum")
        for point in points:
            value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
            shown = in_text.pop((metric.name + suffix, labels_of(point)))
            assert value == shown or metric.name.startswith(("process_", "sluice_loop_", "sluice_held_oldest"))
    assert {name for name, _ in in_text if not name.endswith(("_bucket", "_count", "_sum"))} == set()


def test_histogram_has_its_buckets_apart(make_world: Any) -> None:
    world: World = make_world(**LIMITS)
    client, _ = publisher(world)
    client >> sends(3, size=100)
    world.advance(5)
    (metric,) = (
        each
        for request in encoded(collector(world))
        for each in metrics_of(request)
        if each.name == "sluice_held_seconds"
    )
    (point,) = metric.histogram.data_points
    assert labels_of(point) == {("tenant", "acme"), ("direction", "publish")}
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    in_text = scrape(world)
    labels = frozenset({("tenant", "acme"), ("direction", "publish")})
    assert sum(point.bucket_counts) == point.count == in_text["sluice_held_seconds_count", labels] > 0
    assert point.sum == in_text["sluice_held_seconds_sum", labels]
    assert (point.start_time_unix_nano, point.time_unix_nano) == (BEGUN_NS, NOW_NS)


def test_many_series_are_several_requests(make_world: Any) -> None:
    world: World = make_world()
    for number in range(900):
        world.totals.by_name["acme", f"n{number}", "publish"] = DirectionTotals()
    requests = encoded(collector(world))
    sizes = [
        sum(len(each.sum.data_points or each.gauge.data_points) for each in metrics_of(request)) for request in requests
    ]
    assert sum(sizes) > 9_000
    assert max(sizes) < MOST_POINTS + 64


class Receiver:
    """A collector: keeps the requests, answers with `status`."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b"too many"
        self.requests: list[tuple[web.Request, bytes]] = []

    async def take(self, request: web.Request) -> web.Response:
        self.requests.append((request, await request.read()))
        return web.Response(status=self.status, body=self.body)


@asynccontextmanager
async def exporting(receiver: Receiver, **more: Any) -> AsyncIterator[Proxy]:
    app = web.Application()
    app.router.add_post("/v1/metrics", receiver.take)
    async with TestServer(app) as server:
        proxy = Proxy(
            given("127.0.0.1:1", more={"otlp": {"url": f"http://127.0.0.1:{server.port}", "interval": "1s", **more}})
        )
        await proxy.start()
        try:
            yield proxy
        finally:
            await proxy.stop()


async def test_metrics_reach_a_collector_with_the_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret-0123456789\n")
    receiver = Receiver()
    async with exporting(receiver, token=str(token)) as proxy:
        await until(lambda: proxy.engine.counters.otlp_exports["done"] == 1)
    request, body = receiver.requests[0]
    assert request.headers["Authorization"] == "Bearer secret-0123456789"
    assert request.headers["Content-Type"] == "application/x-protobuf"
    (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    named = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert named["service.name"] == "sluice"
    assert named["service.instance.id"] == proxy.config.proxy_id


async def test_export_takes_no_peak_away_from_a_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_PEAKS_NS", 0)  # each look begins the peaks again
    receiver = Receiver()
    async with exporting(receiver, interval="1h") as proxy:
        proxy.engine.counters.loop_lag_max_ns = 500_000_000
        await until(lambda: proxy.engine.counters.otlp_exports["done"] == 1)
        shown = {metric.name: metric.samples for metric in proxy._collector.collect()}
    assert shown["sluice_loop_lag_max_seconds"][0].value >= 0.5


async def test_failed_exports_are_one_line_and_counted(tmp_path: Path) -> None:
    receiver = Receiver()
    receiver.status = 429
    with structlog.testing.capture_logs() as logged:
        async with exporting(receiver) as proxy:
            exports = proxy.engine.counters.otlp_exports
            await until(lambda: exports["refused"] == 2)
            receiver.status = 200
            await until(lambda: exports["done"] == 1)
    lines = [each for each in logged if "export" in each["event"]]
    assert [each["log_level"] for each in lines] == ["warning", "info"]
    assert "429" in lines[0]["error"]
    assert "too many" in lines[0]["error"]


async def test_rejected_data_points_are_one_line_and_counted() -> None:
    receiver = Receiver()
    answer = ExportMetricsServiceResponse()
    answer.partial_success.rejected_data_points = 7
    answer.partial_success.error_message = "no room for new series" + 300 * "!"
    receiver.body = answer.SerializeToString()
    with structlog.testing.capture_logs() as logged:
        async with exporting(receiver) as proxy:
            exports = proxy.engine.counters.otlp_exports
            await until(lambda: exports["partial"] == 2)
            receiver.body = ExportMetricsServiceResponse().SerializeToString()
            await until(lambda: exports["done"] == 1)
    lines = [each for each in logged if "data points" in each["event"]]
    assert [each["log_level"] for each in lines] == ["warning", "info"]
    assert lines[0]["rejected"] >= 7
    assert lines[0]["error"].startswith("no room for new series!")
    assert len(lines[0]["error"]) == 200


async def test_warning_of_a_collector_rejects_nothing() -> None:
    receiver = Receiver()
    answer = ExportMetricsServiceResponse()
    answer.partial_success.error_message = "this API is old"
    receiver.body = answer.SerializeToString()
    async with exporting(receiver) as proxy:
        await until(lambda: bool(receiver.requests) and any(proxy.engine.counters.otlp_exports.values()))
    assert proxy.engine.counters.otlp_exports["done"] >= 1
    assert proxy.engine.counters.otlp_exports["partial"] == 0


async def test_token_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logged:
        async with exporting(Receiver(), token=str(tmp_path / "none")) as proxy:
            await until(lambda: proxy.engine.counters.otlp_exports["unreachable"] == 1)
    (line,) = [each for each in logged if "export" in each["event"]]
    assert line["error"].startswith(f"otlp.token: {tmp_path / 'none'}: cannot be read: No such file or directory; ")


async def test_token_whose_file_system_hangs_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reading = HungCall(monkeypatch, "proxy.admin.otlp.read_token")
    with structlog.testing.capture_logs() as logged:
        async with exporting(Receiver(), token=str(tmp_path / "token")) as proxy:
            await until(lambda: proxy.engine.counters.otlp_exports["unreachable"] == 1)
    (line,) = [each for each in logged if "export" in each["event"]]
    assert line["error"] == f"otlp.token: {tmp_path / 'token'}: its file system does not answer"
    reading.end()


async def test_authorities_that_cannot_be_used_keep_it_from_starting(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("no PEM")
    source = given("127.0.0.1:1", more={"otlp": {"url": "https://127.0.0.1:4318", "ca": str(ca)}})
    assert any("otlp.ca" in each for each in StartCheck.of(source.read()).problems)
    with pytest.raises(ConfigError, match=r"otlp\.ca"):
        Proxy(source)


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"url": "http://u:p@collector:4318"}, "name a file with a token in otlp.token"),
        ({"url": "grpc://collector:4317"}, "http"),
        ({"token": "/t"}, "token is of no use without url"),
        ({"url": "http://collector", "ca": "/c"}, "ca is of no use with http"),
        ({"url": "http://collector", "interval": "0.1s"}, "interval"),
    ],
)
def test_mistakes_are_named(written: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Config.model_validate(yaml.safe_load(yaml.safe_dump({"otlp": written})))
