"""The sources of the configuration (flag > environment > file), their reading, and the words for mistakes in them.

In the environment a key is a variable: SLUICE_LISTEN, SLUICE_ACCESS_LOG__DIR. An error names the source (of a file with
the line), the key, the value and the remedy.
"""

import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from protocol.endpoint import Endpoint
from proxy.config.yaml_reader import KeyPath, YamlError, YamlProblem, lines_of, parse_yaml
from proxy.mistakes import CONTRADICTION, MOST_PROBLEMS, Contradiction, Mistake


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
    """Return the given flags; each has the name of its key, except the access log's folder."""
    keys = {name: ("access_log", "dir") if name == "access_log" else (name,) for name in flags}
    return [
        Given(keys[name], value, f"--{name.replace('_', '-')}") for name, value in flags.items() if value is not None
    ]


def laid_over(values: Mapping[str, Any], over: Iterable[Given]) -> dict[str, Any]:
    """Return the file's values with those of `over` in their places; values that are no section stay for validation."""
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


class SourceFile(NamedTuple):
    """A file of a folder of files.

    Attributes:
        name: Its name for people.
        text: Its text.
        values: Its content.
    """

    name: str
    text: str
    values: Mapping[str, Any]

    def has(self, key: Sequence[object]) -> bool:
        """Return whether a key is in the file."""
        return has(self.values, key)


_DEFAULTS: Final = "default"
"""The source of a value that is given nowhere."""


class Sources:
    """The source of each value of the configuration.

    Args:
        file: The file's name for people.
        values: The content of the file.
        over: The values given elsewhere; later ones hide earlier ones.
        text: The text of the file, in which errors name lines.
        parts: The files, where `file` is a folder of them.
    """

    def __init__(
        self,
        file: str,
        values: Mapping[str, Any],
        over: Iterable[Given],
        text: str = "",
        parts: Sequence[SourceFile] = (),
    ) -> None:
        self._file, self._values = file, values
        self._parts = parts or (SourceFile(file, text, values),)
        self._over = {given.key: given.source for given in over}
        self._lines: dict[tuple[str, KeyPath], int] = {}

    def find_lines(self, keys: Iterable[Sequence[object]]) -> None:
        """Look up the lines of keys in the files, all at once, for `place`."""
        wanted: dict[str, list[KeyPath]] = {}
        for key in keys:
            wanted.setdefault(self._file_of(key), []).append(tuple(map(str, key)))
        for part in self._parts:
            if part.name in wanted:
                lines = lines_of(part.text, wanted[part.name])
                self._lines |= {(part.name, key): line for key, line in lines.items()}

    def place(self, key: Sequence[object]) -> str:
        """Return the source of a key's value, of the file with the line, if `find_lines` found it."""
        source, file = self.of(key), self._file_of(key)
        line = self._lines.get((file, tuple(map(str, key))))
        is_of_file = source == file or source.startswith(f"{file}, ")
        return f"{file}:{line}{source[len(file) :]}" if is_of_file and line else source

    def placed(self, findings: Sequence[tuple[KeyPath, str]]) -> list[str]:
        """Return the text of each finding after the source of its key; without a key the text alone."""
        self.find_lines(key for key, _ in findings if key)
        return [f"{self._place_or_default(key)}: {text}" if key else text for key, text in findings]

    def _place_or_default(self, key: KeyPath) -> str:
        return self.place(key) if self.is_given_over(key) or has(self._values, key[:1]) else _DEFAULTS

    def _file_of(self, key: Sequence[object]) -> str:
        """Return the file with a key, or with the nearest section around it; of several, and of none, the folder."""
        for length in range(len(key), 0, -1):
            names = [part.name for part in self._parts if part.has(key[:length])]
            if names:
                return names[0] if len(names) == 1 else self._file
        return self._file

    def of(self, key: Sequence[object]) -> str:
        """Return the source of a key's value; of a section, all sources that gave something in it."""
        for length in range(len(key), 0, -1):
            source = self._over.get(tuple(map(str, key[:length])))
            if source is not None:
                return source
        inner = [source for given, source in self._over.items() if given[: len(key)] == tuple(key)]
        if not inner or has(self._values, key):
            inner.insert(0, self._file_of(key))
        return ", ".join(inner)

    def is_given_over(self, key: Sequence[object]) -> bool:
        """Return whether a key's value was given outside the file."""
        return any(tuple(map(str, key[: len(given)])) == given for given in self._over)


def has(values: Any, key: Sequence[object]) -> bool:
    """Return whether a key is in sections."""
    for part in key:
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True


_MOST_SHOWN = 200
"""Characters of a wrong value that are shown: a list may have any number."""


