"""Standard error that nobody reads stops no caller, and what it does not take is counted and said in its place."""

import fcntl
import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog

from adminrest.client import AdminClient
from proxy.observe.line_queue import LineQueue
from proxy.observe.operator_log import lines_by_thread, lines_lost, set_up_operator_log
from tests.deploy.pod import SLUICE
from tests.waiting import PATIENCE_S

_SMALLEST_PIPE = 4096


class Pipe:
    """A pipe that takes a page, and is read when a test says so."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, _SMALLEST_PIPE)

    def read_to_end(self) -> list[str]:
        with os.fdopen(self.reader) as file:
            return file.read().splitlines()

    def close_writer(self) -> None:
        os.close(self.writer)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    for descriptor in (made.reader, made.writer):
        try:
            os.close(descriptor)
        except OSError:
            continue


def queue_to(pipe: Pipe, most_waiting: int) -> LineQueue:
    return LineQueue(pipe.writer, lambda lines: b"lost %d\n" % lines, most_waiting)


def closed(queue: LineQueue, pipe: Pipe) -> list[str]:
    """Close the queue while a thread reads; return all lines."""
    read: list[str] = []
    reading = threading.Thread(target=lambda: read.extend(pipe.read_to_end()))
    reading.start()
    assert queue.close(PATIENCE_S)
    pipe.close_writer()
    reading.join(PATIENCE_S)
    return read


def test_lines_are_written_in_order(pipe: Pipe) -> None:
    queue = queue_to(pipe, 10_000)
    for number in range(500):
        queue.write(b"%d\n" % number)
    assert closed(queue, pipe) == [str(number) for number in range(500)]
    assert queue.lost == 0


def test_lines_that_have_no_room_are_said_in_their_place(pipe: Pipe) -> None:
    queue, sent = queue_to(pipe, 10_000), 0
    while queue.lost < 3:  # no write waits for the pipe, which nobody reads
        queue.write(b"%01000d\n" % sent)
        sent += 1
        assert sent < 100
    for _ in range(200):
        queue.write(b"%04d\n" % sent)
        sent += 1
    lines, accounted = closed(queue, pipe), 0
    for line in lines:
        if line.startswith("lost"):
            accounted += int(line.split()[1])
        else:
            assert int(line) == accounted
            accounted += 1
    assert accounted == sent
    assert len([line for line in lines if not line.startswith("lost")]) == sent - queue.lost


def test_reader_that_has_gone_costs_lines_and_no_error(pipe: Pipe) -> None:
    queue = queue_to(pipe, 10_000)
    os.close(pipe.reader)
    queue.write(b"unread\n")
    assert queue.close(PATIENCE_S)
    assert queue.lost == 1


def test_reader_that_stands_still_ends_no_process_late(pipe: Pipe) -> None:
    queue = queue_to(pipe, 10_000)
    for _ in range(9):
        queue.write(b"x" * 999 + b"\n")
    assert not queue.close(patience_s=0)
    assert len(closed(queue, pipe)) == 9, "its thread must not write into the pipe of another test"


def test_end_of_the_thread_writes_all_lines(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    with os.fdopen(pipe.writer, "w") as file:
        monkeypatch.setattr("sys.stderr", file)
        set_up_operator_log()
        try:
            log = structlog.get_logger()
            log.info("at once")
            with lines_by_thread():
                log.info("by the thread", name="\udc80")
                logging.getLogger("asyncio").error("Task exception was never retrieved")
                lost = lines_lost()
            log.info("at once again")
        finally:
            structlog.reset_defaults()
    assert [json.loads(line)["event"] for line in pipe.read_to_end()] == [
        "at once",
        "by the thread",
        "reported by a library",
        "at once again",
    ]
    assert lines_lost() == lost == 0


class Unclosed:
    """Fails where no caller is."""

    def __del__(self) -> None:
        raise OSError("not closed")


@contextmanager
def log_to(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the operator's log go to a pipe, whose writer is closed at the end."""
    with os.fdopen(pipe.writer, "w") as file:
        monkeypatch.setattr("sys.stderr", file)
        set_up_operator_log()
        try:
            yield
        finally:
            structlog.reset_defaults()


