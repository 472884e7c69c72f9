"""What all tests share: tests that need a real broker are left out, loudly, where this machine cannot run one."""

from collections.abc import Generator

import pytest

from loadgen.real.jars import available

_MISSING = pytest.StashKey[str]()
_LEFT_OUT = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    real = [item for item in items if item.get_closest_marker("real")]
    missing = available() if real else None
    if missing is None:
        return
    for item in real:
        item.add_marker(pytest.mark.skip(reason=f"no real Pulsar broker here: {missing}"))
    config.stash[_MISSING] = missing
    config.stash[_LEFT_OUT] = [item.nodeid for item in real]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Tell it after everything else, pytest's own last line included: it must not scroll away."""
    yield
    left_out = session.config.stash.get(_LEFT_OUT, [])
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not left_out or reporter is None:
        return
    reporter.write_line("")
    reporter.write_line(f"LEFT OUT: {len(left_out)} tests against a real Pulsar broker", red=True, bold=True)
    for name in left_out:
        reporter.write_line(f"  {name}")
    reporter.write_line(f"To run them {session.config.stash[_MISSING]}.", red=True, bold=True)
