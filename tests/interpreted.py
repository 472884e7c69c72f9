"""A pytest plugin: load the modules that mypyc compiled from their sources. `pytest -p tests.interpreted …`."""

import importlib.abc
import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("protocol", "limiter")


class _SourceOnly(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        package, _, module = fullname.partition(".")
        source = ROOT / package / f"{module}.py"
        if package not in PACKAGES or not module or not source.exists():
            return None
        return importlib.util.spec_from_file_location(fullname, source)


def pytest_configure():
    loaded = [name for name in sys.modules if name.partition(".")[0] in PACKAGES]
    assert loaded == [], f"too late: {loaded} are loaded already"
    sys.meta_path.insert(0, _SourceOnly())
