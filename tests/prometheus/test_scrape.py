"""A real Prometheus scrapes a real Sluice in front of the stand-in broker."""

import contextlib
import subprocess
import time
from typing import Any

import pytest
import yaml

from adminrest.client import AdminClient, AdminError
from loadgen.real.process import free_port
from tests.deploy.manifests import manifest, objects_of
from tests.loadgen.standin.conftest import running_broker
from tests.real.sluice_process import start_sluice
from tests.real.traffic import quiet_client

pytestmark = pytest.mark.prometheus

_PATIENCE_S = 60
_TOPIC = "persistent://public/default/scraped"
_SENT = 25
_OF_THE_OPERATOR = {"namespace": "pulsar", "pod": "sluice-0", "container": "sluice", "endpoint": "metrics"}
"""Labels that the Prometheus Operator gives a target of a PodMonitor."""


@pytest.fixture
def prometheus(tmp_path):
    """Starts Prometheus on a target and on itself, as the chart's PodMonitor has it scraped; gives its address."""
    running = []
    monitor = manifest(objects_of("everything"), ["PodMonitor"], "sluice")
    honors = monitor["spec"]["podMetricsEndpoints"][0].get("honorLabels", False)

    def start(target: str) -> str:
        address = f"127.0.0.1:{free_port()}"
        config = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [
                {
                    "job_name": "sluice",
                    "honor_labels": honors,
                    "static_configs": [{"targets": [target], "labels": _OF_THE_OPERATOR}],
                },
                {"job_name": "prometheus", "static_configs": [{"targets": [address]}]},
            ],
        }
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
        command = ["prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", f"--web.listen-address={address}"]
        command += [f"--storage.tsdb.path={tmp_path / 'data'}"]
        running.append(subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
        return f"http://{address}"

    yield start
    for process in running:
        process.kill()
        process.wait()


def series_of(prometheus_url: str, query: str) -> list[dict[str, Any]]:
    """Return the series of a query's answer."""
    answer = AdminClient(prometheus_url, timeout_s=_PATIENCE_S).get_json("/api/v1/query", {"query": query})
    return list(answer["data"]["result"])


def value(prometheus_url: str, query: str, at_least: float) -> float:
    """Ask until the answer is there."""
    deadline = time.monotonic() + _PATIENCE_S
    value = float("nan")
    while time.monotonic() < deadline:
        try:
            result = series_of(prometheus_url, query)
        except AdminError:
            result = []
        if result and (value := float(result[0]["value"][1])) >= at_least:
            return value
        time.sleep(0.2)
    raise AssertionError(f"{query} is {value} after {_PATIENCE_S} s, not {at_least}")


def test_prometheus_sees_what_a_client_sent(prometheus, tmp_path):
    """Counts by namespace arrive in Prometheus as they are, and every metric has a name that it takes."""
    with running_broker() as (_, broker):
        sluice = start_sluice(tmp_path / "sluice", f"pulsar://{broker}", {})
        try:
            with contextlib.closing(quiet_client(sluice.service_url)) as client:
                producer = client.create_producer(_TOPIC)
                for number in range(_SENT):
                    producer.send(str(number).encode())
            url = prometheus(sluice.admin_url.removeprefix("http://"))
            labels = 'tenant="public",namespace="default",direction="publish"'
            assert value(url, f"sluice_messages_passed_total{{{labels}}}", _SENT) == _SENT
            assert value(url, 'up{namespace="pulsar"}', 1) == 1
            page = AdminClient(sluice.admin_url, timeout_s=_PATIENCE_S).get("/metrics")
        finally:
            sluice.stop()
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
