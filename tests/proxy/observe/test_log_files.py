"""The access log's files: names, rotation, a full queue, a broken disk."""

import errno
import shutil
import threading
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

import pytest

from proxy.observe import log_files
from proxy.observe.log_files import LogFiles, Rotation

LONG = Rotation(size=10**9, age_s=3600, queue=10**6)


class Disk:
    """Log files in a folder, with what they tell of their troubles."""

    def __init__(self, folder: Path, rotation: Rotation) -> None:
        self.folder = folder
        self.told: list[str] = []
        self._changed = threading.Condition()
        self.files = LogFiles(folder, "stem", rotation, self._trouble)

    def _trouble(self, error: OSError | None) -> None:
        with self._changed:
            self.told.append("" if error is None else type(error).__name__)
            self._changed.notify_all()

    def wait_for_told(self, number: int) -> list[str]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.told) >= number, 10), self.told
            return list(self.told)

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        """Until the thread has done it; fails if it does not."""
        pause = threading.Event()
        for _ in range(2000):
            if is_so():
                return
            pause.wait(0.005)
        raise AssertionError(f"closed {self.closed()}, told {self.told}, dropped {self.files.dropped}")

    def remove_folder(self) -> None:
        shutil.rmtree(self.folder)

    def open_names(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob(".*"))

    def closed(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.folder.glob("[!.]*"))}


@pytest.fixture
def make_disk(tmp_path: Path) -> Iterator[Callable[[Rotation], Disk]]:
    disks: list[Disk] = []

    def make(rotation: Rotation = LONG) -> Disk:
        disks.append(Disk(tmp_path / "log", rotation))
        return disks[-1]

    yield make
    for disk in disks:
        assert disk.files.close(10)


class FussyFile(FileIO):
    """A file on a disk that may refuse."""

    refuses_to_open: OSError | None = None
    refuses_to_write: OSError | None = None
    takes_at_most: int | None = None

    def __init__(self, path: Path, mode: str) -> None:
        if FussyFile.refuses_to_open:
            raise FussyFile.refuses_to_open
        super().__init__(path, mode)

    def write(self, data: bytes) -> int:  # type: ignore[override]  # only what is used
        if FussyFile.refuses_to_write:
            raise FussyFile.refuses_to_write
        return super().write(data[: FussyFile.takes_at_most])


@pytest.fixture
def fussy(monkeypatch: pytest.MonkeyPatch) -> type[FussyFile]:
    monkeypatch.setattr(log_files, "FileIO", FussyFile)
    for name in ("refuses_to_open", "refuses_to_write", "takes_at_most"):
        monkeypatch.setattr(FussyFile, name, None)
    return FussyFile


Make = Callable[..., Disk]


def test_a_file_has_its_name_only_when_it_is_closed(make_disk: Make) -> None:
    disk = make_disk()
    disk.files.write(b"one\n", 1)
    disk.wait_for(lambda: disk.open_names() == [".stem-000000.jsonl.open"])
    assert disk.closed() == {}
    disk.files.write(b"two\n", 1)
    assert disk.files.close(10)
    assert disk.closed() == {"stem-000000.jsonl": b"one\ntwo\n"}
    assert disk.open_names() == []
    assert disk.told == []


def test_without_a_line_there_is_no_file(make_disk: Make) -> None:
    disk = make_disk()
    assert disk.files.close(10)
    assert disk.closed() == {}


def test_a_file_is_closed_at_its_size_and_lines_stay_whole(make_disk: Make) -> None:
    disk = make_disk(Rotation(size=10, age_s=3600, queue=10**6))
    for number in range(5):
        disk.files.write(b"line %d\n" % number, 1)
    assert disk.files.close(10)
    assert disk.closed() == {
        "stem-000000.jsonl": b"line 0\nline 1\n",
        "stem-000001.jsonl": b"line 2\nline 3\n",
        "stem-000002.jsonl": b"line 4\n",
    }


