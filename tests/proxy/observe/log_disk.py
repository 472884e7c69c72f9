"""Log files in a folder, with what they tell of their troubles."""

import shutil
import threading
from collections.abc import Callable
from io import FileIO
from pathlib import Path

from proxy.observe.log_files import LogFiles
from proxy.observe.log_writer import KEEP_ALL, LogName, LogWriter, Losses, Notices, Rotation
from tests.waiting import PATIENCE_S, wait_for

PROXY, BOOT = "east", "20261121T112900-0a1b2c3d"
LONG = Rotation(size=10**9, age_s=3600, sync="never", keep=KEEP_ALL, compression="none")


def closed_name(number: int, boot_id: str = BOOT) -> str:
    return LogName(boot_id, number, "none").closed(PROXY)


def open_name(number: int, boot_id: str = BOOT) -> str:
    return LogName(boot_id, number, "none").unfinished(PROXY)


class Disk:
    """Log files in a folder; lines are numbered as they are written."""

    def __init__(self, folder: Path, rotation: Rotation = LONG, queue: int = 10**6) -> None:
        self.folder = folder
        self.told: list[str] = []
        self.deleted: list[tuple[int, int]] = []
        self._changed = threading.Condition()
        self._seq = 0
        notices = Notices(self._trouble, lambda files, size: self.deleted.append((files, size)))
        self.losses = Losses(BOOT)
        self.writer = LogWriter(folder, (PROXY, BOOT), rotation, self.losses, notices)
        self.files = LogFiles(self.writer, queue)

    def write(self, data: bytes) -> None:
        lines = data.count(b"\n")
        self.files.write(data, self._seq, lines)
        self._seq += lines

    def _trouble(self, trouble: str, error: str | None) -> None:
        with self._changed:
            self.told.append(f"{trouble} {'over' if error is None else 'begins'}")
            self._changed.notify_all()

    def wait_for_told(self, number: int) -> list[str]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.told) >= number, PATIENCE_S), self.told
            return list(self.told)

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        """Until the thread has done it; fails if it does not."""
        wait_for(is_so, evidence=lambda: f"closed {self.closed()}, told {self.told}, lost {self.losses.total}")

    def wait_for_content(self, number: int) -> None:
        """Until the file of that number has something in it."""
        file = self.folder / open_name(number)
        self.wait_for(lambda: file.exists() and file.stat().st_size > 0)

    def remove_folder(self) -> None:
        shutil.rmtree(self.folder)

    def open_names(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob(".*.open"))

    def closed(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.folder.glob("[!.]*"))}


class FussyFile(FileIO):
    """A file on a disk that may refuse."""

    refuses_to_open: OSError | None = None
    refuses_to_write: OSError | None = None
    takes_at_most: int | None = None
    """Bytes, and then no more."""

    def __init__(self, path: Path, mode: str) -> None:
        if FussyFile.refuses_to_open:
            raise FussyFile.refuses_to_open
        super().__init__(path, mode)

    def write(self, data: bytes) -> int:  # type: ignore[override]  # only what is used
        if FussyFile.refuses_to_write:
            raise FussyFile.refuses_to_write
        if FussyFile.takes_at_most is None:
            return super().write(data)
        taken = super().write(data[: FussyFile.takes_at_most])
        FussyFile.takes_at_most -= taken
        return taken
