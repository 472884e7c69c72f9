"""The chart, rendered by the real Helm."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from protocol.endpoint import BROKERS, EndpointError
from proxy.config.limits import Limits
from proxy.config.model import ClientMemory, Config, ConfigError, Publish, load_config
from proxy.config.sections import Drain, Fleet
from tests.deploy.manifests import NAMES, ROOT, containers, manifest, parsed, pod_spec, pods
from tests.docs.headings import SITE, section
from tools import chart

pytestmark = pytest.mark.helm

_KUBERNETES = ("1.27", "1.33")
_IMAGE = ("--set", "image.repository=registry.example/sluice")
_THREE_VALUES = (
    *_IMAGE, "--set", "broker=pulsar://broker:6650", "--set", "limits.tenants.acme.publish.messages=100/s",
)  # fmt: skip

_JOB = ("accessLog.persistent=true", "accessLog.size=100Gi", "compliance.enabled=true")


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    values = tmp_path / "values.yaml"
    values.write_text("{}\n")
    return values


def test_plain_manifests_are_what_the_chart_renders() -> None:
    made = chart.plain_manifests()
    assert {path.name: path.read_text() for path in chart.MANIFESTS.glob("*.yaml")} == made, "make manifests"


def test_helm_is_built_for_the_kubernetes_that_is_rendered_for() -> None:
    major, minor, _ = chart.KUBERNETES.split(".")
    assert f"-X ${{version}}Major={major} -X ${{version}}Minor={minor}" in (ROOT / "tools/helm").read_text()


@pytest.mark.parametrize("version", _KUBERNETES)
@pytest.mark.parametrize("name", NAMES)
def test_objects_are_as_the_api_has_them(name: str, version: str) -> None:
    import kubernetes_validate  # noqa: PLC0415 - it comes with Helm

    for each in parsed(chart.render(ROOT / "deploy/helm/ci" / f"{name}.yaml")):
        if each["apiVersion"].startswith("monitoring.coreos.com/"):
            jsonschema_rs.validate(operators_schema(each["kind"]), each)
        else:
            kubernetes_validate.validate(each, version, strict=True)


@cache
def operators_schema(kind: str) -> Any:
    """The schema of a kind of the Prometheus Operator, in which no other key is known."""
    definition = yaml.safe_load((chart.OPERATOR / f"monitoring.coreos.com_{kind.lower()}s.yaml").read_text())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["metadata"] = {"type": "object", "required": ["name"]}
    return strict(schema)


def strict(schema: Any) -> Any:
    """The same schema, of which each object with properties has no others."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        made.setdefault("additionalProperties", False)
    return made


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "PodMonitor", "spec": {"podMetricsEndpoint": []}},
        {
            "kind": "PodMonitor",
            "spec": {"selector": {}, "podMetricsEndpoints": [{"port": "metrics", "interval": "30"}]},
        },
        {"kind": "PrometheusRule", "spec": {"groups": [{"name": "x", "rules": [{"alert": "X", "for": "1m"}]}]}},
    ],
)
def test_schema_of_the_operator_refuses_what_is_wrong(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(operators_schema(wrong["kind"]), {**wrong, "metadata": {"name": "x"}})


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ([], "at '/broker': '' does not match pattern"),
        (["image.repository="], "image.repository: no registry has an image of Sluice; build one, push it, and name"),
        (["broker=broker:6650"], "at '/broker': 'broker:6650' does not match pattern"),
        (["broker=pulsar://broker"], "at '/broker': 'pulsar://broker' does not match pattern"),
        (["broker=pulsar://a:6650\\,b:6650"], "at '/broker': 'pulsar://a:6650,b:6650' does not match pattern"),
        (["broker={pulsar://a:6650,pulsar://b}"], "at '/broker/1': 'pulsar://b' does not match pattern"),
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
        (
            ["replicas=3", "accessLog.persistent=true", "accessLog.size=512Mi"],
            "512Mi is too little for 3 replicas: each keeps 4 closed files of config.access_log.rotate_size (64MiB) at",
        ),
        (
            ["config.access_log.rotate_size=1GiB"],
            "for a pod: each keeps 4 closed files of config.access_log.rotate_size (1GiB) at least; write 5Gi",
        ),
        (["compliance.enabled=true"], "compliance.enabled: the job reads the access log of all replicas; set"),
        (["admin.tokensSecret=x", "preStop.enabled=true"], "name its file in admin.commands.tokenFile"),
        (
            ["preStop.enabled=true", "config.admin_access.tls.client_ca=/run/secrets/x/ca.crt"],
            "preStop.enabled: the hook needs a client certificate; name its file in admin.commands.cert",
        ),
        (["admin.commands.tokenFile=token"], "at '/admin/commands/tokenFile': 'token' does not match pattern"),
        (
            ["networkPolicy.brokers[0].podSelector.matchLabels.app=pulsar", "config.otlp.url=http://collector:4318"],
            "networkPolicy.brokers: pods would not reach the collector of config.otlp; name its peers in",
        ),
        (
            [
                "networkPolicy.brokers[0].podSelector.matchLabels.app=pulsar",
                "config.admin_forward.url=http://broker-admin:8080",
            ],
            "`broker` does not name the host broker-admin of config.admin_forward, which pods may not reach then",
        ),
        (
            [
                "networkPolicy.brokers[0].podSelector.matchLabels.app=pulsar",
                "config.admin_forward.url=http://broker:8080",
                "config.admin_forward.brokers[0]=broker-*.example:8080",
            ],
            "`broker` does not name the host broker-*.example of config.admin_forward, which pods may not reach then",
        ),
        (
            ["autoscaling.enabled=true", "resources.requests.cpu=null"],
            "autoscaling.enabled: autoscaling.cpuPercent is of resources.requests.cpu; set it",
        ),
        (
            ["terminationGracePeriodSeconds=60", "config.drain.timeout=5min"],
            "terminationGracePeriodSeconds: 60 is less than config.drain.timeout (5min), config.linger (10s) and 5 s",
        ),
        (
            ["config.client_memory.total=8GiB"],
            "config.client_memory.total (8GiB) and config.publish.hold_total (64MiB) together; write 8704Mi",
        ),
        (["resources.limits.memory=600M"], "resources.limits.memory: 600M is less than config.client_memory.total"),
        ([*_JOB, "compliance.once=true", "compliance.follow=true"], "compliance.once: true ends after one run, and"),
        ([*_JOB, "compliance.report.liveHours=24"], "compliance.report.liveHours: a report that is kept up to date"),
        (["compliance.schedule=99 99 99 99 99"], "at '/compliance/schedule': '99 99 99 99 99' does not match pattern"),
        (["compliance.report.schedule=0 0 * * 7"], "at '/compliance/report/schedule': '0 0 * * 7' does not match"),
        (["image.repository=Sluice"], "at '/image/repository': 'Sluice' does not match pattern"),
        (["store.storageClass=a b"], "at '/store/storageClass': 'a b' does not match pattern"),
        (["podMonitor.labels.app\\.kubernetes\\.io/name=x"], "invalid propertyName 'app.kubernetes.io/name'"),
        (["docsUrl=docs"], "at '/docsUrl': 'docs' does not match pattern"),
        (["admin.tlsSecret=x"], "admin.tlsSecret: name admin.tokensSecret, too"),
    ],
)
def test_wrong_value_is_refused_with_its_name(settings: list[str], error: str, empty: Path) -> None:
    given = ["broker=pulsar://broker:6650"] if settings and not settings[0].startswith("broker") else []
    with pytest.raises(subprocess.CalledProcessError) as refused:
        chart.render(empty, *_IMAGE, *(word for each in (*given, *settings) for word in ("--set", each)))
    assert error in refused.value.stderr


