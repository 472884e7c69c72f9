"""docs/log.md, made from the calls of loggers in the code: `python -m proxy.observe.log_reference`."""

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_PACKAGE: Final = Path(__file__).parents[1]
_LEVELS: Final = {"info": "info", "warning": "warning", "error": "error", "exception": "error", "log": "info, warning"}
_WARNS: Final = "warn_of_passed_over"
"""The function of `proxy.files` whose first argument is an event."""
_SECTIONS: Final = (
    ("Start, restart and end", ("serve.", "processes", "takeover", "drain", "service_manager", "kept_state")),
    ("Fleet", ("fleet", "admin/forwarding/fleet_namespace")),
    ("Admin address", ("admin",)),
    ("Access log", ("observe/log_",)),
    ("Policies", ("policies",)),
    ("Clients and brokers", ("server", "session", "blocking", "observe")),
    ("Configuration and files", ("",)),
)
"""Headings, and the beginnings of their modules' paths; the first that fits."""
_HEAD: Final = """\
# Lines of the operator's log

Sluice writes a line of JSON to standard error for each event; on a terminal, columns. `log.level` (`info`, `warning`,
`error`) is the least level that is written, `log.format` (`auto`, `json`, `console`) the form. Both are [live
keys](operating.md#reloading). This page is made from the code.

Each line has `event`, one of the names below, which [stay within a major version](versions.md#interfaces), `level`,
`timestamp` (UTC), and, of several processes, `process`. The fields in the table are those of the event; a line
leaves out those that do not apply. A traceback is in `exception`. An event that clients can cause at will is logged
once in ten seconds for each client, with the number of times that it happened.

A thread writes the lines, in order: also warnings of libraries and of Python, and errors that no caller gets
(`reported by a library`). So a reader that stands still (a log driver, `tee` with a full disk) stops no client. Up to
1 MiB of lines waits for it. Further lines are lost, `sluice_log_lines_dropped_total` counts them, and an error in
their place has their number as soon as standard error takes lines again. The end of the process waits 5 s for the
lines that are left. A process that is killed loses the lines on their way: those of its last milliseconds, if the
reader keeps up.
"""


class LogEvent(NamedTuple):
    """An event of the log.

    Attributes:
        name: Its text.
        level: The level of its lines.
        fields: The names of its fields, as far as the call names them.
    """

    name: str
    level: str
    fields: tuple[str, ...]


def events() -> dict[str, list[LogEvent]]:
    """Return the events of each section, in the order of their names.

    Raises:
        TypeError: If the event of a call is no literal text, or its fields are not named in its function.
    """
    by_heading: dict[str, set[LogEvent]] = {heading: set() for heading, _ in _SECTIONS}
    for path in sorted(_PACKAGE.rglob("*.py")):
        place = path.relative_to(_PACKAGE).as_posix()
        heading = next(heading for heading, begins in _SECTIONS if place.startswith(begins))
        by_heading[heading].update(events_of(path))
    return {heading: sorted(of) for heading, of in by_heading.items() if of}


