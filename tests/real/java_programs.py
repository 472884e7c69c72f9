"""Small Java programs beside these tests, which use Pulsar's jars; each is compiled once, into the cache folder."""

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from loadgen.real.jars import OLDEST_JAVA, cache_folder, cache_lock, jars, java_command, require_java

_OPTIONS = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


def java_program(name: str, *options: str) -> list[str]:
    """The command line that runs `NAME.java` of this folder; the caller adds its arguments."""
    java, lib, source = require_java(), jars(), Path(__file__).with_name(f"{name}.java")
    classes = cache_folder() / f"{name}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    with cache_lock(), tempfile.TemporaryDirectory(dir=classes.parent) as folder:
        if not classes.exists():
            compiler = [java, *_OPTIONS, "-m", "jdk.compiler/com.sun.tools.javac.Main", "--release", str(OLDEST_JAVA)]
            path = os.pathsep.join(str(jar) for jar in lib.glob("*.jar"))
            unfinished = Path(folder) / name
            subprocess.run([*compiler, "-d", unfinished, "-cp", path, source], check=True)
            unfinished.rename(classes)
    return java_command(java, lib, [*_OPTIONS, *options], name, classes)
