import os
import subprocess
import sys
from pathlib import Path

import pytest

from loadgen.real.errors import JarsError
from loadgen.real.jars import available, cache_folder, is_filled, jars
from tests.loadgen.real.conftest import MAVEN_THAT_WORKS, Tool, java_that_says


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text().splitlines())


def test_the_cache_is_named_or_follows_the_desktop_s_rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.delenv("SLUICE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path("/home/somebody/.cache/sluice/pulsar-4.0.8")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/sluice/pulsar-4.0.8")
    monkeypatch.setenv("SLUICE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path / "pulsar-4.0.8"


def test_the_cache_is_filled_once(tool: Tool, tmp_path: Path) -> None:
    tool("mvn", MAVEN_THAT_WORKS)
    assert jars() == jars() == cache_folder() / "lib"
    assert runs(tmp_path) == 1


def test_a_failed_fill_leaves_no_cache_and_says_what_maven_said(tool: Tool) -> None:
    tool("mvn", f"{MAVEN_THAT_WORKS}\necho 'ERROR could not resolve it'\nexit 1")
    with pytest.raises(JarsError, match=r"code 1(.|\n)*could not resolve it"):
        jars()
    assert not cache_folder().exists()
    tool("mvn", MAVEN_THAT_WORKS)
    assert is_filled(jars().parent)


def test_a_maven_that_brings_too_little_is_found_out(tool: Tool) -> None:
    tool("mvn", "exit 0")
    with pytest.raises(JarsError, match="lacks Pulsar's jars"):
        jars()
    assert not cache_folder().exists()


def test_a_half_filled_cache_is_filled_anew(tool: Tool) -> None:
    tool("mvn", MAVEN_THAT_WORKS)
    (cache_folder() / "lib").mkdir(parents=True)
    (cache_folder() / "lib" / "half.jar").touch()
    assert not (jars() / "half.jar").exists()


def test_those_who_fill_at_once_share_one_download(tool: Tool, tools: Path, tmp_path: Path) -> None:
    (tools / "sleep").symlink_to("/bin/sleep")
    tool("mvn", f"{MAVEN_THAT_WORKS}\nsleep 0.3")
    command = [sys.executable, "-c", "from loadgen.real.jars import jars; print(jars())"]
    root = Path(__file__).parents[3]
    fillers = [
        subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) for _ in range(3)
    ]
    said = {filler.communicate(timeout=30)[0].strip() for filler in fillers}
    assert said == {str(cache_folder() / "lib")}
    assert runs(tmp_path) == 1


def test_what_is_missing_is_named_with_its_remedy(tool: Tool) -> None:
    assert available() == (
        "install Java 17 or newer (for example the package openjdk-17-jre-headless)"
        " and Maven (for example the package maven)"
    )
    tool("java", java_that_says("17"))
    assert available() == "install Maven (for example the package maven)"
    tool("mvn", MAVEN_THAT_WORKS)
    assert available() is None


def test_a_filled_cache_needs_no_maven(tool: Tool, tools: Path) -> None:
    tool("java", java_that_says("17"))
    tool("mvn", MAVEN_THAT_WORKS)
    jars()
    (tools / "mvn").unlink()
    assert available() is None
