"""Without a cluster or Helm: in deploy/kubernetes every name leads somewhere, every command exists, no pod is root."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from compliance.commands import app as compliance_app
from proxy.config.model import load_config
from proxy.reload import BROKERS
from sluice.cli import app
from tests.deploy.manifests import NAMES, ROOT, Manifest, containers, manifest, objects_of, pod_spec, pods
from tools import chart

PROXY_IMAGE = (ROOT / "Dockerfile").read_text()
IMAGE = (ROOT / "deploy/compliance.Dockerfile").read_text()
_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
"""The kinds that the restricted standard allows."""

all_files = pytest.mark.parametrize("name", NAMES)
all_pods = pytest.mark.parametrize(
    ("name", "spec"),
    [pytest.param(name, spec, id=f"{name} {owner}") for name in NAMES for owner, _, spec in pods(objects_of(name))],
)


def selects(selector: Manifest, labels: Manifest) -> bool:
    """Whether a selector takes a pod with these labels."""
    expressions = selector.get("matchExpressions", ())
    assert all(each["operator"] == "In" for each in expressions)
    return selector["matchLabels"].items() <= labels.items() and all(
        labels.get(each["key"]) in each["values"] for each in expressions
    )


def values_of(name: str) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((ROOT / "deploy/helm/ci" / f"{name}.yaml").read_text())
    return values


@all_pods
def test_pod_keeps_to_the_restricted_standard(name: str, spec: Manifest) -> None:
    """Source: Pod Security Standards, policy Restricted."""
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "runAsUser" not in spec["securityContext"], "the image has one, and OpenShift chooses another"
    assert all(volume.keys() - {"name"} <= _VOLUMES for volume in spec["volumes"])
    for container in containers(spec):
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["readOnlyRootFilesystem"] is True
        assert not any("hostPort" in port for port in container.get("ports", ()))


@all_pods
def test_pod_names_what_is_there(name: str, spec: Manifest) -> None:
    objects = objects_of(name)
    made = {(each["kind"], each["metadata"]["name"]) for each in objects}
    given = str(values_of(name))
    kinds = {"configMap": "name", "secret": "secretName", "persistentVolumeClaim": "claimName"}
    for volume in spec["volumes"]:
        for key, name_key in kinds.items():
            if key in volume:
                assert (f"{key[0].upper()}{key[1:]}", volume[key][name_key]) in made or volume[key][name_key] in given
    if "serviceAccountName" in spec:
        assert ("ServiceAccount", spec["serviceAccountName"]) in made
    for container in containers(spec):
        probed = {container[key]["httpGet"]["port"] for key in container if key.endswith("Probe")}
        assert probed <= {port["name"] for port in container.get("ports", ())}
    per_replica = {"store"} if "store" in values_of(name) else set()
    mounted = {mount["name"] for container in containers(spec) for mount in container["volumeMounts"]}
    assert mounted - per_replica == {volume["name"] for volume in spec["volumes"]}
    folders = {mount["mountPath"] for container in containers(spec) for mount in container["volumeMounts"]}
    for variable in (each for container in containers(spec) for each in container.get("env", ())):
        file = Path(variable.get("value", ""))
        assert not file.is_absolute() or str(file.parent) in folders, f"{variable['name']} is in no volume"


@all_files
def test_selectors_and_ports_lead_to_the_proxy(name: str) -> None:
    objects = objects_of(name)
    ((labels, spec),) = [
        (labels, spec) for _, labels, spec in pods(objects) if labels.get("app.kubernetes.io/component") == "proxy"
    ]
    ports = {port["name"] for port in spec["containers"][0]["ports"]}
    services = [each for each in objects if each["kind"] == "Service"]
    assert services
    for service in services:
        assert service["spec"]["selector"].items() <= labels.items()
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for each in objects:
        if each["kind"] in {"PodDisruptionBudget", "PodMonitor", "Deployment", "StatefulSet"}:
            selected = each["spec"]["selector"]["matchLabels"]
            assert (selected.items() <= labels.items()) == (each["metadata"]["name"] == "sluice")
        if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == "sluice":
            assert each["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
            allowed = {port["port"] for rule in each["spec"]["ingress"] for port in rule["ports"]}
            assert allowed == ports


@all_pods
def test_each_pod_is_under_a_network_policy(name: str, spec: Manifest) -> None:
    objects = objects_of(name)
    (labels,) = [labels for _, labels, each in pods(objects) if each == spec]
    policies = [each["spec"] for each in objects if each["kind"] == "NetworkPolicy"]
    pod_policies = [policy for policy in policies if selects(policy["podSelector"], labels)]
    assert len(pod_policies) == 1
    if labels["app.kubernetes.io/component"] != "proxy":
        for rule in pod_policies[0].get("ingress", ()):
            assert [selects(peer["podSelector"], labels) for peer in rule["from"]] == [True]
        reaches_others = "Egress" not in pod_policies[0]["policyTypes"]
        assert reaches_others == ("executors" in values_of(name)["compliance"])


def test_pods_that_reach_some_alone_reach_collector_and_dns() -> None:
    (policy,) = [
        each["spec"]
        for each in objects_of("everything")
        if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == "sluice"
    ]
    values = values_of("everything")
    assert values["config"]["otlp"]["url"]
    dns = {(each["port"], each["protocol"]) for rule in policy["egress"] if "to" not in rule for each in rule["ports"]}
    assert dns == {(port, protocol) for port in (53, 5353) for protocol in ("UDP", "TCP")}, "5353: pods of OpenShift's"
    ((_, to),) = [[rule.get("ports"), rule["to"]] for rule in policy["egress"] if "to" in rule]
    assert to == values["networkPolicy"]["brokers"] + values["networkPolicy"]["others"]


@all_files
def test_rendered_configuration_has_the_limits_of_the_values(name: str, tmp_path: Path) -> None:
    rendered, written = tmp_path / "sluice.yaml", tmp_path / "limits.yaml"
    rendered.write_text(manifest(objects_of(name), ["ConfigMap"], "sluice")["data"]["sluice.yaml"])
    written.write_text(yaml.safe_dump({"limits": values_of(name)["limits"]}))
    config = load_config(rendered, {}, environment_of(name))
    assert config.limits == load_config(written, {}).limits
    has_several = values_of(name).get("replicas", 1) > 1 or "autoscaling" in values_of(name)
    assert (config.fleet is not None) == has_several


def environment_of(name: str) -> dict[str, str]:
    """The proxy's environment, of the variables whose values are written."""
    proxy = pod_spec(manifest(objects_of(name), ["Deployment", "StatefulSet"], "sluice"))["containers"][0]
    return {each["name"]: each["value"] for each in proxy["env"] if "value" in each}


