"""Access-log files that a killed proxy left, and what its next run makes of them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd
from structlog.testing import capture_logs

from proxy.observe.log_files import recover
from proxy.observe.log_writer import LineRun, LogFile, LogName, alive_name
from tests.access_log_files import closed_files, content_of, content_so_far
from tests.proxy.observe.log_disk import BOOT, LONG, PROXY, Disk, closed_name, open_name
from tests.proxy.odd_files import broken_link, fifo, folder, link_to_fifo
from tests.waiting import wait_for

_WRITER = """
import sys, time
from pathlib import Path
from proxy.observe.log_files import LogFiles
from proxy.observe.log_writer import KEEP_ALL, LogWriter, Losses, Notices, Rotation
boot, told = "20261121T112900-0a1b2c3d", Notices(lambda *_: None, lambda *_: None)
rotation = Rotation(10**9, 3600, "never", KEEP_ALL, "none")
files = LogFiles(LogWriter(Path(sys.argv[1]), ("east", boot), rotation, Losses(boot), told), 10**6)
files.write(b"one\\n", 0, 1)
print("written", flush=True)
time.sleep(600)
"""


OTHER = "20261121T113000-0a1b2c3e"


def link_to_secret(path: Path) -> Path:
    path.with_name("secret").write_bytes(b"secret\n")
    path.symlink_to("secret")
    return path


def line(seq: int) -> bytes:
    return json.dumps({"kind": "heartbeat", "seq": seq, "end": "2026-11-21T11:29:01.5Z"}).encode() + b"\n"


@pytest.mark.parametrize("left", [b"one\ntwo\n", b"one\ntw"])
def test_what_a_killed_run_wrote_gets_its_name_a_torn_line_last(tmp_path: Path, left: bytes) -> None:
    (tmp_path / open_name(2)).write_bytes(left)

    recover(tmp_path, PROXY)

    (closed,) = tmp_path.iterdir()
    assert (closed.name, closed.read_bytes()) == (closed_name(2), left)


PACKED = LogName(BOOT, 2, "zstd")


def compressed(folder: Path, *writes: bytes) -> tuple[Path, list[int]]:
    """Make an unfinished file as a killed run leaves it; returns its size after each write, too."""
    left, sizes = folder / PACKED.unfinished(PROXY), []
    file = LogFile(left, folder / PACKED.closed(PROXY), "never", "zstd")
    for lines in writes:
        assert file.append(lines, LineRun(lines.count(b"\n"), 0, 0, 1, 1), ())[1] is None
        assert content_so_far(left) == zstd.decompress(left.read_bytes()), "the frame is whole"
        sizes.append(left.stat().st_size)
    file.close()
    return left, sizes


def test_compressed_file_of_a_killed_run_is_closed_as_it_is(tmp_path: Path) -> None:
    left, _ = compressed(tmp_path, line(0), line(1) + line(2))
    whole = left.read_bytes()
    recover(tmp_path, PROXY)
    (closed,) = tmp_path.iterdir()
    assert (closed.name, closed.read_bytes()) == (PACKED.closed(PROXY), whole)
    assert content_of(closed) == line(0) + line(1) + line(2)


def test_torn_compressed_file_keeps_the_lines_of_whole_writes(tmp_path: Path) -> None:
    left, sizes = compressed(tmp_path, line(0), line(1) + line(2), line(3))
    whole, after = left.read_bytes(), [b"", line(0), line(0) + line(1) + line(2)]
    for length in range(1, sizes[-1]):
        left.write_bytes(whole[:length])
        (tmp_path / alive_name(PROXY, BOOT)).touch()
        (loss,) = recover(tmp_path, PROXY)
        kept = b"".join(map(content_of, closed_files(tmp_path)))
        # The last block of each write takes 3 bytes, which the next write replaces.
        assert kept == after[sum(length >= size - 3 for size in sizes[:-1])] or length >= sizes[-1] - 3, length
        assert loss.first_seq == kept.count(b"\n")
        for path in tmp_path.iterdir():
            path.unlink()


def test_damaged_compressed_file_keeps_lines_before_the_damage(tmp_path: Path) -> None:
    left, sizes = compressed(tmp_path, line(0), line(1))
    whole = left.read_bytes()
    left.write_bytes(whole[: sizes[0] - 3] + bytes([0xFF]) * 40_000)
    recover(tmp_path, PROXY)
    (closed,) = tmp_path.iterdir()
    assert content_of(closed) == line(0)


@pytest.mark.parametrize("make", [fifo, folder, link_to_fifo, link_to_secret, broken_link])
@pytest.mark.parametrize("name", [open_name(0), closed_name(0), alive_name(PROXY, BOOT)])
def test_what_is_no_file_is_passed_over_and_told(tmp_path: Path, name: str, make: Callable[[Path], Path]) -> None:
    odd = make(tmp_path / name)
    (tmp_path / open_name(1)).write_bytes(line(7))
    (tmp_path / alive_name(PROXY, OTHER)).touch()
    with capture_logs() as logs:
        losses = recover(tmp_path, PROXY)
    assert os.path.lexists(odd)
    assert odd.name == name
    assert {str(odd)} == {log["file"] for log in logs if "skipped" in log["event"]}
    assert (tmp_path / closed_name(1)).read_bytes() == line(7)
    assert [loss.of_boot for loss in losses] == [OTHER]


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    secret = link_to_secret(tmp_path / open_name(0)).resolve()
    with pytest.raises(OSError, match="it is a link"):
        LogFile(tmp_path / open_name(0), tmp_path / closed_name(0), "never", "none")
    assert secret.read_bytes() == b"secret\n"


def test_an_empty_file_goes(tmp_path: Path) -> None:
    (tmp_path / open_name(0)).touch()

    recover(tmp_path, PROXY)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("other", ["west", "eas", PROXY + "-" + BOOT, "ea.t"])
def test_files_of_another_proxy_are_left_alone(tmp_path: Path, other: str) -> None:
    (tmp_path / open_name(0)).write_bytes(b"one\n")
    (tmp_path / alive_name(PROXY, BOOT)).touch()

    assert recover(tmp_path, other) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((open_name(0), alive_name(PROXY, BOOT)))


def test_files_of_a_proxy_with_a_longer_name_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / open_name(0).replace(PROXY, f"{PROXY}-2")).write_bytes(b"one\n")

    assert recover(tmp_path, PROXY) == []
    assert [path.name for path in tmp_path.glob(".*")] == [open_name(0).replace(PROXY, f"{PROXY}-2")]


def test_a_closed_file_of_the_name_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / open_name(2)).write_bytes(b"new\n")
    (tmp_path / closed_name(2)).write_bytes(b"old\n")

    recover(tmp_path, PROXY)

    assert (tmp_path / closed_name(2)).read_bytes() == b"old\n"


@pytest.mark.parametrize(
    ("files", "first_lost"),
    [
        ({closed_name(0): line(0), open_name(1): line(1) + line(2)}, 3),
        ({closed_name(0): line(0), open_name(1): line(1) + line(2)[:20]}, 2),
        ({closed_name(0): line(0), open_name(1): line(1)[:20]}, 1),
        ({closed_name(0): line(0) + line(1)}, 2),
        ({closed_name(0, "20261121T112900-ffffffff"): line(7)}, 0),
        ({}, 0),
    ],
)
def test_of_a_run_that_was_killed_it_is_said_where_its_log_ends(tmp_path: Path, files, first_lost: int) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / alive_name(PROXY, BOOT)).touch()

    (loss,) = recover(tmp_path, PROXY)

    assert (loss.of_boot, loss.cause, loss.lost_lines) == (BOOT, "killed", None)
    assert (loss.first_seq, loss.last_seq) == (first_lost, None)
    assert not first_lost or loss.since == 1_795_260_541_500_000_000
    assert loss.until >= loss.since


def test_a_sign_that_cannot_be_read_keeps_nobody_from_starting(tmp_path: Path) -> None:
    (tmp_path / alive_name(PROXY, BOOT)).mkdir()

    assert recover(tmp_path, PROXY) == []


def test_a_run_that_is_being_written_is_left_until_its_process_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"written\n"
            wait_for_content(tmp_path / open_name(0))
            assert recover(tmp_path, PROXY) == []
        finally:
            writer.send_signal(signal.SIGKILL)

    assert [loss.of_boot for loss in recover(tmp_path, PROXY)] == [BOOT]
    assert (tmp_path / closed_name(0)).read_bytes() == b"one\n"


def test_a_run_of_this_very_process_is_left(tmp_path: Path) -> None:
    disk = Disk(tmp_path, LONG)
    disk.write(b"one\n")
    wait_for_content(tmp_path / open_name(0))

    assert recover(tmp_path, PROXY) == []

    assert disk.files.close(10)
    assert [path.name for path in tmp_path.iterdir()] == [closed_name(0)]


def wait_for_content(file: Path) -> None:
    """Until its writing thread has come to it."""
    wait_for(lambda: file.exists() and file.stat().st_size, evidence=lambda: f"{file} has nothing in it")
