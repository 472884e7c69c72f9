r"""Read a broker's configuration file, `broker.conf` or `standalone.conf`: a properties file as Java reads it.

    # a comment, as is a line that begins with !
    key=value    key: value    key value      all three are the same
    long=one,\
         two                                  goes on behind the next line's white space: one,two
    \u0041 \t \\ \= \:                        escapes; a backslash before anything else is dropped

Source: java.util.Properties.load(InputStream), which takes the bytes for ISO 8859-1
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proxy.files import read_file
from proxy.importing.from_admin import broker_off
from proxy.importing.keys import BrokerKey, shown, take_keys
from proxy.importing.result import ImportFailed, ImportResult

_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_BETWEEN = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}


@dataclass(frozen=True, slots=True)
class Property:
    """A key with its value, and the line of the file (from 1) on which it begins."""

    key: str
    value: str
    line: int


class MalformedEscape(ValueError):
    r"""A `\u` without four hexadecimal digits, for which Java refuses the whole file; `line` is its line."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line}")
        self.line = line


def read_properties(content: bytes) -> list[Property]:
    r"""Read every key of a file, in its order, repeated keys included.

    Raises:
        MalformedEscape: If a `\u` is not followed by four hexadecimal digits.
    """
    return [_property(text, line) for text, line in _logical_lines(content.decode("latin-1"))]


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    """Yield each line that is no comment and not blank, joined with its continuations, and its first number."""
    begun: list[str] = []
    first = 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANK)
        if not begun and (not line or line[0] in "#!"):
            continue
        first = first if begun else number
        if _is_continued(line):
            begun += [line[:-1]] if begun or line[:-1] else []
            continue
        yield "".join([*begun, line]), first
        begun = []
    if begun:
        yield "".join(begun), first


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _property(line: str, number: int) -> Property:
    key = _KEY.match(line)
    assert key, "the pattern matches nothing, too"
    between = _BETWEEN.match(line, key.end())
    assert between
    return Property(_unescaped(key[0], number), _unescaped(line[between.end() :], number), number)


def _unescaped(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    unescaped = _ESCAPE.sub(lambda match: _meaning(match[1], line), text)
    # Java's text is UTF-16: two escapes may be one character.
    return unescaped.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _meaning(escaped: str, line: int) -> str:
    if escaped[0] != "u":
        return _ESCAPED.get(escaped, escaped)
    if len(escaped) == 1:
        raise MalformedEscape(line)
    return chr(int(escaped[1:], 16))


_MOST_BYTES = 16 * 1024**2


def from_file(path: Path) -> ImportResult:
    """Read the limits of a broker's configuration file.

    Raises:
        ImportFailed: With all errors, each with file, line, key, value and remedy.
    """
    entries, notes = _last_of_each(_properties_of(path), path)
    findings = take_keys(entries.values())
    findings.notes[:0] = notes
    broker_off(findings)
    return findings


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


def _last_of_each(properties: list[Property], path: Path) -> tuple[dict[str, BrokerKey], list[str]]:
    """Return each key with the last of its values, as Java takes it, and notes on keys that stand twice."""
    entries: dict[str, BrokerKey] = {}
    notes = []
    for property_ in properties:
        before = entries.pop(property_.key, None)
        entries[property_.key] = BrokerKey(property_.key, property_.value, f"{path}:{property_.line}")
        if before:  # not the values: it may be a password
            notes.append(
                f"{path}:{property_.line}: {shown(property_.key)} stands at {before.where} too; the last one holds"
            )
    return entries, notes
