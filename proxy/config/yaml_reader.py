"""YAML as operators write it: every scalar is its text, and the schema decides what it means.

YAML 1.1 reads `007` as 7, `no` as false, `12:30` as 750 and `1_000` as 1000, so that a limit would have another name
or another size. Here a name is its text; numbers and truth values have the one form that `proxy/config/values.py`
reads.

Each key occurs once, and has a value: an empty value, `null` and `~` are mistakes. All mistakes of a text are found at
once, each with its line, except that a mistake of the syntax ends the reading. Values are built from the parser's
events, as PyYAML's own trees of nodes take ten times as long, and more memory than their content.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from proxy.bulk import let_go

KeyPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class YamlProblem:
    """A mistake in a text.

    Args:
        line: Its line, from 1.
        column: Its column, from 1.
        text: What is wrong, and the remedy. It holds nothing of the content, which may be a secret.
        key: The keys that lead to it; empty for a mistake of the syntax.
        value: The scalar at the mistake, if there is one.
        is_of_syntax: Whether the reading ended here.
        is_twice: Whether it is a key that is there already. The first one is read, and has its own mistakes.
        is_shared: Whether other places may have the value as well, by an anchor or `<<`; they have no mistake of their
            own.
    """

    line: int
    column: int
    text: str
    key: KeyPath = ()
    value: str | None = None
    is_of_syntax: bool = False
    is_twice: bool = False
    is_shared: bool = False


class YamlError(Exception):
    """A text cannot be read as a configuration.

    Args:
        problems: All mistakes that were found, in their order.
        values: What can be read beside them; None after a mistake of the syntax.
    """

    def __init__(self, problems: Collection[YamlProblem], values: Any = None) -> None:
        super().__init__("; ".join(f"line {problem.line}: {problem.text}" for problem in problems))
        self.problems = tuple(problems)
        self.values = values

    @property
    def is_of_syntax(self) -> bool:
        """True if the text is no YAML."""
        return any(problem.is_of_syntax for problem in self.problems)

    @property
    def is_within_its_keys(self) -> bool:
        """True if each mistake lies within its own top key, and `values` has all others as they are written."""
        if self.is_of_syntax or len(self.problems) >= _MOST_PROBLEMS:
            return False
        return all(each.key and each.key[0] and not each.is_shared for each in self.problems)


_LEFT_OUT: Any = object()
"""Stands for a value that is a mistake; its key is left out."""
_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})
_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = frozenset({None, "!", f"{_TAG}str"})
_CONTAINER_TAGS = frozenset({None, "!", f"{_TAG}map", f"{_TAG}seq"})
_SCALAR, _MAPPING_END, _SEQUENCE_END = yaml.ScalarEvent, yaml.MappingEndEvent, yaml.SequenceEndEvent
_THOUSANDS = re.compile(r"[0-9]{3}")
_TWICE = "this key stands here twice; leave one out"
_MOST_PROBLEMS = 100
_MOST_REPEATED = 2_000_000
"""Most values that aliases stand for in all: 100,000 topics with a limit of 20 values each. Forty lines could stand for
billions, which take hours to check."""
_MOST_DEEP = 100
"""Sections and lists within each other, where aliases put them there."""
_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str | bytes) -> Any:
    """Return the content of a text: sections, lists and text; None where there is none.

    Raises:
        YamlError: With all mistakes.
    """
    reader = _Reader()
    values = _read(text, reader)
    if reader.problems:
        problems = list(_with_first_places(text, reader.problems))
        raise YamlError(problems, None if values is _LEFT_OUT else values)
    return values


def lines_of(text: str | bytes, wanted: Collection[KeyPath]) -> dict[KeyPath, int]:
    """Return the line of each key, or of the nearest section around it; of keys without either, nothing.

    Elements of lists are numbers, as text. A text that cannot be read has no lines.
    """
    around = {path[:length] for path in wanted for length in range(1, len(path) + 1)}
    finder = _Reader(around)
    try:
        let_go(_read(text, finder))
    except YamlError:
        return {}
    nearest = {path: [path[:length] for length in range(len(path), 0, -1)] for path in wanted}
    return {
        path: next(finder.found[each] for each in steps if each in finder.found)
        for path, steps in nearest.items()
        if any(each in finder.found for each in steps)
    }


def _read(text: str | bytes, reader: "_Reader") -> Any:
    content = _decoded(text)
    try:
        parser = _Parser(content)
    except (yaml.YAMLError, UnicodeError) as error:
        raise YamlError([_of_syntax(error, content)]) from None
    try:
        return reader.document(parser.get_event)
    except (yaml.YAMLError, UnicodeError) as error:
        raise YamlError([*reader.problems, _of_syntax(error, content)]) from None
    except RecursionError:
        raise YamlError([YamlProblem(1, 1, "sections are nested too deeply", is_of_syntax=True)]) from None
    finally:
        parser.dispose()
        reader.discard()


def _decoded(text: str | bytes) -> str:
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = text[: error.start]
        place = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise YamlError([YamlProblem(*place, "this is no UTF-8; save the file as UTF-8", is_of_syntax=True)]) from None


class _Reader:
    """One document's values, from its events.

    Args:
        wanted: Keys whose lines are noted in `found`.
    """

    def __init__(self, wanted: Collection[KeyPath] = frozenset()) -> None:
        self.problems: list[YamlProblem] = []
        self.found: dict[KeyPath, int] = {}
        self._wanted = wanted
        self._path: list[str] = []
        self._unfinished: list[Any] = []
        self._anchored: dict[str, Any] = {}
        self._anchors = 0
        """Anchors around the present place."""
        self._sizes: dict[str, int] = {}
        """The number of values that each anchored one holds."""
        self._counted = self._repeated = 0
        """Values so far in sections and lists, as aliases make them; those of aliases alone."""
        self._depths: dict[str, int] = {}
        """How deep the sections and lists of each anchored value are within each other."""
        self._deepest = 0
        """The deepest place within the anchored value around the present one, as aliases make it."""

    def document(self, following: Any) -> Any:
        """Return the only document of the stream; None if there is none, or if it is empty."""
        self._next = following
        following()
        if isinstance(following(), yaml.StreamEndEvent):
            return None
        event = following()
        value = None if _is_empty(event) else self._value(event)
        following()
        after = following()
        if not isinstance(after, yaml.StreamEndEvent):
            self._note("a second document begins here; one is all that is read, so leave out the line ---", after)
        return value

    def discard(self) -> None:
        """Let go of containers that the text has not ended."""
        let_go(self._unfinished)

    def _value(self, event: Any) -> Any:
        if type(event) is _SCALAR and event.anchor is None:
            return self._scalar(event)
        return self._anchored_value(event)

    def _anchored_value(self, event: Any) -> Any:
        """Sections, and what is written once for several places."""
        if type(event) is yaml.AliasEvent:
            if event.anchor not in self._anchored:
                self._note(f"*{event.anchor} stands for nothing above it; put it in quotes if it is text", event)
                return _LEFT_OUT
            return self._repeat(event)
        if event.anchor is None:
            return self._container(event)
        before, deepest = self._counted, self._deepest
        self._anchors, self._deepest = self._anchors + 1, len(self._unfinished)
        value = self._scalar(event) if type(event) is _SCALAR else self._container(event)
        self._anchors -= 1
        self._anchored[event.anchor] = value
        self._sizes[event.anchor] = self._counted - before
        self._depths[event.anchor] = self._deepest - len(self._unfinished)
        self._deepest = max(deepest, self._deepest)
        return value

    def _repeat(self, alias: Any) -> Any:
        """Return the value that an alias stands for."""
        size, deepest = self._sizes[alias.anchor], len(self._unfinished) + self._depths[alias.anchor]
        if deepest > _MOST_DEEP:
            self._note("sections are nested too deeply, as aliases (*) stand in what others stand for", alias)
            return _LEFT_OUT
        self._deepest = max(self._deepest, deepest)
        if self._repeated + size > _MOST_REPEATED:
            self._note(f"aliases (*) stand for more than {_MOST_REPEATED} values; write some out, or use a plan", alias)
            return _LEFT_OUT
        self._repeated += size
        self._counted += size
        return self._anchored[alias.anchor]

    def _container(self, event: Any) -> Any:
        if event.tag not in _CONTAINER_TAGS:
            self._note_tag(event)
        self._deepest = max(self._deepest, len(self._unfinished) + 1)
        return self._mapping(event) if isinstance(event, yaml.MappingStartEvent) else self._sequence()

    def _sequence(self) -> list[Any]:
        sequence: list[Any] = []
        self._unfinished.append(sequence)
        while type(event := self._next()) is not _SEQUENCE_END:
            self._enter(str(len(sequence)), event)
            value = self._value(event)
            self._path.pop()
            if value is not _LEFT_OUT:
                sequence.append(value)
        self._unfinished.pop()
        self._counted += len(sequence)
        return sequence

    def _mapping(self, start: Any) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        self._unfinished.append(mapping)
        following = self._next
        while type(event := following()) is not _MAPPING_END:
            key = self._key(event)
            self._enter(key, event)
            value_event = following()
            if start.flow_style and _is_empty(value_event) and _THOUSANDS.fullmatch(key):
                self._note("a comma begins a new key in {}; write a number without commas, as 1000", event)
                value = _LEFT_OUT
            else:
                value = self._value(value_event)
            if key in mapping:
                self._note(_TWICE, event)
            elif key == "<<" and type(event) is _SCALAR and event.implicit[0]:
                merged = self._all_of(value, event) | merged
            else:
                mapping[key] = value
            self._path.pop()
        self._unfinished.pop()
        self._counted += len(mapping)
        if self.problems:
            mapping = {key: value for key, value in mapping.items() if value is not _LEFT_OUT}
        return merged | mapping if merged else mapping

    def _key(self, event: Any) -> str:
        """Return a key's text; empty where there is none."""
        if type(event) is _SCALAR and event.tag in _TEXT_TAGS and event.anchor is None:
            if not event.value and event.implicit[0]:
                self._note("no key stands before this colon; write one, or put the text in quotes", event)
            return str(event.value)
        known = len(self.problems)
        key = self._value(event)
        if isinstance(key, str):
            return key
        if len(self.problems) == known:
            self._note("a list or a section cannot be a key; put a name with brackets in quotes", event)
        return ""

    def _scalar(self, event: Any) -> Any:
        if event.tag not in _TEXT_TAGS:
            self._note_tag(event)
            return _LEFT_OUT
        if event.value in _NOTHING and event.implicit[0]:
            self._note_nothing(event)
            return _LEFT_OUT
        return event.value

    def _note_nothing(self, event: Any) -> None:
        remedy = "leave the key out for its default"
        if event.value:
            self._note(f"this is nothing to YAML; {remedy}, or put it in quotes if it is text", event, event.value)
        else:
            self._note(f"nothing is written here; {remedy}", event)

    def _note_tag(self, event: Any) -> None:
        tag = str(event.tag).replace(_TAG, "!!")
        self._note(f"the tag {tag} is not read here; leave it out: names and values are taken as they stand", event)

    def _all_of(self, value: Any, event: Any) -> dict[str, Any]:
        """The keys that `<<` merges in; of several sections the first holds, as YAML has it."""
        sections = value if isinstance(value, list) else [value]
        if not all(isinstance(section, dict) for section in sections):
            if value is not _LEFT_OUT:
                self._note("<< takes in a section, or a list of sections; put it in quotes if it is a name", event)
            return {}
        return {key: each for section in reversed(sections) for key, each in section.items()}

    def _enter(self, key: str, event: Any) -> None:
        self._path.append(key)
        if self._wanted and (path := tuple(self._path)) in self._wanted:
            self.found.setdefault(path, event.start_mark.line + 1)

    def _note(self, text: str, event: Any, value: str | None = None) -> None:
        mark = event.start_mark
        if len(self.problems) < _MOST_PROBLEMS:
            place = mark.line + 1, mark.column + 1
            is_shared = self._anchors > 0 or "<<" in self._path
            self.problems.append(
                YamlProblem(*place, text, tuple(self._path), value, is_twice=text is _TWICE, is_shared=is_shared)
            )


