"""What the chart renders is run here: the container's command with its ConfigMap, volumes and user, and its probes."""

import contextlib
import importlib.metadata
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
import yaml

from loadgen.real.process import TetheredProcess
from tests.deploy.manifests import manifest, objects_of, pod_spec
from tests.deploy.pod import SLUICE, Image, Pod
from tests.netns.hosts import BROKER, Hosts
from tests.proxy.certificates import Authority
from tests.waiting import wait_for

pytestmark = pytest.mark.netns


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with Hosts.made() as hosts:
        yield hosts


@contextlib.contextmanager
def running(
    name: str, folder: Path, hosts: Hosts, files: Mapping[str, Mapping[str, str]] | None = None
) -> Iterator[Pod]:
    """The proxy of one of the rendered files, in front of a stand-in broker; its probes pass."""
    objects = objects_of(name)
    spec = pod_spec(manifest(objects, ("Deployment", "StatefulSet"), "sluice"))
    broker = TetheredProcess(
        hosts.command("broker", *SLUICE, "broker", "--listen", f"{BROKER}:6650"), folder / "broker"
    )
    try:
        with Pod(spec, objects, files or {}, folder / "pod", hosts) as pod:
            for kind in ("startup", "liveness", "readiness"):
                wait_for(partial(pod.passes, kind), evidence=pod.says)
            yield pod
    finally:
        broker.kill()


def test_proxy_of_three_values_serves_and_reloads_its_limits(tmp_path: Path, hosts: Hosts) -> None:
    with running("minimal", tmp_path, hosts) as pod:
        config = yaml.safe_load((pod.volume("config") / "sluice.yaml").read_text())
        config["limits"]["tenants"]["acme"]["publish"]["messages"] = 7
        pod.write(pod.volume("config"), {"sluice.yaml": yaml.safe_dump(config)})
        taken = 'sluice_config_reloads_total{outcome="taken"} 1.0'
        wait_for(lambda: taken in pod.get("metrics", "/metrics")[1], evidence=pod.says)
        assert pod.stop() == 0


def test_member_of_a_fleet_serves(tmp_path: Path, hosts: Hosts) -> None:
    with running("fleet", tmp_path, hosts) as pod:
        wait_for(lambda: "sluice_fleet_members 1.0" in pod.get("metrics", "/metrics")[1], evidence=pod.says)


def test_secrets_are_read_by_a_user_without_an_entry(tmp_path: Path, hosts: Hosts) -> None:
    certificate, key = (Path(file).read_text() for file in Authority(tmp_path / "ca").server().values())
    of_tls = {"tls.crt": certificate, "tls.key": key}
    token = "0123456789abcdef"
    files = {
        "sluice-tls": of_tls,
        "sluice-admin-tls": of_tls,
        "sluice-tokens": {"tokens.yaml": f"ops: {{access: write, token: {token}}}\n"},
        "token-keys": {"secret.key": "0" * 64},
    }
    with running("tls", tmp_path, hosts, files) as pod:
        assert pod.get("admin", "/sluice/streams", by_tls=True)[0] == 401
        assert pod.get("admin", "/sluice/streams", by_tls=True, token=token)[0] == 200


def test_commands_in_a_pod_and_its_hook_pass_token_and_tls(tmp_path: Path, hosts: Hosts) -> None:
    authority = Authority(tmp_path / "ca")
    named = "subjectAltName=DNS:sluice-admin.pulsar.svc\n"
    pair = dict(
        zip(("tls.crt", "tls.key"), map(Path.read_text, authority.sign("admin", extensions=named)), strict=True)
    )
    token = "0123456789abcdef"
    files = {
        "sluice-tls": pair,
        "sluice-admin-tls": {**pair, "ca.crt": authority.certificate.read_text()},
        "sluice-tokens": {"tokens.yaml": f"ops: {{access: write, token: {token}}}\n", "ops": f"{token}\n"},
        "collector": {"ca.crt": authority.certificate.read_text(), "token": token},
    }
    with running("everything", tmp_path, hosts, files) as pod:
        assert "0 streams" in pod.run("sluice", "top", "--once")
        pod.run(*pod.container["lifecycle"]["preStop"]["exec"]["command"])
        assert pod.get("metrics", "/readyz")[0] == 503
        assert pod.stop() == 0


IMAGES = pytest.mark.on_request
"""`tools/images` builds them first: ten minutes, as root."""


@pytest.fixture(scope="module")
def images() -> Iterator[Mapping[str, Image]]:
    """The images that `tools/images` has built."""
    if shutil.which("buildah") is None:
        pytest.skip("no buildah here: apt-get install buildah debootstrap, then tools/images")
    containers = {
        image: _buildah("from", "--pull-never", f"localhost/{image}") for image in ("sluice", "sluice-compliance")
    }
    yield {image: _image(container) for image, container in containers.items()}
    for container in containers.values():
        _buildah("rm", container)


