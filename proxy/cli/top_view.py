"""`sluice top`: who holds traffic back now, and why, drawn anew as often as a proxy is asked; and `sluice fleet`."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Annotated, Literal, NoReturn

import msgspec
from msgspec import Meta, Struct
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from protocol.printable import printable, printable_json
from proxy import typed_json
from proxy.cli.admin_link import AdminLink
from proxy.cli.options import AdminLinkError
from proxy.cli.top_fit import PROXY, fitted, shortened

MOST_STREAMS = 10_000
"""Streams that are asked for, at most: as many as one answer can hold."""

Count = Annotated[int, Meta(ge=0)]


class InForceAnswer(Struct, frozen=True):
    """The rates of a limit in force in this proxy, and its part of a limit that a fleet shares."""

    messages_per_s: float | None
    bytes_per_s: float | None
    share_messages: float | None = None
    share_bytes: float | None = None


class SharesAnswer(Struct, frozen=True):
    """The shares of a fleet's limits that are in force."""

    fleet: str
    state: str
    since: str
    why: str


class DegradedAnswer(Struct, frozen=True):
    """A state in which the proxy serves, and not all that is configured holds."""

    cause: str
    for_s: float
    reason: str
    remedy: str


class Waiting(Struct, frozen=True):
    """The limit that a stream or its permits wait on, per second; `published_…`: the topic's part of that rate."""

    level: str
    name: str
    messages_per_s: float | None
    bytes_per_s: float | None
    for_ms: float
    published_messages_per_s: float | None = None
    published_bytes_per_s: float | None = None
    in_force: InForceAnswer | None = None


class Rejecting(Struct, frozen=True):
    """The limit that rejected a producer's messages last; fields as in `Waiting`."""

    level: str
    name: str
    messages_per_s: float | None
    bytes_per_s: float | None
    published_messages_per_s: float | None = None
    published_bytes_per_s: float | None = None
    in_force: InForceAnswer | None = None


class WouldHold(Struct, frozen=True):
    """The counts that limits in mode `observe` would hold."""

    held_messages: Count


class StreamState(Struct, frozen=True):
    """A producer or consumer; counts are since it was opened."""

    direction: str
    topic: str
    connection_id: int
    client_address: str
    client_role: str
    stream_id: int
    producer_name: str
    subscription: str
    offered_messages: Count
    passed_messages: Count
    rejected_messages: Count
    held_messages: Count
    held_bytes: Count
    held_for_ms: float | None
    waits_on: Waiting | None
    observed: WouldHold | None
    permits_withheld: Count = 0
    permits_at_broker: int = 0
    permits_wait_on: Waiting | None = None
    rejected_by: Rejecting | None = None


class StreamTotals(Struct, frozen=True):
    """Sums over all open streams."""

    streams: Count
    held_streams: Count
    held_messages: Count
    held_bytes: Count


class Poll(Struct, frozen=True):
    """The answer; `left_out` counts the streams that it does not hold."""

    monotonic_ms: float
    totals: StreamTotals
    streams: list[StreamState]
    left_out: Count
    shares: SharesAnswer | None = None
    degraded: list[DegradedAnswer] = []
    draining: str | None = None


def fetch(link: AdminLink, wanted: Mapping[str, str] | None = None) -> Poll:
    """Ask once for all streams, or for those that `wanted` chooses: parameters of `/sluice/streams`.

    Raises:
        AdminLinkError: If there is no answer, or another one than a proxy's.
    """
    body = link.get("/sluice/streams", {**(wanted or {}), "limit": str(MOST_STREAMS)})
    try:
        return typed_json.decode(body, Poll)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AdminLinkError(
            f"{link.address}: this version of Sluice does not understand the answer ({error})"
        ) from None


