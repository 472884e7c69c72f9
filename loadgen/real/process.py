"""Processes that a load tool, the demo or a test starts: tethered to their owner, waited for until ready.

`TetheredProcess` is any command, `PulsarServer` a server from Pulsar's jars, `run_once` a program from the jars that
ends by itself.
"""

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import Self

from adminrest.client import AdminClient, AdminCredentials
from loadgen.real import tether
from loadgen.real.jars import ProcessFailed, jars, java_command, require_java

_LOG4J = """\
<Configuration status="WARN"><Appenders><Console name="c">
  <PatternLayout pattern="%d{HH:mm:ss.SSS} %-5level %c{1} - %msg%n%throwable"/>
</Console></Appenders><Loggers><Root level="info"><AppenderRef ref="c"/></Root></Loggers></Configuration>
"""
_HEALTH_TIMEOUT_S = 5.0
_LISTENING = range(10_240, 32_768, 8)
"""Where a port for a listener is looked for: below what Linux gives to connections that are made (32768 and above).

A port that was free a moment ago may be the near end of another connection when its listener comes. The seven ports
after each are not given to anybody: processes of one Sluice listen there.
"""
_TRIES = 1_000
_KEPT = 128
_random = SystemRandom()
_given: deque[socket.socket] = deque()
"""Keep the last ports given from other processes that look for one before the listener comes: by UDP, unused else."""


@atexit.register
def _give_back() -> None:
    while _given:
        _given.popleft().close()


def free_port() -> int:
    """Return a free port."""
    return free_ports(0)[0]


def free_ports(*wanted: int) -> list[int]:
    """Return different ports, each the requested one or, for 0, a free one; no process holds them yet.

    A free one is not given again, to this process or another, before this one has been given 128 more.

    Raises:
        OSError: If a wanted port is taken, or no free one is found.
    """
    sockets: list[socket.socket] = []
    try:
        for port in wanted:
            sockets.append(_listener(port) if port else _free_listener())  # noqa: PERF401 -- each is closed if the next fails
        return [int(listener.getsockname()[1]) for listener in sockets]
    finally:
        for listener in sockets:
            listener.close()


def _free_listener() -> socket.socket:
    for _ in range(_TRIES):
        port = _random.choice(_LISTENING)
        given = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            given.bind(("127.0.0.1", port))
            listener = _listener(port)
        except OSError:
            given.close()
            continue
        _given.append(given)
        if len(_given) > _KEPT:
            _given.popleft().close()
        return listener
    raise OSError(f"no free port in {_TRIES} tries between {_LISTENING.start} and {_LISTENING.stop - 1}")


def _listener(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


_LAST_LINES = 30
_OURS = "SLUICE_"
_CACHE = "SLUICE_CACHE"
_WITHOUT_DRAIN = {"SLUICE_DRAIN__TIMEOUT": "0"}
"""Clients of load tools and tests end before their proxy, or with it."""


class TetheredProcess:
    """A process that starts at once, and ends by `stop` or `kill`, or with the thread that made it.

    Args:
        command: The command line.
        log_path: Gets what the command writes to stdout and stderr (appended).
        env: Environment variables to add. Of the caller's own variables of Sluice only the folder of jars is passed
            on: `env` alone configures a proxy that is started here. By default it ends without a drain.
    """

    def __init__(self, command: list[str], log_path: Path, env: Mapping[str, str] | None = None) -> None:
        self.command, self.log_path = command, log_path
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
        """The process id; also that of the process group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the process runs."""
        return self._process.poll()

    def check_running(self) -> None:
        """Check that the process runs.

        Raises:
            ProcessFailed: If it has ended.
        """
        if self.exit_code is not None:
            raise ProcessFailed(f"{self.name} ended with code {self.exit_code}", self.last_lines())

    def stop(self, timeout_s: float = 15) -> int:
        """Send SIGTERM to the process alone, as an operator does, then `kill`; return the exit code."""
        if self.exit_code is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        return self.kill()

    def kill(self) -> int:
        """Send SIGKILL to the whole group, at once; return the exit code."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        return self._process.wait()

    def last_lines(self) -> str:
        """Return the end of the process's output, for an error message."""
        with self.log_path.open("rb") as log:
            log.seek(max(0, self.log_path.stat().st_size - 16_384))
            text = log.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-_LAST_LINES:])


def _environment() -> dict[str, str]:
    passed_on = {name: value for name, value in os.environ.items() if name == _CACHE or not name.startswith(_OURS)}
    return passed_on | _WITHOUT_DRAIN