def sluice_yaml_of(limits: str, empty: Path) -> str:
    """Render `limits`, which are a text or a mapping in JSON, and return the pods' sluice.yaml."""
    empty.write_text(f"{{broker: 'pulsar://broker:6650', limits: {limits}}}")
    text: str = manifest(parsed(chart.render(empty, *_IMAGE)), ["ConfigMap"], "sluice")["data"]["sluice.yaml"]
    return text


def test_limits_in_a_text_are_read_by_sluice_alone(empty: Path, tmp_path: Path) -> None:
    written = (
        "# of ours\ntenants:\n  007: {publish: {messages: 5/s}}\n\n  no: gold\nplans: {gold: {publish: {bytes: 7}}}\n"
    )
    config = tmp_path / "sluice.yaml"
    config.write_text(sluice_yaml_of(json.dumps(written), empty))
    tenants = load_config(config, {}, {"SLUICE_BROKER": "pulsar://broker:6650"}).limits.tenants
    assert set(tenants) == {"007", "no"}

    config.write_text(sluice_yaml_of(json.dumps("\ufeff---\r\ntenants: {007: {publish: {messages: 5}}}\r\n"), empty))
    assert set(load_config(config, {}, {"SLUICE_BROKER": "pulsar://broker:6650"}).limits.tenants) == {"007"}

    config.write_text(sluice_yaml_of(json.dumps("tenants: {acme: {publish: {messages: 010}}}"), empty))
    with pytest.raises(ConfigError, match=r"limits\.tenants\.acme\.publish\.messages"):
        load_config(config, {}, {"SLUICE_BROKER": "pulsar://broker:6650"})


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        ("{tenants: {007: {publish: {messages: 1}}}}", "limits.tenants.7: this may be the name that was written, or"),
        ("{roles: {no: {publish: {messages: 1}}}}", "limits.roles.false: this may be"),
        ("{addresses: {1.10: {publish: {messages: 1}}}}", "limits.addresses.1.1: this may be"),
        ("{plans: {1_000: {publish: {messages: 1}}}}", "limits.plans.1000: this may be"),
        ("{producers: {-.inf: {publish: {messages: 1}}}}", "limits.producers.-.inf: this may be"),
        ("{producers: {1e3: {publish: {messages: 1}}}}", "limits.producers.1000: this may be"),
        (
            "{topics: {a/b/c: {subscriptions: {0x1F: {dispatch: {messages: 1}}}}}}",
            "limits.topics.a/b/c.subscriptions.31: this may be",
        ),
        ('""', "limits: the text has no limits; write {} in its place for none"),
        ('"tenants"', "limits: Helm cannot read the text; mend it, or quote a name such as null: "),
        ('"tenants: {a: [}"', "limits: Helm cannot read the text; "),
        ('"tenants: {null: gold}"', "limits: Helm cannot read the text; mend it, or quote a name such as null"),
        (
            '"limits: {tenants: {}}"',
            "limits: the text begins with limits, which is no level; levels are plans, proxy, ",
        ),
        (r'"tenants: {}\r roles: {}"', "limits: the text has a line break other than LF and CRLF"),
        (r'"tenants: {} # a\u2028roles: {}"', "limits: the text has a line break other than LF and CRLF"),
        (r'"tenants: {} # a\u0085roles: {}"', "limits: the text has a line break other than LF and CRLF"),
        ("", "limits: nothing is written here; write {} for no limits"),
        ("[tenants]", "at '/limits': got array, want object"),
    ],
)
def test_limits_that_helm_may_have_changed_are_refused(limits: str, error: str, empty: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        sluice_yaml_of(limits, empty)
    assert error in refused.value.stderr


def test_chart_knows_all_levels(empty: Path) -> None:
    text = json.dumps(
        "\n".join(f"{level}: {{}}" for level in Limits.model_fields if level != "exempt") + "\nexempt: []"
    )
    assert yaml.safe_load(sluice_yaml_of(text, empty))["limits"].keys() == Limits.model_fields.keys()


def test_names_that_helm_leaves_alone_are_taken(empty: Path) -> None:
    limits = """{
        tenants: {no.1: gold, 1-2: gold, ab: gold}, addresses: {10.0.0.1: {publish: {messages: 1}}},
        topics: {a/b/c: {subscriptions: {s1: {dispatch: {messages: 1}}}}},
    }"""
    assert yaml.safe_load(sluice_yaml_of(limits, empty))["limits"] == yaml.safe_load(limits)


@pytest.mark.parametrize(
    ("value", "kind"), [("prometheusRule", "PrometheusRule"), ("podMonitor", "PodMonitor"), ("dashboards", "ConfigMap")]
)
def test_what_others_find_has_the_labels_of_choice(value: str, kind: str, empty: Path) -> None:
    wanted = ("--set", f"{value}.enabled=true", "--set", f"{value}.labels.release=prometheus")
    objects = [
        each for each in parsed(chart.render(empty, *_THREE_VALUES, *wanted))
        if each["kind"] == kind and each["metadata"]["labels"].get("release") == "prometheus"
    ]  # fmt: skip
    assert len(objects) == 1
    assert [
        each for each in parsed(chart.render(empty, *_THREE_VALUES)) if each["metadata"]["labels"].get("release")
    ] == []


def test_rules_of_the_chart_are_those_of_prometheus(empty: Path) -> None:
    objects = parsed(chart.render(empty, *_THREE_VALUES, "--set", f"prometheusRule.enabled=true,docsUrl={SITE}"))
    (rule,) = [each for each in objects if each["kind"] == "PrometheusRule"]
    assert rule["spec"] == yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())


