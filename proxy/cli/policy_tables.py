"""The output of the commands about policies."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from limiter.levels import LEVEL_OF_WORD
from protocol.printable import printable
from proxy.cli.top_view import (
    DegradedAnswer,
    InForceAnswer,
    SharesAnswer,
    degraded_line,
    limit,
    percent,
    shares_lines,
    size,
)
from proxy.policies.bodies import section_text
from proxy.policies.keys import ANONYMOUS, Layer, PolicyKind
from proxy.policies.policy_set import Difference

_MARKS = {"holds": "▶ holds", "hidden": "hidden by", "no limit": "limits nothing"}
_HAVE_NONE = {"publish": "producers have none", "dispatch": "consumers have none"}
_TITLES = {
    "publish": "publish: from producers to the broker",
    "dispatch": "dispatch: from the broker to consumers",
}


@dataclass(frozen=True, slots=True)
class LevelRow:
    """A row about a level.

    Args:
        level: The level; empty where it is that of the row before.
        cells: The other columns.
        style: The style of the row.
    """

    level: str
    cells: tuple[Text, ...]
    style: str


@dataclass(frozen=True, slots=True)
class LevelTable:
    """The levels of one direction: a table, or in a terminal too narrow for its words a paragraph for each value.

    Args:
        title: The line above.
        columns: The titles of the columns.
        rows: The rows.
    """

    title: str
    columns: tuple[str, ...]
    rows: list[LevelRow]

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it; no word is broken that fits a line."""
        widths = self._widths(options.max_width)
        if widths is None:
            yield Text(self.title, style="italic")
            yield self._paragraphs()
            return
        table = Table(title=self.title, title_justify="left")
        for name, width in zip(self.columns, widths, strict=True):
            table.add_column(name, overflow="fold", width=width)
        for row in self.rows:
            table.add_row(row.level, *row.cells, style=row.style)
        yield table

    def _widths(self, most: int) -> list[int] | None:
        """Return the columns' widths in which all words are whole; None: there is no room for these."""
        columns = list(zip(self.columns, *((row.level, *map(str, row.cells)) for row in self.rows), strict=True))
        widths = [max(cell_len(word) for cell in cells for word in cell.split() or [""]) for cells in columns]
        widths[0] = max(map(cell_len, columns[0]))
        room = most - sum(widths) - 3 * len(columns) - 1
        if room < 0:
            return None
        wanted = [max(map(cell_len, cells)) for cells in columns]
        while room and (short := [place for place, width in enumerate(widths) if width < wanted[place]]):
            for place in short[:room]:
                widths[place] += 1
            room -= min(room, len(short))
        return widths

    def _paragraphs(self) -> Table:
        level = Column(width=max(cell_len(row.level) for row in self.rows), no_wrap=True)
        grid = Table.grid(Column(width=1), level, Column(overflow="fold", ratio=1), padding=(0, 1, 0, 0), expand=True)
        for row in self.rows:
            where, limit, origin, mark, *here = map(str, row.cells)
            origin = f"({origin})" if origin else ""
            in_force = [f"in force here: {each}" for each in here if each]
            words = [part for part in (mark, where, limit, origin, *in_force) if part]
            grid.add_row("", row.level, Text("  ".join(words)), style=row.style)
        return grid


def explanation(answer: dict[str, Any]) -> Iterator[LevelTable | str]:
    """Draw the answer of `/sluice/explain`, part by part."""
    yield f"topic: {escape(printable(answer['topic']))}"
    is_exempt, group = answer["exempt"], answer["resource_group"]
    if is_exempt:
        yield "a topic of Pulsar's own: exempt from every limit but that of limits.exempt"
    elif group:
        attached = f"as {group['member']} is attached to it ({group['origin']})"
        yield f"resource group: {escape(group['name'])}, {escape(attached)}"
    else:
        yield "resource group: none"
    yield from map(escape, _in_force_lines(answer))
    has_shares = bool(answer["shares"])
    for direction, title in _TITLES.items():
        yield _levels(direction, title, answer[direction], has_shares=has_shares)
    if is_exempt:
        return
    yield _levels("subscribe", "subscribe: how often one consumer may", [answer["subscribe"]])


def _in_force_lines(answer: dict[str, Any]) -> list[str]:
    shares = msgspec.convert(answer["shares"], SharesAnswer | None)
    degraded = msgspec.convert(answer["degraded"], list[DegradedAnswer])
    return [*shares_lines(shares), *map(degraded_line, degraded)]


def _levels(direction: str, title: str, levels: list[dict[str, Any]], *, has_shares: bool = False) -> LevelTable:
    columns = ("level", "value for", "limit", "from", "", *(("in force here",) if has_shares else ()))
    rows = list[LevelRow]()
    for level in levels:
        if not level["values"]:
            why = "" if level["asked"] else _why_not_asked(direction, level["level"])
            rows.append(LevelRow(level["level"], _plain("", why, "", "", *([""] if has_shares else [])), "dim"))
        for number, value in enumerate(level["values"]):
            cells, holds = _value(value), value["state"] == "holds"
            if has_shares:
                cells += _plain(in_force(level["in_force"]) if holds else "")
            rows.append(LevelRow(level["level"] if number == 0 else "", cells, "bold green" if holds else "dim"))
    return LevelTable(title, columns, rows)


