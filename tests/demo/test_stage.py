import io
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import demo.processes
import demo.stage
from demo.processes import DemoError
from demo.stage import Demo, DemoPlan

FAKE = Path(__file__).with_name("fake_sluice.py")


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DemoPlan:
    def fake(*arguments: str) -> list[str]:
        return [sys.executable, str(FAKE), *arguments]

    monkeypatch.setattr(demo.stage, "sluice", fake)
    monkeypatch.setattr(demo.processes, "sluice", fake)
    return DemoPlan("standin", 5, tmp_path / "out", tmp_path / "report.html")


def told(plan: DemoPlan) -> str:
    out = io.StringIO()
    checks = Demo(plan, Console(file=out, width=200)).run()
    return out.getvalue() + "".join(f"{check.name}: {check.holds}\n" for check in checks)


def test_all_steps_end_in_checks_that_hold_and_a_report(plan: DemoPlan) -> None:
    text = told(plan)
    assert [line[:2] for line in text.splitlines() if line[1:2] == "."] == ["1.", "2.", "3.", "4.", "5.", "6."]
    assert "nothing lost: True" in text
    assert "False" not in text.partition("6.")[2]
    assert "ledger/trading/orders" in text
    assert plan.report.read_text() == "<html>"
    assert {log.name for log in plan.out.glob("*.log")} == {"broker.log", "sluice.log", "load.log", "report.log"}


def test_a_report_that_misses_a_message_fails_a_check(plan: DemoPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SLUICE_LOSES", "1")
    assert "the report's totals equal what was counted: False" in told(plan)


@pytest.mark.parametrize(("command", "name"), [("broker", "broker"), ("serve", "sluice"), ("report", "report")])
def test_a_process_that_fails_is_named_with_its_last_lines(
    plan: DemoPlan, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    monkeypatch.setenv("FAKE_SLUICE_FAILS", command)
    with pytest.raises(DemoError, match=rf"(?s){name}: ended with code 1.*{name}\.log.*this is why"):
        told(plan)


def test_demo_that_holds_offers_load_until_an_interrupt(plan: DemoPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    out, loads = io.StringIO(), 0
    wait_for_end = demo.processes.Processes.wait_for_end

    def interrupted(processes: demo.processes.Processes, name: str, *more: Any, **words: Any) -> None:
        nonlocal loads
        wait_for_end(processes, name, *more, **words)
        loads += name == "load"
        if loads == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(demo.processes.Processes, "wait_for_end", interrupted)
    told_of: list[int] = []
    checks = Demo(replace(plan, holds=True), Console(file=out, width=200)).run(lambda each: told_of.append(loads))
    assert (told_of, loads) == ([1], 3)
    assert checks
    assert re.search(r"until Ctrl-C: look at http://127\.0\.0\.1:\d+/console$", out.getvalue(), re.MULTILINE)
    assert {log.name for log in plan.out.glob("*.log")} == {"broker.log", "sluice.log", "load.log", "report.log"}