def test_alerts_and_dashboards_lead_to_the_docs_of_choice(empty: Path) -> None:
    wanted = ("--set", "prometheusRule.enabled=true,dashboards.enabled=true,docsUrl=https://docs.example/sluice/")
    objects = parsed(chart.render(empty, *_THREE_VALUES, *wanted))
    (rule,) = [each for each in objects if each["kind"] == "PrometheusRule"]
    links = [each["annotations"]["runbook_url"] for each in rule["spec"]["groups"][1]["rules"]]
    assert all(link.startswith("https://docs.example/sluice/runbooks.html#") for link in links)
    dashboards = manifest(objects, ["ConfigMap"], "sluice-dashboards")["data"]
    for text in dashboards.values():
        assert '"query": "https://docs.example/sluice"' in text
        assert SITE not in text


def test_alerts_and_dashboards_without_docs_have_no_links(empty: Path) -> None:
    def rendered(*more: str) -> tuple[Any, list[Any]]:
        wanted = ("--set", ",".join(("prometheusRule.enabled=true,dashboards.enabled=true", *more)))
        objects = parsed(chart.render(empty, *_THREE_VALUES, *wanted))
        (rule,) = [each["spec"] for each in objects if each["kind"] == "PrometheusRule"]
        dashboards = manifest(objects, ["ConfigMap"], "sluice-dashboards")["data"]
        return rule, [json.loads(text) for text in dashboards.values()]

    assert "http" not in str(rendered())
    rule, dashboards = rendered(f"docsUrl={SITE}")
    for each in rule["groups"][1]["rules"]:
        del each["annotations"]["runbook_url"]
    for dashboard in dashboards:
        dashboard["templating"]["list"] = [each for each in dashboard["templating"]["list"] if each["name"] != "docs"]
        for panel in dashboard["panels"]:
            del panel["links"]
    assert rendered() == (rule, dashboards)


