import json
import os
import subprocess

from loadgen.bench.peers import sluice
from loadgen.bench.peers.plan import Place


def test_it_runs_as_it_is_deployed(tmp_path):
    line = sluice.plan().command(Place(tmp_path, 1, 2, 3)).line
    assert line[-8:] == [
        "--listen", "127.0.0.1:1", "--broker", "pulsar://127.0.0.1:3", "--admin", "127.0.0.1:2", "--access-log",
        str(tmp_path / "access-log"),
    ]  # fmt: skip


def test_it_may_be_asked_to_write_no_log(tmp_path):
    place = Place(tmp_path, 1, 2, 3)
    silent, logging = (sluice.plan(is_logging=flag).command(place).line for flag in (False, True))
    assert logging == [*silent, "--access-log", str(tmp_path / "access-log")]


def test_it_gets_the_limits_it_is_to_have(tmp_path):
    sluice.plan({"topics": {}}).command(Place(tmp_path, 1, 2, 3))
    assert json.loads((tmp_path / "sluice.yaml").read_text())["limits"] == {"topics": {}}


def test_it_may_have_several_workers(tmp_path):
    sluice.plan(workers=3).command(Place(tmp_path, 1, 2, 3))
    assert json.loads((tmp_path / "sluice.yaml").read_text())["workers"] == 3


def test_interpreted_it_finds_nothing_compiled(tmp_path):
    command = sluice.interpreted().command(Place(tmp_path, 1, 2, 3))
    copies = tmp_path / "interpreted"
    version = [*command.line[: command.line.index("serve")], "version"]
    said = subprocess.run(version, env=os.environ | command.env, capture_output=True, text=True, check=True)
    assert "interpreted" in said.stdout, "from wherever it is started, which may be where all is compiled"
    assert (copies / "protocol" / "walk.py").exists()
    assert list(copies.rglob("*.so")) == []
