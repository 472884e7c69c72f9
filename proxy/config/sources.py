"""The sources of the configuration (flag > environment > file), their reading, and the words for mistakes in them.

In the environment a key is a variable: SLUICE_LISTEN, SLUICE_ACCESS_LOG__DIR. In YAML each key stands once, also in
the files that the configuration names; it is built from the parser's events, as PyYAML's own trees of nodes take ten
times as long, and more memory than what they hold. A mistake is told with its source, its key and the remedy.
"""

import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from protocol.endpoint import Endpoint

KeyPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Given:
    """A value that was given outside the file.

    Args:
        key: Where it belongs.
        value: As it was written.
        source: The flag or variable, as people know it.
    """

    key: KeyPath
    value: Any
    source: str


def given_by_flags(flags: Mapping[str, Any]) -> list[Given]:
    """Return the flags that were given; each is named as its key, but for the access log's folder."""
    keys = {name: ("access_log", "dir") if name == "access_log" else (name,) for name in flags}
    return [
        Given(keys[name], value, f"--{name.replace('_', '-')}") for name, value in flags.items() if value is not None
    ]


def laid_over(values: Mapping[str, Any], over: Iterable[Given]) -> dict[str, Any]:
    """Return the file's values with those of `over` in their places; what is no section stays, and is told later."""
    merged = dict(values)
    for given in over:
        _lay(merged, given.key, given.value)
    return merged


def _lay(section: dict[str, Any], key: KeyPath, value: Any) -> None:
    first, *rest = key
    if not rest:
        section[first] = value
        return
    inner = section.get(first, {})
    if inner is None or isinstance(inner, dict):
        section[first] = dict(inner or {})
        _lay(section[first], tuple(rest), value)


class Sources:
    """The source of each value of the configuration.

    Args:
        file: The file's name for people.
        values: The content of the file.
        over: The values given elsewhere; later ones hide earlier ones.
    """

    def __init__(self, file: str, values: Mapping[str, Any], over: Iterable[Given]) -> None:
        self._file, self._values = file, values
        self._over = {given.key: given.source for given in over}

    def of(self, key: Sequence[object]) -> str:
        """Return the source of a key's value; of a section, all sources that gave something in it."""
        for length in range(len(key), 0, -1):
            source = self._over.get(tuple(map(str, key[:length])))
            if source is not None:
                return source
        inner = [source for given, source in self._over.items() if given[: len(key)] == tuple(key)]
        if not inner or self._is_in_file(key):
            inner.insert(0, self._file)
        return ", ".join(inner)

    def is_given_over(self, key: Sequence[object]) -> bool:
        """Say whether a key's value was given elsewhere than in the file."""
        return any(tuple(map(str, key[: len(given)])) == given for given in self._over)

    def _is_in_file(self, key: Sequence[object]) -> bool:
        value: Any = self._values
        for part in key:
            if not isinstance(value, Mapping) or part not in value:
                return False
            value = value[part]
        return True


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
    """Return the error that `parse_yaml` raised, in one line."""
    if isinstance(error, RecursionError):
        return "is nested too deeply for a configuration"
    return f"is not YAML: {' '.join(str(error).split())}"


def cut(value: str) -> str:
    """Return as much of a value as an error shows."""
    return value if len(value) <= _MOST_SHOWN else value[:_MOST_SHOWN] + "…"


class _UnreadableError(Exception):
    """A scalar cannot be read as the type that its tag names."""


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
        """Return the only document of the stream; None if there is none."""
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
    """The keys that `<<` merges in; of several sections the first holds, as YAML has it."""
    sections = value if isinstance(value, list) else [value]
    if not all(isinstance(section, dict) for section in sections):
        raise _problem("<< takes in a section, or a list of them", event)
    return {key: each for section in reversed(sections) for key, each in section.items()}


def _problem(text: str, event: Any) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, text, event.start_mark)