def _is_empty(event: Any) -> bool:
    return type(event) is _SCALAR and not event.value and bool(event.implicit[0])


def _with_first_places(text: str | bytes, problems: list[YamlProblem]) -> Iterator[YamlProblem]:
    """Yield the mistakes; of a key that stands twice with the line of the first."""
    twice = {problem.key for problem in problems if problem.text == _TWICE}
    first = lines_of(_decoded(text), twice) if twice else {}
    for problem in problems:
        if problem.text == _TWICE and problem.key in first:
            yield replace(problem, text=f"this key stands in line {first[problem.key]}, too; leave one out")
        else:
            yield problem


_IN_PLAIN_WORDS: Mapping[str, str] = {
    "tab": "a tab stands where blanks indent a line; write blanks",
    "found character that cannot start": "a value cannot begin with this character; put it in quotes",
    "expected alphabetic or numeric": "* and & stand for other values of the file; put a name with them in quotes",
    "found unexpected end of stream": "a quote that begins here does not end; write the same quote at its end",
    "found unknown escape": r"a \ begins an escape in double quotes; write \\ or use single quotes",
    "mapping values are not allowed": "a second colon stands in this value, or the line is indented further than the "
    "line above allows; put text with a colon and a blank in quotes, and align the keys of a section",
    "expected ',' or": "the bracket that opens here is not closed, or a comma is missing in it",
    "expected '-' indicator": "a key stands among the lines of a list that begin with -; align it with other keys",
    "expected key": "the line does not continue the section that begins here; align its keys, close each bracket once, "
    "and write nothing after a closing quote",
    "expected <block end>": "the line does not continue the section that begins here; align its keys",
    "flow node": "a value or a closing bracket is missing here",
    "expected node content": "a bracket or a comma stands where a value belongs; put it in quotes if it is text",
    "could not find expected ':'": "this line has no colon; write KEY: VALUE",
    "block sequence entries": "a list with - begins on a line of its own; write [a, b] to have it in one line",
    "mapping keys are not allowed": "a value cannot begin with ? and a blank; put it in quotes",
    "comment or line break": "nothing but a comment stands after | and >; put text that begins with them in quotes",
    "scanning a tag": "! begins a tag; put text that begins with it in quotes",
    "directive": "% at the beginning of a line begins a directive; leave the line out",
    "control characters": "a control character stands here; take it out, or write it as an escape in double quotes",
}
"""Plain words and remedies by what the parser says."""
_AT_OPENING = frozenset({"expected ',' or", "found unexpected end of stream"})
"""Mistakes that lie where something was opened, not where the parser noticed."""


