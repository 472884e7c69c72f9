"""docs/log.md, and the events that it is made from."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adminrest.client import AdminClient
from proxy.observe.log_reference import events, events_of, reference
from tests.conftest import OF_EVERY_LINE, fields_of_events
from tests.waiting import PATIENCE_S, wait_for

PAGE = Path(__file__).parents[3] / "docs/log.md"


def test_page_is_as_the_code_has_it() -> None:
    assert PAGE.read_text() == reference(), "docs/log.md is not as the code has it: run `make references`"


def test_events_of_all_kinds_of_calls_are_found() -> None:
    """A literal, a constant of the module, an argument of `warn_of_passed_over`, an event whose level varies."""
    levels = {event.name: event.level for of_section in events().values() for event in of_section}
    assert levels["serving"] == "info"
    assert levels["a changed value needs a restart to take effect"] == "warning"
    assert levels["a holder is passed over: its token opens nothing"] == "warning"
    assert levels["limits begin with empty buckets, which fill from now on"] == "info, warning"


def test_events_name_nothing_that_varies() -> None:
    for of_section in events().values():
        for event in of_section:
            assert "{" not in event.name
            assert "|" not in event.name


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        ("log.info('x', a=1, exc_info=error)", ["a"]),
        ("more = {'a': 1} | ({'b': 2} if c else {})\n    log.info('x', **more, d=3)", ["a", "b", "d"]),
        ("more = {name: 1 for name in ('a', 'b')}\n    log.info('x', **more)", ["a", "b"]),
        ("log = structlog.get_logger().bind(a=1)\n    log.info('x', b=2)", ["a", "b"]),
        ("log.info('x', **named())\ndef named():\n    return {'a': 1}", ["a"]),
    ],
)
def test_fields_are_found_where_a_function_gathers_them(tmp_path: Path, code: str, fields: list[str]) -> None:
    file = tmp_path / "module.py"
    file.write_text(f"def f():\n    {code}\n")
    (event,) = events_of(file)
    assert sorted(event.fields) == fields


@pytest.mark.parametrize("code", ["log.info('x', **given)", "log.info(f'{x}')", "call(log.info, 'x')"])
def test_lines_that_cannot_be_documented_are_refused(tmp_path: Path, code: str) -> None:
    file = tmp_path / "module.py"
    file.write_text(f"def f(given):\n    {code}\n")
    with pytest.raises(TypeError):
        list(events_of(file))


def test_a_running_proxy_logs_what_the_page_has(tmp_path: Path) -> None:
    """From the start to the end: a reload, one that is refused, a block, a drain."""
    config, log = tmp_path / "sluice.yaml", tmp_path / "log"
    text = f"policies: {{store: {tmp_path}/p.db}}\naccess_log: {{dir: {tmp_path}/a}}\nmetrics: 127.0.0.1:0\n"
    config.write_text(f"{text}limits: {{}}\n")
    command = [sys.executable, "-m", "sluice", "serve", "--config", str(config)]
    command += ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]

    def lines(event: str) -> list[dict[str, Any]]:
        log_lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        return [line for line in log_lines if line["event"] == event]

    with log.open("w") as stderr, subprocess.Popen(command, stderr=stderr) as process:
        try:
            wait_for(lambda: bool(lines("serving")), evidence=log.read_text)
            admin = AdminClient(f"http://{lines('serving')[0]['admin']}")
            admin.call("POST", "/sluice/blocks", {"kind": "role", "name": "r"})
            admin.call("DELETE", "/sluice/blocks", query={"kind": "role", "name": "r"})
            config.write_text(f"{text}limits: {{each_topic: {{publish: {{messages: 5}}}}}}\n")
            wait_for(lambda: bool(lines("configuration reloaded")), evidence=log.read_text)
            config.write_text("limits: 5\n")
            wait_for(lambda: bool(lines("configuration not reloaded")), evidence=log.read_text)
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
    for line in map(json.loads, log.read_text().splitlines()):
        assert set(line) - OF_EVERY_LINE <= fields_of_events()[line["event"]], line
    (serving,) = lines("serving")
    assert {"listen", "admin", "metrics", "access_log", "policies"} <= set(serving)
    for event in ("blocked", "unblocked"):
        assert {"kind", "name", "within", "reason", "by", "address"} <= set(lines(event)[0])
