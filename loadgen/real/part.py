"""One Java process among those that make up a cluster."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loadgen.real.broker_config import write_log4j
from loadgen.real.errors import ProcessFailed
from loadgen.real.health import wait_ready
from loadgen.real.jars import jars
from loadgen.real.java import java_command, require_java
from loadgen.real.tethered_process import TetheredProcess


@dataclass(frozen=True, slots=True)
class Program:
    """What is run.

    Attributes:
        main_class: Of Pulsar's jars.
        arguments: Its own.
        options: The JVM's, such as its memory.
    """

    main_class: str
    arguments: tuple[str, ...]
    options: tuple[str, ...]

    def command(self, folder: Path) -> list[str]:
        """The command line; its log goes to stdout, by the rules that are written into the folder."""
        options = [*self.options, "-XX:+UseSerialGC", f"-Dlog4j.configurationFile={write_log4j(folder)}"]
        return [*java_command(require_java(), jars(), options, self.main_class), *self.arguments]


class Part:
    """A server of the cluster; its data and ports outlive `terminate` and `kill`.

    Args:
        folder: For its data and its log; its name is the part's. Made if missing.
        program: What is run.
        is_ready: Whether it does its work.
    """

    def __init__(self, folder: Path, program: Program, is_ready: Callable[[], bool]) -> None:
        self.folder = folder
        self._program = program
        self._is_ready = is_ready
        self._process: TetheredProcess | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None and self._process.exit_code is None

    def launch(self) -> None:
        """Start it and do not wait; see `wait`."""
        self.kill()
        self._process = TetheredProcess(self._program.command(self.folder), self.folder / "log")
        self._process.name = self.folder.name

    def wait(self, timeout_s: float = 120) -> None:
        """Return when it is ready.

        Raises:
            ProcessFailed: If it ends, or is not ready in time, or was never launched.
        """
        if self._process is None:
            raise ProcessFailed(f"{self.folder.name} is not launched", "")
        wait_ready(self._process, self._is_ready, timeout_s)

    def restart(self) -> None:
        """Start it anew on the data that is there, and wait until it is ready."""
        self.launch()
        self.wait()

    def terminate(self) -> None:
        """SIGTERM: it ends in order."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """SIGKILL: what a machine that fails looks like to the others."""
        if self._process is not None:
            self._process.kill()
            self._process = None


def run_once(folder: Path, program: Program, timeout_s: float = 120) -> None:
    """Run a program that ends by itself.

    Raises:
        ProcessFailed: If it ends with an error, or not in time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    process = TetheredProcess(program.command(folder), folder / "log")
    process.name = folder.name
    deadline = time.monotonic() + timeout_s
    try:
        while process.exit_code is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if process.exit_code is None:
            raise ProcessFailed(f"{process.name} did not end within {timeout_s:g} s", process.last_lines())
        if process.exit_code:
            process.check_running()
    finally:
        process.kill()