def _of_syntax(error: Exception, content: str) -> YamlProblem:
    if isinstance(error, yaml.MarkedYAMLError):
        return _of_marked(error, content)
    position = getattr(error, "position", getattr(error, "start", 0))
    before = content[: position if isinstance(position, int) else 0]
    reason = _IN_PLAIN_WORDS["control characters"]
    return YamlProblem(before.count("\n") + 1, len(before) - before.rfind("\n"), reason, is_of_syntax=True)


def _of_marked(error: yaml.MarkedYAMLError, content: str) -> YamlProblem:
    message = f"{error.context or ''} {error.problem or ''}"
    mark: Any = error.problem_mark
    opened: Any = error.context_mark
    is_tab = content[mark.index : mark.index + 1] == "\t" or "tab" in message.split()
    word = "tab" if is_tab else next((word for word in _IN_PLAIN_WORDS if word in message), "")
    text = _IN_PLAIN_WORDS.get(word, f"this is no YAML: {' '.join(message.split())}")
    if opened is not None and word in _AT_OPENING:
        mark = opened
    elif opened is not None and opened.line != mark.line:
        text = text.replace("begins here", f"begins in line {opened.line + 1}")
    return YamlProblem(mark.line + 1, mark.column + 1, text, is_of_syntax=True)
