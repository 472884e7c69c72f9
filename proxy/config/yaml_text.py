"""The configuration as text: each value on a line of its own, with the key and value that it came from behind it.

limits:
  each_topic:
    publish:
      messages: 500  # maxPublishRatePerTopicInMessages=500
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import yaml

Value = str | int | bool | tuple[str, ...]
"""As YAML writes it."""


@dataclass(frozen=True, slots=True)
class Taken:
    """One value of the new configuration.

    Args:
        path: Its keys, outermost first: `("limits", "each_topic", "publish", "messages")`.
        value: As the configuration writes it.
        origin: The key and value that it came from.
    """

    path: tuple[str, ...]
    value: Value
    origin: str


_PLAIN = re.compile(r"[a-z][A-Za-z]*(_[A-Za-z]+)*")
_Tree = dict[str, "_Tree | Taken"]


def yaml_text(heading: str, values: Iterable[Taken]) -> str:
    """A YAML document of the values, under a comment.

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
    comment = "".join(f"# {line}\n" for line in heading.splitlines())
    return comment + "".join(_lines(tree, 0))


def _lines(tree: _Tree, depth: int) -> Iterator[str]:
    for key, below in tree.items():
        begun = f"{'  ' * depth}{_written(key)}:"
        if isinstance(below, Taken):
            yield f"{begun} {_value(below.value)}  # {below.origin}\n"
        else:
            yield f"{begun}\n"
            yield from _lines(below, depth + 1)


def _value(value: Value) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_written, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


@lru_cache(maxsize=1000)
def _written(key: str) -> str:
    """A key as YAML reads it back: names of topics and groups may hold anything, and `on` would be a truth value."""
    if _PLAIN.fullmatch(key) and yaml.safe_load(key) == key:
        return key
    if key.isprintable():
        return json.dumps(key, ensure_ascii=False)  # the same quotes; tens of times as fast
    return str(yaml.safe_dump(key, default_style='"', width=float("inf"), allow_unicode=True)).rstrip("\n")