@pytest.fixture
def notes(empty: Path, tmp_path: Path) -> Callable[..., str]:
    """NOTES of three values and others; `helm template` shows none, so a copy of the chart has them in an object."""
    copy = tmp_path / "sluice"
    shutil.copytree(chart.CHART, copy)
    text = copy / "templates/NOTES.txt"
    (copy / "templates/_notes.tpl").write_text(f'{{{{- define "notes" }}}}{text.read_text()}{{{{ end }}}}')
    text.with_name("notes.yaml").write_text(
        '{kind: Notes, metadata: {name: notes}, text: {{ include "notes" . | quote }}}'
    )

    def rendered(*settings: str) -> str:
        given = (word for each in settings for word in ("--set", each))
        objects = parsed(chart.render(empty, *_THREE_VALUES, *given, of=copy))
        notes_text: str = manifest(objects, ["Notes"], "notes")["text"]
        return notes_text

    return rendered


@pytest.mark.parametrize(
    ("settings", "needs"),
    [
        ([], ""),
        (["admin.tokensSecret=x"], "need a token (admin.commands.tokenFile):"),
        (["admin.tokensSecret=x", "admin.commands.tokenFile=/run/secrets/x/token"], ""),
        (
            ["admin.tokensSecret=x", "admin.tlsSecret=y", "config.admin_access.tls.client_ca=/run/secrets/y/ca.crt"],
            "need a token (admin.commands.tokenFile) and a client certificate (admin.commands.cert):",
        ),
    ],
)
def test_notes_say_what_commands_in_a_pod_need(settings: list[str], needs: str, notes: Callable[..., str]) -> None:
    text = notes(*settings)
    assert "kubectl --namespace pulsar exec deployment/sluice -- sluice top --once" in text
    assert ("Commands in a pod need" in text) == bool(needs)
    assert needs in text


def test_notes_name_the_fleet(notes: Callable[..., str]) -> None:
    assert "as the fleet pulsar-sluice, by topics in public/sluice" in notes("replicas=2")
    assert "as the fleet front, by topics in public/sluice" in notes("replicas=2", "config.fleet.name=front")


def test_notes_name_the_way_to_one_of_several_pods(notes: Callable[..., str]) -> None:
    assert "port-forward" not in notes()
    text = notes("replicas=3", "admin.tokensSecret=x")
    assert "show or act on one pod alone" in text
    assert "port-forward pod/POD 8080   # http://127.0.0.1:8080/console" in text
    assert "The Service sluice-admin keeps each client's address at one pod" in text


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ("fleet=true", 60),
        ("config.drain.timeout=300s", 330),
        ("config.drain.timeout=300", 330),
        ("config.drain.timeout=1.5 min", 120),
        ("config.drain.timeout=0", 30),
        ("config.linger=500ms", 51),
        ("terminationGracePeriodSeconds=45", 45),
        ("terminationGracePeriodSeconds=90", 90),
    ],
)
def test_grace_period_covers_the_drain(settings: str, seconds: int, empty: Path) -> None:
    objects = parsed(chart.render(empty, *_THREE_VALUES, "--set", settings))
    assert pod_spec(manifest(objects, ["Deployment"], "sluice"))["terminationGracePeriodSeconds"] == seconds