def test_a_file_is_closed_at_its_age_though_nothing_more_is_written(make_disk: Make) -> None:
    disk = make_disk(Rotation(size=10**9, age_s=0.02, queue=10**6))
    disk.files.write(b"one\n", 1)
    disk.wait_for(lambda: disk.closed() == {"stem-000000.jsonl": b"one\n"})
    disk.files.write(b"two\n", 1)
    disk.wait_for(lambda: len(disk.closed()) == 2)
    assert disk.closed() == {"stem-000000.jsonl": b"one\n", "stem-000001.jsonl": b"two\n"}
    assert (disk.open_names(), disk.told) == ([], [])


def test_a_full_queue_drops_and_counts_and_never_waits(make_disk: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    write_all = log_files._write_all

    def slowly(file: FileIO, data: bytes) -> None:
        begun.set()
        assert go_on.wait(10)
        write_all(file, data)

    monkeypatch.setattr(log_files, "_write_all", slowly)
    disk = make_disk(Rotation(size=10**9, age_s=3600, queue=10))
    disk.files.write(b"first\n", 1)
    assert begun.wait(10)
    disk.files.write(b"12345\n", 1)
    disk.files.write(b"too much\n" * 2, 2)
    assert disk.files.dropped == 2
    disk.files.write(b"abc\n", 1)
    go_on.set()
    assert disk.files.close(10)
    assert disk.closed() == {"stem-000000.jsonl": b"first\n12345\nabc\n"}


def test_a_folder_that_is_removed_is_made_again_and_what_was_in_it_is_counted(make_disk: Make) -> None:
    disk = make_disk(Rotation(size=20, age_s=3600, queue=10**6))
    disk.files.write(b"one\n", 1)
    disk.wait_for(lambda: disk.open_names() != [])
    disk.remove_folder()
    disk.files.write(b"two of two lines....\n", 2)
    assert disk.wait_for_told(1) == ["FileNotFoundError"]
    disk.files.write(b"three\n", 1)
    assert disk.wait_for_told(2) == ["FileNotFoundError", ""]
    assert disk.files.close(10)
    assert disk.closed() == {"stem-000001.jsonl": b"three\n"}
    assert disk.files.dropped == 3


def test_a_disk_that_refuses_is_told_once_counted_and_used_again_when_it_works(
    make_disk: Make, fussy: type[FussyFile]
) -> None:
    disk = make_disk()
    fussy.refuses_to_open = OSError(errno.EROFS, "read-only file system")
    for _ in range(3):
        disk.files.write(b"lost\n", 1)
    disk.wait_for(lambda: disk.files.dropped == 3)
    assert disk.told == ["OSError"]
    fussy.refuses_to_open = None
    disk.files.write(b"kept\n", 1)
    assert disk.wait_for_told(2) == ["OSError", ""]
    assert disk.files.close(10)
    assert list(disk.closed().values()) == [b"kept\n"]
    assert disk.files.dropped == 3


def test_a_full_disk_costs_the_lines_that_it_did_not_take_and_readers_get_the_rest(
    make_disk: Make, fussy: type[FussyFile]
) -> None:
    disk = make_disk()
    disk.files.write(b"one\n", 1)
    disk.wait_for(lambda: disk.open_names() != [])
    fussy.refuses_to_write = OSError(errno.ENOSPC, "no space left")
    disk.files.write(b"two\n", 1)
    assert disk.wait_for_told(1) == ["OSError"]
    fussy.refuses_to_write = None
    disk.files.write(b"three\n", 1)
    assert disk.files.close(10)
    assert disk.closed() == {"stem-000000.jsonl": b"one\n", "stem-000001.jsonl": b"three\n"}
    assert disk.files.dropped == 1


def test_a_disk_that_takes_only_a_part_has_not_taken_it(make_disk: Make, fussy: type[FussyFile]) -> None:
    fussy.takes_at_most = 3
    disk = make_disk()
    disk.files.write(b"123456\n", 1)
    assert disk.wait_for_told(1) == ["OSError"]
    disk.wait_for(lambda: disk.files.dropped == 1)


def test_closing_gives_up_on_a_disk_that_hangs(make_disk: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(log_files, "_write_all", lambda _file, _data: go_on.wait(10))
    disk = make_disk()
    disk.files.write(b"x\n", 1)
    assert not disk.files.close(0.01)
    go_on.set()


def test_a_folder_that_cannot_be_made_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory"):
        LogFiles(tmp_path / "file" / "log", "stem", LONG, lambda _error: None)
