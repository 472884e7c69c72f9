"""Whatever is done to the disk and to the process, no line is lost silently."""

import errno
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from accesslog.file_names import SUFFIXES
from accesslog.record import AnyLine, HeartbeatLine, LossLine
from proxy.observe import log_writer
from proxy.observe.log_files import LogFiles, recover
from proxy.observe.log_lines import LineSpan, LogLines, Writer
from proxy.observe.log_writer import (
    LineBatch,
    LineRun,
    LogName,
    LogWriter,
    Loss,
    Losses,
    Notices,
)
from tests.access_log_files import content_of
from tests.examples import examples
from tests.proxy.observe.log_disk import LONG, PROXY, FussyFile

SPAN = LineSpan(1_700_000_000_000_000_000, 1_700_000_001_000_000_000, 1_000_000_000, 9_000_000_000)
COMPRESSIONS = tuple(SUFFIXES)
QUEUE = 1000


class Direct:
    """Stands for `LogFiles`: its thread writes when it is told to."""

    def __init__(self, writer: LogWriter) -> None:
        self.losses = writer.losses
        self.writer = writer
        self._waiting: list[LineBatch] = []

    def write(self, data: bytes, first_seq: int, lines: int, declares: tuple[Loss, ...] = ()) -> None:
        batch = LineBatch(data, LineRun(lines, first_seq, first_seq + lines - 1, 1, 1), declares)
        if declares or sum(len(waiting.data) for waiting in self._waiting) + len(data) <= QUEUE:
            self._waiting.append(batch)
        else:
            self.writer.lose("queue", batch, "")
            self.writer.tell("queue", "full")

    @property
    def is_writing(self) -> bool:
        return self.writer.troubles.keys().isdisjoint(("disk", "queue"))

    def pump(self) -> None:
        waiting, self._waiting = self._waiting, []
        for batch in waiting:
            self.writer.append(batch)
        self.writer.tell("queue", None)

    def drain(self, _patience_s: float) -> bool:
        self.pump()
        self.writer.close_file()
        return True

    def close(self, _patience_s: float) -> bool:
        self.pump()
        self.writer.end()
        return True


