"""Files that are read again, all of one owner at once, as a reload reads them one after the other."""

from collections.abc import Callable
from typing import Protocol

from proxy.config.model import ConfigError
from proxy.files import FileReader


class Owner(Protocol):
    def readers(self) -> tuple[FileReader, ...]: ...


def read_again(owner: Owner) -> Callable[[], None]:
    """Read the files; gives what puts them in force.

    Raises:
        ConfigError: With every problem.
    """
    takes, problems = list[Callable[[], object]](), list[str]()
    for reader in owner.readers():
        try:
            takes.append(reader.read())
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)

    def take() -> None:
        for each in takes:
            each()

    return take