def counted(number: int, noun: str) -> str:
    """Return a number of things: `1 stream`, `1,200 streams`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


_SIZES = ("B", "kB", "MB", "GB", "TB")
_UNKNOWN = "-"


def rate(per_s: float | None) -> str:
    """Messages per second."""
    if per_s is None:
        return _UNKNOWN
    return f"{per_s:,.0f}" if per_s >= 10 or per_s == int(per_s) else f"{per_s:.1f}"


def limit(per_s: float) -> str:
    """Return a limit of messages: `500/s`, `30/min`, `1/h`."""
    for times, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if per_s * times >= 1:
            return f"{rate(per_s * times)}/{unit}"
    return f"{rate(per_s * 86400)}/d"


def size(number: float) -> str:
    """Bytes: `200 B`, `1.5 kB`."""
    unit = 0
    while number >= 999.5 and unit + 1 < len(_SIZES):
        number, unit = number / 1000, unit + 1
    return f"{number:.0f} {_SIZES[unit]}" if unit == 0 or number >= 99.95 else f"{number:.1f} {_SIZES[unit]}"


def span(ms: float | None) -> str:
    """Return a duration: `250ms`, `3.2s`, `4m10s`, `2h05m`, `3d04h`; empty for none."""
    if ms is None:
        return ""
    seconds = int(ms / 1000)
    if seconds < 60:
        return f"{ms:.0f}ms" if seconds == 0 else f"{ms / 1000:.1f}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02}s"
    hours = seconds // 3600
    return f"{hours}h{seconds % 3600 // 60:02}m" if hours < 24 else f"{hours // 24}d{hours % 24:02}h"


def short_topic(name: str) -> str:
    """Return a topic's name without the domain that nearly all have."""
    return name.removeprefix("persistent://")


def who(stream: StreamState) -> str:
    """Return the producer's name, or the subscription; a producer that has none yet by its number."""
    return stream.subscription or stream.producer_name or f"#{stream.stream_id}"


def since(stream: StreamState) -> str:
    """Write how long something has been held, or else permits have been withheld."""
    if stream.held_for_ms is None and stream.permits_wait_on is not None:
        return span(stream.permits_wait_on.for_ms)
    return span(stream.held_for_ms)


def obstacle(stream: StreamState, rejected_per_s: float | None = None) -> str:
    """Return the limit that holds a stream or withholds its permits, with its value, or what observed ones would hold.

    A consumer that has permits at the broker as well waits for what the broker has for it, first of all. Where messages
    are rejected now, the limit that rejected the last one comes first.
    """
    if rejected_per_s:
        by = f": {_valued(stream.rejected_by, stream)}" if stream.rejected_by else ""
        held = f"; held: {_valued(stream.waits_on, stream)}" if stream.waits_on else ""
        return f"rejected {rate(rejected_per_s)}/s{by}{held}"
    if stream.waits_on is not None:
        return _valued(stream.waits_on, stream)
    if stream.permits_wait_on is not None:
        at_broker = f" (at the broker {stream.permits_at_broker:,})" if stream.permits_at_broker > 0 else ""
        return f"{stream.permits_withheld:,} permits withheld{at_broker}: {_valued(stream.permits_wait_on, stream)}"
    would = stream.observed.held_messages if stream.observed else 0
    return f"observed: would hold {would:,}" if would else ""


def _valued(waits_on: Waiting | Rejecting, stream: StreamState) -> str:
    values, here = [], waits_on.in_force or InForceAnswer(None, None)
    if waits_on.messages_per_s is not None:
        whole = _with_parts(limit, waits_on.messages_per_s, waits_on.published_messages_per_s)
        values.append(_shared(limit, whole, here.messages_per_s, here.share_messages))
    if waits_on.bytes_per_s is not None:
        whole = _with_parts(_size_limit, waits_on.bytes_per_s, waits_on.published_bytes_per_s)
        values.append(_shared(_size_limit, whole, here.bytes_per_s, here.share_bytes))
    name = "" if waits_on.name == stream.topic else short_topic(waits_on.name)
    return " ".join(part for part in (waits_on.level, name, ", ".join(values)) if part)


def _shared(word: Callable[[float], str], whole: str, per_s: float | None, share: float | None) -> str:
    """Return what of a limit is in force here: of one that a fleet shares this proxy's part, and the whole."""
    if share is None or per_s is None:
        return whole
    return f"{word(per_s)} ({percent(share)} of {whole})" if share else f"no share yet of {whole}"


def _size_limit(per_s: float) -> str:
    return f"{size(per_s)}/s"


def _with_parts(word: Callable[[float], str], per_s: float, published: float | None) -> str:
    """Return a limit relative to the publish rate, with its configured and its published part."""
    return word(per_s) if published is None else f"{word(per_s)} ({word(per_s - published)} + published)"


Sort = Literal["held", "rate", "wait"]
StreamKey = tuple[int, str, int, str]


