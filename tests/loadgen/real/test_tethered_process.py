import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loadgen.real.errors import ProcessFailed
from loadgen.real.tethered_process import TetheredProcess

ROOT = Path(__file__).parents[3]


def wait_for(condition: object, timeout_s: float = 10) -> None:
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Zombies do not count: nobody may be there to collect them."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_stop_lets_it_end_in_order(tmp_path: Path) -> None:
    script = "trap 'echo bye; exit 7' TERM; echo $GREETING; sleep 60 & wait"
    process = TetheredProcess(["sh", "-c", script], tmp_path / "log", {"GREETING": "hello"})
    wait_for(lambda: "hello" in process.last_lines())
    assert process.exit_code is None
    assert process.stop() == 7
    assert process.last_lines() == "hello\nbye"


def test_variables_of_sluice_are_not_handed_on_but_for_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLUICE_WORKERS", "SLUICE_CACHE", "OTHER_WORKERS"):
        monkeypatch.setenv(name, "7")
    process = TetheredProcess(["sh", "-c", "env; echo done"], tmp_path / "log", {"SLUICE_LISTEN": "8"})
    wait_for(lambda: "done" in process.last_lines())
    process.stop()
    told = {line for line in (tmp_path / "log").read_text().splitlines() if "WORKERS" in line or "SLUICE" in line}
    assert told == {"SLUICE_CACHE=7", "OTHER_WORKERS=7", "SLUICE_LISTEN=8"}


def test_what_does_not_stop_is_killed_with_all_its_children(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 60 & echo $!; while :; do sleep 60; done"
    process = TetheredProcess(["sh", "-c", script], tmp_path / "log")
    wait_for(process.last_lines)
    child = int(process.last_lines())
    assert process.stop(timeout_s=0.1) < 0
    wait_for(lambda: not is_alive(child))


def test_an_early_end_is_told_with_the_last_lines(tmp_path: Path) -> None:
    process = TetheredProcess(["sh", "-c", "echo out of luck >&2; exit 3"], tmp_path / "log")
    wait_for(lambda: process.exit_code is not None)
    with pytest.raises(ProcessFailed, match="sh ended with code 3\nout of luck"):
        process.check_running()
    assert process.stop() == 3


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_it_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent = (
        "import time; from pathlib import Path; from loadgen.real.tethered_process import TetheredProcess;"
        f"p = TetheredProcess(['sh', '-c', 'echo up; exec sleep 60'], Path({str(tmp_path / 'log')!r}));"
        "print(p.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", parent], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        wait_for(lambda: (tmp_path / "log").read_text() == "up\n")
        assert is_alive(child)
        process.kill()
    wait_for(lambda: not is_alive(child))
    assert os.getpid() != child