@all_files
def test_brokers_are_those_of_the_pod_and_not_of_its_file(name: str, tmp_path: Path) -> None:
    """The file reaches the pods that run, all at once; a wrong broker must stop a rolling update at its first pod."""
    written = yaml.safe_load(manifest(objects_of(name), ["ConfigMap"], "sluice")["data"]["sluice.yaml"])
    assert not BROKERS & written.keys()
    file = tmp_path / "sluice.yaml"
    file.write_text(yaml.safe_dump(written | {"broker": "pulsar://typo:6650", "allowed_brokers": ["typo:6650"]}))
    config = load_config(file, {}, environment_of(name))
    given = values_of(name)["broker"]
    assert [str(each) for each in config.broker] == ([given] if isinstance(given, str) else given)
    assert (config.allowed_brokers, config.allowed_broker_networks) == ((), ())


@all_pods
def test_command_of_a_pod_takes_its_arguments(name: str, spec: Manifest) -> None:
    for container in containers(spec):
        take(list(container.get("args", ())))
        if "lifecycle" in container:
            entry, *words = container["lifecycle"]["preStop"]["exec"]["command"]
            assert entry == "sluice"
            assert re.search(r"^ENV PATH=/opt/sluice/bin:", PROXY_IMAGE, re.MULTILINE), (
                "where the image has the command"
            )
            take(words)


