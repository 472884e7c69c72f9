"""A real Pulsar's jars, and the Java that runs them.

Maven fills a cache folder once:

$SLUICE_CACHE, else $XDG_CACHE_HOME/sluice, else ~/.cache/sluice
├── pulsar-4.0.8/lib/*.jar             complete: the folder gets this name only then
├── pulsar-4.0.8/classes-17.0.15.jsa   the classes of a broker as that Java maps them (`standalone.archive_classes`)
├── pulsar-4.0.8.filling/              a download under way, or the rest of a killed one
└── pulsar-4.0.8.lock                  held by the one process that fills
"""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path


class RealPulsarError(Exception):
    """A real Pulsar part could not be had, started or run."""


class JarsError(RealPulsarError):
    """The jars are not there and could not be fetched."""


class ProcessFailed(RealPulsarError):
    """A process ended or hung before it had done its work; carries the last lines that it wrote."""

    def __init__(self, message: str, last_lines: str) -> None:
        super().__init__(f"{message}\n{last_lines}" if last_lines else message)
        self.last_lines = last_lines


VERSION = "4.0.8"
ARTIFACTS = ("pulsar-broker", "pulsar-proxy", "pulsar-client-tools", "pulsar-testclient")
"""Broker, the official proxy, pulsar-admin, pulsar-perf: all of one version."""

# Not every mirror has this small artifact in VERSION; the neighbour's does the same.
_OPENTELEMETRY_VERSION = "4.0.7"

_DEPENDENCY = """\
    <dependency>
      <groupId>org.apache.pulsar</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
      <exclusions>
        <exclusion><groupId>*</groupId><artifactId>jetcd-core-shaded</artifactId></exclusion>
      </exclusions>
    </dependency>
"""

_PROJECT = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>sluice</groupId>
  <artifactId>real-pulsar</artifactId>
  <version>{version}</version>
  <packaging>pom</packaging>
  <dependencyManagement>
    <dependencies>
    <dependency>
      <groupId>org.apache.pulsar</groupId>
      <artifactId>pulsar-opentelemetry</artifactId>
      <version>{opentelemetry}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.pulsar</groupId>
      <artifactId>pulsar</artifactId>
      <version>{version}</version>
      <type>pom</type>
      <scope>import</scope>
    </dependency>
    </dependencies>
  </dependencyManagement>
  <dependencies>
{dependencies}  </dependencies>
</project>
"""


def pom() -> str:
    """The project file for `mvn dependency:copy-dependencies`.

    It imports Pulsar's own version table: left to itself Maven picks a netty whose FlowControlHandler never reads
    a connection again after a pause, so throttled producers would stall for ever. It leaves out the shaded etcd
    client, which only etcd needs and not every mirror has.
    """
    dependencies = "".join(_DEPENDENCY.format(artifact=name, version=VERSION) for name in ARTIFACTS)
    return _PROJECT.format(version=VERSION, opentelemetry=_OPENTELEMETRY_VERSION, dependencies=dependencies)


OLDEST_JAVA = 17
_JAVA_VERSION = re.compile(r'version "((\d+)[^"]*)"')
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
    return java if java and _version(java)[1] >= OLDEST_JAVA else None


def require_java() -> str:
    """Return the Java that `find_java` finds.

    Raises:
        RealPulsarError: If there is none.
    """
    java = find_java()
    if java is None:
        raise RealPulsarError(f"no Java {OLDEST_JAVA} or newer found: install one or set JAVA_HOME")
    return java


def java_command(java: str, lib: Path, options: list[str], main_class: str, classes: Path | None = None) -> list[str]:
    """The command line that runs a main class from the jars in `lib`; the caller adds its arguments.

    Args:
        java: Java itself.
        lib: Of Pulsar's jars.
        options: The JVM's.
        main_class: One of Pulsar's, or of `classes`.
        classes: A folder of compiled classes that use the jars.
    """
    opens = [option for package in _OPENED_PACKAGES for option in ("--add-opens", f"{package}=ALL-UNNAMED")]
    drivers = [
        f"-Dbookkeeper.metadata.bookie.drivers={_DRIVERS}BookieDriver",
        f"-Dbookkeeper.metadata.client.drivers={_DRIVERS}ClientDriver",
        "-Dio.netty.tryReflectionSetAccessible=true",
    ]
    archive = class_archive(java, lib)
    mapped = [f"-XX:SharedArchiveFile={archive}"] if archive.is_file() and archive.stat().st_size else []
    # The jars come first: Java maps the archive where the class path begins with that of the archive.
    path = f"{lib}/*{os.pathsep}{classes}" if classes else f"{lib}/*"
    return [java, *opens, *drivers, *mapped, *options, "-cp", path, main_class]


def class_archive(java: str, lib: Path) -> Path:
    """Return the place of this Java's archive of the classes in `lib`; an empty file: this Java makes none."""
    return lib.parent / f"classes-{_version(java)[0]}.jsa"


@cache
def _version(java: str) -> tuple[str, int]:
    """Return the version that a Java gives, and its first number; 0 if it gives none."""
    try:
        # Java answers on stderr.
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr  # noqa: S603 -- the user's own java
    except (OSError, subprocess.TimeoutExpired):
        answer = ""
    match = _JAVA_VERSION.search(answer)
    return (match[1], int(match[2])) if match else ("0", 0)


_GOAL = "dependency:copy-dependencies"
_FILL_TIMEOUT_S = 900


def cache_folder() -> Path:
    """Return the folder of this version's jars; it need not exist."""
    named = os.environ.get("SLUICE_CACHE")
    if named:
        return Path(named) / f"pulsar-{VERSION}"
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "sluice" / f"pulsar-{VERSION}"


def available() -> str | None:
    """Return the parts of a real broker that this machine lacks, with the remedy; None if it lacks none."""
    missing = []
    if find_java() is None:
        missing.append(f"Java {OLDEST_JAVA} or newer (for example the package openjdk-17-jre-headless)")
    if not is_filled(cache_folder()) and shutil.which("mvn") is None:
        missing.append("Maven (for example the package maven)")
    return f"install {' and '.join(missing)}" if missing else None


def is_filled(folder: Path) -> bool:
    """Return whether the folder holds Pulsar's main jars."""
    return all((folder / "lib" / f"{name}-{VERSION}.jar").is_file() for name in ARTIFACTS)


def jars() -> Path:
    """The folder with all jars, filled now if it is not yet: 236 MB, a minute or two.

    Raises:
        JarsError: If Maven is missing or fails.
    """
    folder = cache_folder()
    if not is_filled(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with cache_lock():
            if not is_filled(folder):
                _fill(folder)
    return folder / "lib"


@contextmanager
def cache_lock() -> Iterator[None]:
    """Held by the one process that changes the cache folder, which waits for others that do."""
    folder = cache_folder()
    with folder.with_name(f"{folder.name}.lock").open("w") as held:
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
