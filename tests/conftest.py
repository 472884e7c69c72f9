"""What all tests share: tests that need what this machine has not are left out, loudly."""

import shutil
import subprocess
from collections.abc import Callable, Generator

import pytest

from loadgen.real.jars import OLDEST_JAVA, available, find_java


def _prometheus() -> str | None:
    return None if shutil.which("prometheus") else "install Prometheus (Debian: apt-get install prometheus)"


def _compiler() -> str | None:
    java = find_java()
    if java is not None:
        told = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False)
        if "jdk.compiler@" in told.stdout:
            return None
    return f"install a JDK {OLDEST_JAVA} or newer (Debian: apt-get install default-jdk-headless)"


NEEDS: dict[str, tuple[str, Callable[[], str | None]]] = {
    "real": ("a real Pulsar broker", available),
    "jdk": ("a Java client of its own", _compiler),
    "prometheus": ("a real Prometheus", _prometheus),
}
"""By marker: what such tests need, and who says what to do to have it (None: it is there)."""

_LEFT_OUT = pytest.StashKey[dict[str, tuple[str, list[str]]]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = config.stash[_LEFT_OUT] = {}
    for marker, (what, remedy_for) in NEEDS.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        remedy = remedy_for() if marked else None
        if remedy is None:
            continue
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=f"no {what.removeprefix('a ')} here: {remedy}"))
        left_out[what] = remedy, [item.nodeid for item in marked]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Tell it after everything else, pytest's own last line included: it must not scroll away."""
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    for what, (remedy, names) in session.config.stash.get(_LEFT_OUT, {}).items():
        reporter.write_line("")
        reporter.write_line(f"LEFT OUT: {len(names)} tests against {what}", red=True, bold=True)
        for name in names:
            reporter.write_line(f"  {name}")
        reporter.write_line(f"To run them {remedy}.", red=True, bold=True)
