"""What is built where there is a C compiler, and where there is none."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "hatch_build.py"


@pytest.fixture
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Application:
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def display_warning(self, text: str) -> None:
        self.warnings.append(text)


def test_a_compiler_with_options_is_the_first_word(build, monkeypatch, tmp_path):
    compiler = tmp_path / "my cc"
    compiler.touch(mode=0o755)
    monkeypatch.setenv("CC", f"'{compiler}' -pthread")
    assert build.missing_compiler() is None
    compiler.unlink()
    assert build.missing_compiler() == str(compiler)


@pytest.mark.parametrize("nonsense", [" ", "'gcc"])
def test_words_that_name_no_compiler_are_one_that_is_missing(build, monkeypatch, nonsense):
    monkeypatch.setenv("CC", nonsense)
    assert build.missing_compiler() == nonsense


def test_without_one_nothing_is_compiled_and_that_is_said(build, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    application = Application()
    data: dict[str, object] = {}
    hook = build.get_build_hook()(str(SOURCE.parent), {}, None, None, str(SOURCE.parent), "wheel", application)
    hook.initialize("standard", data)
    assert data == {}
    (warning,) = application.warnings
    assert "no-such-compiler" in warning
    assert "$CC" in warning


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """Makes a shell script the compiler."""

    def made(script):
        program = tmp_path / "cc"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("CC", str(program))

    return made


def test_functions_call_each_other_directly_and_all_other_flags_stay(build, monkeypatch, compiler):
    compiler("exit 0")
    monkeypatch.setenv("CFLAGS", "-O1 -pipe")
    assert build.compiler_flags() == "-O1 -pipe -fno-semantic-interposition"
    monkeypatch.delenv("CFLAGS")
    assert build.compiler_flags() == f"{build.sysconfig.get_config_var('CFLAGS')} -fno-semantic-interposition"


def test_a_compiler_that_does_not_know_the_flag_is_not_given_it(build, monkeypatch, compiler):
    compiler('case "$*" in *interposition*) exit 1;; esac')
    monkeypatch.setenv("CFLAGS", "-O1")
    assert build.compiler_flags() == "-O1"


def test_the_flags_are_those_of_the_build_alone(build, monkeypatch, compiler):
    compiler("exit 0")
    seen = []
    monkeypatch.setattr(build.MypycBuildHook, "initialize", lambda *_: seen.append(build.os.environ["CFLAGS"]))
    monkeypatch.setenv("CFLAGS", "-O1")
    hook = build.get_build_hook()(str(SOURCE.parent), {}, None, None, str(SOURCE.parent), "wheel", Application())
    hook.initialize("standard", {})
    assert seen == ["-O1 -fno-semantic-interposition"]
    assert build.os.environ["CFLAGS"] == "-O1"


def test_a_compiler_that_fails_is_told_with_the_remedy(build, monkeypatch, compiler):
    def fails(*_):
        raise Exception("Error while invoking Mypyc: no Python.h")  # noqa: TRY002 - hatch-mypyc's own

    compiler("exit 0")
    monkeypatch.setattr(build.MypycBuildHook, "initialize", fails)
    hook = build.get_build_hook()(str(SOURCE.parent), {}, None, None, str(SOURCE.parent), "wheel", Application())
    with pytest.raises(RuntimeError, match=r"(?s)no Python\.h.*/cc\) behind it, failed.*HATCH_BUILD_NO_HOOKS=true"):
        hook.initialize("standard", {})
