"""Dashboards, rules and docs/questions.md have answers from a Prometheus that scrapes a loaded Sluice, of it alone."""

import contextlib
import json
import re
from pathlib import Path

import pytest
import yaml

from tests.loadgen.standin.conftest import running_broker
from tests.prometheus.test_scrape import prometheus, series_of, value  # noqa: F401 - a fixture
from tests.real.sluice_process import start_sluice
from tests.real.traffic import quiet_client

pytestmark = pytest.mark.prometheus
_ROOT = Path(__file__).resolve().parents[2]
_CHOSEN = {"tenant": "public", "direction": "publish", "level": "tenant", "name": "public", "__rate_interval": "1m"}


def _queries():
    """Return all queries, with a choice for each variable of the dashboards."""
    queries = re.findall(r"```promql\n(.+?)\n```", (_ROOT / "docs/questions.md").read_text(), re.DOTALL)
    for file in sorted((_ROOT / "deploy/grafana").glob("*.json")):
        queries += [panel["targets"][0]["expr"] for panel in json.loads(file.read_text())["panels"]]
    rules = yaml.safe_load((_ROOT / "deploy/prometheus/rules.yml").read_text())["groups"][0]["rules"]
    queries += [rule["expr"] for rule in rules]
    return [re.sub(r"\$(\w+)", lambda name: _CHOSEN[name[1]], query) for query in queries]


def test_each_published_query_finds_only_series_of_sluice(prometheus, tmp_path):  # noqa: F811
    limits = {"tenants": {"public": {"publish": {"messages": "20/s", "burst_messages": 1}}}}
    with running_broker() as (_, broker):
        sluice = start_sluice(tmp_path / "sluice", f"pulsar://{broker}", {"limits": limits})
        try:
            with contextlib.closing(quiet_client(sluice.service_url)) as client:
                producer = client.create_producer("persistent://public/default/queried")
                url = prometheus(sluice.admin_url.removeprefix("http://"))
                value(url, "sluice_ready", 0)
                for number in range(150):
                    producer.send_async(str(number).encode(), None)
                producer.flush()
                value(url, "sum(rate(sluice_held_seconds_count[1m]))", 0.01)
                value(url, 'rate(process_cpu_seconds_total{job="prometheus"}[1m])', 0)
                empty, of_others = [], []
                for query in _queries():
                    result = series_of(url, query)
                    if not result:
                        empty.append(query)
                    if any(each["metric"].get("job", "sluice") != "sluice" for each in result):
                        of_others.append(query)
                assert (empty, of_others) == ([], [])
        finally:
            sluice.stop()
