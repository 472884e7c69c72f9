"""Makes `docs/sluice.yaml` from the model: every key with its meaning, commented out."""

import re
import textwrap
import typing
from collections.abc import Iterator
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from proxy.config.environment import section_of
from proxy.config.limits import RateLimit
from proxy.config.model import Config
from proxy.config.words import default_of, example_of, name_example, type_of
from proxy.config.yaml_file import parse_yaml

_HEAD = """\
## Sluice's configuration: every key with its meaning, its type, and its default.
##
## As it stands this file changes nothing: all of it is commented out. Take away the first # of a key and of the
## sections around it, or of all lines. A key without a default shows an example. `sluice check --config FILE` names
## every mistake.
##
## size in bytes   4096, 64KB, 10MB, 64KiB, 1GiB
## duration        500ms, 1s, 5min, 2h, 1d (plain numbers are seconds)
## rate            500 (a second), 500/s, 30/min, 5/30s; of bytes 10MB/s, 64KiB/s
##
## Each key can be given by an environment variable, too: SLUICE_LISTEN, and SLUICE_ACCESS_LOG__DIR for access_log.dir.
## This file is made from the model in proxy/: python -m proxy.config.reference --yaml > docs/sluice.yaml
"""
_WIDTH = 116
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#]+)[^)]*\)")
_FLOW = 10_000
"""So wide that no list is broken into lines."""


def commented_yaml() -> str:
    """The file."""
    blocks = ("".join(f"#{line}\n" for line in lines) for lines in _Page().keys(Config))
    return "\n".join((_HEAD, *blocks))


class _Page:
    """The lines of each key; what a rate consists of stands at the first of its kind only."""

    def __init__(self) -> None:
        self._rates: dict[type[BaseModel], str] = {}

    def keys(self, model: type[BaseModel], above: str = "") -> Iterator[list[str]]:
        for name, field in model.model_fields.items():
            yield list(self._key(f"{above}{name}", name, field))

    def _key(self, path: str, name: str, field: FieldInfo) -> Iterator[str]:
        section, by_name = section_of(field.annotation), _section_by_name(field.annotation)
        if section is not None and issubclass(section, RateLimit):
            yield from self._rate(path, name, field, section)
        elif section is not None:
            yield from _prose(field.description or _first_line(section))
            yield f"{name}:"
            yield from self._inside(section, f"{path}.")
        elif by_name is not None:
            example = name_example(field.annotation)
            yield from _prose(field.description or _first_line(by_name), "by NAME; default: none")
            yield f"{name}:"
            yield f"  {_written(example)}:"
            yield from ("  " + line for line in self._inside(by_name, f"{path}.NAME."))
        else:
            yield from _value(name, field)

    def _inside(self, section: type[BaseModel], above: str) -> Iterator[str]:
        for lines in self.keys(section, above):
            yield from ("  " + line for line in lines)

    def _rate(self, path: str, name: str, field: FieldInfo, section: type[BaseModel]) -> Iterator[str]:
        if section in self._rates:
            yield from _prose(field.description, f"a rate with the keys of {self._rates[section]}; default: none")
            yield f"{name}: {{messages: 500/s, bytes: 10MB/s}}"
            return
        self._rates[section] = path
        yield from _prose(field.description, "a rate; messages and bytes both hold if both are given; default: none")
        yield f"{name}:"
        yield from self._inside(section, f"{path}.")


def _value(name: str, field: FieldInfo) -> Iterator[str]:
    default = default_of(field)
    told = "; must be given" if field.is_required() else f"; default: {default or 'none'}"
    is_told = "default:" in (field.description or "")
    yield from _prose(field.description, type_of(field) + told * (not is_told))
    for entry in _entries(field):
        yield from (f"  {line}" for line in entry)
    example = example_of(name, field) if default is None else parse_yaml(default)
    yield f"{name}: {_written(example)}"


def _entries(field: FieldInfo) -> Iterator[list[str]]:
    """Of a list of sections: what the keys of one are."""
    if typing.get_origin(field.annotation) is tuple:
        section = section_of(typing.get_args(field.annotation)[0])
        for name, inner in section.model_fields.items() if section else ():
            yield list(_prose(f"{name}: {inner.description}"))


def _section_by_name(annotation: Any) -> type[BaseModel] | None:
    return section_of(typing.get_args(annotation)[1]) if typing.get_origin(annotation) is dict else None


def _first_line(section: type[BaseModel]) -> str:
    return (section.__doc__ or "").partition("\n")[0]


def _prose(*texts: str | None) -> Iterator[str]:
    for text in texts:
        plain = _LINK.sub(r"\1 in docs/\2", text or "")
        yield from (f"# {line}" for line in textwrap.wrap(plain, _WIDTH - 12))


def _written(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=_FLOW).removesuffix("...\n").strip()
