"""The Java that runs Pulsar, and the options that each of its main classes needs."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from loadgen.real.errors import RealPulsarError

OLDEST_JAVA = 17
_VERSION = re.compile(r'version "(\d+)')
_OPENED_PACKAGES = (
    "java.base/java.io",
    "java.base/java.util.zip",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
_DRIVERS = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"


def find_java() -> str | None:
    """The `java` of JAVA_HOME, else of the PATH, if it is new enough; None if there is none."""
    home = os.environ.get("JAVA_HOME", "")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    java = java or shutil.which("java")
    return java if java and _major_version(java) >= OLDEST_JAVA else None


def require_java() -> str:
    """As `find_java`.

    Raises:
        RealPulsarError: If there is none.
    """
    java = find_java()
    if java is None:
        raise RealPulsarError(f"no Java {OLDEST_JAVA} or newer found: install one or set JAVA_HOME")
    return java


def java_command(java: str, lib: Path, options: list[str], main_class: str) -> list[str]:
    """The command line that runs a main class of Pulsar from the jars in `lib`; its arguments are to be added."""
    opens = [option for package in _OPENED_PACKAGES for option in ("--add-opens", f"{package}=ALL-UNNAMED")]
    drivers = [
        f"-Dbookkeeper.metadata.bookie.drivers={_DRIVERS}BookieDriver",
        f"-Dbookkeeper.metadata.client.drivers={_DRIVERS}ClientDriver",
        "-Dio.netty.tryReflectionSetAccessible=true",
    ]
    return [java, *opens, *drivers, *options, "-cp", f"{lib}/*", main_class]


def _major_version(java: str) -> int:
    try:
        # Java answers on stderr.
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603 -- the user's own java
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(answer.stderr)
    return int(found[1]) if found else 0
