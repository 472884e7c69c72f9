"""Only what needs no Java."""

import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import combinations
from pathlib import Path

import pytest

from loadgen.real import process, tether
from loadgen.real.jars import ProcessFailed
from loadgen.real.process import (
    Program,
    PulsarServer,
    TetheredProcess,
    free_ports,
    is_healthy,
    is_listening,
    run_once,
    wait_ready,
)
from tests.loadgen.real.conftest import MAVEN_THAT_WORKS, Tool, java_that_says
from tests.waiting import wait_for

ROOT = Path(__file__).parents[3]


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
    for name in ("SLUICE_PROCESSES", "SLUICE_CACHE", "OTHER_PROCESSES"):
        monkeypatch.setenv(name, "7")
    process = TetheredProcess(["sh", "-c", "env; echo done"], tmp_path / "log", {"SLUICE_LISTEN": "8"})
    wait_for(lambda: "done" in process.last_lines())
    process.stop()
    variables = {
        line for line in (tmp_path / "log").read_text().splitlines() if "PROCESSES" in line or "SLUICE" in line
    }
    assert variables == {"SLUICE_CACHE=7", "OTHER_PROCESSES=7", "SLUICE_LISTEN=8", "SLUICE_DRAIN__TIMEOUT=0"}


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
        "import time; from pathlib import Path; from loadgen.real.process import TetheredProcess;"
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


def run_tether(parent: int, *command: str) -> subprocess.CompletedProcess[str]:
    tethered = [sys.executable, "-I", "-S", str(tether.__file__), str(parent), *command]
    return subprocess.run(tethered, capture_output=True, text=True, timeout=60, check=False)


def test_it_becomes_the_command() -> None:
    done = run_tether(os.getpid(), "sh", "-c", "echo it is me; exit 5")
    assert (done.stdout, done.returncode) == ("it is me\n", 5)


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_it_starts_nothing_for_a_parent_that_is_gone() -> None:
    done = run_tether(1, "echo", "too late")
    assert (done.stdout, done.returncode) == ("", 1)


def test_free_ports_are_different_and_nobody_holds_them() -> None:
    ports = free_ports(0, 0, 0)
    assert len(set(ports)) == 3
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()
    assert free_ports(ports[1], 0)[0] == ports[1]


def test_processes_give_each_free_port_once_and_leave_a_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "_LISTENING", process._LISTENING[:16])
    given, others = list[int](), list[int]()
    with suppress(OSError):
        while len(given) < 8:
            given += free_ports(0)
    assert given, "of 16 ports at least one is free"
    monkeypatch.setattr(process, "_given", deque())  # another process has given none
    with suppress(OSError):
        while len(given + others) <= 16:
            others += free_ports(0)
    assert len(given + others) <= 16, "all are given, each once"
    assert not set(given) & set(others)
    assert all(abs(port - other) >= 8 for port, other in combinations(given + others, 2))
    process._give_back()


def test_a_taken_port_is_an_error_that_leaves_the_others_free() -> None:
    (wanted,) = free_ports(0)
    with socket.create_server(("127.0.0.1", 0)) as holder, pytest.raises(OSError, match="in use"):
        free_ports(wanted, holder.getsockname()[1])
    socket.create_server(("127.0.0.1", wanted)).close()


class Unwell(BaseHTTPRequestHandler):
    well_at: tuple[str, ...] = ("/admin/v2/namespaces/public/default",)

    def do_GET(self) -> None:
        self.send_response(200 if self.path in self.well_at else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Starting(Unwell):
    well_at = ("/admin/v2/brokers/health",)


class Well(Unwell):
    well_at = (*Unwell.well_at, *Starting.well_at)


@pytest.fixture
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), request.param) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("port", "healthy"), [(Well, True), (Unwell, False), (Starting, False)], indirect=["port"])
def test_only_a_broker_that_says_so_is_healthy(port: int, *, healthy: bool) -> None:
    assert is_healthy(port) is healthy
    assert is_listening(port)


def test_where_nobody_listens_nobody_is_healthy() -> None:
    (port,) = free_ports(0)
    assert not is_healthy(port)
    assert not is_listening(port)


def hang_up(server: socket.socket) -> None:
    server.accept()[0].close()


def test_a_port_that_speaks_no_http_is_not_healthy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=hang_up, args=(server,))
        thread.start()
        assert not is_healthy(server.getsockname()[1])
        thread.join()


def test_waiting_ends_with_readiness_with_the_process_or_with_the_time(tmp_path: Path) -> None:
    process = TetheredProcess(["sh", "-c", "echo no room; exit 3"], tmp_path / "log")
    process.name = "bookie"
    wait_ready(process, lambda: True, timeout_s=0)
    with pytest.raises(ProcessFailed, match="bookie ended with code 3\nno room"):
        wait_ready(process, lambda: False, timeout_s=10)
    sleeper = TetheredProcess(["sleep", "60"], tmp_path / "log")
    try:
        with pytest.raises(ProcessFailed, match="sleep was not healthy within 0 s"):
            wait_ready(sleeper, lambda: False, timeout_s=0)
    finally:
        sleeper.kill()


PROGRAM = Program("a.Main", ("--one",), ("-Xmx64m",))


@pytest.fixture
def java(tool: Tool, tools: Path) -> Tool:
    """Put a java in place: what it does when it is not asked for its version."""
    (tools / "sleep").symlink_to("/bin/sleep")
    tool("mvn", MAVEN_THAT_WORKS)
    return lambda _, script: tool("java", f"case $1 in -version) {java_that_says('17')}; exit;; esac\n{script}")


def test_a_part_starts_again_after_it_ended_or_was_killed(java: Tool, tmp_path: Path) -> None:
    java("java", "echo up >> $RUNS; exec sleep 60")
    part = PulsarServer(tmp_path / "zookeeper", PROGRAM, (tmp_path / "runs").exists)
    assert not part.is_running
    for end in (part.kill, part.stop, part.kill):
        (tmp_path / "runs").unlink(missing_ok=True)
        part.start()
        assert part.is_running
        end()
        assert not part.is_running


def test_a_part_that_ends_at_once_is_named_with_its_last_lines(java: Tool, tmp_path: Path) -> None:
    java("java", "echo 'no such address'; exit 4")
    part = PulsarServer(tmp_path / "bookie", PROGRAM, lambda: False)
    with pytest.raises(ProcessFailed, match="bookie is not launched"):
        part.wait()
    part.launch()
    with pytest.raises(ProcessFailed, match="bookie ended with code 4\nno such address"):
        part.wait()


def test_the_java_gets_its_memory_its_log_and_the_arguments(java: Tool, tmp_path: Path) -> None:
    java("java", 'echo "$@"')
    run_once(tmp_path / "once", PROGRAM)
    log = (tmp_path / "once" / "log").read_text()
    assert f"-Xmx64m -XX:+UseSerialGC -Dlog4j.configurationFile={tmp_path}/once/log4j2.xml" in log
    assert log.endswith("a.Main --one\n")
    assert (tmp_path / "once" / "log4j2.xml").exists()


def test_what_runs_once_must_end_well_and_in_time(java: Tool, tmp_path: Path) -> None:
    java("java", "echo 'cluster exists'; exit 5")
    with pytest.raises(ProcessFailed, match="setup ended with code 5\ncluster exists"):
        run_once(tmp_path / "setup", PROGRAM)
    java("java", "exec sleep 60")
    with pytest.raises(ProcessFailed, match="setup did not end within 0 s"):
        run_once(tmp_path / "setup", PROGRAM, timeout_s=0)
