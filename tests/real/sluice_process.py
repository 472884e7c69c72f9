"""`sluice serve` as a real process in front of a broker, or the broker itself in its place."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from adminrest.client import AdminClient
from compliance.schema import REFUSALS, decoder, fault
from loadgen.real.process import TetheredProcess, free_ports, wait_until
from tests.access_log_files import closed_files, content_of

_READY_TIMEOUT_S = 60


@dataclass
class SluiceProcess:
    """Where clients of the test connect.

    Attributes:
        service_url: Where clients connect.
        admin_url: Sluice's admin HTTP.
        access_log: Folder of the access log.
        process: None where the broker itself stands in (SLUICE_TEST_DIRECT=1).
        tls_url: Where clients connect by TLS; empty without it.
    """

    service_url: str
    admin_url: str
    access_log: Path
    process: TetheredProcess | None
    tls_url: str = ""

    @property
    def is_direct(self) -> bool:
        return self.process is None

    def get(self, path: str) -> Any:
        return self.send("GET", path)

    def send(self, method: str, path: str, body: object = None) -> Any:
        return AdminClient(self.admin_url).call(method, path, body)

    def streams(self, topic: str) -> list[dict[str, Any]]:
        return [stream for stream in self.get("/sluice/streams")["streams"] if stream["topic"] == topic]

    def wait_ready(self, ready_at: str = "/readyz") -> None:
        """Return when it is ready; one that is not in time is killed."""
        process = self.process
        assert process is not None
        admin = AdminClient(self.admin_url, timeout_s=_READY_TIMEOUT_S)
        try:
            if not wait_until(lambda: process.exit_code is not None or admin.is_ready(ready_at), _READY_TIMEOUT_S):
                pytest.fail(f"not ready in time\n{process.last_lines()}")
            process.check_running()
        except BaseException:
            process.kill()
            raise

    def started_again(self, env: dict[str, str] | None = None) -> "SluiceProcess":
        """Start the same command once more, as it has ended, and return it when it is ready."""
        before = self.process
        assert before is not None
        again = replace(self, process=TetheredProcess(before.command, before.log_path.with_suffix(".2.log"), env))
        again.wait_ready()
        return again

    def stop(self) -> None:
        """End it as an operator would. It had nothing to complain about, and the report can read its log."""
        if self.process is None:
            return
        code = self.process.stop()
        log = self.process.log_path.read_text()
        assert "Traceback" not in log, log[-10_000:]
        assert code == 0, f"sluice serve ended with code {code}\n{self.process.last_lines()}"
        assert list(refused_lines(self.access_log)) == []


def refused_lines(access_log: Path) -> Iterator[tuple[str, bytes, str]]:
    """Yield the lines that the report would quarantine, but those that a kill cut off: file, line and reason."""
    reader = decoder()
    for file in closed_files(access_log):
        *lines, _cut_off = content_of(file).split(b"\n")
        for line in lines:
            try:
                reader.decode(line)
            except REFUSALS:
                yield file.name, line, fault(line)


def start_sluice(
    folder: Path,
    broker_url: str,
    config: dict[str, Any],
    *,
    ready_at: str = "/readyz",
    env: dict[str, str] | None = None,
) -> SluiceProcess:
    """Start one on free ports, with TLS on one of them if it has a certificate, and wait until it is ready."""
    sluice = launch_sluice(folder, broker_url, config, env)
    sluice.wait_ready(ready_at)
    return sluice


def launch_sluice(
    folder: Path, broker_url: str, config: dict[str, Any], env: dict[str, str] | None = None
) -> SluiceProcess:
    """Start one as `start_sluice` does, and do not wait: several start together so."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sluice.yaml").write_text(yaml.safe_dump(config))
    listen, admin, tls = (f"127.0.0.1:{port}" for port in free_ports(0, 0, 0))
    tls_url = f"pulsar+ssl://{tls}" if "tls" in config else ""
    access_log = folder / "access-log"
    command = [sys.executable, "-m", "sluice", "serve", "--config", str(folder / "sluice.yaml")]
    command += ["--listen", tls_url] if tls_url else []
    command += ["--listen", listen, "--broker", broker_url, "--admin", admin, "--access-log", str(access_log)]
    process = TetheredProcess(command, folder / "sluice.log", env)
    return SluiceProcess(f"pulsar://{listen}", f"http://{admin}", access_log, process, tls_url)