@dataclass(frozen=True, slots=True)
class StreamRow:
    """A stream and its rates, messages per second; None while they are not known."""

    stream: StreamState
    proxy: str = ""
    offered_per_s: float | None = None
    passed_per_s: float | None = None
    rejected_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class ProxyLook:
    """The answer of one proxy.

    Attributes:
        proxy: Its address.
        poll: What it says now.
        before: What it said at the look before; None if there was none.
    """

    proxy: str
    poll: Poll
    before: Poll | None = None


@dataclass(frozen=True, slots=True)
class ProxyLooks:
    """One look at all proxies: the answers, and a line for each proxy that gave none."""

    looks: list[ProxyLook]
    silent: list[str] = field(default_factory=list)

    def rows(self, sort: Sort) -> list["StreamRow"]:
        """Return the streams of all proxies in this order."""
        return ordered([row for look in self.looks for row in rows_of(look)], sort)


def rows_of(look: ProxyLook) -> list[StreamRow]:
    """Return the streams of a look with their rates since the one before.

    A stream that is new, or whose counts went back (another one under the same number, another run of the proxy), has
    no rates yet.
    """
    poll, before = look.poll, look.before
    elapsed_s = (poll.monotonic_ms - before.monotonic_ms) / 1e3 if before else 0.0
    known = {_key(stream): stream for stream in before.streams} if before and elapsed_s > 0 else {}
    return [_row(look.proxy, stream, known.get(_key(stream)), elapsed_s) for stream in poll.streams]


def ordered(rows: list[StreamRow], sort: Sort) -> list[StreamRow]:
    """Sort rows: `held`: most held first; `rate`: highest rate passed; `wait`: longest held.

    Of equal ones those of which most is rejected come first, then the busiest.
    """
    ranked = [((_rank(row, sort), row.rejected_per_s or 0.0, row.passed_per_s or 0.0), row) for row in rows]
    return [row for _, row in sorted(ranked, key=itemgetter(0), reverse=True)]


def total(rates: list[float | None]) -> float:
    """Return the sum of the known values."""
    return sum(rate for rate in rates if rate is not None)


def _rank(row: StreamRow, sort: Sort) -> float:
    if sort == "held":
        return row.stream.held_messages
    return (row.passed_per_s or 0.0) if sort == "rate" else (row.stream.held_for_ms or 0.0)


def _key(stream: StreamState) -> StreamKey:
    return stream.connection_id, stream.direction, stream.stream_id, stream.topic


def _row(proxy: str, stream: StreamState, before: StreamState | None, elapsed_s: float) -> StreamRow:
    if before is None:
        return StreamRow(stream, proxy)
    changes = (
        stream.offered_messages - before.offered_messages,
        stream.passed_messages - before.passed_messages,
        stream.rejected_messages - before.rejected_messages,
    )
    if min(changes) < 0:
        return StreamRow(stream, proxy)
    return StreamRow(stream, proxy, *(change / elapsed_s for change in changes))


_COLUMNS = ("topic", "way", "who", "client", "offered/s", "passed/s", "held", "bytes", "since", "waits on")
_TO_THE_RIGHT = frozenset({"offered/s", "passed/s", "offered", "passed", "held", "bytes", "since"})
_BEFORE_SUMS, _BETWEEN_SUMS = "   ", " · "
_WAYS = {"publish": "pub", "dispatch": "dis"}


@dataclass(frozen=True, slots=True)
class View:
    """The choice of what to show.

    Args:
        title: One line above the rest.
        sort: The order of rows.
        most: Most rows.
    """

    title: str
    sort: Sort
    most: int


@dataclass(frozen=True, slots=True)
class Shown:
    """A table without any form: lines above it, the titles of its columns, and its cells."""

    heading: list[str]
    columns: tuple[str, ...]
    cells: list[tuple[str, ...]]


def show(looked: ProxyLooks, view: View) -> Shown:
    """Return one table of proxies that were looked at, with rates since the looks before."""
    rows = looked.rows(view.sort)
    several = len(looked.looks) + len(looked.silent) > 1
    heading = [f"{view.title}{_BEFORE_SUMS}{_sums([look.poll for look in looked.looks], rows)}", *looked.silent]
    for look in looked.looks:
        heading += [f"{look.proxy}: {line}" if several else line for line in _states(look.poll)]
    cells = [_cells(row) for row in rows[: view.most]]
    if not several:
        return Shown(heading, _COLUMNS, cells)
    named = [(printable(row.proxy), *each) for row, each in zip(rows, cells, strict=False)]
    return Shown(heading, (PROXY, *_COLUMNS), named)


