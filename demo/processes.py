"""The demo's processes and its folder: each has a log file, none outlives the demo, and one that fails is named.

One demo at a time uses the folder, which is emptied first. The broker is the stand-in, or a real Pulsar.
"""

import contextlib
import fcntl
import json
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from adminrest.client import AdminClient, AdminError
from loadgen.real.process import TetheredProcess, free_port, is_listening
from protocol.topic_name import parse_topic

POLL_S = 0.1
STOP_S = 15.0
LAST_LINES = 12


def sluice(*arguments: str) -> list[str]:
    """Return the command line of `sluice` with these arguments, in this Python environment."""
    return [sys.executable, "-m", "sluice", *arguments]


class DemoError(Exception):
    """A step failed; the text names the step, the reason and the log file."""


class Processes:
    """Starts processes, and stops them in reverse order however the `with` block ends."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._running: dict[str, TetheredProcess] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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
        """Wait until `name` is ready, and watch all processes.

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
        self, name: str, longest_s: float, on_poll: Callable[[], None], good_codes: Collection[int] = (0,)
    ) -> None:
        """Wait until `name` ends by itself; call `on_poll` repeatedly.

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
                on_poll()
                time.sleep(POLL_S)
        finally:
            process.kill()
        if code not in good_codes:
            raise self._failure(name, process, f"ended with code {code}")

    def check_running(self) -> None:
        """Check that all processes run.

        Raises:
            DemoError: If one has ended.
        """
        for name, process in self._running.items():
            if process.exit_code is not None:
                raise self._failure(name, process, f"ended with code {process.exit_code}")

    @staticmethod
    def _failure(name: str, process: TetheredProcess, problem: str) -> DemoError:
        lines = process.last_lines().splitlines()[-LAST_LINES:]
        output = "\n".join(f"    {line}" for line in lines) or "    (nothing)"
        return DemoError(f"{name}: {problem}; its last lines ({process.log_path}):\n{output}")


LOCK = ".lock"


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Make and empty the folder, and lock out other demos while the block runs.

    Raises:
        DemoError: If another demo uses the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DemoError(f"demo: another demo uses {folder}: wait until it has ended") from error
        _empty(folder)
        yield


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != LOCK:
            entry.unlink()


STANDIN_START_S = 20.0
REAL_START_S = 600.0
"""The first start fetches the jars."""
WARM_UP = Path(__file__).with_name("warm-up.yaml")
WARM_UP_S = 10
WARM_UP_LONGEST_S = 90.0
NAME = "broker"


def start_standin(processes: Processes) -> str:
    """Start `sluice broker`; returns its service URL once it accepts connections."""
    port = free_port()
    processes.start(NAME, sluice("broker", "--listen", f"127.0.0.1:{port}"))
    processes.wait_until(NAME, lambda: is_listening(port), STANDIN_START_S)
    return f"pulsar://127.0.0.1:{port}"


def start_real(processes: Processes, folder: Path, topics: Iterable[str]) -> str:
    """Start a real broker with the topics' tenants and namespaces; returns its service URL once it is healthy."""
    listen_file = folder / "broker.json"
    processes.start(NAME, [sys.executable, "-m", "loadgen.real", "--listen-file", str(listen_file)])
    processes.wait_until(NAME, listen_file.exists, REAL_START_S)
    urls = json.loads(listen_file.read_text(encoding="utf-8"))
    names = [parse_topic(topic) for topic in topics]
    rest = AdminClient(urls["admin_url"])
    try:
        for tenant in sorted({name.tenant for name in names}):
            rest.make_tenant(tenant)
        for namespace in sorted({name.namespace_name for name in names}):
            rest.make_namespace(namespace)
    except AdminError as error:
        raise DemoError(f"{NAME}: {error}") from error
    return str(urls["service_url"])


def warm_up(processes: Processes, folder: Path, service_url: str) -> None:
    """Publish to a fresh real broker and receive from it until its JVM has warmed up."""
    options = ["--service-url", service_url, "--verify-url", service_url, "--scenario", str(WARM_UP)]
    options += ["--seconds", str(WARM_UP_S), "--out", str(folder / "warm-up.json")]
    processes.start("warm-up", sluice("load", *options))
    processes.wait_for_end("warm-up", WARM_UP_LONGEST_S, lambda: None)