def test_chart_reckons_with_the_defaults_of_the_configuration() -> None:
    """The cases of 60 s and of the refused limits hold by these."""
    assert (Drain().timeout, Config.model_fields["linger"].default) == (30, 10)
    assert (ClientMemory().total, Publish().hold_total) == (512 * 1024**2, 64 * 1024**2)


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ("resources.limits.memory=1Gi", None),
        ("resources.limits.memory=1000Mi", 424),
        ("resources.limits.memory=576Mi", 0),
        ("resources.limits.memory=1G", 377),
        ("resources.limits.memory=null", None),
        ("config.client_memory.total=540MB", 445),
        ("resources.limits.memory=9Gi,config.client_memory.total=8GiB", None),
    ],
)
def test_notes_warn_of_a_memory_limit_near_the_bounds(
    settings: str, left: int | None, notes: Callable[..., str]
) -> None:
    text = notes(settings)
    assert ("WARNING: resources.limits.memory" in text) == (left is not None)
    assert left is None or f"leaves {left} MiB" in text


@pytest.mark.parametrize(
    ("broker", "url"),
    [
        ("pulsar+ssl://a.example:6651", "https://A.example:8443"),
        ("{pulsar://a:6650,pulsar://b:6650}", "http://b:8080/"),
        ("pulsar://[2001:db8::1]:6650", "http://[2001:db8::1]:8080"),
    ],
)
def test_policy_of_brokers_has_the_admin_of_a_broker(broker: str, url: str, empty: Path) -> None:
    given = (f"broker={broker}", f"config.admin_forward.url={url}", "networkPolicy.brokers[0].podSelector.x=y")
    assert chart.render(empty, *_IMAGE, *(word for each in given for word in ("--set", each)))


def fleet_of(values: Path, *settings: str, namespace: str = "pulsar") -> dict[str, Any]:
    given = (word for each in ("replicas=2", *settings) for word in ("--set", each))
    objects = parsed(chart.render(values, *_THREE_VALUES, *given, "--namespace", namespace))
    config = yaml.safe_load(manifest(objects, ["ConfigMap"], "sluice")["data"]["sluice.yaml"])
    Fleet.model_validate(config["fleet"])
    fleet: dict[str, Any] = config["fleet"]
    return fleet


def test_fleet_is_named_where_another_key_of_it_is_given(empty: Path) -> None:
    assert fleet_of(empty, "config.fleet.namespace=ops/sluice") == {"name": "pulsar-sluice", "namespace": "ops/sluice"}
    alone = fleet_of(empty, "replicas=1", "config.fleet.namespace=ops/sluice")
    assert alone == {"name": "pulsar-sluice", "namespace": "ops/sluice"}


def test_releases_of_two_namespaces_are_two_fleets(empty: Path) -> None:
    assert fleet_of(empty, namespace="team-a") == {"name": "team-a-sluice"}
    assert fleet_of(empty, namespace="team-b") == {"name": "team-b-sluice"}
    assert fleet_of(empty, "config.fleet.name=front", namespace="team-b") == {"name": "front"}
    longest = "n" * 63
    assert fleet_of(empty, namespace=longest) == {"name": f"{longest}-sluice"}


def test_volume_of_a_secret_has_a_name_that_kubernetes_takes(empty: Path) -> None:
    """Source: the API's validation of a volume's name, a DNS label; no schema has it."""
    long, dotted = "of-ca-" + "a" * 200, "front.example.com-tls"
    objects = parsed(chart.render(empty, *_THREE_VALUES, "--set", f"tls.secret={dotted},secrets={{{long}}}"))
    spec = pod_spec(manifest(objects, ["Deployment"], "sluice"))
    assert [
        each["name"] for each in spec["volumes"] if not re.fullmatch("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", each["name"])
    ] == []
    paths = {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}
    mounted = {each["secret"]["secretName"]: paths[each["name"]] for each in spec["volumes"] if "secret" in each}
    assert mounted == {name: f"/run/secrets/{name}" for name in (long, dotted)}