def test_pages_build_push_and_install_the_images_of_the_chart() -> None:
    version = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())["appVersion"]
    pages = {name: (ROOT / name).read_text().replace("\\\n", " ") for name in ("README.md", "docs/kubernetes.md")}
    for name, text in pages.items():
        built = re.findall(r"^docker build .*--tag (\S+)", text, re.MULTILINE)
        assert built, name
        assert {image.rpartition(":")[2] for image in built} == {version}, name
        commands = re.findall(r"^docker build .*", text, re.MULTILINE)
        versions = [re.findall(r"--build-arg VERSION=(\S+)", command) for command in commands]
        assert versions == [[version]] * len(commands), f"{name}: else the image's version is a development one"
        assert set(re.findall(r"^docker push (\S+)$", text, re.MULTILINE)) == set(built), name
        assert {line.split()[-1] for line in re.findall(r"^docker run .*$", text, re.MULTILINE)} <= set(built), name
        ((repository, tag),) = re.findall(
            r"^helm install .*image.repository=(\S+) .*image.tag=(\S+)", text, re.MULTILINE
        )
        assert f"{repository}:{tag}" in built, name
        used = {
            container["image"]
            for each in NAMES
            for owner, _, spec in pods(objects_of(each))
            if not owner.startswith("executor")
            for container in containers(spec)
        }
        assert (used == set(built)) if name == "docs/kubernetes.md" else used >= set(built), name
    settings = re.findall(r"^# +--set (.+)$", (chart.CHART / "values.yaml").read_text(), re.MULTILINE)
    assert settings == ["image.repository=registry.example/sluice,broker=pulsar://broker:6650"]


def take(words: list[str]) -> None:
    """Have the command that the words name take the others."""
    if words[:1] == ["spark-submit"]:
        script = words.index("/opt/sluice/compliance_job.py")
        assert "deploy/compliance_job.py /opt/sluice/compliance_job.py" in IMAGE
        command: Any = typer.main.get_group(compliance_app)
        words = words[script + 1 :]
    else:
        command = typer.main.get_group(app)
    while words and hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    if words:
        command.make_context("", [*words])


@pytest.mark.parametrize("name", ["compliance", "executors", "everything", "once"])
def test_no_two_runs_of_the_job_share_a_folder(name: str) -> None:
    owners = [each for each in objects_of(name) if each["kind"] in {"CronJob", "Deployment", "Job"}]
    (job,) = [each for each in owners if "--access-log" in str(containers(pod_spec(each))[0]["args"])]
    if job["kind"] == "CronJob":
        assert job["spec"]["concurrencyPolicy"] == "Forbid"
    elif job["kind"] == "Deployment":
        assert (job["spec"]["replicas"], job["spec"]["strategy"]["type"]) == (1, "Recreate")


def test_job_that_runs_once_makes_tables_and_then_the_report() -> None:
    objects = objects_of("once")
    assert [each["kind"] for each in objects if each["kind"] in {"CronJob", "Job"}] == ["Job"]
    (job,) = [each for each in objects if each["kind"] == "Job"]
    tables, report = containers(pod_spec(job))
    assert tables["args"][:3] == ["compliance", "run", "--once"]
    folder = tables["args"][tables["args"].index("--out") + 1]
    assert report["args"][:3] == ["report", "--tables", folder]


def test_executors_have_the_folders_of_the_driver() -> None:
    objects = objects_of("executors")
    driver = pod_spec(manifest(objects, ["Deployment"], "sluice-compliance"))
    ((_, _, executor),) = [pod for pod in pods(objects) if pod[0].startswith("executor")]
    own = {"config"}
    for key in ("volumes", "volumeMounts"):
        of_driver, of_executor = (
            spec[key] if key in spec else spec["containers"][0][key] for spec in (driver, executor)
        )
        assert [each for each in of_driver if each["name"] not in own] == of_executor


def test_image_of_the_job_has_what_it_copies() -> None:
    copies = [line for line in IMAGE.splitlines() if line.startswith("COPY ") and "--from" not in line]
    sources = [source for line in copies for source in shlex.split(line)[1:-1]]
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_schema_of_the_values_is_that_of_the_configuration() -> None:
    assert chart.values_schema() == chart.SCHEMA.read_text(), "make references"
