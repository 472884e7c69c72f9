from pathlib import Path

import pytest

from loadgen.real.errors import RealPulsarError
from loadgen.real.java import find_java, java_command, require_java
from tests.loadgen.real.conftest import Tool, java_that_says


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2"])
def test_a_new_java_is_taken(tool: Tool, version: str) -> None:
    assert find_java() is None
    java = tool("java", java_that_says(version))
    assert require_java() == str(java)


@pytest.mark.parametrize("said", [java_that_says("11.0.2"), java_that_says("1.8.0_402"), "echo no java; exit 1"])
def test_an_old_or_broken_java_is_none(tool: Tool, said: str) -> None:
    tool("java", said)
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
