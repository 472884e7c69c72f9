"""The exit codes of `sluice`, the same for each of its commands."""

from enum import IntEnum
from typing import Self

_FOUND = (
    "`diff` and `doctor` found differences or problems, `load` lost, repeated or refused messages, `report --strict` "
    "found that not all is compliant, `report --verify` that not every file is there unchanged"
)
_FAILED = (
    "not done: no answer, a refusal, or a file that is missing, unreadable or wrong; standard error says. If only some "
    "of several proxies answer `top --once`, it is done for these"
)


class ExitCode(IntEnum):
    """The result of a command, for scripts."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        """Make a member of its number and the text of the reference."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    DONE = (0, "done; of a comparison or an examination: nothing was found")
    FAILED = (1, _FAILED)
    USAGE = (2, "the command line is wrong: an unknown command or option, or an invalid value")
    FINDINGS = (3, f"done, with findings: {_FOUND}")
