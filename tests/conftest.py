"""What all tests share: tests that need what this machine has not are left out, loudly."""

import gc
import importlib.util
import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Generator, MutableMapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
from structlog.testing import LogCapture

import tests.examples  # noqa: F401 - sets how many examples are tried, and which
from bench.data_path.proxies import haproxy_missing
from loadgen.real.jars import OLDEST_JAVA, available, find_java
from proxy.observe.log_reference import events
from tests.netns.hosts import missing as namespaces_missing
from tools.chart import OPERATOR, find_helm


def _prometheus() -> str | None:
    return None if shutil.which("prometheus") else "install Prometheus (Debian: apt-get install prometheus)"


def _compiler() -> str | None:
    java = find_java()
    if java is not None:
        done = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False)
        if "jdk.compiler@" in done.stdout:
            return None
    return f"install a JDK {OLDEST_JAVA} or newer (Debian: apt-get install default-jdk-headless)"


def _systemd() -> str | None:
    return None if shutil.which("systemd-analyze") else "install systemd (Debian: apt-get install systemd)"


def _helm() -> str | None:
    is_there = find_helm() and importlib.util.find_spec("kubernetes_validate") and OPERATOR.exists()
    return None if is_there else "run make helm (Go; ten minutes)"


HERE = Path(__file__).parent
NEEDS: dict[str, tuple[str, Callable[[], str | None]]] = {
    "haproxy": ("a real HAProxy", haproxy_missing),
    "helm": ("a real Helm", _helm),
    "real": ("a real Pulsar broker", available),
    "jdk": ("a Java client of its own", _compiler),
    "netns": ("a network namespace", namespaces_missing),
    "prometheus": ("a real Prometheus", _prometheus),
    "systemd": ("a real systemd-analyze", _systemd),
}
"""By marker: what such tests need, and who says what to do to have it (None: it is there)."""

WHOLE_ONLY = (
    # processes of their own, measured or killed
    "bench/compliance_job", "bench/data_path", "bench/hostile", "bench/limits", "bench/test_command.py",
    "compliance/stream", "compliance/test_chaos.py", "compliance/test_commands.py",
    "compliance/test_java.py", "compliance/test_job.py", "demo", "deploy", "docs/test_examples.py",
    "haproxy", "netns", "loadgen/load/test_clients.py", "loadgen/real",
    "loadgen/standin/official", "loadgen/standin/test_server.py",
    "proxy/admin/test_auth_served.py", "proxy/admin/test_console_clicks.py",
    "proxy/cli/test_drain_command.py", "proxy/fleet/test_before_standin.py",
    "proxy/fleet/test_not_formed.py", "proxy/fleet/test_processes.py", "proxy/observe/test_real_disks.py",
    "proxy/policies/test_kept_blocks.py", "proxy/test_descriptors_served.py", "proxy/test_killed_in_drain.py",
    "proxy/test_killed_in_takeover.py", "proxy/test_limits_over_restarts.py",
    "proxy/test_new_level.py", "proxy/test_plans_served.py", "proxy/test_running.py", "proxy/test_runtime.py",
    "proxy/test_service_manager.py", "proxy/test_several_processes.py", "proxy/test_taken_over.py",
    "proxy/test_next_version.py", "proxy/test_socket_activation.py", "proxy/cli/test_commands.py",
    "real", "sluice/test_cli.py",
    "test_left_out.py", "test_processes.py", "test_same_examples.py", "test_wheel.py",
    # thousands of examples, of models and of requests
    "compliance/judging/test_exactly.py", "proxy/admin/fuzz", "proxy/session/ids", "proxy/policies/test_applying.py",
    "proxy/policies/test_change_notifier.py", "proxy/policies/test_many_topics.py",
    "compliance/judging/test_days.py", "compliance/judging/test_excerpts.py", "compliance/judging/test_steady.py",
    "compliance/judging/test_unseen.py", "compliance/test_line_reader.py",
    "fleet/test_fleet_machine.py", "fleet/test_large_fleet.py", "limiter/test_deliveries_machine.py",
    "limiter/test_fairness.py", "limiter/test_idle_consumers.py", "limiter/test_scheduler_machine.py",
    "proxy/blocking/test_many_rules.py", "proxy/fleet/test_bound.py", "proxy/fleet/test_limits_above.py",
    "proxy/fleet/test_service.py", "proxy/fleet/test_slices.py", "proxy/policies/test_tenant_layer.py",
    "proxy/test_collector.py", "proxy/test_takeover_interleavings.py",
)  # fmt: skip
"""What `make check` leaves to `make test` (`-m "not whole"`): under tests/. Slow tests are left to `make proofs`."""

