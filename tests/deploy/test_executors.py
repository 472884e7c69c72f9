"""Spark's driver with the chart's arguments and pod template; its executors are processes of this machine."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from loadgen.real.process import TetheredProcess
from tests.deploy.kubernetes_api import KubernetesApi
from tests.deploy.manifests import ROOT, manifest, objects_of, pod_spec
from tests.deploy.pod import SLUICE
from tests.deploy.test_manifests import test_pod_keeps_to_the_restricted_standard as check_standard
from tests.waiting import wait_for

pytestmark = [pytest.mark.on_request, pytest.mark.slow]

_PATH = f"{Path(sys.executable).parent}:/usr/bin:/bin"
_START_S = 600.0
"""Seconds for three JVMs to start and a batch to run, on a busy machine."""


def test_executors_start_and_do_the_job(tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("no Java here: apt-get install openjdk-17-jre-headless")
    log, out = tmp_path / "log", tmp_path / "out"
    serve = ("serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--broker", "pulsar://127.0.0.1:1")
    proxy = TetheredProcess([*SLUICE, *serve, "--access-log", str(log)], tmp_path / "proxy")
    wait_for(lambda: '"serving"' in (tmp_path / "proxy").read_text(), evidence=proxy.last_lines)
    assert proxy.stop() == 0

    objects = objects_of("executors")
    (container,) = pod_spec(manifest(objects, ["Deployment"], "sluice-compliance"))["containers"]
    template = tmp_path / "executor.yaml"
    template.write_text(manifest(objects, ["ConfigMap"], "sluice-compliance")["data"]["executor.yaml"])
    with KubernetesApi("driver", tmp_path, _PATH) as api:
        here = {
            "https://kubernetes.default.svc": api.url,
            "$(POD_IP)": "127.0.0.1",
            "$(POD_NAME)": "driver",
            "/etc/sluice/executor.yaml": str(template),
            "/opt/sluice/compliance_job.py": str(ROOT / "deploy/compliance_job.py"),
            "/var/log/sluice": str(log),
            "/var/lib/sluice/compliance": str(out),
        }
        words = [str(ROOT / "deploy/compliance-entrypoint"), *container["args"]]
        for place, local in here.items():
            words = [word.replace(place, local) for word in words]
        driver = TetheredProcess(words, tmp_path / "driver", {"PATH": _PATH, "PYTHONPATH": str(ROOT)})
        try:
            wait_for((out / "summary.json").exists, _START_S, evidence=driver.last_lines, pause_s=0.5)
        finally:
            driver.stop(60)
        executors = api.pods[1:]
    assert json.loads((out / "summary.json").read_text())["lines"] > 0
    assert len(executors) == 2
    for pod in executors:
        check_standard("executors", pod["spec"])
        assert {"access-log", "tables", "tmp"} <= {volume["name"] for volume in pod["spec"]["volumes"]}
        assert pod["metadata"]["ownerReferences"][0]["name"] == "driver"
