import os
import sys
from pathlib import Path

import pytest

from demo.processes import DemoError, Processes
from tests.waiting import PATIENCE_S

LASTS = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
ENDS = [sys.executable, "-c", "print('one'); print('two'); raise SystemExit(4)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
]


def has_said(log: Path, text: str) -> bool:
    return log.exists() and text in log.read_text()


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("cause", [ValueError, KeyboardInterrupt, SystemExit])
def test_whatever_ends_the_block_ends_the_processes(tmp_path: Path, cause: type[BaseException]) -> None:
    processes = Processes(tmp_path)
    for name in ("a", "b"):
        processes.start(name, LASTS)
    pids = [process.pid for process in processes._running.values()]
    with pytest.raises(cause), processes:
        raise cause
    assert [is_gone(pid) for pid in pids] == [True, True]


def test_one_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("demo.processes.STOP_S", 0.1)
    with Processes(tmp_path) as processes:
        processes.start("stubborn", STUBBORN)
        processes.wait_until("stubborn", lambda: has_said(tmp_path / "stubborn.log", "up"), PATIENCE_S)
        pid = processes._running["stubborn"].pid
    assert is_gone(pid)


def test_a_process_that_ends_while_another_is_awaited_is_named(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("lasts", LASTS)
        processes.start("ends", ENDS)
        with pytest.raises(DemoError, match=r"(?s)^ends: ended with code 4.*ends\.log.*one\n +two$"):
            processes.wait_until("lasts", lambda: False, PATIENCE_S)


def test_one_that_is_never_ready_is_named(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("lasts", LASTS)
        with pytest.raises(DemoError, match=r"^lasts: not ready after 0 s"):
            processes.wait_until("lasts", lambda: False, 0)


def test_an_end_with_an_unexpected_code_is_an_error(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("ends", ENDS)
        processes.wait_for_end("ends", PATIENCE_S, lambda: None, good_codes=(0, 4))
        processes.start("ends", ENDS)
        with pytest.raises(DemoError, match=r"^ends: ended with code 4"):
            processes.wait_for_end("ends", PATIENCE_S, lambda: None)


def test_one_that_takes_too_long_is_ended_and_named(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("lasts", LASTS)
        pid = processes._running["lasts"].pid
        with pytest.raises(DemoError, match=r"^lasts: not done after 0 s"):
            processes.wait_for_end("lasts", 0, lambda: None)
        assert is_gone(pid)


def test_stopping_one_that_ends_badly_is_an_error(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("lasts", LASTS)
        with pytest.raises(DemoError, match=r"^lasts: ended with code -15"):
            processes.stop("lasts")
