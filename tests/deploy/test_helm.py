"""The chart, rendered by the real Helm."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deploy.manifests import NAMES, ROOT, manifest, parsed
from tests.docs.headings import SITE
from tools import chart

pytestmark = pytest.mark.helm

_KUBERNETES = ("1.27", "1.33")
_NO_SCHEMA = {"PodMonitor", "PrometheusRule"}
_TWO_VALUES = ("--set", "broker=pulsar://broker:6650", "--set", "limits.tenants.acme.publish.messages=100/s")


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    values = tmp_path / "values.yaml"
    values.write_text("{}\n")
    return values


def test_plain_manifests_are_what_the_chart_renders() -> None:
    made = chart.plain_manifests()
    assert {path.name: path.read_text() for path in chart.MANIFESTS.glob("*.yaml")} == made, "make manifests"


@pytest.mark.parametrize("version", _KUBERNETES)
@pytest.mark.parametrize("name", NAMES)
def test_objects_are_as_the_api_has_them(name: str, version: str) -> None:
    import kubernetes_validate  # noqa: PLC0415 - it comes with Helm

    for each in parsed(chart.render(ROOT / "deploy/helm/ci" / f"{name}.yaml")):
        if each["kind"] not in _NO_SCHEMA:
            kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ([], "at '/broker': '' does not match pattern"),
        (["broker=broker:6650"], "at '/broker': 'broker:6650' does not match pattern"),
        (["limit.x=1"], "additional properties 'limit' not allowed"),
        (["limits.tenants.acme.publish.messages=fast"], "'/limits/tenants/acme/publish/messages': 'fast' does not"),
        (["limits.tenants.acme.publsh.messages=1"], "'/limits/tenants/acme': additional properties 'publsh' not"),
        (["limits.namespaces.acme.publish.messages=1"], "invalid propertyName 'acme'"),
        (["config.listen=0.0.0.0:1"], "at '/config': additional properties 'listen' not allowed"),
        (["config.keep_aliv=3s"], "at '/config': additional properties 'keep_aliv' not allowed"),
        (["replicas=0"], "at '/replicas': minimum: got 0, want 1"),
        (["service.type=Loadbalancer"], "at '/service/type': value must be one of"),
        (["store.size=5GB"], "at '/store/size': '5GB' does not match pattern"),
        (["compliance.schedule=daily"], "at '/compliance/schedule': 'daily' does not match pattern"),
        (["replicas=3", "accessLog.size=512Mi"], "accessLog.size: 512Mi is too little for 3 replicas: each keeps 256"),
        (["compliance.enabled=true"], "compliance.enabled: the job reads the access log of all replicas; set"),
        (["docsUrl=docs"], "at '/docsUrl': 'docs' does not match pattern"),
        (["admin.tlsSecret=x"], "admin.tlsSecret: name admin.tokensSecret, too"),
    ],
)
def test_wrong_value_is_refused_with_its_name(settings: list[str], error: str, empty: Path) -> None:
    given = ["broker=pulsar://broker:6650"] if settings and not settings[0].startswith("broker") else []
    with pytest.raises(subprocess.CalledProcessError) as refused:
        chart.render(empty, *(word for each in (*given, *settings) for word in ("--set", each)))
    assert error in refused.value.stderr


@pytest.mark.parametrize(
    ("value", "kind"), [("prometheusRule", "PrometheusRule"), ("podMonitor", "PodMonitor"), ("dashboards", "ConfigMap")]
)
def test_what_others_find_has_the_labels_of_choice(value: str, kind: str, empty: Path) -> None:
    wanted = ("--set", f"{value}.enabled=true", "--set", f"{value}.labels.release=prometheus")
    found = [
        each for each in parsed(chart.render(empty, *_TWO_VALUES, *wanted))
        if each["kind"] == kind and each["metadata"]["labels"].get("release") == "prometheus"
    ]  # fmt: skip
    assert len(found) == 1
    assert [
        each for each in parsed(chart.render(empty, *_TWO_VALUES)) if each["metadata"]["labels"].get("release")
    ] == []


def test_rules_of_the_chart_are_those_of_prometheus(empty: Path) -> None:
    objects = parsed(chart.render(empty, *_TWO_VALUES, "--set", "prometheusRule.enabled=true"))
    (rule,) = [each for each in objects if each["kind"] == "PrometheusRule"]
    assert rule["spec"] == yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())


def test_alerts_and_dashboards_lead_to_the_docs_of_choice(empty: Path) -> None:
    wanted = ("--set", "prometheusRule.enabled=true,dashboards.enabled=true,docsUrl=https://docs.example/sluice/")
    objects = parsed(chart.render(empty, *_TWO_VALUES, *wanted))
    (rule,) = [each for each in objects if each["kind"] == "PrometheusRule"]
    links = [each["annotations"]["runbook_url"] for each in rule["spec"]["groups"][1]["rules"]]
    assert all(link.startswith("https://docs.example/sluice/runbooks.html#") for link in links)
    dashboards = manifest(objects, ["ConfigMap"], "sluice-dashboards")["data"]
    for text in dashboards.values():
        assert '"query": "https://docs.example/sluice"' in text
        assert SITE not in text


def test_only_keys_that_are_not_live_restart_the_pods(empty: Path) -> None:
    def checksum(*more: str) -> str:
        objects = parsed(chart.render(empty, *_TWO_VALUES, *more))
        template = manifest(objects, ["Deployment"], "sluice")["spec"]["template"]
        found: str = template["metadata"]["annotations"]["checksum/config"]
        return found

    assert checksum() == checksum("--set", "limits.tenants.other.publish.messages=5")
    assert checksum() != checksum("--set", "config.keep_alive=20s")


def test_option_of_the_configuration_wins_over_the_chart(empty: Path) -> None:
    objects = parsed(chart.render(empty, *_TWO_VALUES, "--set", "replicas=2,config.fleet.name=front"))
    config = yaml.safe_load(manifest(objects, ["ConfigMap"], "sluice")["data"]["sluice.yaml"])
    assert config["fleet"] == {"name": "front"}
    alone = parsed(chart.render(empty, *_TWO_VALUES, "--set", "replicas=2,fleet=false"))
    assert "fleet" not in yaml.safe_load(manifest(alone, ["ConfigMap"], "sluice")["data"]["sluice.yaml"])
