"""With a Maven and a Java that are shell scripts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from loadgen.real.jars import (
    ARTIFACTS,
    VERSION,
    JarsError,
    RealPulsarError,
    available,
    cache_folder,
    class_archive,
    find_java,
    is_filled,
    jars,
    java_command,
    pom,
    require_java,
)
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
    folders = {filler.communicate(timeout=60)[0].strip() for filler in fillers}
    assert folders == {str(cache_folder() / "lib")}
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


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2"])
def test_a_new_java_is_taken(tool: Tool, version: str) -> None:
    assert find_java() is None
    java = tool("java", java_that_says(version))
    assert require_java() == str(java)


@pytest.mark.parametrize("script", [java_that_says("11.0.2"), java_that_says("1.8.0_402"), "echo no java; exit 1"])
def test_an_old_or_broken_java_is_none(tool: Tool, script: str) -> None:
    tool("java", script)
    assert find_java() is None
    with pytest.raises(RealPulsarError, match="no Java 17 or newer"):
        require_java()


def test_java_home_comes_before_the_path(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tool("java", java_that_says("17"))
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").symlink_to(java)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == str(home / "bin" / "java")


def test_the_command_ends_with_class_path_and_main_class() -> None:
    command = java_command("java", Path("lib"), ["-Xmx1g"], "a.Main")
    assert command[0] == "java"
    assert command[-4:] == ["-Xmx1g", "-cp", "lib/*", "a.Main"]


def test_own_classes_follow_the_jars_of_the_archive() -> None:
    assert java_command("java", Path("lib"), [], "Mine", Path("mine"))[-2:] == ["lib/*:mine", "Mine"]


@pytest.mark.parametrize(("content", "is_mapped"), [(None, False), (b"", False), (b"classes", True)])
def test_archive_is_mapped_by_the_java_that_made_it(
    tool: Tool, tmp_path: Path, content: bytes | None, *, is_mapped: bool
) -> None:
    """An empty one says that this Java makes none."""
    java, other = str(tool("java", java_that_says("17.0.1"))), str(tool("other", java_that_says("17.0.2")))
    archive = class_archive(java, tmp_path / "lib")
    if content is not None:
        archive.write_bytes(content)
    option = f"-XX:SharedArchiveFile={archive}"
    assert (option in java_command(java, tmp_path / "lib", [], "a.Main")) is is_mapped
    assert option not in java_command(other, tmp_path / "lib", [], "a.Main")


def test_every_dependency_leaves_out_the_etcd_client() -> None:
    dependencies = pom().rpartition("<dependencies>")[2]
    assert re.findall(r"<artifactId>(pulsar-[\w-]+)</artifactId>\s*<version>([\d.]+)", dependencies) == [
        (name, VERSION) for name in ARTIFACTS
    ]
    assert dependencies.count("<artifactId>jetcd-core-shaded</artifactId>") == len(ARTIFACTS)


def test_pulsar_s_own_version_table_is_imported() -> None:
    managed = pom().partition("</dependencyManagement>")[0]
    assert re.search(r"<artifactId>pulsar</artifactId>\s*<version>4.0.8</version>\s*<type>pom</type>", managed)
    assert "<scope>import</scope>" in managed