OF_EVERY_LINE = {"event", "level", "log_level", "timestamp", "process", "exc_info", "exception"}
"""Fields that the head of docs/log.md has."""

ON_REQUEST = "on_request"
"""The marker of tests that nobody runs who does not name it: deselected, as by `-m`, and not left out."""


def pytest_runtest_teardown() -> None:
    """Let loggers go on: commands of the report that a test runs in this process silence all of them, for good."""
    logging.disable(logging.NOTSET)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Modules of which all tests would be deselected are not even imported."""
    return True if "not whole" in config.getoption("markexpr", "") and _is_whole(collection_path) else None


def _is_whole(path: Path) -> bool:
    return path.is_relative_to(HERE) and path.relative_to(HERE).as_posix().startswith(WHOLE_ONLY)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nearly all that is made meanwhile stays: with searches for garbage, collecting takes a fifth longer."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """In a fresh clone most of collecting is compiling: each process begins elsewhere, and compiles its part of all."""
    report = yield
    workerinput: dict[str, Any] = getattr(collector.config, "workerinput", {})
    if workerinput and isinstance(collector, pytest.Directory):
        nodes = list(report.result or ())
        first = len(nodes) * int(workerinput["workerid"].removeprefix("gw")) // workerinput["workercount"]
        report.result = nodes[first:] + nodes[:first]
    return report


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if ON_REQUEST not in config.getoption("markexpr", ""):
        unasked = [item for item in items if item.get_closest_marker(ON_REQUEST)]
        config.hook.pytest_deselected(items=unasked)
        items[:] = [item for item in items if not item.get_closest_marker(ON_REQUEST)]
    for item in items:
        if _is_whole(item.path):
            item.add_marker(pytest.mark.whole)
    for marker, (need, remedy_for) in NEEDS.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        remedy = remedy_for() if marked else None
        for item in marked if remedy else []:
            item.add_marker(pytest.mark.skip(reason=f"no {need.removeprefix('a ')} here: {remedy}"))
    if hasattr(config, "workerinput"):
        _share_out(items)


def _share_out(items: list[pytest.Item]) -> None:
    """For several processes: tests that share something stay in one of them, and so do those of a module.

    Groups that take long come first: else one process would run the last of them while the others are idle. In each
    group slow tests come last: they may have gone on beside the rest.
    """
    items.sort(key=lambda item: item.path.parts)  # one order, wherever a process began
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    groups = {path: _group_of(module) for path, module in modules.items()}
    order = {group: place for place, group in enumerate((*_REAL, "spark", _JOBS, "bench", "slow", "whole", ""))}

    def place(item: pytest.Item) -> tuple[int, bool]:
        markers = {marker.name for marker in item.iter_markers()}
        alone = next((marker for marker in ("slow", "whole") if marker in markers), "")
        return order[groups[item.path] or alone], "slow" in markers

    items.sort(key=place)
    for item in items:
        group = groups[item.path] or item.path.relative_to(HERE).as_posix()
        item.add_marker(pytest.mark.xdist_group(group))


_REAL = ("real", "brokers")
"""Groups of tests with real brokers, which wait for most of their time: one has the session's broker and the Sluice of
the slow scenarios; modules of the other one start Sluices of their own, most of them brokers, too."""
_BESIDE = ("test_fleet_link.py", "test_import.py", "test_policy_topic.py", "test_report.py")
"""Modules of the second group that need a plain broker: so both groups take about as long."""
_JOBS = "compliance/stream"
"""Group of the modules of this folder that need Spark. Spark's tests take longest: these are about half of them, and
have a session of their own."""
_SHARED = {"spark": "spark", "native": "bench"}
"""Groups of those that share something, by the fixture that makes it; the first that is found decides."""


def _group_of(module: list[pytest.Item]) -> str:
    """Of a module; empty if it is one of its own."""
    fixtures = {name for item in module for name in getattr(item, "fixturenames", ())}
    if any(item.get_closest_marker("real") for item in module):
        return "real" if "real_broker" in fixtures and module[0].path.name not in _BESIDE else "brokers"
    shared = next((group for fixture, group in _SHARED.items() if fixture in fixtures), "")
    return _JOBS if shared == "spark" and HERE / _JOBS in module[0].path.parents else shared


_BEGUN = pytest.StashKey[bool]()
_NICENESS = 10


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Two processes wait for real brokers and measure; the others give way to them."""
    if hasattr(item.config, "workerinput") and not item.config.stash.get(_BEGUN, False):
        item.config.stash[_BEGUN] = True
        if not item.nodeid.endswith(tuple(f"@{group}" for group in _REAL)):
            os.nice(_NICENESS)


