"""Exports the metrics by OTLP over HTTP: what `/metrics` shows, pushed to an OpenTelemetry collector.

Sources: https://opentelemetry.io/docs/specs/otlp/#otlphttp, and for the types of metrics
https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import groupby

import aiohttp
import structlog
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    HistogramDataPoint,
    NumberDataPoint,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as OtlpMetric
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from proxy.admin.metrics import SAMPLES_IN_A_UNIT, ExportOutcome, SluiceCollector
from proxy.config.sections import Otlp
from proxy.counters import Counters
from proxy.file_calls import READ_S, FileCallError, FileCalls
from proxy.files import TokenFileError, read_token
from proxy.slices import Slices, Work
from proxy.tls.certificates import forward_tls

PATH = "/v1/metrics"
MOST_POINTS = 512
"""Data points of one request, from which on the next one begins: encoding as many takes about a millisecond."""
_MOST_ANSWER = 64 * 1024
"""Bytes of an answer that are read."""
_MOST_MESSAGE = 200
"""Characters of a collector's message in the log."""
_UNITS = {"seconds": "s", "bytes": "By"}


class ExportError(Exception):
    """An export failed; `outcome` is what is counted."""

    def __init__(self, outcome: ExportOutcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


class OtlpExport:
    """Sends all metrics to a collector at each interval; what a failed export lacks, the next one has.

    Sums and histograms are cumulative since the start of the process, so a lost export loses no count.

    Args:
        section: The section `otlp`, with an address.
        collector: The metrics.
        slices: Bounds the work in one turn of the loop.
        counters: Counts the exports.
        fresh: Awaited before each export: has the brokers asked.
        resource: The attributes of this process (`service.name` …).

    Raises:
        ConfigError: If the authorities in `otlp.ca` cannot be used.
    """

    def __init__(
        self,
        section: Otlp,
        collector: SluiceCollector,
        slices: Slices,
        counters: Counters,
        fresh: Callable[[], Awaitable[None]],
        resource: Mapping[str, str],
    ) -> None:
        self._section = section
        self._collector = collector
        self._slices = slices
        self._counters = counters
        self._fresh = fresh
        self._resource = resource
        self._calls = FileCalls()
        self._begun_ns = time.time_ns()
        self._url = f"{section.url}{PATH}"
        self._is_failing = self._is_partial = False
        self._context = forward_tls(section.ca, "otlp").context if self._url.startswith("https:") else None

    async def run(self) -> None:
        """Export at each interval, until cancelled."""
        connector = aiohttp.TCPConnector(limit=1, ssl=self._context or True)
        timeout = aiohttp.ClientTimeout(total=self._section.timeout)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            while True:
                await self._export_once(session)
                await asyncio.sleep(self._section.interval)

    async def _export_once(self, session: aiohttp.ClientSession) -> None:
        try:
            rejected = await self._export(session)
        except ExportError as error:
            self._counters.otlp_exports[error.outcome] += 1
            if not self._is_failing:
                structlog.get_logger().warning(
                    "metrics are not exported; each interval tries again", url=self._url, error=str(error)
                )
            self._is_failing = True
            return
        points = sum(each.rejected_data_points for each in rejected)
        self._counters.otlp_exports[ExportOutcome.PARTIAL if points else ExportOutcome.DONE] += 1
        if self._is_failing:
            structlog.get_logger().info("metrics are exported again", url=self._url)
        if points and not self._is_partial:
            message = next((each.error_message for each in rejected if each.error_message), "")
            structlog.get_logger().warning(
                "the OTLP collector rejects data points: it names the reason; /metrics has all of them",
                url=self._url,
                rejected=points,
                error=message[:_MOST_MESSAGE],
            )
        elif self._is_partial and not points:
            structlog.get_logger().info("the collector takes all data points again", url=self._url)
        self._is_failing, self._is_partial = False, points > 0

    async def _export(self, session: aiohttp.ClientSession) -> list[ExportMetricsPartialSuccess]:
        """Export once; return what the collector rejected of it.

        Raises:
            ExportError: If the collector did not take a request.
        """
        rejected: list[ExportMetricsPartialSuccess] = []
        bodies: list[bytes] = []
        await self._fresh()
        units = encoding(self._collector.parts(), self._resource, bodies, self._begun_ns, time.time_ns())
        await self._slices.done(Work.SCRAPES, units)
        headers = {"Content-Type": "application/x-protobuf", **await self._authorization()}
        for body in bodies:
            try:
                async with session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer:
                    status, reason = answer.status, await _beginning(answer)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise ExportError(ExportOutcome.UNREACHABLE, str(error) or "no answer in time") from None
            if status != 200:
                raise ExportError(ExportOutcome.REFUSED, f"the collector answered {status}: {reason[:_MOST_MESSAGE]!r}")
            with suppress(DecodeError):  # other bodies are no answers of the protocol, and 200 is enough
                success = ExportMetricsServiceResponse.FromString(reason).partial_success
                rejected += [success] if success.rejected_data_points > 0 else []
        return rejected

    async def _authorization(self) -> dict[str, str]:
        file = self._section.token
        if file is None:
            return {}
        try:
            token = await self._calls.run(file, partial(read_token, file), READ_S)
        except TokenFileError as error:
            raise ExportError(ExportOutcome.UNREACHABLE, f"otlp.token: {error}") from None
        except FileCallError as error:
            raise ExportError(ExportOutcome.UNREACHABLE, f"otlp.token: {file}: {error}") from None
        return {"Authorization": f"Bearer {token}"}


async def _beginning(answer: aiohttp.ClientResponse) -> bytes:
    """Return the body, up to a bound."""
    body = b""
    while len(body) < _MOST_ANSWER and (piece := await answer.content.read(_MOST_ANSWER - len(body))):
        body += piece
    return body


def encoding(
    parts: Iterator[Metric | None], resource: Mapping[str, str], bodies: list[bytes], begun_ns: int, now_ns: int
) -> Iterator[None]:
    """Encode metrics as requests of at most about `MOST_POINTS` data points, a unit of work in each step.

    Args:
        parts: The metrics, as `SluiceCollector.parts` yields them.
        resource: The attributes of the process.
        bodies: Gets the bodies of the requests.
        begun_ns: When the process began, in nanoseconds since 1970.
        now_ns: The present time.
    """
    request = ExportMetricsServiceRequest()
    points = 0
    for part in parts:
        if part is None:
            yield
            continue
        if not request.resource_metrics:
            described = request.resource_metrics.add()
            for key, value in resource.items():
                described.resource.attributes.add(key=key).value.string_value = value
            metrics = described.scope_metrics.add().metrics
        if part.samples:
            _encode(part, metrics.add(), begun_ns, now_ns)
            points += len(part.samples)
        if points >= MOST_POINTS:
            bodies.append(request.SerializeToString())
            request, points = ExportMetricsServiceRequest(), 0
        for _ in range(1 + len(part.samples) // SAMPLES_IN_A_UNIT):
            yield
    if points:
        bodies.append(request.SerializeToString())


def _encode(part: Metric, metric: OtlpMetric, begun_ns: int, now_ns: int) -> None:
    metric.name, metric.description = part.name, part.documentation
    metric.unit = _UNITS.get(part.name.rpartition("_")[2], "")
    if part.type == "histogram":
        metric.histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
        for labels, samples in groupby(part.samples, key=_shared_labels):
            histogram = metric.histogram.data_points.add(start_time_unix_nano=begun_ns, time_unix_nano=now_ns)
            _fill_histogram(histogram, samples)
            _name(histogram, labels)
        return
    if part.type == "counter":
        metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
        metric.sum.is_monotonic = True
    points = metric.sum.data_points if part.type == "counter" else metric.gauge.data_points
    for sample in part.samples:
        point = points.add(start_time_unix_nano=begun_ns, time_unix_nano=now_ns)
        if isinstance(sample.value, int):
            point.as_int = sample.value
        else:
            point.as_double = sample.value
        _name(point, sample.labels)


def _name(point: NumberDataPoint | HistogramDataPoint, labels: Mapping[str, str]) -> None:
    for key, value in labels.items():
        point.attributes.add(key=key).value.string_value = value


def _shared_labels(sample: Sample) -> dict[str, str]:
    """Return the labels that all samples of one histogram have."""
    return {key: value for key, value in sample.labels.items() if key != "le"}


def _fill_histogram(point: HistogramDataPoint, samples: Iterable[Sample]) -> None:
    below = 0
    for sample in samples:
        if sample.name.endswith("_bucket"):
            if (bound := float(sample.labels["le"])) != float("inf"):
                point.explicit_bounds.append(bound)
            point.bucket_counts.append(int(sample.value) - below)
            below = int(sample.value)
        elif sample.name.endswith("_sum"):
            point.sum = sample.value
    point.count = below