def _states(poll: Poll) -> list[str]:
    """Return the lines about a proxy itself."""
    lines = []
    if poll.left_out:
        lines.append(f"rates and rows without {counted(poll.left_out, 'stream')} that hold less and were opened later")
    if poll.draining is not None:
        lines.append(printable(poll.draining))
    return [*lines, *shares_lines(poll.shares), *map(degraded_line, poll.degraded)]


def shares_lines(shares: SharesAnswer | None) -> list[str]:
    """Return a line that says which shares of a fleet's limits are in force, and since when; none without a fleet."""
    return [] if shares is None else [printable(f"shares of fleet {shares.fleet}: {shares.why}, since {shares.since}")]


def degraded_line(state: DegradedAnswer) -> str:
    """Return a degraded state as people read it."""
    return printable(f"degraded ({state.cause}) for {span(state.for_s * 1000)}: {state.reason}; remedy: {state.remedy}")


def plain(shown: Shown) -> str:
    """Lines of text with aligned columns; nothing is cut off."""
    lines = [shown.columns, *shown.cells]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        [*shown.heading, *("  ".join(map(_aligned, line, widths, shown.columns)).rstrip() for line in lines)]
    )


def as_json(looked: ProxyLooks, sort: Sort, most: int) -> str:
    """Return the first rows as one line of JSON, with all that the proxies say of the streams."""
    rows = looked.rows(sort)[:most]
    streams = [{**msgspec.to_builtins(row.stream), **msgspec.to_builtins(row)} for row in rows]
    proxies = [{**msgspec.to_builtins(look.poll), "proxy": look.proxy} for look in looked.looks]
    for each, key in [*((stream, "stream") for stream in streams), *((proxy, "streams") for proxy in proxies)]:
        del each[key]
    answer = {"streams": streams, "proxies": proxies, "unanswered": looked.silent}
    return printable_json(msgspec.json.encode(answer).decode())