def cut(value: str) -> str:
    """Return as much of a value as an error shows."""
    return value if len(value) <= _MOST_SHOWN else value[:_MOST_SHOWN] + "…"


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
    """Return the values of variables, and the problems of the others; as in YAML, a value is not empty."""
    by_variable = variables(model)
    given, problems = [], []
    for variable, text in sorted(environment.items()):
        if not variable.startswith(PREFIX):
            continue
        if variable in by_variable and not text:
            problems.append(f"{variable}: is empty; give it a value, or unset it for the file's value or the default")
        elif variable in by_variable:
            key, annotation = by_variable[variable]
            try:
                given.append(Given(key, _read(annotation, text), variable))
            except YamlError as error:
                problems += [f"{variable}: {yaml_problem_text(problem, key)}" for problem in error.problems]
        elif not _is_for_others(variable):
            problems.append(f"{variable}: no key has this variable; {_nearest(variable, by_variable)}")
    return [each for each in given if not _is_url_of_commands(each)], problems


def variables(model: type[BaseModel]) -> dict[str, tuple[KeyPath, Any]]:
    """Return each variable's key, and the key's type."""
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
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if isinstance(annotation, types.UnionType):
        annotation = typing.get_args(annotation)[0]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


def _read(annotation: Any, text: str) -> Any:
    """Return a variable's value: text; for a list its members with commas; for sections YAML."""
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
    """Return whether SLUICE_ADMIN is a URL, which commands take; the key `admin` never is a URL."""
    return given.key == ("admin",) and "://" in given.value


def _nearest(variable: str, known: Mapping[str, object]) -> str:
    successor = _SUCCESSORS.get(variable.removeprefix(PREFIX).lower().replace("__", "."))
    if successor is not None:
        return successor
    sections = [name for name in known if name.startswith(variable + "__")]
    if sections:
        return f"name a key of this section, as {sections[0]}"
    with_two = {name.replace("__", "_"): name for name in known}
    if variable.replace("__", "_") in with_two:
        return f"write {with_two[variable.replace('__', '_')]}"
    return "take it away, or see the configuration reference for the keys that are"


_IN_TOPICS = "members meet in topics of the brokers: take it away, and see fleet.namespace"
_SUCCESSORS: Mapping[str, str] = {
    "workers": "set processes",
    "fleet.peers": _IN_TOPICS,
    "fleet.listen": _IN_TOPICS,
    "fleet.advertised": _IN_TOPICS,
    "fleet.tls": _IN_TOPICS,
}
"""The remedies for keys that are gone."""


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
    "extra_forbidden": "this key is not known here",
    "missing": "this key must be given here",
}
_WITHOUT_VALUE = frozenset({*_OF_KEYS, CONTRADICTION})
_STEP = re.compile(r"\[key\]|function-(before|after|wrap|plain)(\[.*\])?")
_QUOTES = "; put it in quotes"
_MOST_IN_LINE = 20
"""Problems of one request in its answer, at most."""


def explain(sources: Sources, problem: ErrorDetails, model: type[BaseModel]) -> str:
    """Return a problem in one line: source, key, value, mistake and remedy."""
    return f"{sources.place(key_of(problem))}: {problem_text(problem, model)}"


def problem_text(problem: ErrorDetails, model: type[BaseModel] | None = None) -> str:
    """Return key, value, mistake and remedy in one line; without a key if the model is one value.

    Args:
        problem: Pydantic's error.
        model: The model whose keys an unknown one is compared with; None: no key can be unknown.
    """
    key, is_judged = key_of(problem), problem["type"] == "value_error" and isinstance(problem["input"], dict)
    parts = [_shown_key(key)]
    if problem["type"] not in _WITHOUT_VALUE and not (is_judged and len(problem["input"]) > _MOST_NAMED):
        parts.append(_shown_value(key, problem["input"]))
    remedy = _known_keys(model, key) if model is not None and problem["type"] == "extra_forbidden" else ""
    return ": ".join(part for part in (*parts, _message(problem) + remedy) if part)


def yaml_problem_text(problem: YamlProblem, above: KeyPath = ()) -> str:
    """Return key, value, mistake and remedy in one line."""
    key = (*above, *problem.key)
    shown = _shown_key(key)
    kind = "is not YAML" if problem.is_of_syntax else ""
    parts = (shown, _shown_value(key, problem.value) if problem.value else "", kind, problem.text)
    return ": ".join(part for part in parts if part)


def _shown_key(key: Sequence[object]) -> str:
    shown = ".".join(map(str, key))
    return shown if shown.isprintable() else repr(shown)


_MOST_MEANT = 3
"""Keys that have an unknown one as a word, and are suggested."""
_MOST_NAMED = 12
"""Keys of a section that an error lists."""


