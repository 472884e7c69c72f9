"""The access log's files: names, rotation, a full queue, a broken disk."""

import errno
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.observe import log_writer
from proxy.observe.log_files import recover
from proxy.observe.log_lines import LogLines, Writer
from proxy.observe.log_writer import Keep, LineRun, LogFile, LogWriter, Loss, Losses, Notices, Rotation
from tests.proxy.observe.log_disk import BOOT, LONG, PROXY, Disk, FussyFile, closed_name, open_name

Make = Callable[..., Disk]


@pytest.fixture
def make_disk(tmp_path: Path) -> Iterator[Make]:
    disks: list[Disk] = []

    def make(rotation: Rotation = LONG, queue: int = 10**6) -> Disk:
        disks.append(Disk(tmp_path / "log", rotation, queue))
        return disks[-1]

    yield make
    for disk in disks:
        assert disk.files.close(10)


@pytest.fixture
def fussy(monkeypatch: pytest.MonkeyPatch) -> type[FussyFile]:
    monkeypatch.setattr(log_writer, "FileIO", FussyFile)
    for name in ("refuses_to_open", "refuses_to_write", "takes_at_most"):
        monkeypatch.setattr(FussyFile, name, None)
    return FussyFile


def lost(disk: Disk) -> list[tuple[str, int | None, int, int | None]]:
    return [(loss.cause, loss.lost_lines, loss.first_seq, loss.last_seq) for loss in disk.losses.take()]


def test_a_file_has_its_name_only_when_it_is_closed(make_disk: Make) -> None:
    disk = make_disk()
    disk.write(b"one\n")
    disk.wait_for(lambda: disk.open_names() == [open_name(0)])
    assert disk.closed() == {}
    disk.write(b"two\n")
    assert disk.files.close(10)
    assert disk.closed() == {closed_name(0): b"one\ntwo\n"}
    assert list(disk.folder.glob(".*")) == []
    assert disk.told == []


def test_without_a_line_there_is_no_file(make_disk: Make) -> None:
    disk = make_disk()
    assert disk.files.close(10)
    assert disk.closed() == {}


def test_resting_closes_a_file_that_would_become_too_old(make_disk: Make) -> None:
    disk = make_disk()
    disk.write(b"one\n")
    disk.files.rest(3600)
    disk.wait_for(lambda: disk.closed() == {closed_name(0): b"one\n"})


def test_one_that_stays_young_enough_is_not(make_disk: Make) -> None:
    disk = make_disk()
    disk.write(b"one\n")
    disk.files.rest(30)
    disk.wait_for_content(0)
    disk.write(b"two\n")
    assert disk.files.close(10)
    assert disk.closed() == {closed_name(0): b"one\ntwo\n"}


def test_a_file_is_closed_at_its_size_and_lines_stay_whole(make_disk: Make) -> None:
    disk = make_disk(replace(LONG, size=10))
    for number in range(5):
        disk.write(b"line %d\n" % number)
    assert disk.files.close(10)
    assert disk.closed() == {
        closed_name(0): b"line 0\nline 1\n",
        closed_name(1): b"line 2\nline 3\n",
        closed_name(2): b"line 4\n",
    }


def test_a_file_is_closed_at_its_age_though_nothing_more_is_written(make_disk: Make) -> None:
    disk = make_disk(replace(LONG, age_s=0.02))
    disk.write(b"one\n")
    disk.wait_for(lambda: disk.closed() == {closed_name(0): b"one\n"})
    disk.write(b"two\n")
    disk.wait_for(lambda: len(disk.closed()) == 2)
    assert disk.closed() == {closed_name(0): b"one\n", closed_name(1): b"two\n"}
    assert (disk.open_names(), disk.told) == ([], [])


