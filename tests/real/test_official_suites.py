"""The official clients' own tests, at a broker and through Sluice, on request (`pytest -m on_request tests/real`).

The Go client's take half an hour and need Go; the module comes from the Go module proxy. The Python client's take ten
minutes; SLUICE_TEST_PYTHON_SUITE is the folder of its tests, whose modules are named `…_test.py`. Tests have the
addresses of a broker in their text; they are replaced in a copy. A test counts that passes at the broker itself: others
want TLS, tokens, Docker or several brokers.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from adminrest.client import AdminClient
from loadgen.real.standalone import BrokerSettings, StandaloneBroker
from tests.real.sluice_process import start_sluice

pytestmark = [pytest.mark.real, pytest.mark.on_request]

MODULE = "github.com/apache/pulsar-client-go@v0.19.0"
PATIENCE_S = 150
PYTHON_SUITE = os.environ.get("SLUICE_TEST_PYTHON_SUITE", "")
FEWEST = {"go": 200, "python": 90}
"""Tests that pass at a broker without TLS, tokens and Docker; more than 260 and 100 did."""
REOPENING = {
    *("TestProducerWithBackoffPolicy", "TestConsumerWithBackoffPolicy", "TestReaderWithBackoffPolicy"),
    "TestSelectConnectionForSameConsumer",
}
"""Those that open a stream once more under its open id."""
_TO_REPLACE = "localhost:6650", "localhost:8080"
_PROPERTIES = {"transactionCoordinatorEnabled": "true", "acknowledgmentAtBatchIndexLevelEnabled": "true"}


class Suite(ABC):
    """A client's tests for one address.

    Args:
        folder: With a copy of the tests.
        service: HOST:PORT of the binary protocol.
        web: HOST:PORT of the admin REST, which is the broker's own.
    """

    def __init__(self, folder: Path, service: str, web: str) -> None:
        subprocess.run(["chmod", "-R", "u+w", folder], check=True)
        for file in (*folder.glob("pulsar/*_test.go"), *folder.glob("pulsaradmin/**/*.go"), *folder.glob("*_test.py")):
            text = file.read_text()
            for old, new in zip(_TO_REPLACE, (service, web), strict=True):
                text = text.replace(old, new)
            file.write_text(text)
        self._folder = folder

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all tests."""

    @abstractmethod
    def passes(self, name: str) -> bool:
        """Run one test in a process of its own, as some panic."""


class GoSuite(Suite):
    """The Go client's tests, compiled."""

    def __init__(self, folder: Path, service: str, web: str) -> None:
        module = json.loads(_run("go", "mod", "download", "-json", MODULE, cwd=folder.parent).stdout)
        super().__init__(shutil.copytree(module["Dir"], folder), service, web)
        self._package = folder / "pulsar"
        self._program = self._package / "suite.test"
        compiled = _run("go", "test", "-c", "-o", str(self._program), "./pulsar", cwd=folder)
        assert compiled.returncode == 0, compiled.stderr

    def names(self) -> list[str]:
        listed = _run(str(self._program), "-test.list", ".*", cwd=self._package).stdout
        return re.findall(r"^Test\w+$", listed, re.MULTILINE)

    def passes(self, name: str) -> bool:
        done = _run(str(self._program), "-test.run", f"^{name}$", "-test.v", cwd=self._package)
        return done.stdout.rstrip().endswith("PASS")


class PythonSuite(Suite):
    """The Python client's tests, for unittest."""

    def __init__(self, folder: Path, service: str, web: str) -> None:
        super().__init__(shutil.copytree(PYTHON_SUITE, folder), service, web)

    def names(self) -> list[str]:
        modules = {file.stem: ast.parse(file.read_text()).body for file in sorted(self._folder.glob("*_test.py"))}
        return [
            f"{module}.{case.name}.{test.name}"
            for module, parts in modules.items()
            for case in parts
            if isinstance(case, ast.ClassDef)
            for test in case.body
            if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) and test.name.startswith("test_")
        ]

    def passes(self, name: str) -> bool:
        return _run(sys.executable, "-m", "unittest", name, cwd=self._folder).returncode == 0


def _run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    patience_s = 1800 if command[0] == "go" else PATIENCE_S
    try:
        return subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, errors="replace", timeout=patience_s, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, -1, "", "")


@pytest.fixture(
    params=[
        pytest.param(GoSuite, id="go", marks=pytest.mark.skipif(not shutil.which("go"), reason="no Go here")),
        pytest.param(
            PythonSuite,
            id="python",
            marks=pytest.mark.skipif(not PYTHON_SUITE, reason="no SLUICE_TEST_PYTHON_SUITE"),
        ),
    ]
)
def suites(request: pytest.FixtureRequest, short_lived_java: None, tmp_path: Path) -> Iterator[tuple[Suite, Suite]]:
    """At a broker, and through Sluice at another one, so that they do not meet in topics of one name."""
    settings = BrokerSettings(properties=_PROPERTIES)
    with StandaloneBroker(tmp_path / "one", settings) as first, StandaloneBroker(tmp_path / "two", settings) as second:
        for broker in first, second:
            admin = AdminClient(broker.admin_url)
            admin.make_tenant("private")
            for namespace in ("private/auth", "public/default-2"):
                admin.make_namespace(namespace)
        sluice = start_sluice(tmp_path / "sluice", second.service_url, {})
        try:
            service = sluice.service_url.removeprefix("pulsar://")
            direct = request.param(tmp_path / "direct", first.address, first.web_address)
            yield direct, request.param(tmp_path / "proxied", service, second.web_address)
        finally:
            sluice.stop()


def test_a_client_s_own_tests_pass_through_sluice(suites: tuple[Suite, Suite]) -> None:
    """Each that passes at the broker; what fails on a busy machine may pass the second time, at either."""
    direct, proxied = suites
    names = direct.names()

    def passing(suite: Suite) -> set[str]:
        return {name for name in names if suite.passes(name)}

    with ThreadPoolExecutor(2) as pool:
        at_broker, through = pool.map(passing, (direct, proxied))
    is_go = isinstance(direct, GoSuite)
    assert len(at_broker) >= FEWEST["go" if is_go else "python"]
    assert not is_go or at_broker >= REOPENING
    failed = sorted(name for name in at_broker - through if not proxied.passes(name))
    assert not failed, failed