def test_lists_of_brokers_are_variables(empty: Path) -> None:
    given = "broker={pulsar://a:6650,pulsar://b:6650},config.allowed_brokers={a*:6650,c:6650}"
    given += ",config.allowed_broker_networks={10.0.0.0/8,2001:db8::/32}"
    objects = parsed(chart.render(empty, *_IMAGE, "--set", given))
    variables = pod_spec(manifest(objects, ["Deployment"], "sluice"))["containers"][0]["env"]
    config = load_config(None, {}, {each["name"]: each.get("value", "x") for each in variables})
    assert [each.address for each in config.broker] == ["a:6650", "b:6650"]
    assert [each.address for each in config.allowed_brokers] == ["a*:6650", "c:6650"]
    assert [str(each) for each in config.allowed_broker_networks] == ["10.0.0.0/8", "2001:db8::/32"]


def test_admin_service_keeps_a_client_at_one_pod(empty: Path) -> None:
    objects = parsed(chart.render(empty, *_THREE_VALUES, "--set", "replicas=3,admin.tokensSecret=x"))
    assert manifest(objects, ["Service"], "sluice-admin")["spec"]["sessionAffinity"] == "ClientIP"
    assert "sessionAffinity" not in manifest(objects, ["Service"], "sluice")["spec"]


def test_autoscaler_needs_no_adapter_unless_asked(empty: Path, notes: Callable[..., str]) -> None:
    def metrics(*more: str) -> list[str]:
        objects = parsed(chart.render(empty, *_THREE_VALUES, "--set", "autoscaling.enabled=true", *more))
        spec = manifest(objects, ["HorizontalPodAutoscaler"], "sluice")["spec"]
        return [each["type"] for each in spec["metrics"]]

    assert metrics() == ["Resource"]
    assert metrics("--set", "autoscaling.heldBytes=32Mi") == ["Resource", "Pods"]
    assert "adapter" not in notes("autoscaling.enabled=true")
    assert "While no adapter serves it" in notes("autoscaling.enabled=true", "autoscaling.heldBytes=32Mi")


@pytest.mark.parametrize(
    ("tls", "ip", "url"),
    [("", None, "http://[::1]:8080"), ("admin.tlsSecret=y", "::1", "https://sluice-admin.pulsar.svc:8080")],
)
def test_pod_of_ipv6_listens_and_asks_itself_there(tls: str, ip: str | None, url: str, empty: Path) -> None:
    """`[::]` of admin address and metrics takes no IPv4."""
    settings = ",".join(filter(None, ("bindAddress=[::],tls.secret=z,admin.tokensSecret=x", tls)))
    objects = parsed(chart.render(empty, *_THREE_VALUES, "--set", settings))
    config = yaml.safe_load(manifest(objects, ["ConfigMap"], "sluice")["data"]["sluice.yaml"])
    listened = [config[key] for key in ("listen", "admin", "metrics")]
    assert listened == ["pulsar+ssl://[::]:6651", "[::]:8080", "[::]:9100"]
    spec = pod_spec(manifest(objects, ["Deployment"], "sluice"))
    assert [each["ip"] for each in spec.get("hostAliases", [])] == ([ip] if ip else [])
    assert {"name": "SLUICE_ADMIN", "value": url} in spec["containers"][0]["env"]


def test_commands_of_a_pod_ask_it_by_the_name_in_its_certificate(empty: Path) -> None:
    secrets = "admin.tokensSecret=x,admin.tlsSecret=y,admin.commands.host=front.example"
    objects = parsed(chart.render(empty, *_THREE_VALUES, "--set", secrets))
    spec = pod_spec(manifest(objects, ["Deployment"], "sluice"))
    assert spec["hostAliases"] == [{"ip": "127.0.0.1", "hostnames": ["front.example"]}]
    assert {"name": "SLUICE_ADMIN", "value": "https://front.example:8080"} in spec["containers"][0]["env"]


@pytest.mark.parametrize(
    ("settings", "images"),
    [
        ("image.tag=1.2.3", ["registry.example/sluice:1.2.3", "registry.example/sluice-compliance:1.2.3"]),
        ("image.tag=1.2.3,compliance.image.repository=registry.example/job", ["registry.example/job:1.2.3"]),
        ("compliance.image.tag=v4", ["registry.example/sluice:0.1.0", "registry.example/sluice-compliance:v4"]),
    ],
)
def test_image_of_the_job_follows_the_proxys(settings: str, images: list[str], empty: Path) -> None:
    wanted = (word for each in (*_JOB, settings) for word in ("--set", each))
    objects = parsed(chart.render(empty, *_THREE_VALUES, *wanted))
    assert set(images) <= {each["image"] for _, _, spec in pods(objects) for each in spec["containers"]}


