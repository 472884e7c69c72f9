"""Stand-ins for the user's own tools: small scripts first on the PATH."""

from collections.abc import Callable
from pathlib import Path

import pytest

from loadgen.real.jars import ARTIFACTS, VERSION

Tool = Callable[[str, str], Path]

MAVEN_THAT_WORKS = "\n".join(
    (
        'echo run >> "$RUNS"',
        'for option; do case "$option" in -DoutputDirectory=*) out="${option#*=}";; esac; done',
        'test -f pom.xml && mkdir -p "$out"',
        *(f'touch "$out/{name}-{VERSION}.jar"' for name in ARTIFACTS),
    )
)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH besides the system's basic one; the cache is empty, JAVA_HOME unset."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("sh", "mkdir", "touch"):
        (folder / name).symlink_to(Path("/bin") / name)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("SLUICE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return folder


@pytest.fixture
def tool(tools: Path) -> Tool:
    """Put a shell script on the PATH under the given name."""

    def put(name: str, script: str) -> Path:
        path = tools / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return put


def java_that_says(version: str) -> str:
    return f"""echo 'openjdk version "{version}" 2025-01-01' >&2"""