def events_of(path: Path) -> Iterator[LogEvent]:
    """Yield the events of a module.

    Raises:
        TypeError: As `events`.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = constants_of(tree)
    called = {id(call.func) for call in ast.walk(tree) if isinstance(call, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_of_logger(node) and id(node) not in called:
            raise TypeError(f"{path.name}:{node.lineno}: call the logger where its method is named")
    for call in ast.walk(tree):
        level = _level_of(call)
        if level is None:
            continue
        assert isinstance(call, ast.Call)
        event = call.args[1 if _is_logged_at(call) else 0]
        text = texts.get(event.id) if isinstance(event, ast.Name) else getattr(event, "value", None)
        if not isinstance(text, str):
            raise TypeError(f"{path.name}:{call.lineno}: the event of a line must be a literal text")
        named = ("key", "file", "reason") if _calls(call, _WARNS) else _fields_of(call, text, tree)
        yield LogEvent(text, level, tuple(dict.fromkeys(each for each in named if each != "exc_info")))


def constants_of(tree: ast.Module) -> dict[str, str]:
    """Return the literal texts that a module gives names."""
    assigned = (each for each in tree.body if isinstance(each, ast.Assign | ast.AnnAssign))
    targets = ((each.targets[0] if isinstance(each, ast.Assign) else each.target, each.value) for each in assigned)
    return {
        ast.unparse(target): value.value
        for target, value in targets
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    }


def _level_of(node: ast.AST) -> str | None:
    """Return the level of a call that logs; None of anything else."""
    if not isinstance(node, ast.Call):
        return None
    if _calls(node, _WARNS):
        return "warning"
    if not isinstance(node.func, ast.Attribute) or not _is_of_logger(node.func):
        return None
    is_event = not (node.args and isinstance(node.args[0], ast.Name) and node.args[0].id == "event")
    return _LEVELS[node.func.attr] if is_event else None


def _is_of_logger(method: ast.Attribute) -> bool:
    """Return whether this is a method of a logger that writes a line."""
    return method.attr in _LEVELS and ast.unparse(method.value).rpartition(".")[2] in _LOGGERS


def _fields_of(call: ast.Call, event: str, tree: ast.Module) -> Iterator[str]:
    """Yield the names of a line's fields: those of the logger, if the function binds it some, and those of the call."""
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    around = [each for each in functions if any(inner is call for inner in ast.walk(each))]
    given = _Given(around[-1:] or [tree], {each.name: each for each in functions})
    assert isinstance(call.func, ast.Attribute)
    for bound in given.values_of(ast.unparse(call.func.value)):
        if isinstance(bound, ast.Call) and isinstance(bound.func, ast.Attribute) and bound.func.attr == "bind":
            yield from given.names_in(bound.keywords)
    if event in _FROM_ELSEWHERE:
        yield from _FROM_ELSEWHERE[event]
        yield from given.names_in([each for each in call.keywords if each.arg is not None])
    else:
        yield from given.names_in(call.keywords)


class _Given(NamedTuple):
    """The dictionaries that a function may pass to a logger."""

    scope: Sequence[ast.AST]
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef]

    def values_of(self, variable: str) -> Iterator[ast.expr]:
        """Yield what the function assigns to a variable."""
        for node in (inner for each in self.scope for inner in ast.walk(each)):
            if isinstance(node, ast.Assign) and variable in map(ast.unparse, node.targets):
                yield node.value

    def names_in(self, keywords: Sequence[ast.keyword]) -> Iterator[str]:
        """Yield the names of keyword arguments, and those in the dictionaries among them."""
        for each in keywords:
            yield from self._keys(each.value) if each.arg is None else (each.arg,)

    def _keys(self, given: ast.expr) -> Iterator[str]:
        parts: list[ast.expr]
        match given:
            case ast.Dict(keys=keys) if all(isinstance(key, ast.Constant) for key in keys):
                yield from (str(key.value) for key in keys if isinstance(key, ast.Constant))
                return
            case ast.Tuple(elts=elements) if all(isinstance(each, ast.Constant) for each in elements):
                yield from (str(each.value) for each in elements if isinstance(each, ast.Constant))
                return
            case ast.IfExp(body=first, orelse=other) | ast.BinOp(left=first, op=ast.BitOr(), right=other):
                parts = [first, other]
            case ast.DictComp(generators=[ast.comprehension(iter=over)]):
                parts = [over]
            case ast.Call(func=ast.Attribute(value=of, attr="items")):
                parts = [of]
            case ast.Call(func=ast.Name(id=name)) if name in self.functions:
                returns = (each for each in ast.walk(self.functions[name]) if isinstance(each, ast.Return))
                parts = [each.value for each in returns if each.value is not None]
            case ast.Name(id=name):
                parts = [*self.values_of(name)]
            case _:
                parts = []
        if not parts:
            raise TypeError(
                f"line {given.lineno}: {ast.unparse(given)}: the fields of a line must be named in its function"
            )
        for part in parts:
            yield from self._keys(part)


_FROM_ELSEWHERE: Final = {
    "process serves": ("listen", "admin", "metrics", "access_log", "policies"),
    "ended by a block": ("kind", "name", "within", "reason", "direction", "topic", "stream"),
}
"""Fields of events that get them from another function."""
_LOGGERS: Final = {"log", "_log", "get_logger()"}


def _is_logged_at(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "log"


def _calls(call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == name


def reference() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for heading, of_section in events().items():
        rows = (
            f"| {each.name} | {each.level} | {', '.join(f'`{name}`' for name in each.fields)} |\n"
            for each in of_section
        )
        parts.append(f"## {heading}\n\n| event | level | fields |\n|---|---|---|\n{''.join(rows)}")
    return "\n".join(parts)


def main() -> None:
    """Print the page."""
    sys.stdout.write(reference())


if __name__ == "__main__":
    main()
