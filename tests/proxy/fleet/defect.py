"""A defect of Sluice, planted into a function that then goes on as it is."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

_TEXT = "'NoneType' object is not iterable"


class Defect:
    """Raises what only a defect can, the first time that a function is called.

    Args:
        owner: The class or module that has the function.
        name: The name of the function.
    """

    def __init__(self, owner: Any, name: str) -> None:
        self.is_over = False
        self._owner, self._name, self._does = owner, name, getattr(owner, name)

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put it into the function's place."""
        # A class binds a function to its objects, and a bound method no more.
        monkeypatch.setattr(self._owner, self._name, lambda *args: self._call(*args))  # noqa: PLW0108

    def _call(self, *args: Any) -> Any:
        if not self.is_over:
            self.is_over = True
            raise TypeError(_TEXT)
        return self._does(*args)


def errors_told(logs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the lines of a log that are errors, and say that each is the planted defect."""
    errors = [line for line in logs if line["log_level"] == "error"]
    assert all(line["error"] == f"TypeError: {_TEXT}" for line in errors)
    return [line["event"] for line in errors]
