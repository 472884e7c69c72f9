"""The configuration as text: as it results from file, environment and flags, and as a file to be written.

Each value is on a line of its own, which ends in its origin:

limits:
  each_topic:
    publish:
      messages: 500  # maxPublishRatePerTopicInMessages=500
"""

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from proxy.bulk import let_go
from proxy.config.limits import RateLimit
from proxy.config.model import Config, Loaded
from proxy.config.reference import default_of
from proxy.config.sources import section_of, without_secrets
from proxy.config.yaml_reader import KeyPath

YamlValue = str | int | float | bool | None | Sequence["YamlValue"] | Mapping[str, "YamlValue"]
"""A value as YAML 1.1 reads it; values of other types are texts."""


@dataclass(frozen=True, slots=True)
class TakenValue:
    """One value of the new configuration.

    Args:
        path: Its keys, outermost first: `("limits", "each_topic", "publish", "messages")`.
        value: As the configuration writes it.
        origin: The key and value that it came from.
    """

    path: tuple[str, ...]
    value: YamlValue
    origin: str


_BARE = re.compile(r"[A-Za-z0-9./][A-Za-z0-9./:_+-]*[A-Za-z0-9/]|[A-Za-z0-9]")
_PLAIN = re.compile(r"[a-z][A-Za-z]*(_[A-Za-z]+)*")
_LONGEST_KEY = 1000
"""Characters, its quotes included: YAML wants the colon within 1,024 of the key's beginning.

Source: https://yaml.org/spec/1.2.2/ (implicit keys)
"""
_LONGEST_REMEMBERED = 4096
"""Characters: 1,000 texts weigh no more than some megabytes."""
_NONE = "# "
"""Begins the line of a key that has no value: YAML's `null` is none here."""
_Tree = dict[str, "_Tree | TakenValue"]


def yaml_text(heading: str, values: Iterable[TakenValue]) -> str:
    """Return the document of `yaml_lines`."""
    return "".join(yaml_lines(heading, values))


def yaml_lines(heading: str, values: Iterable[TakenValue]) -> Iterator[str]:
    """Yield a YAML document of the values, under a comment, in lines.

    Args:
        heading: For people, in lines.
        values: Each path once, and none within another.
    """
    tree: _Tree = {}
    for taken in values:
        section = tree
        for key in taken.path[:-1]:
            section = cast("_Tree", section.setdefault(key, {}))
        section[taken.path[-1]] = taken
    yield from (f"# {line}\n" for line in heading.splitlines())
    yield from _lines(tree, 0)
    let_go(tree)


def _lines(tree: _Tree, depth: int) -> Iterator[str]:
    for key, below in tree.items():
        begun = _key(key, "  " * depth)
        if isinstance(below, TakenValue):
            is_none = below.value is None
            yield f"{_NONE * is_none}{begun} {'none' if is_none else _value(below.value)}  # {below.origin}\n"
        else:
            inner = deque(_lines(below, depth + 1))
            has_keys = not all(line.startswith(_NONE) for line in inner)
            yield f"{begun}{'' if has_keys else ' {}'}\n"
            while inner:
                yield inner.popleft()


def _key(key: str, indent: str) -> str:
    """Return a key with its colon. A key longer than _LONGEST_KEY has its own line: YAML finds no colon after it."""
    written = _written(key)
    return f"{indent}{written}:" if len(written) <= _LONGEST_KEY else f"{indent}? {written}\n{indent}:"


def _value(value: YamlValue) -> str:
    return _text(value) if isinstance(value, str) else _in_line(value)


def _key_in_line(key: str) -> str:
    written = _written(key)
    return written if len(written) <= _LONGEST_KEY else f"? {written} "


def _in_line(value: YamlValue) -> str:
    """Within brackets, where text has fewer forms that need no quotes."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key_in_line(str(key))}: {_in_line(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_in_line, value))}]"
    if isinstance(value, str):
        return _written(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else _written(str(value))


def _remembered(write: Callable[[str], str]) -> Callable[[str], str]:
    """Remember texts: files of 100,000 topics repeat a few."""
    remembered = lru_cache(maxsize=1000)(write)
    return lambda text: remembered(text) if len(text) <= _LONGEST_REMEMBERED else write(text)


@_remembered
def _text(text: str) -> str:
    """Sizes, rates and addresses are read easier without quotes."""
    return text if _BARE.fullmatch(text) and _is_same_everywhere(text) else _written(text)


def _is_same_everywhere(text: str) -> bool:
    """Whether readers of YAML 1.1 and 1.2 agree on what a text without quotes is."""
    try:
        read = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return False
    return isinstance(read, str | int | float) and (str(read) == text or text in {"true", "false"})


@_remembered
def _written(key: str) -> str:
    """A key as YAML reads it back: names of topics and groups may hold anything, and `on` would be a truth value."""
    if _PLAIN.fullmatch(key) and yaml.safe_load(key) == key:
        return key
    if key.isprintable():
        return json.dumps(key, ensure_ascii=False)  # the same quotes; tens of times as fast
    return str(yaml.safe_dump(key, default_style='"', width=float("inf"), allow_unicode=True)).rstrip("\n")


_HEADING = "Made by `sluice check --show`: every given value, with its source."
_HEADING_OF_ALL = """\
Made by `sluice check --show-defaults`: every value, with its source.
Keys that a rate, or the section of a name, leaves out are left out here as well."""


def shown(loaded: Loaded, *, with_defaults: bool) -> str:
    """Return YAML that `sluice check` accepts. Secrets are in files of their own, which it names without their content.

    A key that is written as `data:…` is shown without the data, which must be written again.

    Args:
        loaded: The configuration with its sources.
        with_defaults: Whether to show defaults.
    """
    show = _Show(loaded, with_defaults=with_defaults)
    values = list(show.section(Config, loaded.values, ()))
    return yaml_text(_HEADING_OF_ALL if with_defaults else _HEADING, values)


class _Show:
    def __init__(self, loaded: Loaded, *, with_defaults: bool) -> None:
        self._sources = loaded.sources
        self._with_defaults = with_defaults

    def section(self, model: type[BaseModel], given: Mapping[Any, Any], above: KeyPath) -> Iterator[TakenValue]:
        """Yield the values in a section, in the order of the reference."""
        for name, field in model.model_fields.items():
            key = (*above, name)
            if name in given:
                yield from self._given(field, given[name], key)
            elif self._with_defaults:
                yield from self._default(field, key)

    def _given(self, field: FieldInfo, value: Any, key: KeyPath) -> Iterator[TakenValue]:
        section = section_of(field.annotation)
        has_keys = section is not None and not issubclass(section, RateLimit)
        if section is not None and has_keys and isinstance(value, Mapping) and (value or self._with_defaults):
            yield from self.section(section, value, key)
        else:
            yield from self._as_written(value, key)

    def _as_written(self, value: Any, key: KeyPath) -> Iterator[TakenValue]:
        if isinstance(value, Mapping) and value:
            for name, inner in value.items():
                yield from self._as_written(inner, (*key, str(name)))
        else:
            yield TakenValue(key, without_secrets(value) if isinstance(value, str) else value, self._source(key))

    def _default(self, field: FieldInfo, key: KeyPath) -> Iterator[TakenValue]:
        value = field.get_default(call_default_factory=True, validated_data={})
        if isinstance(value, BaseModel):
            yield from self.section(type(value), {}, key)
        else:
            text = default_of(field)
            yield TakenValue(key, value if text is None or isinstance(value, str) else yaml.safe_load(text), "default")

    def _source(self, key: KeyPath) -> str:
        source = self._sources.of(key)
        return source if source.isprintable() else repr(source)
