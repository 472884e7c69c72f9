"""The configuration's values in environment variables: SLUICE_LISTEN, SLUICE_ACCESS_LOG__DIR."""

import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from proxy.config.sources import Given, Key
from proxy.config.yaml_file import parse_yaml, why_not_yaml

PREFIX = "SLUICE_"
OF_COMMANDS = frozenset(
    {
        *("SLUICE_CONFIG", "SLUICE_TOKEN_FILE", "SLUICE_CA", "SLUICE_CERT", "SLUICE_KEY"),
        *("SLUICE_PLAIN_HTTP", "SLUICE_CACHE", "SLUICE_TEST_DIRECT"),
    }
)
"""Those that other commands read, or tests: no part of the configuration."""
_OF_KUBERNETES = re.compile(
    r"SLUICE_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
"""What every pod is given for a Service whose name begins with `sluice`."""
_LONGEST_OF_KUBERNETES = 200
"""Characters: a Service's name has up to 63, a port's 15; the pattern goes over longer names once for each `PORT`."""


def read_environment(model: type[BaseModel], environment: Mapping[str, str]) -> tuple[list[Given], list[str]]:
    """The values that variables give, and what is wrong with the others; an empty one counts as not set."""
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


def variables(model: type[BaseModel]) -> dict[str, tuple[Key, Any]]:
    """Each variable with the key that it stands for, and that key's type."""
    return {PREFIX + "__".join(key).upper(): (key, annotation) for key, annotation in _keys(model, ())}


def _keys(model: type[BaseModel], above: Key) -> Iterator[tuple[Key, Any]]:
    for name, field in model.model_fields.items():
        section = section_of(field.annotation)
        if section is None:
            yield (*above, name), field.annotation
        else:
            yield from _keys(section, (*above, name))


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The section that a key holds, be it there or not; None where a key holds a value, a list or names."""
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
        return [member.strip() for member in text.split(",") if member.strip()]
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
