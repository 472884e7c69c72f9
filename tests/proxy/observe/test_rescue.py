"""Access-log files that a killed proxy left, and what its next run makes of them."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from proxy.observe.log_files import LogFiles, Rotation
from proxy.observe.rescue import rescue

_OPEN = ".east-boot1-000002.jsonl.open"
_WRITER = """
import sys, time
from pathlib import Path
from proxy.observe.log_files import LogFiles, Rotation
files = LogFiles(Path(sys.argv[1]), "east-boot1", Rotation(10**9, 3600, 10**6), lambda _: None)
files.write(b"one\\n", 1)
print("written", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("left", [b"one\ntwo\n", b"one\ntw"])
def test_what_a_killed_run_wrote_gets_its_name_a_torn_line_last(tmp_path: Path, left: bytes) -> None:
    (tmp_path / _OPEN).write_bytes(left)

    (closed,) = rescue(tmp_path, "east")

    assert closed.name == "east-boot1-000002.jsonl"
    assert closed.read_bytes() == left
    assert list(tmp_path.iterdir()) == [closed]


def test_an_empty_file_goes(tmp_path: Path) -> None:
    (tmp_path / _OPEN).touch()

    assert rescue(tmp_path, "east") == []
    assert list(tmp_path.iterdir()) == []


def test_files_of_another_proxy_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / _OPEN).write_bytes(b"one\n")

    assert rescue(tmp_path, "west") == []
    assert (tmp_path / _OPEN).exists()


def test_a_closed_file_of_the_name_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / _OPEN).write_bytes(b"new\n")
    (tmp_path / "east-boot1-000002.jsonl").write_bytes(b"old\n")

    assert rescue(tmp_path, "east") == []
    assert (tmp_path / "east-boot1-000002.jsonl").read_bytes() == b"old\n"


def test_a_file_that_is_being_written_is_left_until_its_process_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"written\n"
        wait_for_content(tmp_path / ".east-boot1-000000.jsonl.open")
        assert rescue(tmp_path, "east") == []
        writer.send_signal(signal.SIGKILL)

    (closed,) = rescue(tmp_path, "east")
    assert closed.read_bytes() == b"one\n"


def test_a_file_of_this_very_process_is_left(tmp_path: Path) -> None:
    files = LogFiles(tmp_path, "east-boot1", Rotation(10**9, 3600, 10**6), lambda _: None)
    files.write(b"one\n", 1)
    wait_for_content(tmp_path / ".east-boot1-000000.jsonl.open")

    assert rescue(tmp_path, "east") == []

    assert files.close(10)
    assert [path.name for path in tmp_path.iterdir()] == ["east-boot1-000000.jsonl"]


def wait_for_content(file: Path) -> None:
    """Until its writing thread has come to it."""
    pause = threading.Event()
    for _ in range(2000):
        if file.exists() and file.stat().st_size:
            return
        pause.wait(0.005)
    raise AssertionError(f"{file} has nothing in it")
