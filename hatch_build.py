"""The build of Sluice: mypyc compiles its hot modules where there is a C compiler."""

import os
import shlex
import shutil
import subprocess
import sysconfig
from typing import Any
from unittest import mock

from hatch_mypyc.plugin import MypycBuildHook  # type: ignore[import-untyped]

DIRECT_CALLS = "-fno-semantic-interposition"
"""Functions of a shared object may be replaced by others that bear their names (LD_PRELOAD); who is not told that
nobody does so has to look up each one that is called, and puts none into its callers."""

_REMEDY = (
    "mypyc, or the C compiler ({}) behind it, failed; HATCH_BUILD_NO_HOOKS=true builds the interpreted form, "
    "several times slower"
)


class CompiledWhereItCanBe(MypycBuildHook):  # type: ignore[misc]  # hatch-mypyc has no types
    """hatch-mypyc's hook, which without a C compiler does nothing and says so."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds."""
        compiler = missing_compiler()
        if compiler is None:
            self._compile(version, build_data)
        elif self.target_name == "wheel":
            remedy = "install one, or name it in $CC, for the compiled form"
            self.app.display_warning(f"no C compiler ({compiler}): built interpreted, several times slower; {remedy}")

    def _compile(self, version: str, build_data: dict[str, Any]) -> None:
        try:
            with mock.patch.dict(os.environ, CFLAGS=compiler_flags()):
                super().initialize(version, build_data)
        except Exception as error:  # noqa: BLE001 - hatch-mypyc raises no other
            raise RuntimeError(f"{error}\n{_REMEDY.format(' '.join(compiler()))}") from None


def compiler() -> list[str]:
    """The command of the C compiler that setuptools will call."""
    wanted = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    try:
        return shlex.split(wanted) or [wanted]
    except ValueError:  # a quotation that is not closed names none
        return [wanted]


def missing_compiler() -> str | None:
    """That compiler, if it is not there; None if it is."""
    program = compiler()[0]
    return None if shutil.which(program) else program


def compiler_flags() -> str:
    """Return the flags for setuptools, which takes $CFLAGS in place of those that Python was built with."""
    flags = os.environ.get("CFLAGS") or sysconfig.get_config_var("CFLAGS") or ""
    return f"{flags} {DIRECT_CALLS}" if _is_known(DIRECT_CALLS) else flags


def _is_known(flag: str) -> bool:
    command = [*compiler(), "-Werror", flag, "-E", "-x", "c", os.devnull]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603 - the user's compiler


def get_build_hook() -> type[MypycBuildHook]:
    """Asked by hatchling, as this module knows two hooks."""
    return CompiledWhereItCanBe
