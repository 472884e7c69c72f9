"""A whole process, but for the process."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from proxy import serve
from proxy.assembly import ConfigSource
from proxy.config.model import NO_LIMITS, Config, load_config
from proxy.policies.store import StoreError
from proxy.reload import Reloader
from proxy.serve import _serve
from tests.proxy.odd_files import bound_socket, fifo, folder, link_loop, sparse
from tests.waiting import PATIENCE_S

LIMITED = "limits: {each_topic: {publish: {messages: 5}}}\n"
FLAGS = {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0"}


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.reload._LOOK_S", 0.01)


@pytest.fixture(autouse=True)
def scheduled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How it wanted to be: the tests' own process stays as it is."""
    wanted: list[str] = []

    def forbid(scheduling: str) -> str:
        wanted.append(scheduling)
        return "forbidden here"

    monkeypatch.setattr(serve, "be_scheduled", forbid)
    return wanted


class Operator:
    """Who reads the log."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self._said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def take(self, _logger: object, _method: str, line: Any) -> Any:
        self.lines.append(line)
        self._said.put_nowait(line)
        raise structlog.DropEvent

    async def hear(self, event: str) -> dict[str, Any]:
        """The next line that says it."""
        async with asyncio.timeout(PATIENCE_S):
            while (line := await self._said.get())["event"] != event:
                pass
            return line


@asynccontextmanager
async def served(source: ConfigSource) -> AsyncIterator[Operator]:
    """Runs until SIGTERM."""
    operator = Operator()
    structlog.configure(processors=[operator.take])
    serving = asyncio.get_running_loop().create_task(_serve(source))
    try:
        await operator.hear("serving")
        yield operator
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            await serving
        await operator.hear("ended")
        structlog.reset_defaults()
        gc.unfreeze()


def source_of(file: Path) -> ConfigSource:
    return ConfigSource(file, lambda: load_config(file, FLAGS))


async def test_a_signal_or_a_changed_file_has_it_read_anew_until_it_ends_by_a_signal(tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text("proxy_id: p\n")
    async with served(source_of(file)) as operator:
        os.kill(os.getpid(), signal.SIGHUP)
        line = await operator.hear("configuration reloaded")
        assert (line["cause"], line["changed"]) == ("SIGHUP", False)

        file.write_text("proxy_id: p\n" + LIMITED)
        line = await operator.hear("configuration reloaded")
        assert (line["cause"], line["changed"]) == ("file changed", True)


async def test_a_file_that_changes_once_it_was_read_at_the_start_is_read_anew(
    tmp_path: Path,
) -> None:
    file = tmp_path / "sluice.yaml"
    file.touch()

    def read() -> Config:
        config = load_config(file, FLAGS)
        file.write_text(LIMITED)
        return config

    async with served(ConfigSource(file, read)) as operator:
        line = await operator.hear("configuration reloaded")
        assert (line["cause"], line["changed"]) == ("file changed", True)


@pytest.mark.parametrize("error", [RuntimeError("changed size"), OSError("no room"), StoreError("disk I/O error")])
async def test_a_reload_that_fails_does_not_end_the_watching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    reload, failing = Reloader.file_changed, [error]

    async def fail_once(reloader: Reloader) -> None:
        if failing:
            raise failing.pop()
        await reload(reloader)

    monkeypatch.setattr(Reloader, "file_changed", fail_once)
    file = tmp_path / "sluice.yaml"
    file.touch()
    async with served(source_of(file)) as operator:
        file.write_text("#")
        assert (await operator.hear("reload failed"))["cause"] == "file changed"
        file.write_text(LIMITED)
        assert (await operator.hear("configuration reloaded"))["cause"] == "file changed"


async def test_log_says_why_the_configured_scheduling_is_refused(tmp_path: Path, scheduled: list[str]) -> None:
    file = tmp_path / "sluice.yaml"
    file.touch()
    async with served(source_of(file)) as operator:
        (line,) = [line for line in operator.lines if line["event"] == "the system refuses the configured scheduling"]
        assert (line["scheduling"], line["error"], scheduled) == ("batch", "forbidden here", ["batch"])


def to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("put", "problem"),
    [
        (fifo, "it is a FIFO"),
        (folder, "it is a directory that has no file NAME.yaml"),
        (to_device, "it is a device"),
        (bound_socket, "it is a socket"),
        (link_loop, "Too many levels of symbolic links"),
        (sparse, "it has more than"),
        (lambda _: None, "No such file or directory"),
    ],
)
async def test_a_file_that_is_none_for_a_while_changes_nothing_and_is_read_when_it_is_back(
    tmp_path: Path, put: Callable[[Path], object], problem: str
) -> None:
    file, back = tmp_path / "sluice.yaml", tmp_path / "back"
    file.touch()
    back.write_text(LIMITED)
    async with served(source_of(file)) as operator:
        file.unlink()
        put(file)
        line = await operator.hear("configuration not reloaded")
        while problem not in line["problem"]:  # between the two steps there is no file
            line = await operator.hear("configuration not reloaded")
        os.kill(os.getpid(), signal.SIGHUP)
        while line["cause"] != "SIGHUP":
            line = await operator.hear("configuration not reloaded")
        assert f"{file}: {problem}" in line["problem"].replace("cannot be read: ", "")

        if file.is_dir() and not file.is_symlink():
            file.rmdir()
        back.rename(file)
        assert (await operator.hear("configuration reloaded"))["changed"]
        file.unlink()
        put(file)
        await operator.hear("configuration not reloaded")


def test_a_process_whose_configuration_becomes_a_fifo_ends_by_sigterm(tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    file.touch()
    command = [sys.executable, "-m", "sluice", "serve", "--config", str(file), "--listen", "127.0.0.1:0"]
    with subprocess.Popen([*command, "--admin", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True) as process:
        patience = threading.Timer(PATIENCE_S, process.kill)
        patience.start()
        try:
            assert process.stderr is not None
            wait_for(NO_LIMITS, process.stderr)
            wait_for("serving", process.stderr)
            file.unlink()
            fifo(file)
            wait_for("it is a FIFO", process.stderr)
            process.terminate()
            wait_for('"ended"', process.stderr)
            assert process.wait() == 0
        finally:
            patience.cancel()
            process.kill()


def wait_for(text: str, lines: Iterable[str]) -> None:
    assert any(text in line for line in lines), f"it ended without {text!r}"