def test_draining_closes_the_file_and_writing_goes_on(make_disk: Make) -> None:
    disk = make_disk()
    disk.write(b"one\n")
    assert disk.files.drain(10)
    assert disk.closed() == {closed_name(0): b"one\n"}
    disk.write(b"two\n")
    assert disk.files.close(10)
    assert disk.closed() == {closed_name(0): b"one\n", closed_name(1): b"two\n"}


def test_a_full_queue_loses_and_counts_and_tells_once_and_never_waits(
    make_disk: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    append = LogFile.append

    def slowly(file: LogFile, data: bytes, lines: LineRun, declares: tuple[Loss, ...]) -> tuple[int, OSError | None]:
        begun.set()
        assert go_on.wait(10)
        return append(file, data, lines, declares)

    monkeypatch.setattr(LogFile, "append", slowly)
    disk = make_disk(queue=10)
    disk.write(b"first\n")
    assert begun.wait(10)
    disk.write(b"12345\n")
    for _ in range(2):
        disk.write(b"too much\n" * 2)
    assert (disk.losses.total, disk.told, disk.files.is_writing) == (4, ["queue begins"], False)
    disk.write(b"abc\n")
    go_on.set()
    assert disk.wait_for_told(2) == ["queue begins", "queue over"]
    assert disk.files.is_writing
    assert disk.files.close(10)
    assert disk.closed() == {closed_name(0): b"first\n12345\nabc\n"}
    assert lost(disk) == [("queue", 4, 2, 5)]


def test_a_folder_that_is_removed_is_made_again_and_what_was_in_it_is_counted(make_disk: Make) -> None:
    disk = make_disk()
    disk.write(b"one\n")
    disk.wait_for_content(0)
    disk.remove_folder()
    disk.write(b"two of\ntwo lines\n")
    assert disk.wait_for_told(2) == ["disk begins", "disk over"]
    assert [path.name for path in disk.folder.glob(".*.alive")] == [f".{PROXY}-{BOOT}.alive"]
    assert disk.files.close(10)
    assert disk.closed() == {closed_name(1): b"two of\ntwo lines\n"}
    assert (disk.losses.total, lost(disk)) == (1, [("disk", 1, 0, 0)])


def test_a_disk_that_refuses_is_told_once_counted_and_used_again_when_it_works(
    make_disk: Make, fussy: type[FussyFile]
) -> None:
    disk = make_disk()
    fussy.refuses_to_open = OSError(errno.EROFS, "read-only file system")
    for _ in range(3):
        disk.write(b"lost\n")
    disk.wait_for(lambda: disk.losses.total == 3)
    assert disk.told == ["disk begins"]
    assert not disk.files.is_writing
    fussy.refuses_to_open = None
    disk.write(b"kept\n")
    assert disk.wait_for_told(2) == ["disk begins", "disk over"]
    assert disk.files.close(10)
    assert list(disk.closed().values()) == [b"kept\n"]
    assert disk.losses.total == 3


def test_a_full_disk_costs_the_lines_that_it_did_not_take_and_readers_get_the_rest(
    make_disk: Make, fussy: type[FussyFile]
) -> None:
    disk = make_disk()
    disk.write(b"one\n")
    disk.wait_for_content(0)
    fussy.refuses_to_write = OSError(errno.ENOSPC, "no space left")
    disk.write(b"two\n")
    assert disk.wait_for_told(1) == ["disk begins"]
    fussy.refuses_to_write = None
    disk.write(b"three\n")
    assert disk.files.close(10)
    assert disk.closed() == {closed_name(0): b"one\n", closed_name(1): b"three\n"}
    assert lost(disk) == [("disk", 1, 1, 1)]


def test_partly_written_batch_keeps_its_whole_lines(make_disk: Make, fussy: type[FussyFile]) -> None:
    fussy.takes_at_most = 7
    disk = make_disk()
    disk.write(b"one\ntwo two\nthree\n")
    assert disk.wait_for_told(1) == ["disk begins"]
    disk.wait_for(lambda: disk.closed() != {})
    assert disk.closed() == {closed_name(0): b"one\n"}
    assert lost(disk) == [("disk", 2, 1, 2)]


def test_a_file_that_cannot_get_its_name_now_gets_it_later(make_disk: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def refuse(_path: Path, _target: Path) -> Path:
        raise PermissionError(errno.EACCES, "not now")

    disk = make_disk(replace(LONG, size=1))
    monkeypatch.setattr(Path, "rename", refuse)
    disk.write(b"one\n")
    assert disk.wait_for_told(1) == ["disk begins"]
    monkeypatch.setattr(Path, "rename", rename)
    disk.write(b"two\n")
    assert disk.files.close(10)
    assert disk.closed() == {closed_name(0): b"one\n", closed_name(1): b"two\n"}
    assert disk.losses.total == 0


def test_closing_gives_up_on_a_disk_that_hangs(make_disk: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def hang(_file: LogFile, *_arguments: object) -> tuple[int, OSError | None]:
        go_on.wait(10)
        return 1, None

    monkeypatch.setattr(LogFile, "append", hang)
    disk = make_disk()
    disk.write(b"x\n")
    assert not disk.files.drain(0.01)
    assert not disk.files.close(0.01)
    go_on.set()


def test_old_files_are_deleted_when_there_are_too_many_bytes_and_told(make_disk: Make) -> None:
    disk = make_disk(replace(LONG, size=4, keep=Keep(size=10)))
    for _ in range(5):
        disk.write(b"1234\n")
    assert disk.files.close(10)
    assert list(disk.closed()) == [closed_name(3), closed_name(4)]
    assert disk.files.retention.deleted_files == sum(files for files, _ in disk.deleted) == 3
    assert disk.losses.total == 0


def test_a_loss_is_declared_again_if_the_line_that_said_so_is_lost(make_disk: Make, fussy: type[FussyFile]) -> None:
    disk = make_disk()
    loss = Loss(BOOT, "disk", "", 5, 0, 4, 1, 2)
    fussy.refuses_to_write = OSError(errno.ENOSPC, "no space left")
    disk.files.write(b"loss\n", 5, 1, (loss,))
    disk.wait_for(lambda: disk.losses.total == 1)
    assert lost(disk) == [("disk", 6, 0, 5)]


def test_an_end_of_which_the_disk_took_nothing_is_found_by_the_next_run(tmp_path: Path, fussy: type[FussyFile]) -> None:
    disk = Disk(tmp_path / "log")
    disk.write(b'{"seq": 0, "end": "2026-11-21T11:29:00Z"}\n')
    assert disk.files.drain(10)
    fussy.refuses_to_open = OSError(errno.ENOSPC, "no space left")
    disk.write(b"lost\n")
    assert not LogLines(Writer(PROXY, BOOT), disk.files).close(10)
    (loss,) = recover(tmp_path / "log", PROXY)
    assert (loss.of_boot, loss.cause, loss.lost_lines, loss.first_seq) == (BOOT, "killed", None, 1)


def test_an_end_whose_losses_the_log_tells_of_leaves_no_sign(tmp_path: Path, fussy: type[FussyFile]) -> None:
    disk = Disk(tmp_path / "log")
    fussy.refuses_to_open = OSError(errno.ENOSPC, "no space left")
    disk.write(b"lost\n")
    assert disk.files.drain(10)
    fussy.refuses_to_open = None
    (loss,) = disk.losses.take()
    disk.files.write(b"loss\n", 1, 1, (loss,))
    assert disk.files.close(10)
    assert recover(tmp_path / "log", PROXY) == []


def test_a_folder_that_cannot_be_made_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    notices = Notices(lambda _trouble, _error: None, lambda _files, _size: None)
    with pytest.raises(OSError, match="Not a directory"):
        LogWriter(tmp_path / "file" / "log", (PROXY, BOOT), LONG, Losses(BOOT), notices)
