"""A process in a group of its own that ends with its owner, whatever happens, and whose output is kept in a file."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from loadgen.real import tether
from loadgen.real.errors import ProcessFailed

_LAST_LINES = 30
_OURS = "SLUICE_"
_CACHE = "SLUICE_CACHE"


class TetheredProcess:
    """Starts at once; ends by `stop` or `kill`, or with the thread that made it.

    Args:
        command: The command line.
        log_path: Gets what the command writes to stdout and stderr (appended).
        env: Environment variables to add. The caller's own of Sluice stay away, but for where jars are kept: a proxy
            that is started here is configured by who starts it.
    """

    def __init__(self, command: list[str], log_path: Path, env: Mapping[str, str] | None = None) -> None:
        self.log_path = log_path
        self.name = Path(command[0]).name
        # -I -S: the small wrapper needs nothing from the environment, and starts in 15 ms.
        tethered = [sys.executable, "-I", "-S", str(tether.__file__), str(os.getpid()), *command]
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 -- the caller's command
                tethered,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**_environment(), **(env or {})},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process's id; also its group's."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def check_running(self) -> None:
        """Do nothing while it runs.

        Raises:
            ProcessFailed: If it has ended.
        """
        if self.exit_code is not None:
            raise ProcessFailed(f"{self.name} ended with code {self.exit_code}", self.last_lines())

    def stop(self, timeout_s: float = 15) -> int:
        """SIGTERM to the process alone, as an operator's, then `kill`; returns the exit code."""
        if self.exit_code is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        return self.kill()

    def kill(self) -> int:
        """SIGKILL to the whole group, at once; returns the exit code."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        return self._process.wait()

    def last_lines(self) -> str:
        """The end of what it wrote, for an error message."""
        with self.log_path.open("rb") as log:
            log.seek(max(0, self.log_path.stat().st_size - 16_384))
            text = log.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-_LAST_LINES:])


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name == _CACHE or not name.startswith(_OURS)}