class Run:
    """One run of the proxy."""

    def __init__(self, folder: Path, number: int) -> None:
        self.boot_id = f"20261121T112900-{number:08x}"
        losses = Losses(self.boot_id, recover(folder, PROXY) if folder.exists() else [])
        notices = Notices(lambda _trouble, _error: None, lambda _files, _size: None)
        rotation = replace(LONG, size=600, compression=COMPRESSIONS[number % 2])
        self.files = Direct(LogWriter(folder, (PROXY, self.boot_id), rotation, losses, notices))
        self.lines = LogLines(Writer(PROXY, self.boot_id), cast("LogFiles", self.files))
        self.was_killed = False

    def beat(self, *, last: bool = False) -> None:
        self.lines.declare((SPAN.end_wall, SPAN.end_mono))
        self.lines.add(HeartbeatLine, SPAN, dropped_lines=self.lines.lost, last=last)
        self.lines.flush()

    def kill(self) -> None:
        """As the kernel does: what waits is gone, locks are free, files stay as they are."""
        self.was_killed = True
        writer = self.files.writer
        for held in (writer._file, writer._alive):
            if held is not None:
                held._file.close()


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(log_writer, "FileIO", FussyFile)
        self._mend()
        self._parent = Path(tempfile.mkdtemp())
        self.folder = self._parent / "log"
        self.runs = [Run(self.folder, 0)]
        self.read: list[Any] = []
        self._names: set[str] = set()
        self._forgotten: set[str] = set()

    @property
    def run(self) -> Run:
        return self.runs[-1]

    @rule(number=st.integers(1, 4))
    def write(self, number: int) -> None:
        for _ in range(number):
            self.run.lines.add(HeartbeatLine, SPAN, dropped_lines=0, last=False)
        self.run.lines.flush()

    @rule()
    def beat(self) -> None:
        self.run.beat()

    @rule()
    def pump(self) -> None:
        self.run.files.pump()

    @rule()
    def rotate(self) -> None:
        self.run.files.writer.close_file()

    @rule()
    def refuse_to_open(self) -> None:
        FussyFile.refuses_to_open = OSError(errno.EACCES, "no permission")

    @rule()
    def refuse_to_write(self) -> None:
        FussyFile.refuses_to_write = OSError(errno.EIO, "broken")

    @rule(takes=st.integers(0, 700))
    def fill(self, takes: int) -> None:
        FussyFile.takes_at_most = takes

    @rule()
    def mend(self) -> None:
        self._mend()

    @rule()
    def remove_folder(self) -> None:
        self._read()  # what is closed is the readers'
        self._forgotten |= {run.boot_id for run in self.runs if run.was_killed}  # with the signs that they had lived
        shutil.rmtree(self.folder, ignore_errors=True)

    @precondition(lambda self: self.folder.exists())  # else nothing is left by which anybody could know
    @rule()
    def kill(self) -> None:
        self.run.kill()
        self.runs.append(Run(self.folder, len(self.runs)))

    @rule()
    def restart(self) -> None:
        self._mend()
        self._end()
        self.runs.append(Run(self.folder, len(self.runs)))

    @invariant()
    def lines_are_whole(self) -> None:
        self._read()

    def teardown(self) -> None:
        try:
            self._mend()
            self.run.beat()
            self.run.files.pump()
            self._end()
            self._read()
            self._judge()
        finally:
            self._patch.undo()
            shutil.rmtree(self._parent)

    def _mend(self) -> None:
        FussyFile.refuses_to_open = FussyFile.refuses_to_write = FussyFile.takes_at_most = None

    def _end(self) -> None:
        self.run.beat(last=True)
        self.run.lines.close(10)

    def _read(self) -> None:
        """New closed files, once each; only of a killed run may a line be torn, and only the last of a file."""
        if not self.folder.exists():
            return
        for path in sorted(self.folder.glob("[!.]*")):
            if path.name in self._names:
                continue
            self._names.add(path.name)
            *lines, rest = content_of(path).split(b"\n")
            self.read += [msgspec.json.decode(line, type=AnyLine) for line in lines]
            assert rest == b"" or any(run.was_killed and run.boot_id in path.name for run in self.runs)

    def _judge(self) -> None:
        losses = [line for line in self.read if isinstance(line, LossLine)]
        for run in self.runs:
            seqs = [line.seq for line in self.read if line.boot_id == run.boot_id]
            assert len(seqs) == len(set(seqs))
            of_run = [loss for loss in losses if loss.of_boot == run.boot_id]
            lost = set(range(run.lines.written)) - set(seqs)
            if run.was_killed:
                if run.boot_id in self._forgotten:
                    continue
                # Below its last line each lost one is a gap; behind that, the next run says that nobody knows.
                assert all(seq < max(seqs, default=-1) or _is_behind(seq, of_run) for seq in lost)
            else:
                assert run.lines.written == len(seqs) + sum(loss.lost_lines or 0 for loss in of_run)
                assert all(any(loss.first_seq <= seq <= (loss.last_seq or 0) for loss in of_run) for seq in lost)


def _is_behind(seq: int, losses: list[LossLine]) -> bool:
    return any(loss.cause == "killed" and loss.first_seq <= seq for loss in losses)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=examples(30), stateful_step_count=40, deadline=None)


def test_loss_is_declared_until_its_declaration_is_written(tmp_path: Path) -> None:
    first = Run(tmp_path, 0)
    first.beat()
    first.kill()
    second = Run(tmp_path, 1)
    second.beat()
    second.kill()  # before its thread wrote anything
    third = Run(tmp_path, 2)
    third.beat()
    third.lines.close(10)
    closed = content_of(tmp_path / LogName(third.boot_id, 0, "zstd").closed(PROXY)).splitlines()
    lines = [msgspec.json.decode(line, type=AnyLine) for line in closed]
    assert [line.of_boot for line in lines if isinstance(line, LossLine)] == [first.boot_id, second.boot_id]
    assert list(tmp_path.glob(".*")) == []