def test_reports_of_python_and_libraries_go_by_the_thread(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python would write them to standard error itself: the caller would wait for its reader, perhaps for ever."""

    def fail() -> None:
        raise ValueError("in a thread")

    def leave() -> None:
        raise SystemExit

    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's raises what a record lacks
    hooks = sys.unraisablehook, threading.excepthook, warnings.showwarning
    with log_to(pipe, monkeypatch), lines_by_thread(), warnings.catch_warnings():
        at_once = io.StringIO()
        monkeypatch.setattr("sys.stderr", at_once)
        warnings.simplefilter("always")
        warnings.warn("old hash", UserWarning, stacklevel=1)
        Unclosed()
        for target in (fail, leave):
            thread = threading.Thread(target=target, name="reader")
            thread.start()
            thread.join(PATIENCE_S)
        logging.getLogger("passlib").error("%d bytes", "x")
        logging.getLogger("passlib").error(Unprintable())
        assert at_once.getvalue() == ""
    assert (sys.unraisablehook, threading.excepthook, warnings.showwarning) == hooks
    lines = [json.loads(line) for line in pipe.read_to_end()]
    assert {line["event"] for line in lines} == {"reported by a library"}
    warned, unraisable, ended, unfit, unprintable = lines
    assert warned["library"] == "py.warnings"
    assert "UserWarning: old hash" in warned["error"]
    assert "Unclosed.__del__" in unraisable["error"]
    assert "OSError: not closed" in unraisable["exception"]
    assert ended["error"] == "Exception in thread reader"
    assert "ValueError: in a thread" in ended["exception"]
    assert unfit["error"] == "%d bytes (its values do not fit: TypeError)"
    assert unprintable["error"] == "Unprintable (its values do not fit: ZeroDivisionError)"


class Unprintable:
    def __str__(self) -> str:
        return str(1 / 0)


class LateQueue(LineQueue):
    """A queue that gets a line after its thread has ended."""

    late = b"late\n"

    def close(self, patience_s: float = PATIENCE_S) -> bool:
        is_closed = super().close(patience_s)
        self.write(self.late)
        return is_closed


def test_late_line_is_written_at_the_end(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.observe.operator_log.LineQueue", LateQueue)
    fcntl.fcntl(pipe.writer, fcntl.F_SETPIPE_SZ, 4 * _SMALLEST_PIPE)
    lost = lines_lost()
    with log_to(pipe, monkeypatch), lines_by_thread():
        structlog.get_logger().info("served")
    assert [line[:1] for line in pipe.read_to_end()] == ["{", "l"]
    assert lines_lost() == lost


@pytest.mark.parametrize("reader", ["gone", "full", "full, not blocking"])
def test_late_line_neither_blocks_nor_hides_an_error(pipe: Pipe, monkeypatch: pytest.MonkeyPatch, reader: str) -> None:
    """The error that ends a process is told, whatever standard error does with the last lines."""
    monkeypatch.setattr("proxy.observe.operator_log.LineQueue", LateQueue)
    lost = lines_lost()

    def end() -> None:
        with log_to(pipe, monkeypatch), lines_by_thread(end_s=0.1):
            if reader == "gone":
                os.close(pipe.reader)
            else:
                os.set_blocking(pipe.writer, reader == "full")
                os.write(pipe.writer, b"x" * _SMALLEST_PIPE)
            raise RuntimeError("the cause")

    with pytest.raises(RuntimeError, match="the cause"):
        end()
    assert lines_lost() == lost + 1


def test_late_line_that_a_pipe_takes_in_parts_is_whole(pipe: Pipe) -> None:
    queue = LateQueue(pipe.writer, lambda _lines: b"")
    queue.late = b"x" * 3 * _SMALLEST_PIPE + b"\n"
    assert queue.close()
    read: list[str] = []
    reading = threading.Thread(target=lambda: read.extend(pipe.read_to_end()))
    reading.start()
    queue.write_left(PATIENCE_S)
    pipe.close_writer()
    reading.join(PATIENCE_S)
    assert [len(line) for line in read] == [3 * _SMALLEST_PIPE]


@pytest.mark.parametrize("processes", [1, 2])
def test_log_that_is_not_read_stops_no_request(processes: int, tmp_path: Path, pipe: Pipe) -> None:
    """Before a thread wrote the lines, the first one beyond the pipe stopped the loop for ever."""
    command = [*SLUICE, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    command += ["--broker", "pulsar://127.0.0.1:1", "--processes", str(processes)]
    with subprocess.Popen(command, stderr=pipe.writer, cwd=tmp_path) as process:
        pipe.close_writer()
        with os.fdopen(pipe.reader) as log:
            lines = (json.loads(line) for line in log)
            admin = next(line["admin"] for line in lines if line["event"] == "serving")
            client = AdminClient(f"http://{admin}", timeout_s=PATIENCE_S)
            for _ in range(60):
                client.ask("POST", "/sluice/reload")
            assert b"sluice_log_lines_dropped_total 0.0" in client.get("/metrics")
            process.send_signal(signal.SIGINT)
            events = [line["event"] for line in lines]
        assert process.wait(PATIENCE_S) == 0
    assert events.count("configuration reloaded") == 60
    assert events[-1] == "ended"