def test_pod_of_the_job_keeps_a_live_report_where_the_chart_asks(empty: Path) -> None:
    wanted = [*_JOB, "compliance.follow=true", "compliance.report.liveHours=12"]
    objects = parsed(chart.render(empty, *_THREE_VALUES, *(word for each in wanted for word in ("--set", each))))
    (container,) = pod_spec(manifest(objects, ["Deployment"], "sluice-compliance"))["containers"]
    assert container["args"][-4:] == ["--report", "/var/lib/sluice/live", "--hours", "12"]


@pytest.mark.parametrize(
    "text",
    [
        "pulsar://broker:6650", "pulsar+ssl://broker.example:6651/", "pulsar://[2001:db8::1]:6650", "pulsar://10.0.0.1:6650",
        "pulsar://broker", "pulsar://a:6650,b:6650", "pulsar://2001:db8::1:6650", "pulsar://user@broker:6650", "http://b:8080",
        "pulsar://broker:6650/x", "pulsar://:6650", "pulsar://broker:", "pulsar://[2001:db8::1]",
    ],
)  # fmt: skip
def test_schema_takes_the_brokers_that_sluice_takes(text: str) -> None:
    schema = json.loads(chart.SCHEMA.read_text())["properties"]["broker"]
    assert schema["pattern"] == schema["items"]["pattern"]
    try:
        BROKERS.parse(text)
    except EndpointError:
        assert not re.search(schema["pattern"], text)
    else:
        assert re.search(schema["pattern"], text)


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        (["compliance.follow=true", "compliance.executors=2"], "--conf"),
        (["compliance.follow=true"], "--spark"),
        ([], "--spark"),
        (["compliance.once=true"], "--spark"),
    ],
)
def test_job_and_report_have_the_settings_of_spark(settings: list[str], option: str, empty: Path) -> None:
    given = [
        *_JOB,
        *settings,
        "compliance.spark.spark\\.executor\\.memory=2g",
        "compliance.spark.spark\\.cores\\.max=20000000",
    ]
    objects = parsed(chart.render(empty, *_THREE_VALUES, *(word for each in given for word in ("--set", each))))
    steps = [each for _, _, spec in pods(objects) for each in containers(spec) if "args" in each]
    of_spark = {each["name"]: each["args"] for each in steps if each["name"] in {"compliance", "report"}}
    assert of_spark.keys() == {"compliance", "report"}
    for name, args in of_spark.items():
        own = "--spark" if name == "report" else option
        pairs = list(pairwise(args))
        assert (own, "spark.executor.memory=2g") in pairs
        assert (own, "spark.cores.max=20000000") in pairs


def test_job_that_runs_once_is_renamed_when_its_pod_changes(empty: Path) -> None:
    """A Job is immutable, and `helm template` has revision 1 for ever."""

    def name(*more: str) -> str:
        given = [*_JOB, "compliance.once=true", *more]
        objects = parsed(chart.render(empty, *_THREE_VALUES, *(word for each in given for word in ("--set", each))))
        (job_name,) = [str(each["metadata"]["name"]) for each in objects if each["kind"] == "Job"]
        return job_name

    assert re.fullmatch(r"sluice-compliance-1-[0-9a-f]{8}", name())
    assert name() == name("limits.tenants.other.publish.messages=5") != name("image.tag=1.2.3")


def test_job_has_no_more_tasks_than_its_memory_takes(empty: Path) -> None:
    """Without a limit of CPU, Java sees the cores of the node, and Spark has a Python process for each."""
    objects = parsed(chart.render(empty, *_THREE_VALUES, *(word for each in _JOB for word in ("--set", each))))
    (job,) = pod_spec(manifest(objects, ["CronJob"], "sluice-compliance"))["containers"]
    assert job["resources"]["limits"] == {"cpu": "2", "memory": "6Gi"}
    page = section(ROOT / "docs/sizing.md", "compliance-job-and-report")
    rows = re.findall(r"^\| \*\*.*\| ([\d.]+) GiB \| ([\d.]+) GiB \|$", page, re.MULTILINE)
    of_job, of_report = ([float(row[column]) for row in rows] for column in (0, 1))
    whole_heap = of_job[0]
    for _java, task, rest in (of_job, of_report):
        assert whole_heap + 2 * task + rest <= 6


