"""The repository's shape: where is the test for this? One answer, for every module."""

import ast
import importlib.metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DISTRIBUTION = "pulsar-sluice"
PACKAGES = ("sluice", "proxy", "loadgen", "compliance", "protocol", "limiter", "accesslog")
MOST_LINES = 300

WITHOUT_TEST = {
    "accesslog/connection.py": "values only, seen through test_record.py",
    "accesslog/head.py": "values only, seen through test_record.py",
    "accesslog/interval.py": "values only, seen through test_record.py",
    "accesslog/limit.py": "values only, seen through test_record.py",
    "accesslog/process.py": "values only, seen through test_record.py",
    "compliance/clock.py": "two Spark expressions, seen through test_page.py and test_export.py",
    "compliance/figures/facts.py": "values only",
    "compliance/judging/facts.py": "values only",
    "compliance/run.py": "puts the parts together, seen through test_report.py",
    "compliance/session.py": "starts Spark, as every test of the job does",
    "compliance/bench/timed.py": "what `make bench-compliance` times",
    "compliance/stream/summary.py": "numbers of the other parts, seen through test_batch.py",
    "limiter/workers/letters.py": "values only",
    "limiter/workers/mirror.py": "values only, seen through test_judge.py",
    "limiter/workers/purses.py": "seen through test_deputy.py",
    "loadgen/bench_limits/errors.py": "one exception",
    "loadgen/commands.py": "hangs up options; tests/sluice/test_cli.py reads its help",
    "loadgen/real/errors.py": "one exception",
    "proxy/admin/stream_shape.py": "shapes only, seen through test_stream_view.py",
    "proxy/importing/broker_state.py": "values only, seen through test_admin_walk.py",
    "proxy/importing/found.py": "values only",
    "proxy/sessions/shared.py": "three parts in one place",
    "proxy/sessions/state.py": "values only",
    "proxy/workers/letters.py": "values only",
    "proxy/workers/telling.py": "lines as letters, seen through test_supervisor.py",
    "proxy/workers/worker.py": "a process, seen through test_supervisor.py",
}
"""Modules without a test file of their own, and why."""

NOT_OURS_TO_SHORTEN = {"protocol/pulsar_pb2.py": "generated"}


def modules() -> list[str]:
    """Every module of the packages that may hold logic: not the docstring of a package, not its two-line entry."""
    found = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return sorted(str(path.relative_to(ROOT)) for path in found if not path.stem.startswith("__"))


def _test_of(module: str) -> Path:
    path = Path(module)
    return ROOT / "tests" / path.with_name(f"test_{path.name}")


def sources() -> list[str]:
    found = [path for folder in (*PACKAGES, "demo", "docs", "tests") for path in (ROOT / folder).rglob("*.py")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def test_every_module_has_its_test() -> None:
    missing = [module for module in modules() if module not in WITHOUT_TEST and not _test_of(module).exists()]
    assert missing == [], "write tests/…/test_….py, or name the module and the reason in WITHOUT_TEST"


def test_the_exceptions_are_still_needed() -> None:
    for module in WITHOUT_TEST:
        assert (ROOT / module).exists(), f"{module} is gone: take it out of WITHOUT_TEST"
        assert not _test_of(module).exists(), f"{module} has a test now: take it out of WITHOUT_TEST"


def test_no_file_is_longer_than_a_reader_likes() -> None:
    long = {
        source: lines
        for source in sources()
        if source not in NOT_OURS_TO_SHORTEN and (lines := len((ROOT / source).read_text().splitlines())) > MOST_LINES
    }
    assert long == {}, f"no file over {MOST_LINES} lines: take it apart"


def test_packages_hold_no_logic_in_their_init() -> None:
    """Whoever looks for code finds it in a file that has its name."""
    for package in PACKAGES:
        for init in (ROOT / package).rglob("__init__.py"):
            statements = ast.parse(init.read_text()).body
            is_docstring = [isinstance(statement, ast.Expr) for statement in statements]
            assert is_docstring == [True], f"{init.relative_to(ROOT)}: a docstring, and nothing else"


def test_tests_are_no_packages() -> None:
    """With importlib mode a tests/protocol/__init__.py would shadow the real `protocol`."""
    assert [str(path) for path in (ROOT / "tests").rglob("__init__.py")] == []


@pytest.mark.parametrize("name", PACKAGES)
def test_no_other_distribution_owns_our_import_names(name: str) -> None:
    """`pip install proxy.py` would silently replace our `proxy`, `pip install limiter` our `limiter`."""
    owners = set(importlib.metadata.packages_distributions().get(name, ()))
    assert owners <= {DISTRIBUTION}, f"{owners - {DISTRIBUTION}} must not be installed beside Sluice"


@pytest.mark.parametrize("module", [module for module in modules() if module.startswith("proxy/")])
def test_no_module_of_the_proxy_is_named_as_a_package(module: str) -> None:
    """`python proxy/x.py` puts proxy/ on the path, where it would shadow that package."""
    assert Path(module).stem not in PACKAGES
