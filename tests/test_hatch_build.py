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


def test_functions_call_each_other_directly_and_all_other_flags_stay(build, monkeypatch):
    monkeypatch.setattr(build.sys, "platform", "linux")
    monkeypatch.setenv("CFLAGS", "-O1 -pipe")
    assert build.compiler_flags() == "-O1 -pipe -fno-semantic-interposition"
    monkeypatch.delenv("CFLAGS")
    assert build.compiler_flags().endswith(f"{build.sysconfig.get_config_var('CFLAGS')} -fno-semantic-interposition")
    monkeypatch.setattr(build.sys, "platform", "darwin")  # its linker replaces nothing
    assert build.compiler_flags() == build.sysconfig.get_config_var("CFLAGS")
