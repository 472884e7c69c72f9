"""From a broker's keys to values of the configuration: what each one says, and every one that cannot be meant."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from proxy.config.yaml_text import Taken, Value
from proxy.importing.found import Found, ImportFailed, Left
from proxy.importing.keys import (
    BY_ENTRY,
    FLAGS,
    IMPORTED,
    INT_MOST,
    NUMBERS,
    PRECISE,
    RELATIVE,
    SUBSCRIBE_PATH,
    SUBSCRIBE_PERIOD,
    SUBSCRIBE_PERIOD_UNSET,
    SUBSCRIBE_RATE,
    NumberKey,
    why_left,
)
from proxy.importing.values import Entry, read_flag, read_number, read_period, shown

_OFF_WORDS = {"", "0", "-1", "0.0", "-1.0", "false"}
_RELATIVE_LEVELS = ("each_topic", "each_subscription")

T = TypeVar("T")


def take_keys(entries: Iterable[Entry]) -> Found:
    """Everything that a broker's keys say; each key stands once.

    Raises:
        ImportFailed: With every value that cannot be meant, in the keys' order, each with where, key, value and remedy.
    """
    taking = _Taking({entry.key: entry for entry in entries})
    for key, number in NUMBERS.items():
        taking.number(key, number)
    taking.subscribe_rate()
    for key in FLAGS:
        taking.flag(key)
    taking.contradiction()
    taking.relative()
    taking.leave()
    if taking.problems:
        raise ImportFailed([problem for key in taking.entries for problem in taking.problems.get(key, [])])
    return taking.found


class _Taking:
    """The state of one import: each method takes the keys that it is about from `entries`."""

    def __init__(self, entries: dict[str, Entry]) -> None:
        self.entries = entries
        self.found = Found()
        self.problems: dict[str, list[str]] = {}

    def number(self, key: str, number: NumberKey) -> None:
        entry = self._set(key)
        value = self._read(entry, partial(read_number, most=number.most))
        if entry is None or value is None:
            return
        if value > 0:
            self._take(number.path, f"{value}{number.unit}" if number.unit else value, entry)
        elif number.has_off:
            self._is_off(entry, number.when_off)
        else:
            self._problem(entry, "nothing at all would be let in; write a number above 0")

    def subscribe_rate(self) -> None:
        entry, period = self._set(SUBSCRIBE_RATE), self._set(SUBSCRIBE_PERIOD)
        span = self._read(period, read_period) if period else SUBSCRIBE_PERIOD_UNSET
        count = self._read(entry, partial(read_number, most=INT_MOST)) if entry else 0
        if entry and count and span:
            said = period.shown if period else f"{SUBSCRIBE_PERIOD} is {span} by default"
            self.found.taken.append(Taken(SUBSCRIBE_PATH, f"{count}/{span}s", f"{entry.shown}, {said}"))
        elif count == 0 and span:
            self.found.off += [found.key for found in (entry, period) if found]

    def flag(self, key: str) -> None:
        entry = self._set(key)
        value = self._read(entry, read_flag)
        if entry is None or value is None:
            return
        self._take(("dispatch", key), value, entry)
        if key == PRECISE and not value:
            self.found.notes.append(
                f"{entry.told}: this is Pulsar's default; Sluice's own is better (docs/limits.md, Deliveries): take "
                "the line out of the result unless it was set on purpose"
            )

    def contradiction(self) -> None:
        precise, by_entry = self._set(PRECISE), self._set(BY_ENTRY)
        if not precise or not by_entry or (precise.plain.lower(), by_entry.plain.lower()) != ("true", "true"):
            return
        for entry, other in ((precise, by_entry), (by_entry, precise)):
            self._problem(
                entry,
                f"this and {other.key} ({other.where}) exclude each other, as one counts the messages of an entry and "
                "the other does not; set one of them to false",
            )

    def relative(self) -> None:
        entry = self._set(RELATIVE)
        is_relative = self._read(entry, read_flag)
        if entry is None or is_relative is None:
            return
        if not is_relative:
            self._is_off(entry)
            return
        limited = {taken.path[1] for taken in self.found.taken if taken.path[2:3] == ("dispatch",)}
        for level in _RELATIVE_LEVELS:
            if level in limited:
                self._take(("limits", level, "dispatch", "relativeToPublishRate"), is_relative, entry)
        if limited.isdisjoint(_RELATIVE_LEVELS):
            self.found.left.append(Left(entry.told, "no rate of topics or subscriptions is set that it would add to"))

    def leave(self) -> None:
        """All other keys, and those that are there without a value."""
        for key, entry in self.entries.items():
            why = why_left(key)
            if key in IMPORTED:
                self.found.off += [] if entry.plain else [key]
            elif why is None:
                self.found.others.append(key)
            elif entry.plain.lower() in _OFF_WORDS:
                self.found.off.append(key)
            else:
                self.found.left.append(Left(entry.told, why))

    def _set(self, key: str) -> Entry | None:
        entry = self.entries.get(key)
        return entry if entry and entry.plain else None

    def _read(self, entry: Entry | None, read: Callable[[str], T]) -> T | None:
        if entry is None:
            return None
        try:
            return read(entry.plain)
        except ValueError as error:
            self._problem(entry, str(error))
            return None

    def _take(self, path: tuple[str, ...], value: Value, entry: Entry) -> None:
        self.found.taken.append(Taken(path, value, entry.shown))

    def _is_off(self, entry: Entry, note: str = "") -> None:
        self.found.off.append(entry.key)
        if note:
            self.found.notes.append(f"{entry.told}: {note}")

    def _problem(self, entry: Entry, what: str) -> None:
        told = f"{entry.where}: {entry.key}: {shown(entry.plain)!r}: {what}"
        self.problems.setdefault(entry.key, []).append(told)
