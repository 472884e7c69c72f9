"""A pytest plugin: load the modules that mypyc compiled from their sources. `pytest -p tests.interpreted …`."""

import importlib.abc
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("protocol", "limiter", "proxy")


class _SourceOnly(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        source = ROOT.joinpath(*fullname.split(".")).with_suffix(".py")
        if fullname.partition(".")[0] not in PACKAGES or not source.is_file():
            return None
        return importlib.util.spec_from_file_location(fullname, source)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests():
    loaded = [name for name in sys.modules if name.partition(".")[0] in PACKAGES]
    assert loaded == [], f"too late: {loaded} are loaded already"
    sys.meta_path.insert(0, _SourceOnly())
