"""YAML in which each key stands once: the configuration, and the files that it names.

Built from the parser's events: PyYAML's own trees of nodes take ten times as long, and more memory than what they hold.
"""

from functools import lru_cache
from typing import Any

import yaml

_MOST_SHOWN = 200
"""Characters of a wrong value that are shown: a list may have any number."""
_LONGEST_INT = 18
"""Digits that are surely no more than a number's, and quick to read."""
_LONGEST_NUMBER = 5000
"""Characters of anything but text: PyYAML takes quadratic time for numbers to the base of 60 (`1:1:1`)."""
_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
_TEXTS = frozenset({f"{_TAG}str", f"{_TAG}binary"})
_PLAIN_CONTAINERS = frozenset({None, "!", f"{_TAG}map", f"{_TAG}seq"})
_CONTAINERS = (dict, list)
_SCALAR, _MAPPING_END = yaml.ScalarEvent, yaml.MappingEndEvent
_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str | bytes) -> Any:
    """YAML in which each key stands once.

    Raises:
        YAMLError, UnicodeDecodeError, RecursionError: If it is none. The text of the first shows some of the content.
    """
    parser = _Parser(text)
    try:
        return _Builder(parser).document()
    finally:
        parser.dispose()


def why_not_yaml(error: yaml.YAMLError | UnicodeDecodeError | RecursionError) -> str:
    """What `parse_yaml` raised, in one line."""
    if isinstance(error, RecursionError):
        return "is nested too deeply for a configuration"
    return f"is not YAML: {' '.join(str(error).split())}"


def cut(value: str) -> str:
    """As much of a value as an error shows."""
    return value if len(value) <= _MOST_SHOWN else value[:_MOST_SHOWN] + "…"


class _UnreadableError(Exception):
    """What a scalar cannot be read as."""


class _Scalars:
    """Reads scalars that are more than their text."""

    def __init__(self) -> None:
        self._reader: Any = yaml.SafeLoader("")
        self.read = lru_cache(maxsize=1024)(self._read)
        """Files of 100,000 topics say the same few things."""

    def _read(self, text: str, tag: str | None) -> Any:
        """The value of a text under a tag; without one, as a plain scalar.

        Raises:
            _UnreadableError: If it has none.
        """
        tag = tag or self._reader.resolve(yaml.ScalarNode, text, (True, False))
        if tag == _MERGE:
            return text
        if len(text) > _LONGEST_NUMBER and tag not in _TEXTS:
            raise _UnreadableError(tag.rpartition(":")[2])
        try:
            value = self._reader.construct_object(yaml.ScalarNode(tag, text))
            str(value)  # numbers of any size can be written in hexadecimal; Python shows no more than 4,300 digits
        except (ValueError, ArithmeticError, LookupError, AttributeError):
            raise _UnreadableError(tag.rpartition(":")[2]) from None
        self._reader.constructed_objects.clear()
        return value


class _Builder:
    """One document's values, from its events."""

    def __init__(self, parser: Any) -> None:
        self._next = parser.get_event
        self._anchored: dict[str, Any] = {}
        self._scalars = _Scalars()
        self._implicit = yaml.SafeLoader.yaml_implicit_resolvers

    def document(self) -> Any:
        """The only document of the stream; None if there is none."""
        self._next()
        if isinstance(self._next(), yaml.StreamEndEvent):
            return None
        value = self._value(self._next())
        self._next()
        after = self._next()
        if not isinstance(after, yaml.StreamEndEvent):
            raise _problem("a second document begins here; one is all that is read", after)
        return value

    def _value(self, event: Any) -> Any:
        if type(event) is _SCALAR and event.anchor is None:
            return self._scalar(event)
        return self._anchored_value(event)

    def _anchored_value(self, event: Any) -> Any:
        """Sections, and what is written once for several places."""
        if type(event) is yaml.AliasEvent:
            if event.anchor not in self._anchored:
                raise _problem(f"*{event.anchor} stands for nothing above it", event)
            return self._anchored[event.anchor]
        value = self._scalar(event) if type(event) is _SCALAR else self._container(event)
        if event.anchor is not None:
            self._anchored[event.anchor] = value
        return value

    def _container(self, event: Any) -> Any:
        if event.tag not in _PLAIN_CONTAINERS:
            raise _problem(f"{event.tag} is no type that is read here; leave it out", event)
        return self._mapping() if isinstance(event, yaml.MappingStartEvent) else self._sequence()

    def _sequence(self) -> list[Any]:
        found = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            found.append(self._value(event))
        return found

    def _mapping(self) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        following = self._next
        while type(event := following()) is not _MAPPING_END:
            key = self._value(event)
            if isinstance(key, _CONTAINERS):
                raise _problem("a list or a section cannot be a key", event)
            if key in found:
                raise _problem(f"the key {cut(repr(key))} stands twice", event)
            value = self._value(following())
            if key == "<<" and event.implicit[0]:
                merged = _all_of(value, event) | merged
            else:
                found[key] = value
        return merged | found if merged else found

    def _scalar(self, event: Any) -> Any:
        text, tag = event.value, event.tag
        if tag is None or tag == "!":
            if text[:1] not in self._implicit or not event.implicit[0]:
                return text
            if text.isdigit() and text.isascii() and text[0] != "0" and len(text) <= _LONGEST_INT:
                return int(text)
            tag = None
        try:
            return self._scalars.read(text, tag)
        except yaml.MarkedYAMLError as error:
            raise _problem(str(error.problem), event) from None
        except _UnreadableError as error:
            shown = cut(repr(text))
            raise _problem(f"{shown} cannot be read as {error}; put text in quotes", event) from None


def _all_of(value: Any, event: Any) -> dict[Any, Any]:
    """What `<<` takes in; of several sections the first holds, as YAML has it."""
    sections = value if isinstance(value, list) else [value]
    if not all(isinstance(section, dict) for section in sections):
        raise _problem("<< takes in a section, or a list of them", event)
    return {key: each for section in reversed(sections) for key, each in section.items()}


def _problem(text: str, event: Any) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, text, event.start_mark)
