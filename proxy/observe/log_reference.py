"""docs/log.md, made from the calls of loggers in the code: `python -m proxy.observe.log_reference`."""

import ast
import sys
from collections.abc import Iterator
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
`timestamp` (UTC), and, of several processes, `process`. The fields in the table are those of the event, where they are
known. A traceback is in `exception`. An event that clients can cause at will is logged once in ten seconds for each
client, with the number of times that it happened.
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
        TypeError: If the event of a call is no literal text.
    """
    found: dict[str, set[LogEvent]] = {heading: set() for heading, _ in _SECTIONS}
    for path in sorted(_PACKAGE.rglob("*.py")):
        place = path.relative_to(_PACKAGE).as_posix()
        heading = next(heading for heading, begins in _SECTIONS if place.startswith(begins))
        found[heading].update(_events_of(path))
    return {heading: sorted(of) for heading, of in found.items() if of}


def _events_of(path: Path) -> Iterator[LogEvent]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = constants_of(tree)
    for call in ast.walk(tree):
        level = _level_of(call)
        if level is None:
            continue
        assert isinstance(call, ast.Call)
        event = call.args[1 if _is_logged_at(call) else 0]
        text = texts.get(event.id) if isinstance(event, ast.Name) else getattr(event, "value", None)
        if not isinstance(text, str):
            raise TypeError(f"{path.name}:{call.lineno}: the event of a line must be a literal text")
        named = ("key", "file", "reason") if _calls(call, _WARNS) else (each.arg for each in call.keywords)
        yield LogEvent(text, level, tuple(each for each in named if each is not None and each != "exc_info"))


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
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in _LEVELS:
        return None
    logger = ast.unparse(node.func.value)
    is_event = not (node.args and isinstance(node.args[0], ast.Name) and node.args[0].id == "event")
    return _LEVELS[node.func.attr] if is_event and logger.rpartition(".")[2] in _LOGGERS else None


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
