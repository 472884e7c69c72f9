"""The demo's processes: each with a log file, none outlives the demo, and one that fails is named."""

import contextlib
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Self

from loadgen.real.process import TetheredProcess

POLL_S = 0.1
STOP_S = 15.0
LAST_LINES = 12


def sluice(*arguments: str) -> list[str]:
    """The command line of `sluice` with these arguments, in this very environment."""
    return [sys.executable, "-m", "sluice", *arguments]


class DemoError(Exception):
    """A step did not work; the text says which, why and where to look."""


class Processes:
    """Starts processes and stops them in reverse order at the end of the `with` block, whatever ends it."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._running: dict[str, TetheredProcess] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._running.values()):
            # an impatient second Ctrl-C must not leave the others running
            with contextlib.suppress(KeyboardInterrupt):
                process.stop(STOP_S)

    def start(self, name: str, command: list[str]) -> None:
        """Start a command; its output goes to `<name>.log`."""
        self._running[name] = TetheredProcess(command, self._log_dir / f"{name}.log")

    def stop(self, name: str) -> None:
        """End a process that has done its work.

        Raises:
            DemoError: If it ended with an error.
        """
        process = self._running.pop(name)
        code = process.stop(STOP_S)
        if code:
            raise self._failure(name, process, f"ended with code {code}")

    def wait_until(self, name: str, is_ready: Callable[[], bool], longest_s: float) -> None:
        """Wait until `name` has become ready; all processes are watched meanwhile.

        Raises:
            DemoError: If a process ends, or the time is over.
        """
        until = time.monotonic() + longest_s
        while not is_ready():
            self.check_running()
            if time.monotonic() > until:
                raise self._failure(name, self._running[name], f"not ready after {longest_s:.0f} s")
            time.sleep(POLL_S)

    def wait_for_end(
        self, name: str, longest_s: float, meanwhile: Callable[[], None], good_codes: Collection[int] = (0,)
    ) -> None:
        """Wait until `name` has done its work; call `meanwhile` again and again.

        Raises:
            DemoError: If it ends with another code, another process ends, or the time is over.
        """
        process = self._running.pop(name)
        until = time.monotonic() + longest_s
        try:
            while (code := process.exit_code) is None:
                self.check_running()
                if time.monotonic() > until:
                    raise self._failure(name, process, f"not done after {longest_s:.0f} s")
                meanwhile()
                time.sleep(POLL_S)
        finally:
            process.kill()
        if code not in good_codes:
            raise self._failure(name, process, f"ended with code {code}")

    def check_running(self) -> None:
        """Do nothing while all processes run.

        Raises:
            DemoError: If one has ended.
        """
        for name, process in self._running.items():
            if process.exit_code is not None:
                raise self._failure(name, process, f"ended with code {process.exit_code}")

    @staticmethod
    def _failure(name: str, process: TetheredProcess, what: str) -> DemoError:
        lines = process.last_lines().splitlines()[-LAST_LINES:]
        said = "\n".join(f"    {line}" for line in lines) or "    (nothing)"
        return DemoError(f"{name}: {what}; its last lines ({process.log_path}):\n{said}")
