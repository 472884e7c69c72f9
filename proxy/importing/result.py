"""The result of an import: the values taken over, the limits that have no place here, and notes for people.

The result is checked as `sluice check` checks it.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.config.model import ConfigError, load_config
from proxy.config.showing import TakenValue


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A limit at the broker that was not taken over.

    Args:
        what: The limit's place, key and value.
        why: The reason, and what to do instead, if anything.
    """

    what: str
    why: str


@dataclass(slots=True)
class ImportResult:
    """The findings of an import; filled while a source is read."""

    taken: list[TakenValue] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Values taken over that mean something slightly different here, or deserve a look."""
    left: list[LeftOut] = field(default_factory=list)
    off: list[str] = field(default_factory=list)
    """Keys about limits that are off at the broker as well."""
    others: list[str] = field(default_factory=list)
    """Keys that are not about limits."""
    switch_off: list[str] = field(default_factory=list)
    """Commands that end the limits at the broker."""
    by_hand: list[str] = field(default_factory=list)
    """Lines that end limits there for which there is no command."""


class ImportFailed(Exception):
    """An import failed as a whole; `problems` has all errors, a line each.

    Args:
        problems: The errors.
        is_of_words: The command line is wrong, and nothing was read.
    """

    def __init__(self, problems: list[str], *, is_of_words: bool = False) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
        self.is_of_words = is_of_words


def check_text(text: str) -> None:
    """Read the result as the proxy will.

    Raises:
        ImportFailed: If the proxy would refuse it, with its own words.
    """
    with tempfile.TemporaryDirectory(prefix="sluice-import-") as folder:
        path = Path(folder) / "result.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            load_config(path, {})
        except ConfigError as error:
            problems = [problem.removeprefix(f"{path}:").strip() for problem in error.problems]
            raise ImportFailed([f"the result would not be accepted: line {each}" for each in problems]) from None


def report_lines(findings: ImportResult, *, verbose: bool) -> Iterator[str]:
    """Yield the report of an import line by line; every limit that was found is mentioned.

    Args:
        findings: The findings.
        verbose: Also name the keys that are off or not about limits.
    """
    yield f"{_count(len(findings.taken), 'value')} taken over"
    yield from _list("worth a look:", findings.notes)
    yield from _list("limits at the broker, and has no place here:", _by_reason(findings.left))
    yield from _keys(f"{_count(len(findings.off), 'key')} about limits set to none", findings.off, verbose=verbose)
    yield from _keys(f"{_count(len(findings.others), 'key')} not about limits", findings.others, verbose=verbose)
    yield from _list("once all clients come through Sluice, these end the limits at the broker:", findings.switch_off)
    yield from _list("and this, by hand:", findings.by_hand)


def as_json(findings: ImportResult) -> dict[str, Any]:
    """Return the report of an import for programs: the number of values taken over, and all else by its kind."""
    return {
        "taken": len(findings.taken),
        "notes": findings.notes,
        "left_out": [{"what": limit.what, "why": limit.why} for limit in findings.left],
        "off": sorted(findings.off),
        "others": sorted(findings.others),
        "switch_off": findings.switch_off,
        "by_hand": findings.by_hand,
    }


def _list(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield title
        yield from (f"  {line}" for line in lines)


def _by_reason(left: list[LeftOut]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for limit in left:
        reasons.setdefault(limit.why, []).append(limit.what)
    return [line for why, named in reasons.items() for line in (f"{why}:", *(f"  {subject}" for subject in named))]


def _keys(title: str, keys: list[str], *, verbose: bool) -> Iterator[str]:
    if keys and verbose:
        yield from _list(f"{title}:", sorted(keys))
    elif keys:
        yield f"{title} (--verbose names them)"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
