"""Without a cluster: every option is one that the command has, and no two runs can share a folder."""

import shlex
from pathlib import Path

import pytest
import typer.main
import yaml

from compliance.commands import app

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
ONCE, FOLLOW = (
    yaml.safe_load((DEPLOY / "kubernetes" / f"compliance-{name}.yaml").read_text()) for name in ("once", "follow")
)
ONCE_POD = ONCE["spec"]["jobTemplate"]["spec"]["template"]["spec"]
FOLLOW_POD = FOLLOW["spec"]["template"]["spec"]
IMAGE = (DEPLOY / "compliance.Dockerfile").read_text()


def arguments_of_run(pod):
    (container,) = pod["containers"]
    return container["args"][container["args"].index("run") + 1 :]


@pytest.mark.parametrize(("pod", "mode"), [(ONCE_POD, "--once"), (FOLLOW_POD, "--follow")])
def test_the_arguments_are_what_the_command_takes(pod, mode):
    command = typer.main.get_group(app).commands["run"]
    with command.make_context("run", list(arguments_of_run(pod))) as context:
        said = context.params
    assert mode in arguments_of_run(pod)
    assert said["follow"] == (mode == "--follow")
    mounts = {mount["mountPath"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts[said["access_log"]]["readOnly"]
    assert any(said["out"].startswith(f"{path}/") and "readOnly" not in mount for path, mount in mounts.items())


@pytest.mark.parametrize("pod", [ONCE_POD, FOLLOW_POD])
def test_every_volume_that_is_mounted_is_there_and_nobody_is_root(pod):
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert pod["securityContext"]["runAsNonRoot"]
    assert f"--uid {pod['securityContext']['runAsUser']}" in IMAGE


def test_no_two_runs_share_a_folder():
    assert ONCE["spec"]["concurrencyPolicy"] == "Forbid"
    assert (FOLLOW["spec"]["replicas"], FOLLOW["spec"]["strategy"]["type"]) == (1, "Recreate")


def test_executors_see_the_same_folders_as_the_driver():
    (container,) = FOLLOW_POD["containers"]
    for volume, mount in zip(FOLLOW_POD["volumes"], container["volumeMounts"], strict=True):
        claim = volume["persistentVolumeClaim"]["claimName"]
        paths = [word for word in container["args"] if word.endswith(f".mount.path={mount['mountPath']}")]
        assert len(paths) == 1
        assert paths[0].replace(f"mount.path={mount['mountPath']}", f"options.claimName={claim}") in container["args"]


def test_the_image_has_what_the_pods_call_and_all_it_copies_is_there():
    assert "deploy/compliance_job.py /opt/sluice/compliance_job.py" in IMAGE
    assert "/opt/sluice/compliance_job.py" in FOLLOW_POD["containers"][0]["args"]
    copies = [line for line in IMAGE.splitlines() if line.startswith("COPY ") and "--from" not in line]
    sources = [source for line in copies for source in shlex.split(line)[1:-1]]
    assert [source for source in sources if not (DEPLOY.parent / source).exists()] == []
    assert "pyspark" in (DEPLOY.parent / "requirements/all.lock").read_text()
