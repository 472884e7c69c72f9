"""The tutorial, followed as it is written: its files are saved, and its commands run, in their order."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from adminrest.client import AdminClient
from loadgen.real.process import TetheredProcess, free_ports
from tests.docs.blocks import blocks_of
from tests.spark_java import spark_java
from tests.waiting import PATIENCE_S, wait_for

ROOT = Path(__file__).parents[2]
_ELSEWHERE = {
    "make env": "the environment is there",
    "pulsar-admin": "needs Java; tests/real runs it, and the tutorial has the same call by curl",
}
_ENDLESS = {"sluice broker", "sluice serve", "sluice top"}


class Reader:
    """Somebody who follows the page, with ports that are free here and a load until the limit is raised."""

    def __init__(self, page: str, folder: Path) -> None:
        ports = dict(zip(("6650", "6651", "8080"), map(str, free_ports(0, 0, 0)), strict=True))
        self.text = re.sub(r"(?<=127\.0\.0\.1:)(6650|6651|8080)", lambda port: ports[port[0]], page)
        self.text = self.text.replace("range(120)", "iter(__import__('pathlib').Path('raised').exists, True)")
        self.admin = AdminClient(f"http://127.0.0.1:{ports['8080']}")
        self.env = {"SLUICE_ADMIN": f"127.0.0.1:{ports['8080']}"}
        self.folder, self.left_out = folder, list[str]()
        self.running: dict[str, TetheredProcess] = {}
        (folder / ".venv/bin").mkdir(parents=True)
        for name in ("python", "sluice"):
            command = folder / ".venv/bin" / name
            command.write_text(f'#!/bin/sh\nexec {Path(sys.executable).with_name(name)} "$@"\n')
            command.chmod(0o755)

    def follow(self):
        for kind, text, name in blocks_of(self.text):
            if name:
                (self.folder / name).write_text(text)
            elif kind == "sh":
                for command in text.replace("\\\n", "").splitlines():
                    self.run(command)

    def run(self, command):
        words = command.removeprefix(".venv/bin/").split()
        name = " ".join(words[:2])
        if any(command.startswith(each) for each in _ELSEWHERE):
            self.left_out.append(command)
        elif name in _ENDLESS or command.endswith("&"):
            self.running[name] = self.start(command.removesuffix("&"))
            self.await_(name)
        else:
            if name == "sluice report":
                self.stop()
            env = os.environ | self.env | {"JAVA_TOOL_OPTIONS": spark_java()}
            subprocess.run(command, shell=True, cwd=self.folder, check=True, timeout=5 * PATIENCE_S, env=env)
            if command.startswith("curl"):
                (self.folder / "raised").touch()

    def start(self, command):
        return TetheredProcess(
            ["/bin/sh", "-c", f"cd {self.folder} && exec {command}"], self.folder / "log.txt", self.env
        )

    def await_(self, name):
        """Go on when what was started does what the page says of it."""
        if name == "sluice serve":
            wait_for(lambda: self.admin.is_ready("/readyz"))
        elif name == "sluice top":
            wait_for(lambda: "topic public/default/orders" in self.log() or "50/s" in self.log(), evidence=self.log)
            self.running.pop(name).stop()

    def log(self):
        return (self.folder / "log.txt").read_text()

    def stop(self):
        """End Sluice, as the page says, when the producer has ended."""
        producer = self.running["python tutorial/publish.py"]
        wait_for(lambda: producer.exit_code is not None, evidence=producer.last_lines)
        assert producer.exit_code == 0
        assert self.running.pop("sluice serve").stop() == 0


@pytest.fixture
def reader(tmp_path):
    reader = Reader((ROOT / "docs/tutorial.md").read_text(), tmp_path)
    yield reader
    for process in reader.running.values():
        process.kill()


def test_warning_that_a_reader_may_get_is_explained(reader):
    """Where a process may open few files; elsewhere there is none."""
    (reader.folder / "tutorial").mkdir()
    (config,) = [text for _, text, name in blocks_of(reader.text) if name == "tutorial/sluice.yaml"]
    (reader.folder / "tutorial/sluice.yaml").write_text(config)
    command = f"ulimit -n 1024; exec {sys.executable} -m sluice check --config tutorial/sluice.yaml"
    checked = subprocess.run(["/bin/sh", "-c", command], cwd=reader.folder, check=True, capture_output=True, text=True)
    keys = re.findall(r"^sluice: warning: default: (\w+):", checked.stderr, re.MULTILINE)
    assert keys == ["max_connections"], checked.stderr
    explained = reader.text.partition("sluice check --config")[2].partition("## 3.")[0]
    assert all(f"about `{key}`" in explained for key in keys)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(shutil.which("curl") is None, reason="install curl")
def test_a_reader_of_the_tutorial_gets_what_it_says(reader):
    reader.follow()
    assert [command.split()[0] for command in reader.left_out] == ["make", "pulsar-admin"]
    report = json.loads((reader.folder / "tutorial/report/report.json").read_text())
    (limit,) = report["limiters"]
    assert (limit["name"], limit["values"]) == ("persistent://public/default/orders", 2)
    assert limit["containment"] == "compliant"
    if limit["entitlement"] == "compliant":
        assert report["headline"] == "All limits were kept, and no stream got less than owed"
    else:  # on a busy machine: the proxy says itself that it was late
        assert limit["worst_entitlement"]["late_s"] > 0.1, report["headline"]
    assert (reader.folder / "tutorial/report/report.html").exists()
