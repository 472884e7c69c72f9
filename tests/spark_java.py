"""Options for the Java of the tests' Spark."""

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pyspark

from compliance.java import find_java
from tests.compliance.planted import planted, write_file
from tests.short_lived import SHORT_LIVED

_OF_SPARK = f"{SHORT_LIVED} -XX:+UseSerialGC"


@cache
def spark_java() -> str:
    """Return the options for Spark's Java, with an archive of Spark's loaded classes if it is there.

    The archive (JEP 350) saves 8 of the 21 s of processor time that a short run of the job takes. The first process
    that asks makes it (40 s) and keeps it in the environment (190 MB); others that ask meanwhile go on without. Java
    passes over an archive of other jars or of another Java.
    """
    archive = _archive()
    if not archive.exists():
        with archive.with_name("spark-classes.lock").open("w") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return _OF_SPARK
            if not archive.exists():
                _make(archive)
    # Warnings about an archive that does not fit would go to the standard output of commands.
    return f"{_OF_SPARK} -Xlog:disable -XX:SharedArchiveFile={archive}"


def _archive() -> Path:
    home, jars = find_java(), Path(pyspark.__file__).parent / "jars"
    release = home / "release"
    key = f"{home} {release.read_text() if release.exists() else ''} {jars} {jars.stat().st_mtime_ns} {_OF_SPARK}"
    return Path(sys.prefix) / f"spark-classes-{hashlib.sha256(key.encode()).hexdigest()[:12]}.jsa"


def _make(archive: Path) -> None:
    for old in archive.parent.glob("spark-classes-*.jsa*"):
        old.unlink()
    half = archive.with_suffix(".jsa.half")
    with tempfile.TemporaryDirectory() as folder:
        write_file(Path(folder, "log"), "a.jsonl", [*planted("p", 2).encoded(), b"torn"])
        command = [sys.executable, "-m", "sluice", "compliance", "run", "--access-log", f"{folder}/log"]
        environment = os.environ | {"JAVA_TOOL_OPTIONS": f"{_OF_SPARK} -XX:ArchiveClassesAtExit={half}"}
        # It ends when Java, which has inherited its standard output, has ended.
        subprocess.run([*command, "--out", f"{folder}/out"], env=environment, capture_output=True, check=True)
    half.touch()  # a Java without an archive of its own classes makes none of Spark's either
    half.rename(archive)