def test_executors_have_memory_for_their_process_of_python(empty: Path) -> None:
    """Spark's own default beside the heap is 384 MiB, less than a task's Python takes."""
    given = [*_JOB, "compliance.follow=true", "compliance.executors=1"]
    overhead = "spark.executor.memoryOverhead"

    def overheads(*more: str) -> list[str]:
        objects = parsed(chart.render(empty, *_THREE_VALUES, *(w for each in [*given, *more] for w in ("--set", each))))
        (job,) = pod_spec(manifest(objects, ["Deployment"], "sluice-compliance"))["containers"]
        return [word for word in job["args"] if word.startswith(overhead)]

    assert overheads() == [f"{overhead}=2g"]
    own = overhead.replace(".", "\\.")
    assert overheads(f"compliance.spark.{own}=3g")[-1] == f"{overhead}=3g", "the last of two counts"


@pytest.mark.parametrize("release", ["123", "0x1f", "front.example"])
def test_release_that_cannot_name_a_service_is_refused(release: str, empty: Path) -> None:
    """Source: a Service's name is a DNS label of RFC 1035."""
    with pytest.raises(subprocess.CalledProcessError) as refused:
        chart.render(empty, *_THREE_VALUES, release=release)
    assert f"the release {release} cannot name a Service: take a letter first, and no dot" in refused.value.stderr


def test_executors_of_the_longest_release_have_names(empty: Path) -> None:
    """Source: Spark's spark.kubernetes.executor.podNamePrefix, 47 characters at most."""
    given = [*_JOB, "compliance.follow=true", "compliance.executors=1"]
    words = (word for each in given for word in ("--set", each))
    objects = parsed(chart.render(empty, *_THREE_VALUES, *words, release="r" * 45 + "-sluice"))
    prefixes = re.findall(r"spark\.kubernetes\.executor\.podNamePrefix=([^']*)'", str(objects))
    assert prefixes
    assert all(len(prefix) <= 47 for prefix in prefixes)


def test_only_keys_that_are_not_live_restart_the_pods(empty: Path) -> None:
    def checksum(*more: str) -> str:
        objects = parsed(chart.render(empty, *_THREE_VALUES, *more))
        template = manifest(objects, ["Deployment"], "sluice")["spec"]["template"]
        digest: str = template["metadata"]["annotations"]["checksum/config"]
        return digest

    assert checksum() == checksum("--set", "limits.tenants.other.publish.messages=5")
    assert checksum() == checksum("--set", "config.metrics_limits={tenant acme}")
    assert checksum() == checksum("--set", "config.log.level=warning")
    assert checksum() != checksum("--set", "config.keep_alive=20s")


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        (["accessLog.size=4Gi"], ["3276MiB"] * 3),
        (["accessLog.size=4Gi", "accessLog.persistent=true"], ["3276MiB", "1092MiB", "819MiB"]),
        (["accessLog.size=4Gi", "accessLog.persistent=true", "autoscaling.enabled=true"], ["546MiB"] * 3),
        (["accessLog.size=5Gi", "config.access_log.rotate_size=1GiB"], ["4096MiB"] * 3),
    ],
)
def test_replicas_divide_a_shared_log_alone(settings: list[str], sizes: list[str], empty: Path) -> None:
    """Each pod has an emptyDir for itself: another number of replicas restarts none of them."""
    retain_sizes = []
    for replicas in (1, 3, 4):
        given = (word for each in (*settings, f"replicas={replicas}") for word in ("--set", each))
        objects = parsed(chart.render(empty, *_THREE_VALUES, *given))
        config = yaml.safe_load(manifest(objects, ["ConfigMap"], "sluice")["data"]["sluice.yaml"])
        retain_sizes.append(config["access_log"]["retain_size"])
    assert retain_sizes == sizes


def test_option_of_the_configuration_wins_over_the_chart(empty: Path) -> None:
    objects = parsed(chart.render(empty, *_THREE_VALUES, "--set", "replicas=2,config.fleet.name=front"))
    config = yaml.safe_load(manifest(objects, ["ConfigMap"], "sluice")["data"]["sluice.yaml"])
    assert config["fleet"] == {"name": "front"}
    alone = parsed(chart.render(empty, *_THREE_VALUES, "--set", "replicas=2,fleet=false"))
    assert "fleet" not in yaml.safe_load(manifest(alone, ["ConfigMap"], "sluice")["data"]["sluice.yaml"])
