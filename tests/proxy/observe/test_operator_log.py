"""The operator's log."""

import io
import json
from collections.abc import Iterator
from typing import Any, cast

import pytest
import structlog
from aiohttp.http_exceptions import LineTooLong

from proxy.config.sections import LogFormat, LogLevel, OperatorLog
from proxy.observe.operator_log import (
    MOST_TEXT,
    admin_logger,
    choose_form,
    hear_warning,
    set_up_operator_log,
    warnings_heard,
)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_each_line_is_json_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_operator_log()
    structlog.get_logger().warning("connection closed", cause="frame_error", connection=7)
    captured = capsys.readouterr()
    line = json.loads(captured.err)
    assert captured.out == ""
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "connection closed", "level": "warning", "cause": "frame_error", "connection": 7}


def test_each_line_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """All processes write there; unbuffered, as containers have it, a line in two writes would be torn by another."""
    written: list[bytes] = []

    class Unbuffered(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            written.append(bytes(data))
            return len(data)

    monkeypatch.setattr("sys.stderr", io.TextIOWrapper(cast("Any", Unbuffered()), write_through=True))
    set_up_operator_log()
    structlog.get_logger().warning("connection closed")
    (line,) = written
    assert line.endswith(b"}\n")


def test_an_exception_is_told_with_its_traceback_in_the_same_line(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_operator_log()
    try:
        int("why")
    except ValueError:
        structlog.get_logger().exception("failed")
    (text,) = capsys.readouterr().err.splitlines()
    assert "ValueError: invalid literal" in json.loads(text)["exception"]


def test_no_text_makes_a_line_long(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_operator_log()
    try:
        float("x" * 1_000_000 + "what matters")
    except ValueError:
        structlog.get_logger().exception("failed", error="x" * 1_000_000, number=7)
    (text,) = capsys.readouterr().err.splitlines()
    line = json.loads(text)
    assert (line["error"], line["number"]) == ("x" * MOST_TEXT + " …", 7)
    assert line["exception"].endswith("what matters'")
    assert len(text) < 3 * MOST_TEXT


def test_a_terminal_obeys_no_text_of_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    set_up_operator_log()
    structlog.get_logger().warning("refused", detail="a\x9b2J\u202eb\nc", names=["\u202e"])
    (text,) = capsys.readouterr().err.splitlines()
    assert "a\\x9b2J\\u202eb\\nc" in text
    assert not {"\x9b", "\u202e"} & set(text)


@pytest.mark.parametrize(("level", "events"), [("info", "iwe"), ("warning", "we"), ("error", "e")])
def test_lines_below_the_level_are_not_written(
    level: LogLevel, events: str, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_operator_log()
    log = structlog.get_logger().bind(bound="before")
    choose_form(OperatorLog(level=level))
    with warnings_heard() as heard:
        log.info("i")
        log.warning("w")
        log.error("e")
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == list(events)
    assert heard == ["w: bound=before", "e: bound=before"], "a reload reports what it warned of"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"key": "tls", "file": "/t"}, "tls: /t: e"),
        ({"key": "tls", "file": "/t", "reason": "line 2: odd"}, "tls: /t: line 2: odd (e)"),
        ({"key": "config", "file": "conf", "reason": "conf/a.txt: is odd; remove it"}, "conf/a.txt: is odd; remove it"),
        ({"key": "tls", "file": "/t", "entries": 3}, "tls: /t: e: entries=3"),
        ({"name": "p", "reason": "loud"}, "e: name=p, reason=loud"),
    ],
)
def test_warning_of_a_file_is_heard_in_words(fields: dict[str, Any], words: str) -> None:
    with warnings_heard() as heard:
        hear_warning(None, "warning", {"event": "e", **fields})
    assert heard == [words]


@pytest.mark.parametrize(
    ("form", "is_terminal", "is_json"),
    [("auto", False, True), ("auto", True, False), ("json", True, True), ("console", False, False)],
)
def test_lines_have_the_chosen_form(
    form: LogFormat,
    *,
    is_terminal: bool,
    is_json: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    set_up_operator_log()
    choose_form(OperatorLog(format=form))
    structlog.get_logger().info("said")
    assert capsys.readouterr().err.startswith("{") == is_json


def test_an_error_at_the_admin_address_is_a_line_of_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_operator_log()
    admin_logger().exception("Unhandled exception in %s", "it", exc_info=ValueError("why"))
    (text,) = capsys.readouterr().err.splitlines()
    line = json.loads(text)
    assert line["event"] == "admin address: the HTTP library reports an error"
    assert (line["level"], line["error"]) == ("error", "Unhandled exception in it")
    assert "ValueError: why" in line["exception"]


def test_a_client_that_speaks_no_http_is_no_line_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_operator_log()
    admin_logger().exception("Error handling request", exc_info=LineTooLong(b"GET", 8190))
    admin_logger().info("Start lingering close timer")
    assert capsys.readouterr().err == ""