PREFIX = "SLUICE_"
OF_COMMANDS = frozenset(
    {
        *("SLUICE_CONFIG", "SLUICE_TOKEN_FILE", "SLUICE_CA", "SLUICE_CERT", "SLUICE_KEY"),
        *("SLUICE_PLAIN_HTTP", "SLUICE_CACHE", "SLUICE_TEST_DIRECT"),
    }
)
"""Variables that other commands read, or tests: no part of the configuration."""
_OF_KUBERNETES = re.compile(
    r"SLUICE_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
"""Variables that Kubernetes gives every pod for a Service whose name begins with `sluice`."""
_LONGEST_OF_KUBERNETES = 200
"""Characters: a Service's name has up to 63, a port's 15; the pattern goes over longer names once for each `PORT`."""


def read_environment(model: type[BaseModel], environment: Mapping[str, str]) -> tuple[list[Given], list[str]]:
    """Return the values that variables give, and what is wrong with the others; an empty one counts as not set."""
    known = variables(model)
    given, problems = [], []
    for variable, text in sorted(environment.items()):
        if not variable.startswith(PREFIX) or not text:
            continue
        if variable in known:
            key, annotation = known[variable]
            try:
                given.append(Given(key, _read(annotation, text), variable))
            except (yaml.YAMLError, RecursionError) as error:
                problems.append(f"{variable}: {'.'.join(key)}: {why_not_yaml(error)}")
        elif not _is_for_others(variable):
            problems.append(f"{variable}: this variable stands for no key; {_nearest(variable, known)}")
    return [each for each in given if not _is_url_of_commands(each)], problems


def variables(model: type[BaseModel]) -> dict[str, tuple[KeyPath, Any]]:
    """Return each variable with the key that it stands for, and that key's type."""
    return {PREFIX + "__".join(key).upper(): (key, annotation) for key, annotation in _keys(model, ())}


def _keys(model: type[BaseModel], above: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    for name, field in model.model_fields.items():
        section = section_of(field.annotation)
        if section is None:
            yield (*above, name), field.annotation
        else:
            yield from _keys(section, (*above, name))


def section_of(annotation: Any) -> type[BaseModel] | None:
    """Return the section that a key holds, be it there or not; None where a key holds a value, a list or names."""
    if isinstance(annotation, types.UnionType):
        annotation = typing.get_args(annotation)[0]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


def _read(annotation: Any, text: str) -> Any:
    """Text for a value; for a list its members with commas, for what holds sections YAML."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is dict or (origin is tuple and section_of(arguments[0])):
        return parse_yaml(text)
    if origin is tuple and arguments[-1] is Ellipsis:
        members = [member.strip() for member in text.split(",") if member.strip()]
        takes_one = arguments[0] is Endpoint  # `listen`, `broker`: of other lists the members are read one by one
        return members[0] if takes_one and len(members) == 1 else members
    return text


def _is_for_others(variable: str) -> bool:
    if variable in OF_COMMANDS:
        return True
    return len(variable) <= _LONGEST_OF_KUBERNETES and _OF_KUBERNETES.fullmatch(variable) is not None


def _is_url_of_commands(given: Given) -> bool:
    """SLUICE_ADMIN tells commands whom to ask, too, and there it may be a URL; `admin` never is one."""
    return given.key == ("admin",) and "://" in given.value


def _nearest(variable: str, known: Mapping[str, object]) -> str:
    sections = [name for name in known if name.startswith(variable + "__")]
    if sections:
        return f"name a key of this section, as {sections[0]}"
    with_two = {name.replace("__", "_"): name for name in known}
    if variable.replace("__", "_") in with_two:
        return f"write {with_two[variable.replace('__', '_')]}"
    return "take it away, or see the configuration reference for the keys that are"


_KINDS: tuple[tuple[type, str], ...] = (
    (dict, "a section of keys"),
    (list, "a list"),
    (str, "text"),
    (bool, "true or false"),
    (int, "a number"),
    (float, "a number"),
)
_BELONGS: Mapping[str, str] = {
    "model_type": "a section of keys",
    "model_attributes_type": "a section of keys",
    "dict_type": "a section of keys",
    "tuple_type": "a list, as [a, b]",
    "string_type": "text",
    "path_type": "a path",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
}
"""Plain words for pydantic's errors that speak of Python."""
_OF_KEYS: Mapping[str, str] = {
    "extra_forbidden": "this key is not known here; see the configuration reference for those that are",
    "missing": "this key must be given here",
}
_STEP = re.compile(r"\[key\]|function-(before|after|wrap|plain)(\[.*\])?")
_QUOTES = "; put it in quotes"
_MOST_TOLD = 20
"""Problems of one request that its answer tells."""


def explain(sources: Sources, problem: ErrorDetails) -> str:
    """Return a problem in one line: source, key, value, what is wrong and what to do."""
    return f"{sources.of(_key(problem))}: {told(problem)}"


def told(problem: ErrorDetails) -> str:
    """Say key, value, what is wrong and what to do; without a key where all is one value."""
    key = ".".join(map(str, _key(problem)))
    parts = [key if key.isprintable() else repr(key)]
    if problem["type"] not in _OF_KEYS:
        parts.append(cut(without_secrets(repr(problem["input"]))))
    return ": ".join(part for part in (*parts, _message(problem)) if part)


_DATA = re.compile(r"\bdata:[^'\"\s]*")


def without_secrets(text: str) -> str:
    """Return a text with nothing of what `data:` holds: keys may be written so."""
    return _DATA.sub("data:…", text)


def all_told(error: ValidationError) -> str:
    """Say every problem of a request in one line."""
    problems = [told(problem) for problem in error.errors()]
    more = len(problems) - _MOST_TOLD
    return "; ".join([*problems[:_MOST_TOLD], *([f"and {more} more"] if more > 0 else [])])


def kind_of(value: object) -> str:
    """Return the kind of a YAML value, in plain words."""
    if value is None:
        return "nothing"
    return next((name for kind, name in _KINDS if isinstance(value, kind)), f"a {type(value).__name__}")


def _key(problem: ErrorDetails) -> tuple[object, ...]:
    return tuple(part for part in problem["loc"] if not _is_pydantic_s(part))


def _message(problem: ErrorDetails) -> str:
    if problem["type"] in _OF_KEYS:
        return _OF_KEYS[problem["type"]]
    belongs = _BELONGS.get(problem["type"])
    if belongs is None:
        return problem["msg"].removeprefix("Value error, ").replace("Input should be", "it must be")
    if problem["input"] is None:
        return f"nothing is written here, where {belongs} belongs; leave the key out for its default"
    quotes = _QUOTES if belongs == "text" and not isinstance(problem["input"], (dict, list)) else ""
    return f"this is {kind_of(problem['input'])}; {belongs} belongs here{quotes}"


def _is_pydantic_s(part: object) -> bool:
    """Return whether it is no key but a step of the model: `[key]`, `function-before[…]`."""
    return isinstance(part, str) and _STEP.fullmatch(part) is not None
