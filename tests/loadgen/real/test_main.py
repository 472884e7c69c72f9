import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "loadgen.real", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("arguments", [["--check"], ["--listen-file", "never-written"]])
def test_what_is_missing_is_one_line_and_exit_code_1(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("a real Pulsar 4.0.8 broker: install Java 17 or newer")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.real
def test_it_announces_itself_when_healthy_and_leaves_nothing_behind(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    listen_file = tmp_path / "listen.json"
    command = [sys.executable, "-m", "loadgen.real", "--listen-file", str(listen_file)]
    with subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            announced = process.stderr.readline()
            addresses = json.loads(listen_file.read_text())
            assert addresses["service_url"] in announced
            assert addresses["admin_url"] in announced
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["listen.json"]
