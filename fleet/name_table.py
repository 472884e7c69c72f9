"""The name table of a coordinator: gives names small numbers, which are reused when a name is removed."""

from array import array
from collections.abc import Iterator
from sys import getsizeof

NO_NUMBER = -1
"""Marks a slot that is empty, and the result where a name has no number."""

_REMOVED = -2
"""Marks a slot whose name was removed. A search goes on after it."""
_LEAST_SLOTS = 64
"""Slots, at least. Their number is a power of 2."""


class NameTable:
    """Numbers of names, by open addressing. The caller keeps the values of names in columns by their numbers.

        name ─hash─▶ slot ─▶ number ─▶ `_names`, and the caller's columns

    A dict would take 77 bytes more for each name: a fifth of all that a coordinator keeps of a limit.

    Attributes:
        size: The bytes that all names take.
    """

    __slots__ = ("_filled", "_free", "_names", "_slots", "size")

    def __init__(self) -> None:
        self.size = 0
        self._names: list[str] = []  # by number; empty where the number is free
        self._free = array("i")
        self._slots = array("i", [NO_NUMBER]) * _LEAST_SLOTS
        self._filled = 0  # slots that are not `NO_NUMBER`

    def __getitem__(self, number: int) -> str:
        """Return the name that has a number; empty if none has."""
        return self._names[number]

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Yield each number and its name."""
        return ((number, name) for number, name in enumerate(self._names) if name)

    def number(self, name: str) -> int:
        """Return the number of a name; `NO_NUMBER` if it has none."""
        return self._slots[self._slot(name)]

    def add(self, name: str) -> int:
        """Give a number to a name that is not empty and has none yet.

        Return a number that was freed, or else the lowest that was never used.
        """
        if self._free:
            number = self._free.pop()
            self._names[number] = name
        else:
            number = len(self._names)
            self._names.append(name)
        self.size += getsizeof(name)
        if 2 * self._filled >= len(self._slots):
            self._rebuild()
        else:
            self._enter(number)
        return number

    def remove(self, number: int) -> None:
        """Remove the name that has a number, and free the number."""
        name = self._names[number]
        self._slots[self._slot(name)] = _REMOVED
        self._names[number] = ""
        self.size -= getsizeof(name)
        self._free.append(number)

    def _slot(self, name: str) -> int:
        """Return the slot of a name; for a name without a number, the slot where it would be."""
        slots, names, mask = self._slots, self._names, len(self._slots) - 1
        slot = hash(name) & mask
        while (number := slots[slot]) != NO_NUMBER and (number == _REMOVED or names[number] != name):
            slot = slot + 1 & mask
        return slot

    def _enter(self, number: int) -> None:
        self._slots[self._slot(self._names[number])] = number
        self._filled += 1

    def _rebuild(self) -> None:
        """Make new slots, at least four for each name."""
        size, names = _LEAST_SLOTS, len(self._names) - len(self._free)
        while size < 4 * names:
            size *= 2
        self._slots, self._filled = array("i", [NO_NUMBER]) * size, 0
        for number, _ in self:
            self._enter(number)
