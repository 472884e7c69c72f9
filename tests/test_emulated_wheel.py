"""The wheel for the architecture that this machine is not, under QEMU: its machine code serves clients.

On request: `tools/release`, then `pytest -m on_request tests/test_emulated_wheel.py` (five minutes, as root).
"""

import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.loadgen.standin.conftest import running_broker
from tests.proxy.test_taken_over import Load, in_place

ROOT = Path(__file__).parents[1]
WHEELS = sorted(ROOT.glob("dist/*/*-cp311-*_aarch64.whl"), key=lambda file: file.stat().st_mtime)
PROGRAMS = ("qemu-aarch64-static", "debootstrap", "dpkg-deb")

pytestmark = [
    pytest.mark.on_request,
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() == "aarch64", reason="this machine is an aarch64: tools/release ran it here"),
    pytest.mark.skipif(not WHEELS, reason="no wheel for aarch64 in dist: run tools/release"),
    pytest.mark.skipif(
        not all(map(shutil.which, PROGRAMS)),
        reason="no QEMU or no debootstrap here (Debian: apt-get install qemu-user-static debootstrap)",
    ),
]


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """Return the command of its `sluice`: Debian's Python of aarch64, with the packages of the lock for it."""
    root, packages = tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("packages")
    _run("debootstrap", "--foreign", "--arch=arm64", "--variant=minbase", "--include=python3", "bookworm", root)
    for package in root.glob("var/cache/apt/archives/*.deb"):
        _run("dpkg-deb", "--extract", package, root)
    library = root / "usr/lib/python3.11"  # compiled in a minute under QEMU, and by any Python 3.11 in seconds
    subprocess.run([sys.executable, "-m", "compileall", "-q", library], capture_output=True, check=False)
    install = (sys.executable, "-m", "pip", "install", "--quiet", "--target", packages, "--only-binary=:all:")
    of_aarch64 = ("--python-version=3.11", *(f"--platform=manylinux_2_{glibc}_aarch64" for glibc in (17, 28)))
    _run(*install, *of_aarch64, "--require-hashes", "--requirement", ROOT / "requirements/proxy.lock")
    _run(*install, *of_aarch64, "--no-deps", "--no-index", WHEELS[-1])
    qemu = ("qemu-aarch64-static", "-L", str(root), "-E", f"PYTHONPATH={packages}")
    return *qemu, str(root / "usr/bin/python3.11"), "-P", "-m", "sluice"


def _run(*words: str | Path) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_wheel_of_another_architecture_is_compiled(emulated: Sequence[str]) -> None:
    assert _run(*emulated, "version").endswith("(compiled)\n")


def test_wheel_of_another_architecture_serves(emulated: Sequence[str], tmp_path: Path) -> None:
    with (
        running_broker() as (_, broker),
        in_place(tmp_path, broker, sluice=emulated) as proxy,
        Load(proxy) as load,
    ):
        load.goes_on()
        load.end()
        assert load.troubles == []
        assert set(load.sent) == set(load.received)