def _buildah(*words: str) -> str:
    return subprocess.run(["buildah", *words], capture_output=True, text=True, check=True, timeout=300).stdout.strip()


def _image(container: str) -> Image:
    config = json.loads(_buildah("inspect", container))["OCIv1"]["config"]
    env = dict(each.split("=", 1) for each in config["Env"])
    return Image(Path(_buildah("mount", container)), config["Entrypoint"], env)


@IMAGES
@pytest.mark.slow
def test_images_run_what_the_chart_renders(tmp_path: Path, hosts: Hosts, images: Mapping[str, Image]) -> None:
    """As a user without an entry: the proxy writes a log, the job makes tables of it, and the report judges them."""
    objects = objects_of("compliance")
    proxy = pod_spec(manifest(objects, ["StatefulSet"], "sluice"))
    job = pod_spec(manifest(objects, ["CronJob"], "sluice-compliance"))
    report = pod_spec(manifest(objects, ["CronJob"], "sluice-report"))
    broker = TetheredProcess(
        hosts.command("broker", *SLUICE, "broker", "--listen", f"{BROKER}:6650"), tmp_path / "broker"
    )
    try:
        with Pod(proxy, objects, {}, tmp_path / "proxy", hosts, image=images["sluice"]) as pod:
            for kind in ("startup", "readiness"):
                wait_for(partial(pod.passes, kind), evidence=pod.says)
            assert pod.stop() == 0, pod.says()
            log = pod.volume("access-log")
        assert [*log.glob("sluice-*.jsonl*")] or [*log.glob("pod-*.jsonl*")]
        tables = tmp_path / "tables"
        for name, spec in (("job", job), ("report", report)):
            folder = tmp_path / name
            pod = Pod(spec, objects, {}, folder, hosts, image=images["sluice-compliance"])
            pod.share("access-log", log)
            pod.share("tables", tables)
            with pod:
                assert pod.wait(300) == 0, pod.says()
    finally:
        broker.kill()
    assert (tables / "report/report.html").exists()


@IMAGES
def test_images_list_all_their_parts(images: Mapping[str, Image]) -> None:
    for image in images.values():
        sbom = json.loads((image.root / "opt/sluice/sbom.cdx.json").read_text())
        parts = sbom["components"]
        assert sbom["metadata"]["component"]["version"]
        assert [part["bom-ref"] for part in parts if not part.get("version")] == []
        assert any(part["name"] in {"python", "python3.11"} for part in parts), "of the official base, or of Debian"
        assert _distributions(image) == {"pulsar-sluice"} | _listed(parts, "pkg:pypi/")
        assert _debian_packages(image) == _listed(parts, "pkg:deb/")
        in_list = {part["bom-ref"].removeprefix("jar:") for part in parts if part["bom-ref"].startswith("jar:")}
        assert {str(jar.relative_to(image.root)) for jar in (image.root / "opt").rglob("*.jar")} == in_list


def _distributions(image: Image) -> set[str]:
    distributions = importlib.metadata.distributions(
        path=[str(next((image.root / "opt/sluice/lib").glob("*/site-packages")))]
    )
    return {each.name.lower().replace("_", "-") for each in distributions}


def _debian_packages(image: Image) -> set[str]:
    query = [
        "dpkg-query",
        "--admindir",
        str(image.root / "var/lib/dpkg"),
        "-W",
        "-f",
        "${db:Status-Abbrev}${Package}\n",
    ]
    output = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    return {line.removeprefix("ii ") for line in output.splitlines() if line.startswith("ii ")}


def _listed(parts: Sequence[Mapping[str, str]], kind: str) -> set[str]:
    return {part["name"].lower().replace("_", "-") for part in parts if part.get("purl", "").startswith(kind)}


@IMAGES
def test_images_have_no_pip_compiler_or_bench(images: Mapping[str, Image]) -> None:
    for image in images.values():
        for place in ("opt", "usr/local"):
            names = {file.name for file in (image.root / place).rglob("*")}
            assert names & {"pip", "ensurepip", "setuptools", "wheel", "pulsar", "hostile", "bench"} == set()
        assert [*(image.root / "usr/bin").glob("*gcc*")] == []
        ours = {file.suffix for file in (image.root / "opt/sluice/lib").rglob("loadgen/**/*") if file.is_file()}
        assert ours <= {".py", ".pyc"}, "no attackers, no C"
    sluice = images["sluice"].root / "opt/sluice"
    assert [*sluice.rglob("*mypyc*.so")], "compiled"
    by_hash = {file.read_bytes()[4] for file in (sluice / "lib").rglob("*.pyc")}
    assert by_hash == {1}, "no byte code has a time"
