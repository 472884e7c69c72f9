"""Write changes of policies, blocks and the configuration file as lines of the access log.

A change is written when all lines before it are in the log and none after it has begun: a limiter's line never spans a
change of its value.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeVar

from limiter.policies import PolicyTarget, Value
from proxy.block_rules import Block
from proxy.config.sources import cut
from proxy.observe.access_log import MOST_CHANGE_TEXT, AccessLog
from proxy.observe.log_lines import LineSpan, Moment
from proxy.policies.bodies import section_of, section_text
from proxy.policies.keys import Principal
from proxy.policies.layers import FilePolicies
from proxy.policies.store import StoredChange

_MOST_SHOWN = MOST_CHANGE_TEXT // 10
"""Most differences of a file that are made into text; more would not fit."""

_MOST_REMOVED = 5
"""Most removed limits that are named."""


class FileDifference(NamedTuple):
    """The difference of two files.

    Attributes:
        before: The differing values of the one file; None if there are none.
        after: Those of the other.
        removed: The number of limits, groups and blocks that the other file does not have.
        removed_names: The first of them.
    """

    before: str | None
    after: str | None
    removed: int = 0
    removed_names: tuple[str, ...] = ()


K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class FileContent:
    """The part of a configuration file that can change while the proxy runs."""

    policies: FilePolicies
    blocks: tuple[Block, ...]


class ChangeLog:
    """Writes changes into the access log.

    Args:
        access: The access log.
    """

    def __init__(self, access: AccessLog) -> None:
        self._access = access

    def changed(self, change: StoredChange, author: Principal, at: Moment) -> None:
        """Write a change at run time that came into force at that moment."""
        key = change.key
        self._access.change(
            LineSpan.between(at, at),
            who=author.name,
            address=author.address,
            what=key.kind.value,
            setting=key.setting,
            name=key.name,
            before=change.before,
            after=change.after,
        )

    def reloaded(self, changed: FileDifference, principal: Principal, at: Moment) -> None:
        """Write the change to another configuration file, see `difference`; nothing if both files are equal.

        Args:
            changed: The differing values before, and now.
            principal: The principal that asked for the reload, or its cause, without an address.
            at: The moment of the change.
        """
        if changed.before is None and changed.after is None:
            return
        self._access.change(
            LineSpan.between(at, at),
            who=principal.name,
            address=principal.address,
            what="file",
            setting="",
            name="",
            before=changed.before,
            after=changed.after,
        )


def difference(before: FileContent, after: FileContent) -> FileDifference:
    """Return the differing values of two files as two texts, None for nothing. May be called in any thread."""
    return _as_texts(differing(before, after))


def _as_texts(changed: Iterator[tuple[str, str, str]]) -> FileDifference:
    shown: list[tuple[str, str, str]] = []
    more = removed = 0
    names: list[str] = []
    for each in changed:
        name, _, new = each
        more += len(shown) == _MOST_SHOWN
        shown += [each] * (len(shown) < _MOST_SHOWN)
        removed += not new
        names += [cut(name)] * (not new and len(names) < _MOST_REMOVED)
    before = _text([(name, old) for name, old, _ in shown], more)
    return FileDifference(before, _text([(name, new) for name, _, new in shown], more), removed, tuple(names))


def differing(before: FileContent, after: FileContent) -> Iterator[tuple[str, str, str]]:
    """Yield each difference of two files: its name, the value before, the value after; empty if there is none."""
    of_namespaces = (each.policies.groups_of_namespaces for each in (before, after))
    of_tenants = (each.policies.groups_of_tenants for each in (before, after))
    return chain(
        _differing_values(before.policies.values, after.policies.values),
        _differing_texts("resource group", *(dict.fromkeys(each.policies.groups, "there") for each in (before, after))),
        _differing_texts("group of tenant", *of_tenants),
        _differing_texts("group of namespace", *of_namespaces),
        _differing_texts("block", _reasons(before.blocks), _reasons(after.blocks)),
    )


def _differing_values(
    before: Mapping[PolicyTarget, Value], after: Mapping[PolicyTarget, Value]
) -> Iterator[tuple[str, str, str]]:
    for target, old, new in _differing(before, after):
        yield " ".join(part for part in target if part), _limit_text(target, old), _limit_text(target, new)


def _differing_texts(kind: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for name, old, new in _differing(before, after):
        yield f"{kind} {name}", old or "", new or ""


def _differing(before: Mapping[K, V], after: Mapping[K, V]) -> Iterator[tuple[K, V | None, V | None]]:
    for key, old in before.items():
        new = after.get(key)
        if old != new:
            yield key, old, new
    for key, added in after.items():
        if key not in before:
            yield key, None, added


def _limit_text(target: PolicyTarget, value: Value | None) -> str:
    if value is None:
        return ""
    text = section_text(section_of(target[0], value.limit))
    return f"{text} (plan {value.plan})" if value.plan else text


def _reasons(blocks: tuple[Block, ...]) -> dict[str, str]:
    return {str(block.key()): f"blocked {block.reason}".strip() for block in blocks}


def _text(parts: list[tuple[str, str]], more: int) -> str | None:
    texts = [f"{name}: {text}" for name, text in parts if text]
    return "; ".join(texts + [f"… and {more} more"] * (more > 0)) or None