@dataclass(frozen=True, slots=True)
class Drawing:
    """A table as a terminal shows it, within its width.

    Args:
        shown: The table to show.
        problem: Why it is old, if it is.
        height: The lines of the terminal that it may have; None: any number.
    """

    shown: Shown
    problem: str = ""
    height: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it."""
        width = options.max_width
        columns, rows, gap = fitted(self.shown.columns, self.shown.cells, width)
        lines = [*_lines_of_sums(self.shown.heading[0], width), *self.shown.heading[1:]]
        heading = [Text(line, style="bold", no_wrap=True, overflow="ellipsis") for line in lines]
        if self.problem:
            heading.append(Text(self.problem, style="bold red"))
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, gap, 0, 0))
        for column in columns:
            table.add_column(column, justify="right" if column in _TO_THE_RIGHT else "left", no_wrap=True)
        for cells in rows if self.height is None else rows[: max(1, self.height - len(heading) - 1)]:
            is_held = cells[columns.index("held")] != "0"
            table.add_row(*(Text(cell, overflow="ellipsis") for cell in cells), style="yellow" if is_held else "")
        yield from heading
        yield table


def _lines_of_sums(line: str, width: int) -> list[str]:
    """Return the first line with the sums; where it is too long, in several lines, each of which ends with a sum."""
    if cell_len(line) <= width:
        return [line]
    title, _, sums = line.rpartition(_BEFORE_SUMS)
    lines = [shortened(title, width)]
    for part in sums.split(_BETWEEN_SUMS):
        longer = f"{lines[-1]}{_BETWEEN_SUMS}{part}"
        if len(lines) > 1 and cell_len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines


def _sums(polls: Sequence[Poll], rows: list[StreamRow]) -> str:
    totals = [poll.totals for poll in polls]
    streams = counted(sum(each.streams for each in totals), "stream")
    messages = counted(sum(each.held_messages for each in totals), "message")
    held_bytes = sum(each.held_bytes for each in totals)
    rejected = total([row.rejected_per_s for row in rows])
    parts = [
        f"{streams}, {sum(each.held_streams for each in totals):,} held",
        f"{messages}, {size(held_bytes)} held",
        f"offered {rate(total([row.offered_per_s for row in rows]))}/s",
        f"passed {rate(total([row.passed_per_s for row in rows]))}/s",
    ]
    return _BETWEEN_SUMS.join([*parts, f"rejected {rate(rejected)}/s"] if rejected else parts)


def _cells(row: StreamRow) -> tuple[str, ...]:
    stream = row.stream
    cells = (
        short_topic(stream.topic),
        _WAYS.get(stream.direction, stream.direction),
        who(stream),
        stream.client_address,
        rate(row.offered_per_s),
        rate(row.passed_per_s),
        f"{stream.held_messages:,}",
        size(stream.held_bytes),
        since(stream),
        obstacle(stream, row.rejected_per_s),
    )
    return tuple(printable(cell) for cell in cells)


def _aligned(cell: str, width: int, column: str) -> str:
    blanks = " " * (width - cell_len(cell))
    return blanks + cell if column in _TO_THE_RIGHT else cell + blanks


_HEADING_LINES = 4


@dataclass(frozen=True, slots=True)
class TopRequest:
    """The choices of the command line.

    Args:
        links: To the proxies.
        interval_s: Seconds between two looks.
        once: One table, then end.
        sort: The order of rows.
        rows: Most rows.
        wanted: Parameters of `/sluice/streams` that choose streams.
        json: Whether to print JSON, a line for each look.
    """

    links: Sequence[AdminLink]
    interval_s: float
    once: bool
    sort: Sort
    rows: int
    wanted: Mapping[str, str] = field(default_factory=dict)
    json: bool = False


def run(request: TopRequest, console: Console | None = None, sleep: Callable[[float], None] = time.sleep) -> None:
    """Show it until it was shown once, or until Ctrl-C.

    Raises:
        AdminLinkError: If there is no answer; once there was one, a live table waits for the next instead. If it is
            shown once, also where some of several proxies do not answer; it is raised after the others were shown.
    """
    console = console or Console()
    watch = ProxyWatch(request)
    try:
        if console.is_terminal and not (request.once or request.json):
            _live(watch, request, console, sleep)
        watch.look()
        while True:
            sleep(request.interval_s)
            looked = watch.look()
            _print(looked, request, console)
            if request.once:
                _check_all_answered(looked)
                return
    except KeyboardInterrupt:
        return
    except BrokenPipeError:  # who read has seen enough; nor may the interpreter's own flush at the end fail
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _check_all_answered(looked: ProxyLooks) -> None:
    if looked.silent:
        raise AdminLinkError("; ".join(looked.silent))


class ProxyWatch:
    """The looks at some proxies.

    Args:
        request: The choices of the command line.
    """

    def __init__(self, request: TopRequest) -> None:
        self._request = request
        self._before: dict[AdminLink, Poll] = {}

    def look(self) -> ProxyLooks:
        """Ask each proxy. The next rates of one that does not answer will not span the gap.

        Raises:
            AdminLinkError: If none answers.
        """
        before, self._before = self._before, {}
        looks, errors = [], []
        for link in self._request.links:
            try:
                poll = self._before[link] = fetch(link, self._request.wanted)
            except AdminLinkError as error:
                errors.append(error)
            else:
                looks.append(ProxyLook(link.address, poll, before.get(link)))
        if not looks:
            raise errors[0]
        return ProxyLooks(looks, [printable(str(error)) for error in errors])


def _shown(looked: ProxyLooks, request: TopRequest, most: int) -> Shown:
    addresses = ", ".join(link.address for link in request.links)
    return show(looked, View(f"{time.strftime('%H:%M:%S')} {addresses}", request.sort, most))


def _print(looked: ProxyLooks, request: TopRequest, console: Console) -> None:
    if request.json:
        console.file.write(as_json(looked, request.sort, request.rows) + "\n")
    elif console.is_terminal:
        console.print(Drawing(_shown(looked, request, request.rows)))
    else:
        console.file.write(plain(_shown(looked, request, request.rows)) + "\n\n")
    console.file.flush()


def _live(watch: ProxyWatch, request: TopRequest, console: Console, sleep: Callable[[float], None]) -> NoReturn:
    def room() -> int:
        return max(1, min(request.rows, console.height - _HEADING_LINES))

    shown = _shown(watch.look(), request, room())
    with Live(Drawing(shown, height=console.height), console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.refresh()
            problem = ""
            sleep(request.interval_s)
            try:
                shown = _shown(watch.look(), request, room())
            except AdminLinkError as error:
                problem = str(error)
            live.update(Drawing(shown, problem, console.height))


# ---- sluice fleet


class ShareAnswer(Struct, frozen=True):
    """A share of this member."""

    limiter: str
    unit: str
    share: float
    used_per_s: float | None
    wanted_per_s: float | None
    streams: int | None


class HolderAnswer(Struct, frozen=True):
    """A member's part of a limit."""

    member: str
    share: float
    used_per_s: float
    wanted_per_s: float | None


