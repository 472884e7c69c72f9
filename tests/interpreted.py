"""Load the modules that mypyc compiled from their sources: a pytest plugin, or a way to run another module.

pytest -p tests.interpreted …
python -m tests.interpreted MODULE …
"""

import importlib.abc
import importlib.util
import runpy
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


def is_at_work():
    """Whether sources are loaded in place of machine code."""
    return any(isinstance(finder, _SourceOnly) for finder in sys.meta_path)


def load_sources():
    """From now on; nothing of it may be loaded yet."""
    loaded = [name for name in sys.modules if name.partition(".")[0] in PACKAGES]
    assert loaded == [], f"too late: {loaded} are loaded already"
    sys.meta_path.insert(0, _SourceOnly())


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests():
    load_sources()


if __name__ == "__main__":
    load_sources()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
