import importlib
from collections.abc import Callable
from typing import Any

import pytest

from demo.processes import DemoError
from demo.verdict import Check

main_module = importlib.import_module("demo.__main__")


def run(monkeypatch: pytest.MonkeyPatch, outcome: list[Check] | BaseException, *arguments: str) -> int:
    class FakeDemo:
        def __init__(self, *_: Any) -> None:
            pass

        def run(self, on_checked: Callable[[list[Check]], None]) -> list[Check]:
            if isinstance(outcome, BaseException):
                raise outcome
            on_checked(outcome)
            return outcome

    monkeypatch.setattr(main_module, "Demo", FakeDemo)
    monkeypatch.setattr(main_module.signal, "signal", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["demo", *arguments])
    code: int = main_module.main()
    return code


@pytest.mark.parametrize(
    ("outcome", "code", "verdict"),
    [
        ([Check("x", holds=True, detail="fine")], 0, "VERDICT: every limit held"),
        ([Check("x", holds=False, detail="too much")], 1, "VERDICT: FAILED: x (too much)"),
        ([], 1, "VERDICT: FAILED: nothing was checked"),
        (DemoError("sluice: ended with code 1\n  [lines]"), 1, "VERDICT: FAILED: sluice: ended with code 1"),
        (KeyboardInterrupt(), 130, "VERDICT: FAILED: interrupted"),
    ],
)
def test_the_last_line_is_the_verdict_and_only_success_is_0(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    outcome: list[Check] | BaseException,
    code: int,
    verdict: str,
) -> None:
    assert run(monkeypatch, outcome) == code
    *_, where, last = capsys.readouterr().out.splitlines()
    assert last.startswith(verdict)
    assert "demo/out/" in where