class QuotaAnswer(Struct, frozen=True):
    """A limit."""

    tokens: int
    period_s: float


class FleetLimitAnswer(Struct, frozen=True):
    """A limit of the fleet, where this member coordinates."""

    limiter: str
    unit: str
    limit: QuotaAnswer
    members_disagree: bool
    unchanged_s: float
    holders: list[HolderAnswer]


class LimitSetAnswer(Struct, frozen=True):
    """The limits that are written alike in some members."""

    digest: str
    limits: int
    is_here: bool
    members: int
    names: list[str]


class VersionSetAnswer(Struct, frozen=True):
    """A version of Sluice, and the members that run it."""

    version: str
    members: int
    names: list[str]


class MemberAnswer(Struct, frozen=True):
    """A member as the coordinator knows it, or has listed it."""

    name: str
    heard_s_ago: float
    limits: int
    has_twin: bool = False
    version: str = ""


class LastChangeAnswer(Struct, frozen=True):
    """The latest change of a policy."""

    policy: str
    who: str
    member: str
    at: str


class PoliciesAnswer(Struct, frozen=True):
    """The topic by which policies change."""

    topic: str
    state: str
    problem: str
    position: str | None
    policies: int
    last: LastChangeAnswer | None


class FleetAnswer(Struct, frozen=True):
    """The answer of `/sluice/fleet`."""

    fleet: str
    member: str
    state: str
    coordinator: str
    epoch: int
    members_known: int
    lease_left_s: float
    isolated: bool
    lease_ends: int
    shares: list[ShareAnswer]
    members: list[MemberAnswer] | None
    fleet_limits: list[FleetLimitAnswer] | None
    policies: PoliciesAnswer | None = None
    limit_sets: list[LimitSetAnswer] = []
    version_sets: list[VersionSetAnswer] = []
    last_coordinator: str = ""
    answered_s_ago: float | None = None
    problem: str = ""


