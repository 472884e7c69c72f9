"""How Sluice is built: its hot modules compiled by mypyc where there is a C compiler, else as they are."""

import os
import shlex
import shutil
import sys
import sysconfig
from typing import Any

from hatch_mypyc.plugin import MypycBuildHook  # type: ignore[import-untyped]

DIRECT_CALLS = "-fno-semantic-interposition"
"""Functions of a shared object may be replaced by others that bear their names (LD_PRELOAD); who is not told that
nobody does so has to look up each one that is called, and puts none into its callers."""


class CompiledWhereItCanBe(MypycBuildHook):  # type: ignore[misc]  # hatch-mypyc has no types
    """hatch-mypyc's hook, which without a C compiler does nothing and says so."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds."""
        compiler = missing_compiler()
        if compiler is None:
            os.environ["CFLAGS"] = compiler_flags()
            super().initialize(version, build_data)
        elif self.target_name == "wheel":
            remedy = "install one, or name it in $CC, for the compiled form"
            self.app.display_warning(f"no C compiler ({compiler}): built interpreted, several times slower; {remedy}")


def missing_compiler() -> str | None:
    """The C compiler that setuptools would call and that is not there; None if it is there."""
    wanted = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    command = shlex.split(wanted)[0]
    return None if shutil.which(command) else command


def compiler_flags() -> str:
    """For setuptools, which takes $CFLAGS in place of those that Python was built with."""
    flags = os.environ.get("CFLAGS") or sysconfig.get_config_var("CFLAGS") or ""
    return f"{flags} {DIRECT_CALLS}".strip() if sys.platform == "linux" else flags


def get_build_hook() -> type[MypycBuildHook]:
    """Asked by hatchling, as this module knows two hooks."""
    return CompiledWhereItCanBe
