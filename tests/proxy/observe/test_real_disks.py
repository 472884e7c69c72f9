"""The access log on disks that fail in earnest, in a process of its own, and killed in the middle of a write."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from accesslog.record import AnyLine
from proxy.observe.log_files import recover
from tests.access_log_files import closed_files, content_of
from tests.proxy.observe.log_disk import Disk
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = [sys.executable, str(Path(__file__).with_name("log_program.py"))]
IN_A_NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
SMALL_DISK = 'mount -t tmpfs -o size=256k none "$0" && exec "$@"'


def said(command: list[str]) -> dict[str, int]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return report | {"errors": done.stdout.count("disk begins")}


def judge(report: dict[str, int]) -> None:
    assert report["closed"]
    assert report["lost"] > 0
    assert report["read"] == report["seqs"]
    assert report["offered"] == report["read"] + report["lost"]


def test_on_a_disk_that_fills_up_each_line_is_there_or_declared_lost(tmp_path: Path) -> None:
    may_mount = [*IN_A_NAMESPACE, SMALL_DISK, str(tmp_path), "true"]
    if shutil.which("unshare") is None or subprocess.run(may_mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk needs a user namespace with a mount of its own")
    report = said([*IN_A_NAMESPACE, SMALL_DISK, str(tmp_path), *PROGRAM, str(tmp_path), "full"])
    judge(report)
    assert report["errors"] == 1


def test_a_process_that_may_not_write_more_loses_no_line_silently(tmp_path: Path) -> None:
    judge(said([*PROGRAM, str(tmp_path), "limited"]))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_where_permission_is_lost_lines_are_counted_until_it_is_back(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "log")
    (tmp_path / "log").chmod(0o500)
    disk.write(b"lost\n")
    assert disk.wait_for_told(1) == ["disk begins"]
    (tmp_path / "log").chmod(0o700)
    disk.write(b"kept\n")
    assert disk.wait_for_told(2) == ["disk begins", "disk over"]
    assert disk.files.close(10)
    assert list(disk.closed().values()) == [b"kept\n"]


def test_killed_in_the_middle_of_writing_it_leaves_whole_lines_and_one_torn_at_most(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([*PROGRAM, str(tmp_path), "forever"], env=environment) as process:
        try:
            wait_for_bytes(tmp_path, 300_000)
        finally:
            process.send_signal(signal.SIGKILL)

    (loss,) = recover(tmp_path, "east")

    *lines, rest = b"".join(map(content_of, closed_files(tmp_path))).split(b"\n")
    seqs = [msgspec.json.decode(line, type=AnyLine).seq for line in lines]
    assert seqs == list(range(len(seqs)))
    assert (loss.cause, loss.first_seq) == ("killed", len(seqs))
    assert not rest.endswith(b"}")
    assert list(tmp_path.glob(".*.open")) == []


def wait_for_bytes(folder: Path, number: int) -> None:
    wait_for(
        lambda: sum(file.stat().st_size for file in folder.glob(".*.open")) >= number, 60, lambda: "nothing was written"
    )