def pytest_collection_finish(session: pytest.Session) -> None:
    _let_collectors_pass_over_what_stays()
    _refuse_to_run_without_groups(session)


def _let_collectors_pass_over_what_stays() -> None:
    """Thousands of tests: who looks for garbage, or through all objects, would look at each of them every time."""
    gc.collect()
    gc.freeze()


def _refuse_to_run_without_groups(session: pytest.Session) -> None:
    """Groups without effect would cost each process a broker and a Spark session of its own, unseen."""
    is_grouped = session.config.getoption("loadgroup", False)  # in a worker of `--dist loadgroup`
    if is_grouped and not all("@" in item.nodeid for item in session.items):
        raise pytest.UsageError("this pytest-xdist does not keep the groups of tests together with this pytest")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Tell it after everything else, pytest's own last line included: it must not scroll away."""
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    left_out: dict[str, list[str]] = {}
    for report in reporter.stats.get("skipped", ()):
        if isinstance(report.longrepr, tuple):
            reason = str(report.longrepr[2]).removeprefix("Skipped: ")
            left_out.setdefault(reason, []).append(report.nodeid.partition("@")[0])
    for reason, names in left_out.items():
        lack, _, remedy = reason.partition(" here: ")
        reporter.write_line("")
        reporter.write_line(f"LEFT OUT: {len(names)} tests: {lack}", red=True, bold=True)
        for name in names:
            reporter.write_line(f"  {name}")
        if remedy:
            reporter.write_line(f"To run them {remedy}.", red=True, bold=True)


@cache
def fields_of_events() -> dict[str, set[str]]:
    """Return the fields of each event of the operator's log, as docs/log.md has them."""
    fields: dict[str, set[str]] = {}
    for event in (event for of_section in events().values() for event in of_section):
        fields.setdefault(event.name, set()).update(event.fields)
    return fields


@pytest.fixture(autouse=True)
def _fields_are_documented(monkeypatch: pytest.MonkeyPatch) -> Generator[None, None, None]:
    """Fail a test that captures a line of the operator's log with a field that docs/log.md has not."""
    captured: list[MutableMapping[str, Any]] = []
    capture = LogCapture.__call__

    def keep(self: LogCapture, logger: Any, method: str, line: MutableMapping[str, Any]) -> NoReturn:
        captured.append(line)
        capture(self, logger, method, line)

    monkeypatch.setattr(LogCapture, "__call__", keep)
    yield
    for line in captured:
        more = set(line) - fields_of_events().get(line["event"], set(line)) - OF_EVERY_LINE
        assert not more, f"{line['event']}: docs/log.md does not have its {more}"