def wait_until(is_so: Callable[[], object], longest_s: float, pause_s: float | None = None) -> bool:
    """Look every `pause_s` whether it is so; return False if it is not within `longest_s`.

    Without a pause, a look comes a twentieth later than it might, between 10 and 50 ms: a hundred looks a second at a
    process that starts take a tenth of a processor.
    """
    begin = time.monotonic()
    while not is_so():
        waited_s = time.monotonic() - begin
        if waited_s > longest_s:
            return False
        time.sleep(pause_s or min(max(waited_s / 20, 0.01), 0.05))
    return True


def is_healthy(web_port: int, token: str = "") -> bool:
    """Return whether the broker at this port of its admin REST can publish and consume, and has its first namespace.

    A standalone broker is healthy before it makes that: until then no tenant can be made. With authentication the
    broker answers to a superuser's token only.
    """
    client = AdminClient(f"http://127.0.0.1:{web_port}", AdminCredentials(token), timeout_s=_HEALTH_TIMEOUT_S)
    return client.is_ready("/admin/v2/brokers/health") and client.is_ready("/admin/v2/namespaces/public/default")


def is_listening(port: int) -> bool:
    """Return whether a process accepts connections at a port of loopback."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=_HEALTH_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def wait_ready(process: TetheredProcess, is_ready: Callable[[], bool], timeout_s: float) -> None:
    """Return as soon as it is ready.

    Raises:
        ProcessFailed: If it ends, or is not ready in time.
    """
    if not wait_until(lambda: is_ready() or process.exit_code is not None, timeout_s):
        raise ProcessFailed(f"{process.name} was not healthy within {timeout_s:g} s", process.last_lines())
    if not is_ready():
        process.check_running()


def write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    """Write a file of `key=value` lines; returns its path."""
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path


@dataclass(frozen=True, slots=True)
class Program:
    """A main class of Pulsar's jars and how it is run.

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
        rules = folder / "log4j2.xml"
        rules.write_text(_LOG4J)
        options = [*self.options, "-XX:+UseSerialGC", f"-Dlog4j.configurationFile={rules}"]
        return [*java_command(require_java(), jars(), options, self.main_class), *self.arguments]

    def launched(self, folder: Path, name: str) -> TetheredProcess:
        """Start it, with its log in the folder; `name` is for messages."""
        process = TetheredProcess(self.command(folder), folder / "log")
        process.name = name
        return process


class PulsarServer:
    """A server of Pulsar's jars; its data and ports outlive `stop` and `kill`.

    Args:
        folder: For its data and its log; made if missing, never removed.
        program: What is run.
        is_ready: Whether it does its work.
        name: For messages; empty: the folder's name.
    """

    def __init__(self, folder: Path, program: Program, is_ready: Callable[[], bool], name: str = "") -> None:
        self.folder = folder
        self._program = program
        self._is_ready = is_ready
        self._name = name or folder.name
        self._process: TetheredProcess | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def is_running(self) -> bool:
        """True if the server runs."""
        return self._process is not None and self._process.exit_code is None

    def start(self, timeout_s: float = 120) -> None:
        """Start it, or restart it, on the present data, and wait until it is ready.

        Raises:
            RealPulsarError: If Java or the jars are missing, or it ends or is not ready in time.
        """
        self.launch()
        try:
            self.wait(timeout_s)
        except BaseException:
            self.kill()
            raise

    def launch(self) -> None:
        """Start it and do not wait; see `wait`."""
        self.kill()
        self._process = self._program.launched(self.folder, self._name)

    def wait(self, timeout_s: float = 120) -> None:
        """Return when it is ready.

        Raises:
            ProcessFailed: If it ends, or is not ready in time, or was never launched.
        """
        if self._process is None:
            raise ProcessFailed(f"{self._name} is not launched", "")
        wait_ready(self._process, self._is_ready, timeout_s)

    def check_running(self) -> None:
        """Raise ProcessFailed if it ended by itself."""
        if self._process is not None:
            self._process.check_running()

    def stop(self, timeout_s: float = 15) -> None:
        """End the server by SIGTERM, in order, or after `timeout_s` by SIGKILL; it stays startable."""
        if self._process is not None:
            self._process.stop(timeout_s)
            self._process = None

    def kill(self) -> None:
        """End the server by SIGKILL: to the others, its machine fails."""
        if self._process is not None:
            self._process.kill()
            self._process = None


def run_once(folder: Path, program: Program, timeout_s: float = 120) -> None:
    """Run a program that ends by itself.

    Raises:
        ProcessFailed: If it ends with an error, or not in time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    process = program.launched(folder, folder.name)
    try:
        if not wait_until(lambda: process.exit_code is not None, timeout_s):
            raise ProcessFailed(f"{process.name} did not end within {timeout_s:g} s", process.last_lines())
        if process.exit_code:
            process.check_running()
    finally:
        process.kill()
