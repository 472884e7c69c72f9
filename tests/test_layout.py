"""The repository's shape."""

import ast
import importlib.metadata
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DISTRIBUTION = "pulsar-sluice"
PACKAGES = ("sluice", "proxy", "loadgen", "compliance", "protocol", "limiter", "fleet", "accesslog", "adminrest")
LONG_NAMES = 864
"""Tests whose names have more than 60 characters; this number only falls."""


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


def test_no_module_of_the_proxy_is_named_as_a_package() -> None:
    """`python proxy/x.py` puts proxy/ on the path, where it would shadow that package."""
    assert [str(path) for path in (ROOT / "proxy").rglob("*.py") if path.stem in PACKAGES] == []


def test_no_two_public_classes_have_the_same_name() -> None:
    """Whoever reads a name, or searches for it, finds the one class that has it."""
    names = Counter(
        statement.name
        for package in (*PACKAGES, "demo", "bench")
        for path in (ROOT / package).rglob("*.py")
        for statement in ast.parse(path.read_text()).body
        if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_")
    )
    assert [name for name, times in names.items() if times > 1] == []


def test_no_name_of_a_test_is_longer_than_80_characters() -> None:
    names = _names_of_tests()
    assert [name for name in names if len(name) > 80] == []
    assert len(names) > 1000


def test_long_names_of_tests_become_fewer() -> None:
    """New and changed tests have names of at most 60 characters; older ones are renamed when they are touched."""
    long = sum(len(name) > 60 for name in _names_of_tests())
    rule = "a test's name is subject, verb and condition, in at most 60 characters"
    assert long <= LONG_NAMES, f"{long} names are longer, {LONG_NAMES} may be: {rule}; shorten the new ones"
    assert long == LONG_NAMES, (
        f"only {long} names are longer: {rule}; set LONG_NAMES to {long}, so that none comes back"
    )


def _names_of_tests() -> list[str]:
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    return [name for text in texts for name in re.findall(r"^ *(?:async )?def (test\w+)", text, re.MULTILINE)]
