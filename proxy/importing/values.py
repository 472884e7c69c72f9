"""How a broker writes values: whole numbers of which 0 and -1 mean no limit, and true or false."""

import re
from dataclasses import dataclass

from proxy.importing.keys import INT_MOST

_NUMBER = re.compile(r"[+-]?[0-9]{1,40}")
_JAVA_BLANK = "".join(map(chr, range(33)))
_MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Entry:
    """A key that a broker runs with.

    Args:
        key: Pulsar's name.
        value: As it is written.
        where: For people: the file and line, or the broker.
    """

    key: str
    value: str
    where: str

    @property
    def plain(self) -> str:
        """The value as Pulsar takes it, without what Java calls white space around it; empty counts as not set."""
        return self.value.strip(_JAVA_BLANK)

    @property
    def shown(self) -> str:
        """`key=value`, for people."""
        return f"{self.key}={shown(self.plain)}"

    @property
    def told(self) -> str:
        """Where it stands and what it says."""
        return f"{self.where}: {self.shown}"


def one_line(name: str) -> str:
    """A name as it is, unless it would not stay in its line."""
    return name if name.isprintable() else repr(name)


def shown(value: str) -> str:
    """A value in one line of bounded length."""
    text = one_line(value)
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"


def read_number(text: str, most: int) -> int:
    """A number that limits, 0 where there is no limit.

    Raises:
        ValueError: If Pulsar's field could not hold it, or it means nothing.
    """
    value = int(text) if _NUMBER.fullmatch(text) else None
    if value is None:
        raise ValueError("this is not a whole number; write 0 for no limit")
    if value < -1:
        raise ValueError("of the negative numbers only -1 means something (no limit); write 0 or -1")
    if value > most:
        raise ValueError(f"Pulsar holds no more than {most} there; write 0 for no limit")
    return max(0, value)


def read_period(text: str) -> int:
    """A number of seconds.

    Raises:
        ValueError: If it is none, or below 1.
    """
    value = int(text) if _NUMBER.fullmatch(text) else 0
    if not 1 <= value <= INT_MOST:
        raise ValueError("write a period as whole seconds, 1 at least; leave the key out for 30")
    return value


def read_flag(text: str) -> bool:
    """`true` or `false`.

    Raises:
        ValueError: For anything else, which Pulsar silently takes for false.
    """
    if text.lower() not in {"true", "false"}:
        raise ValueError("this is neither true nor false (Pulsar takes it for false); write one of them")
    return text.lower() == "true"