def show_fleet(link: AdminLink, rows: int, *, as_json: bool) -> None:
    """Ask once and print.

    Raises:
        AdminLinkError: If there is no answer, or another one than a proxy's, or the proxy is in no fleet.
    """
    body = link.get("/sluice/fleet", {"limit": str(rows)})
    console = Console(highlight=False, soft_wrap=True)
    if as_json:
        sys.stdout.write(f"{printable_json(msgspec.json.format(body).decode())}\n")
        return
    try:
        state = typed_json.decode(body, FleetAnswer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AdminLinkError(
            f"{link.address}: this version of Sluice does not understand the answer ({error})"
        ) from None
    for line in fleet_head(state):
        console.print(line, markup=False)
    for table in fleet_tables(state):
        console.print(table)


def fleet_head(state: FleetAnswer) -> list[str]:
    """Return the lines above the tables."""
    lease = f"lease for {state.lease_left_s:.1f} s more" if state.lease_left_s else "no lease"
    lease = "cut off: isolated shares hold" if state.isolated else lease
    why = f" ({printable(state.problem)})" if state.problem else ""
    member = f"{printable(state.member)} in fleet {printable(state.fleet)}"
    return [
        f"{member}: {state.state}{why}; {lease}; lease ended {state.lease_ends} times",
        _coordinator_head(state),
        *_limit_sets_head(state.limit_sets),
        *_version_sets_head(state.version_sets),
        *_twins_head(state.members or []),
        *_policies_head(state.policies),
    ]


def _coordinator_head(state: FleetAnswer) -> str:
    if state.coordinator:
        return f"coordinator: {printable(state.coordinator)}; members: {state.members_known}; epoch {state.epoch:x}"
    if state.answered_s_ago is None:
        return "coordinator: none is heard, and none was"
    before = f"{printable(state.last_coordinator)} answered last, {state.answered_s_ago:.1f} s ago"
    return f"coordinator: none is heard; {before}, of {state.members_known} members"


def _limit_sets_head(limit_sets: list[LimitSetAnswer]) -> list[str]:
    if not limit_sets:
        return []
    return ["members have different limits; compare them by sluice export at one member and sluice diff at another"]


def _version_sets_head(version_sets: list[VersionSetAnswer]) -> list[str]:
    parts = []
    for version_set in version_sets:
        more = (
            f" and {version_set.members - len(version_set.names)} more"
            if version_set.members > len(version_set.names)
            else ""
        )
        parts.append(printable(f"{version_set.version or 'unknown'} in {', '.join(version_set.names)}{more}"))
    return [f"members run different versions of Sluice: {'; '.join(parts)}"] if parts else []


def _twins_head(members: list[MemberAnswer]) -> list[str]:
    names = sorted({printable(member.name) for member in members if member.has_twin})
    return [f"several members have one name: {', '.join(names)}; give each its own proxy_id"] if names else []


def _policies_head(policies: PoliciesAnswer | None) -> list[str]:
    if policies is None:
        return ["policies: each member keeps its own"]
    state = policies.state.replace("_", " ") + (f" ({printable(policies.problem)})" if policies.problem else "")
    at = f", at {policies.position}" if policies.position else ""
    lines = [f"policies: {state}; {policies.policies} changes on {printable(policies.topic)}{at}"]
    if policies.last is not None:
        last = policies.last
        lines.append(
            f"last change: {printable(last.policy)} by {printable(last.who)}, at {printable(last.member)}, {last.at}"
        )
    return lines


def fleet_tables(state: FleetAnswer) -> list[Table]:
    """Return the tables: this member's shares, the members, and all shares where this member coordinates."""
    shares = Table("limit", "unit", "share", "used/s", "wanted/s", "streams", title="shares of this member")
    for share in state.shares:
        streams = "" if share.streams is None else str(share.streams)
        wanted = _wanted(share.wanted_per_s) if share.used_per_s is not None else ""
        _add(
            shares,
            _limit_name(share.limiter),
            share.unit,
            percent(share.share),
            rate(share.used_per_s),
            wanted,
            streams,
        )
    tables = [shares]
    if state.limit_sets:
        tables.append(_limit_sets_table(state.limit_sets))
    if state.members is not None:
        members = Table("member", "Sluice", "heard", "limits", title="members")
        for member in state.members:
            heard = f"{member.heard_s_ago:.2f} s ago"
            _add(members, printable(member.name), printable(member.version), heard, str(member.limits))
        tables.append(members)
    if state.fleet_limits is not None:
        limits = Table("limit", "unit", "of", "member", "share", "used/s", "wanted/s", title="shares of all members")
        for limit in state.fleet_limits:
            of = f"{limit.limit.tokens:,} per {limit.limit.period_s:g} s" + (
                " (lowest)" if limit.members_disagree else ""
            )
            for place, holder in enumerate(limit.holders):
                names = (_limit_name(limit.limiter), limit.unit, of) if place == 0 else ("", "", "")
                figures = percent(holder.share), rate(holder.used_per_s), _wanted(holder.wanted_per_s)
                _add(limits, *names, printable(holder.member), *figures)
        tables.append(limits)
    return tables


def _limit_sets_table(limit_sets: list[LimitSetAnswer]) -> Table:
    table = Table("limits", "digest", "members", "names", "this member", title="limits that members have alike")
    for limit_set in limit_sets:
        more = (
            f" and {limit_set.members - len(limit_set.names)} more" if limit_set.members > len(limit_set.names) else ""
        )
        names = printable(", ".join(limit_set.names)) + more
        _add(
            table,
            str(limit_set.limits),
            limit_set.digest[:8],
            str(limit_set.members),
            names,
            "has these" if limit_set.is_here else "",
        )
    return table


def _add(table: Table, *cells: str) -> None:
    """Add a row as it is: brackets in names that others chose are no markup."""
    table.add_row(*map(Text, cells))


def _limit_name(limiter: str) -> str:
    *head, name = printable(limiter).split(" ", 2)
    return " ".join([*head, short_topic(name)])


def percent(share: float) -> str:
    """Return a part of a limit: `5.0%`."""
    return f"{share:.1%}"


def _wanted(per_s: float | None) -> str:
    return "all" if per_s is None else rate(per_s)
