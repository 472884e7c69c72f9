"""The jars of a real Pulsar in a cache folder that is filled once, by Maven.

$SLUICE_CACHE, else $XDG_CACHE_HOME/sluice, else ~/.cache/sluice
├── pulsar-4.0.8/lib/*.jar        complete, since it got this name only when it was
├── pulsar-4.0.8.filling/         a download under way, or what a killed one left
└── pulsar-4.0.8.lock             held by the one process that fills
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadgen.real.errors import JarsError
from loadgen.real.java import OLDEST_JAVA, find_java
from loadgen.real.pom import ARTIFACTS, VERSION, pom

_GOAL = "dependency:copy-dependencies"
_FILL_TIMEOUT_S = 900


def cache_folder() -> Path:
    """Where this version's jars are, or would be."""
    named = os.environ.get("SLUICE_CACHE")
    if named:
        return Path(named) / f"pulsar-{VERSION}"
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "sluice" / f"pulsar-{VERSION}"


def available() -> str | None:
    """What is missing for a real broker on this machine, with the remedy; None if it can be had."""
    missing = []
    if find_java() is None:
        missing.append(f"Java {OLDEST_JAVA} or newer (for example the package openjdk-17-jre-headless)")
    if not is_filled(cache_folder()) and shutil.which("mvn") is None:
        missing.append("Maven (for example the package maven)")
    return f"install {' and '.join(missing)}" if missing else None


def is_filled(folder: Path) -> bool:
    """Whether the folder holds Pulsar's main jars."""
    return all((folder / "lib" / f"{name}-{VERSION}.jar").is_file() for name in ARTIFACTS)


def jars() -> Path:
    """The folder with all jars, filled now if it is not yet: 236 MB, a minute or two.

    Raises:
        JarsError: If Maven is missing or fails.
    """
    folder = cache_folder()
    if not is_filled(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.with_name(f"{folder.name}.lock")):
            if not is_filled(folder):
                _fill(folder)
    return folder / "lib"


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _fill(folder: Path) -> None:
    filling = folder.with_name(f"{folder.name}.filling")
    for leftover in (filling, folder):
        shutil.rmtree(leftover, ignore_errors=True)
    filling.mkdir()
    (filling / "pom.xml").write_text(pom())
    _run_maven(filling)
    if not is_filled(filling):
        raise JarsError(f"Maven ended well but {filling}/lib lacks Pulsar's jars: look into that folder")
    filling.rename(folder)


def _run_maven(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsError("Maven (mvn) is not on the PATH: install it, it fetches Pulsar's jars once")
    command = [maven, "-q", "-B", _GOAL, f"-DoutputDirectory={folder / 'lib'}", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(  # noqa: S603 -- the user's own Maven, fixed arguments
            command, cwd=folder, capture_output=True, text=True, timeout=_FILL_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise JarsError(f"Maven did not end within {_FILL_TIMEOUT_S} s: is its registry reachable?") from late
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise JarsError(f"Maven ended with code {done.returncode} (in {folder}):\n{tail}")
