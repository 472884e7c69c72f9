"""A broker's configuration file, as it is: `broker.conf` or `standalone.conf`."""

from pathlib import Path

from proxy.files import read_file
from proxy.importing.broker_keys import take_keys
from proxy.importing.found import Found, ImportFailed
from proxy.importing.properties import MalformedEscape, Property, read_properties
from proxy.importing.switch_off import broker_off
from proxy.importing.values import Entry, shown

_MOST_BYTES = 16 * 1024**2


def from_file(path: Path) -> Found:
    """What the file says.

    Raises:
        ImportFailed: With everything that is wrong, each with file, line, key, value and remedy.
    """
    entries, notes = _last_of_each(_properties_of(path), path)
    found = take_keys(entries.values())
    found.notes[:0] = notes
    broker_off(found)
    return found


def _properties_of(path: Path) -> list[Property]:
    try:
        content = read_file(path, _MOST_BYTES)
    except OSError as error:
        raise ImportFailed([f"{path}: cannot be read: {error.strerror}"]) from None
    try:
        return read_properties(content)
    except MalformedEscape as error:
        raise ImportFailed(
            [rf"{path}:{error.line}: has a \u without four hexadecimal digits behind it; write \\u for a plain one"]
        ) from None


def _last_of_each(properties: list[Property], path: Path) -> tuple[dict[str, Entry], list[str]]:
    """Each key as Java takes it, the last of several, and what is to be told of those."""
    entries: dict[str, Entry] = {}
    notes = []
    for found in properties:
        before = entries.pop(found.key, None)
        entries[found.key] = Entry(found.key, found.value, f"{path}:{found.line}")
        if before:  # not the values: it may be a password
            notes.append(f"{path}:{found.line}: {shown(found.key)} stands at {before.where} too; the last one holds")
    return entries, notes
