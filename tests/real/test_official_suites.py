"""The official Go client's own tests, at a broker and through Sluice, on request (`pytest -m on_request tests/real`).

Half an hour; needs Go. The module comes from the Go module proxy. Its tests have the addresses of a broker in their
text; they are replaced in a copy. A test counts that passes at the broker itself: others want TLS, tokens, Docker or
several brokers.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from adminrest.client import AdminClient
from loadgen.real.standalone import BrokerSettings, StandaloneBroker
from tests.real.sluice_process import start_sluice

pytestmark = [pytest.mark.real, pytest.mark.on_request, pytest.mark.skipif(not shutil.which("go"), reason="no Go here")]

MODULE = "github.com/apache/pulsar-client-go@v0.19.0"
PATIENCE_S = 150
FEWEST = 200
"""Tests that pass at a broker without TLS, tokens and Docker; more than 260 did."""
REOPENING = {
    *("TestProducerWithBackoffPolicy", "TestConsumerWithBackoffPolicy", "TestReaderWithBackoffPolicy"),
    "TestSelectConnectionForSameConsumer",
}
"""Those that open a stream once more under its open id."""
_TO_REPLACE = "localhost:6650", "localhost:8080"
_PROPERTIES = {"transactionCoordinatorEnabled": "true", "acknowledgmentAtBatchIndexLevelEnabled": "true"}


class Suite:
    """The tests, compiled for one address.

    Args:
        folder: For the copy of the module.
        service: HOST:PORT of the binary protocol.
        web: HOST:PORT of the admin REST, which is the broker's own.
    """

    def __init__(self, folder: Path, service: str, web: str) -> None:
        found = json.loads(_run("go", "mod", "download", "-json", MODULE, cwd=folder.parent).stdout)
        shutil.copytree(found["Dir"], folder)
        subprocess.run(["chmod", "-R", "u+w", folder], check=True)
        for file in (*folder.glob("pulsar/*_test.go"), *folder.glob("pulsaradmin/**/*.go")):
            text = file.read_text()
            for old, new in zip(_TO_REPLACE, (service, web), strict=True):
                text = text.replace(old, new)
            file.write_text(text)
        self._folder = folder / "pulsar"
        self._program = self._folder / "suite.test"
        compiled = _run("go", "test", "-c", "-o", str(self._program), "./pulsar", cwd=folder)
        assert compiled.returncode == 0, compiled.stderr

    def names(self) -> list[str]:
        listed = _run(str(self._program), "-test.list", ".*", cwd=self._folder).stdout
        return re.findall(r"^Test\w+$", listed, re.MULTILINE)

    def passes(self, name: str) -> bool:
        """Run one test in a process of its own, as some panic."""
        program = str(self._program)
        try:
            return _run(program, "-test.run", f"^{name}$", "-test.v", cwd=self._folder).stdout.rstrip().endswith("PASS")
        except subprocess.TimeoutExpired:
            return False


def _run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    patience_s = 1800 if command[0] == "go" else PATIENCE_S
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, errors="replace", timeout=patience_s, check=False
    )


@pytest.fixture
def suites(short_lived_java: None, tmp_path: Path) -> Iterator[tuple[Suite, Suite]]:
    """At a broker, and through Sluice at another one, so that they do not meet in topics of one name."""
    settings = BrokerSettings(properties=_PROPERTIES)
    with StandaloneBroker(tmp_path / "one", settings) as one, StandaloneBroker(tmp_path / "two", settings) as two:
        for broker in one, two:
            admin = AdminClient(broker.admin_url)
            admin.make_tenant("private")
            admin.make_namespace("private/auth")
        sluice = start_sluice(tmp_path / "sluice", two.service_url, {})
        try:
            service = sluice.service_url.removeprefix("pulsar://")
            direct = Suite(tmp_path / "direct", one.address, one.web_address)
            yield direct, Suite(tmp_path / "proxied", service, two.web_address)
        finally:
            sluice.stop()


def test_the_go_clients_tests_pass_through_sluice(suites: tuple[Suite, Suite]) -> None:
    """Each that passes at the broker; what fails on a busy machine may pass the second time, at either."""
    direct, proxied = suites

    def passing(suite: Suite) -> set[str]:
        return {name for name in suite.names() if suite.passes(name)}

    with ThreadPoolExecutor(2) as pool:
        at_broker, through = pool.map(passing, (direct, proxied))
    assert len(at_broker) >= FEWEST
    assert at_broker >= REOPENING
    failed = sorted(name for name in at_broker - through if not proxied.passes(name))
    assert not failed, failed