def _known_keys(model: type[BaseModel], key: Sequence[object]) -> str:
    """Name the key that an unknown one may be meant to be."""
    successor = _SUCCESSORS.get(".".join(map(str, key)))
    if successor is not None:
        return f"; {successor}"
    section, name = _section_at(model, key[:-1]), str(key[-1])
    known = list(section.model_fields) if section else []
    word = name.casefold().replace("-", "_")
    near = get_close_matches(word, {each.casefold(): each for each in known}, 1, 0.7)
    if near:
        return f"; did you mean {next(each for each in known if each.casefold() == near[0])}?"
    parts = [each for each in known if word in each.casefold().split("_")]
    if 0 < len(parts) <= _MOST_MEANT:
        return f"; did you mean {' or '.join(parts)}?"
    elsewhere = [".".join(path) for path, _ in _keys(model, ()) if path[-1] == word and len(key) == 1]
    elsewhere += [each for each in model.model_fields if each == word]
    if len(set(elsewhere)) == 1:
        return f"; did you mean {elsewhere[0]}?"
    if 0 < len(known) <= _MOST_NAMED:
        return f"; known are {', '.join(known)}"
    return "; see the configuration reference for those that are"


def _section_at(model: type[BaseModel], key: Sequence[object]) -> type[BaseModel] | None:
    """Return the model of the section at a key; None where there is none."""
    inner: Any = model
    for part in key:
        section = section_of(inner)
        if section is not None:
            field = section.model_fields.get(str(part))
            inner = field.annotation if field else None
        elif typing.get_origin(inner) in {dict, tuple}:
            inner = typing.get_args(inner)[typing.get_origin(inner) is dict]
        else:
            return None
    return section_of(inner)


_DATA = re.compile(r"\bdata:[^'\"\s]*")
_URL = re.compile(r"(?<!persistent)://[^'\"]*")
_USER = re.compile(r"\A(['\"]?).*@", re.DOTALL)
_OF_SECRETS = re.compile(r"tokens?|token_file|.*secret.*|.*passw.*|(.*_)?key|authorization|credentials?", re.IGNORECASE)
"""Names of keys that hold files with secrets, and of keys that people expect to hold a secret itself."""
_OF_NAMES = frozenset({"limits", "blocks", "metrics_limits"})
"""Sections with names that clients and operators choose, and without secrets."""
_OF_USERS = _OF_NAMES | {"authentication"}
"""Sections with names in which an `@` is no end of a password."""


def without_secrets(text: str) -> str:
    """Return a text with nothing of what `data:` holds, as keys may be written so, and without users of URLs."""
    return _URL.sub(_without_user, _DATA.sub("data:…", text))


def _without_user(url: re.Match[str]) -> str:
    # One pass: by a pattern that ends with the last `@`, a text of many `://` without one would take its square.
    _, there, rest = url[0].rpartition("@")
    return f"://…@{rest}" if there else url[0]


def _shown_value(key: Sequence[object], value: object) -> str:
    """Return a wrong value as an error shows it: of a key of secrets nothing, of an address no user and password."""
    section = str(key[0]) if key else ""
    if key and section not in _OF_NAMES and _OF_SECRETS.fullmatch(str(key[-1])):
        return _HIDDEN
    text = without_secrets(repr(_without_inner_secrets(value)))
    return cut(text if not key or section in _OF_USERS else _USER.sub(rf"\1{_HIDDEN}@", text))


_HIDDEN: Final = "…"


def _without_inner_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _HIDDEN if _OF_SECRETS.fullmatch(str(name)) else _without_inner_secrets(inner)
            for name, inner in value.items()
        }
    return [_without_inner_secrets(each) for each in value] if isinstance(value, list) else value


def problems_line(error: ValidationError, model: type[BaseModel]) -> str:
    """Return every problem of a request in one line."""
    problems = [problem_text(problem, model) for problem in error.errors(include_url=False)[:_MOST_IN_LINE]]
    more = error.error_count() - len(problems)
    words = "and at least" if error.error_count() >= MOST_PROBLEMS else "and"
    return "; ".join([*problems, *([f"{words} {more} more"] if more > 0 else [])])


def kind_of(value: object) -> str:
    """Return the kind of a YAML value, in plain words."""
    if value is None:
        return "nothing"
    return next((name for kind, name in _KINDS if isinstance(value, kind)), f"a {type(value).__name__}")


def key_of(problem: ErrorDetails) -> tuple[object, ...]:
    """Return the keys that lead to a problem, without pydantic's own steps."""
    return tuple(part for part in problem["loc"] if not _is_pydantic_s(part))


def mistake_of(problem: ErrorDetails) -> Mistake:
    """Return a problem with the values that may be at fault."""
    key = tuple(map(str, key_of(problem)))
    name = f"{_shown_key(key)}: {_message(problem)}"
    between: Contradiction | None = problem.get("ctx", {}).get(CONTRADICTION)
    if between is None:
        return Mistake(name, places=((key,),), is_of_one=True)
    above = key[: len(key) - len(between.place)]
    beside = tuple([(*above, *each) for each in between.beside])
    if between.is_sum:
        return Mistake(name, places=(beside,), is_of_one=True)
    return Mistake(name, places=((key, *beside), tuple([(*above, *each) for each in between.needed])))


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