def _why_not_asked(direction: str, word: str) -> str:
    level = LEVEL_OF_WORD.get(word)  # a proxy of a later version may have others
    if level is None:
        return ""
    is_limited = any(direction in record.abouts for record in level.settings)
    return level.missing if is_limited else _HAVE_NONE.get(direction, "")


def _value(value: dict[str, Any]) -> tuple[Text, ...]:
    mark = _MARKS[value["state"]]
    where = f"{value['setting']} {value['name']}".rstrip()
    author = value["author"] if value["author"] != ANONYMOUS else ""
    plan = f"plan {value['plan']}" if value["plan"] else ""
    origin = ", ".join(part for part in (value["origin"], plan, author) if part)
    return _plain(where, section_text(value["limit"]), origin, f"{mark} {value['by']}".rstrip())


def in_force(rates: dict[str, Any] | None) -> str:
    """Return a member's part of a limit that its fleet shares; empty where none is in use."""
    if rates is None:
        return ""
    here, parts = msgspec.convert(rates, InForceAnswer), list[str]()
    if {here.share_messages, here.share_bytes} <= {0, None}:  # it gets one when a stream comes
        return "no share yet" if 0 in {here.share_messages, here.share_bytes} else ""
    if here.share_messages is not None and here.messages_per_s is not None:
        parts.append(f"{limit(here.messages_per_s)} ({percent(here.share_messages)})")
    if here.share_bytes is not None and here.bytes_per_s is not None:
        parts.append(f"{size(here.bytes_per_s)}/s ({percent(here.share_bytes)})")
    return ", ".join(parts)


def _plain(*cells: str) -> tuple[Text, ...]:
    """Names are no markup, and command no terminal."""
    return tuple(Text(printable(cell)) for cell in cells)


def difference_lines(differences: Iterable[Difference]) -> Iterator[str]:
    """Return a line for each difference: its key, the file's value, and the value in force with its origin."""
    for difference in differences:
        yield difference.key
        yield f"  file:     {difference.wanted or '-'}"
        yield f"  in force: {difference.held or '-'}" + (f" ({difference.origin})" if difference.origin else "")


def applied(answer: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each change in the answer of `/sluice/policies` to a set."""
    changes = [Difference(**change) for change in answer["changes"]]
    if not changes:
        yield "nothing to change: these limits are in force"
        return
    done = "changed" if answer["applied"] else "would change"
    for difference in changes:
        yield f"{done}: {difference.key}: {difference.held or '-'} -> {difference.wanted or '-'}"
    if answer["more_changes"]:
        yield f"and {answer['more_changes']} more"
    for key in answer["hidden"]:
        yield f"{key}: the proxy's own file limits it; a value that limits nothing hides that: take it out of the file"


def audit_lines(changes: list[dict[str, Any]]) -> Iterator[Table]:
    """Draw who changed what, when, and what was in force before; any width has room for it."""
    for change in changes:
        when = change["at"].partition(".")[0].removesuffix("+00:00").replace("T", " ")
        author = " ".join(part for part in (change["who"], change["address"] and f"({change['address']})") if part)
        origin = "" if change["origin"] in {"", Layer.REST.origin} else f"({change['origin']})"
        subject = " ".join(part for part in (change["kind"], change["setting"], change["name"], origin) if part)
        rows = [("by", author)]
        if change["origin"]:
            rows += [("from", _words_held(change)), ("to", change["words"] or "not recorded")]
        else:
            rows.append(("did", change["words"]))
        table = Table.grid(
            Column(width=6), Column(overflow="fold", ratio=1), padding=(0, 1, 0, 0), pad_edge=True, expand=True
        )
        table.title, table.title_justify, table.title_style = Text(printable(f"{when}  {subject}")), "left", "bold"
        for row in rows:
            table.add_row(*_plain(*row))
        yield table


def _words_held(change: dict[str, Any]) -> str:
    held = change["held"]
    if held is None:
        return "not recorded"
    kinds = {value["kind"] for value in held}
    parts = []
    for value in held:
        kind = f"{value['kind']}: " if len(kinds) > 1 else ""
        wider = f", as {value['setting']} {value['name']}".rstrip()
        is_own = value["name"] == change["name"] or value["kind"] == PolicyKind.BLOCK
        parts.append(f"{kind}{value['words']}{'' if is_own else wider}")
    return "; ".join(parts) or _NOTHING_HELD.get(change["kind"], "no limit")


_NOTHING_HELD = {PolicyKind.BLOCK: "not blocked", PolicyKind.ATTACHMENT: "in no group"}
