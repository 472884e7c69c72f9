"""What is wrong with a value, in the words of who wrote it: in the configuration, or in a request with parts of one."""

import re
from collections.abc import Mapping

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from proxy.config.sources import Sources
from proxy.config.yaml_file import cut

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
"""What the model asks for where pydantic's own words are about Python."""
_OF_KEYS: Mapping[str, str] = {
    "extra_forbidden": "this key is not known here; see the configuration reference for those that are",
    "missing": "this key must be given here",
}
_STEP = re.compile(r"\[key\]|function-(before|after|wrap|plain)(\[.*\])?")
_QUOTES = "; put it in quotes"
_MOST_TOLD = 20
"""Problems of one request that its answer tells."""


def explain(sources: Sources, problem: ErrorDetails) -> str:
    """One line: source, key, value, what is wrong and what to do."""
    return f"{sources.of(_key(problem))}: {told(problem)}"


def told(problem: ErrorDetails) -> str:
    """Key, value, what is wrong and what to do; no key where all is one value."""
    key = ".".join(map(str, _key(problem)))
    parts = [key if key.isprintable() else repr(key)]
    if problem["type"] not in _OF_KEYS:
        parts.append(cut(repr(problem["input"])))
    return ": ".join(part for part in (*parts, _message(problem)) if part)


def all_told(error: ValidationError) -> str:
    """Every problem of a request in one line."""
    problems = [told(problem) for problem in error.errors()]
    more = len(problems) - _MOST_TOLD
    return "; ".join([*problems[:_MOST_TOLD], *([f"and {more} more"] if more > 0 else [])])


def kind_of(value: object) -> str:
    """What a value of YAML is, for people."""
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
    """Whether it is no key but a step of the model: `[key]`, `function-before[…]`."""
    return isinstance(part, str) and _STEP.fullmatch(part) is not None
