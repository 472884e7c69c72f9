"""Where a value of the configuration was given: flag > environment > file."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Given:
    """A value that was given outside the file.

    Args:
        key: Where it belongs.
        value: As it was written.
        source: The flag or variable, as people know it.
    """

    key: Key
    value: Any
    source: str


def given_by_flags(flags: Mapping[str, Any]) -> list[Given]:
    """The flags that were given; each is named as its key, but for the access log's folder."""
    keys = {name: ("access_log", "dir") if name == "access_log" else (name,) for name in flags}
    return [
        Given(keys[name], value, f"--{name.replace('_', '-')}") for name, value in flags.items() if value is not None
    ]


def laid_over(values: Mapping[str, Any], over: Iterable[Given]) -> dict[str, Any]:
    """The values of the file with those of `over` in their places; a section that is none stays, and is told later."""
    merged = dict(values)
    for given in over:
        _lay(merged, given.key, given.value)
    return merged


def _lay(section: dict[str, Any], key: Key, value: Any) -> None:
    first, *rest = key
    if not rest:
        section[first] = value
        return
    inner = section.get(first, {})
    if inner is None or isinstance(inner, dict):
        section[first] = dict(inner or {})
        _lay(section[first], tuple(rest), value)


class Sources:
    """Who gave what.

    Args:
        file: The file's name for people.
        values: What stands in it.
        over: What was given elsewhere; later ones hide earlier ones.
    """

    def __init__(self, file: str, values: Mapping[str, Any], over: Iterable[Given]) -> None:
        self._file, self._values = file, values
        self._over = {given.key: given.source for given in over}

    def of(self, key: Sequence[object]) -> str:
        """Who gave the value of a key; of a section all who gave something in it."""
        for length in range(len(key), 0, -1):
            source = self._over.get(tuple(map(str, key[:length])))
            if source is not None:
                return source
        inner = [source for given, source in self._over.items() if given[: len(key)] == tuple(key)]
        if not inner or self._is_in_file(key):
            inner.insert(0, self._file)
        return ", ".join(inner)

    def is_given_over(self, key: Sequence[object]) -> bool:
        """Whether a key's value was given elsewhere than in the file."""
        return any(tuple(map(str, key[: len(given)])) == given for given in self._over)

    def _is_in_file(self, key: Sequence[object]) -> bool:
        value: Any = self._values
        for part in key:
            if not isinstance(value, Mapping) or part not in value:
                return False
            value = value[part]
        return True
