"""JSON texts of any size, read in steps: no step holds the interpreter for long.

The standard library reads a text in one call of C, in which the event loop waits. So containers longer than a window
are read here, member by member; the standard library reads all that is within a window.

    {"limits": {"topics": {"t/n/a": {…}, "t/n/b": {…}, …}}}
    └───here───┴───here───┴───────┬──────────────┘
                          in a call of C each
"""

import codecs
import json
import re
from collections import Counter
from typing import Any

from proxy.bulk import AbandonedError, check_wanted, let_go

WINDOW = 64 * 1024
"""Characters that one call reads, and at most as many more."""
MOST_MEMBERS = 400_000
"""Members of one container: 16 MiB of the shortest names of topics have fewer. A table grows in one call of C."""
_MOST_DEPTH = 10
"""Containers within each other that are longer than a window."""
_BLANKS = re.compile(r"[ \t\n\r]*")


class TwiceError(ValueError):
    """A key occurs twice in one object: readers of JSON take the last value, and drop the others.

    Args:
        key: The key.
    """

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def read(text: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: If it is no JSON, or has a container of more than `MOST_MEMBERS`.
        TwiceError: If a key occurs twice in one object.
    """
    reader = _Reader(text)
    try:
        return reader.whole()
    except RecursionError:
        reader.discard()
        raise ValueError("too deep") from None
    except (ValueError, AbandonedError):
        reader.discard()
        raise


class _Reader:
    """Reads a text from its beginning to its end.

    Args:
        data: The text.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._decoded = 0
        """Bytes of `data` that were decoded."""
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._text = ""
        """Characters from a while before those that are read next."""
        self._at = 0
        self._large: list[Any] = []
        """Containers that are read here."""
        decoder = json.JSONDecoder(**HOOKS)
        self._scan = decoder.scan_once  # type: ignore[attr-defined] # the standard library's own seam

    def whole(self) -> Any:
        value = self._value(0)
        if self._next():
            raise ValueError("text after the end")
        return value

    def discard(self) -> None:
        for container in self._large:
            let_go(container)

    def _fill(self) -> None:
        """Decode on until a window is there, or the end."""
        if self._decoded:
            check_wanted()
        while len(self._text) - self._at < WINDOW and self._decoded < len(self._data):
            end = min(self._decoded + WINDOW, len(self._data))
            piece = self._decode(self._data[self._decoded : end], end == len(self._data))
            self._text, self._at, self._decoded = self._text[self._at :] + piece, 0, end

    def _next(self) -> str:
        """Return the next character after blanks; empty at the end."""
        while True:
            self._fill()
            blanks = _BLANKS.match(self._text, self._at)
            assert blanks is not None, "it matches nothing as well"
            self._at = blanks.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if self._decoded == len(self._data):
                return ""

    def _value(self, depth: int) -> Any:
        first = self._next()
        self._fill()
        is_all = self._decoded == len(self._data)
        try:
            value, end = self._scan(self._text, self._at)
        except (StopIteration, json.JSONDecodeError):
            if is_all or first not in {"{", "["}:
                raise ValueError("no JSON, or a text that is too long") from None
        else:
            if end == len(self._text) and not is_all and first not in {"{", "[", '"'}:
                raise ValueError("a number that is too long")
            self._at = end
            return value
        if depth == _MOST_DEPTH:
            raise ValueError("too deep")
        return self._object(depth) if first == "{" else self._array(depth)

    def _object(self, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        self._large.append(made)
        after = ","
        while after == ",":
            self._at += 1
            if self._next() != '"':
                raise ValueError("a key is missing")
            key = self._value(depth)
            if self._next() != ":":
                raise ValueError("a value is missing")
            self._at += 1
            if key in made:
                raise TwiceError(key)
            made[key] = self._value(depth + 1)
            after = self._after(made, "}")
        return made

    def _array(self, depth: int) -> list[Any]:
        made: list[Any] = []
        self._large.append(made)
        after = ","
        while after == ",":
            self._at += 1
            made.append(self._value(depth + 1))
            after = self._after(made, "]")
        return made

    def _after(self, made: dict[str, Any] | list[Any], end: str) -> str:
        """Return the character after a member; the one that ends the container is passed."""
        if len(made) > MOST_MEMBERS:
            raise ValueError(f"more than {MOST_MEMBERS} members in one container")
        after = self._next()
        if after not in {",", end}:
            raise ValueError("a comma is missing")
        self._at += after == end
        return after


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise TwiceError(twice)
    return made


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


HOOKS: dict[str, Any] = {"object_pairs_hook": _object, "parse_constant": _no_number}
"""How the standard library reads a part of a text."""
