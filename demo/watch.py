"""The live picture of the demo: twice a second, the counts of Sluice and the load generator become rates by topic.

On a terminal a table changes in place; elsewhere a plain line comes now and then.
"""

import json
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from adminrest.client import AdminClient, AdminError

TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class TopicStreams:
    """The publish streams of one topic, summed up."""

    offered: int = 0
    """Messages since the streams opened."""
    passed: int = 0
    held: int = 0
    """Messages held now."""
    limit_per_s: float | None = None
    """The narrowest message limit in force, whatever its level."""
    waits_on: str = ""
    """Level of the limit that a stream waits on; empty if none waits."""

    def joined(self, other: "TopicStreams") -> "TopicStreams":
        """Return the sum of this and another stream of the topic."""
        limits = [streams.limit_per_s for streams in (self, other) if streams.limit_per_s is not None]
        return TopicStreams(
            self.offered + other.offered,
            self.passed + other.passed,
            self.held + other.held,
            min(limits, default=None),
            self.waits_on or other.waits_on,
        )


def fetch_streams(admin: str) -> list[dict[str, Any]] | None:
    """The streams of the Sluice whose admin address is `admin`; None if it gives no answer just now."""
    try:
        answer = AdminClient(f"http://{admin}", timeout_s=TIMEOUT_S).get_json("/sluice/streams")
    except AdminError:
        return None
    streams: list[dict[str, Any]] = answer["streams"]
    return streams


def by_topic(streams: Iterable[Mapping[str, Any]]) -> dict[str, TopicStreams]:
    """Return the state of each topic with a publish stream."""
    topics: dict[str, TopicStreams] = {}
    for stream in streams:
        if stream["direction"] == "publish":
            topic = stream["topic"]
            topics[topic] = topics.get(topic, TopicStreams()).joined(_state(stream))
    return topics


def _state(stream: Mapping[str, Any]) -> TopicStreams:
    limits = [limit["messages_per_s"] for limit in stream["limits"] if limit["messages_per_s"] is not None]
    return TopicStreams(
        offered=stream["offered_messages"],
        passed=stream["passed_messages"],
        held=stream["held_messages"],
        limit_per_s=min(limits, default=None),
        waits_on=(stream["waits_on"] or {}).get("level", ""),
    )


WINDOW_S = 1.0


@dataclass(frozen=True, slots=True)
class TopicRates:
    """A row of the live table; rates are messages per second."""

    topic: str
    wanted: float
    """Rate that the load's pattern asks for."""
    offered: float
    """Rate that arrived at Sluice."""
    passed: float
    received: float
    """Rate that the broker delivered to the receiving end."""
    state: TopicStreams


_Totals = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Look:
    """Totals wanted, offered, passed and received by topic, with the time of each source by its own clock."""

    sluice_s: float
    load_s: float
    totals: Mapping[str, _Totals]


class RateMeter:
    """Keeps the totals of about the last second and returns the rates over it.

    Args:
        topics: Full names, in the order of the rows.
    """

    def __init__(self, topics: Iterable[str]) -> None:
        self._topics = list(topics)
        self._seen: deque[_Look] = deque()

    def rows(self, now: float, states: Mapping[str, TopicStreams], load: Mapping[str, Any]) -> list[TopicRates]:
        """Add the totals of `now` (seconds) and return a row for each topic.

        Args:
            now: Time of Sluice's answer, by any monotonic clock.
            states: Sluice's answer.
            load: The load generator's last live line, with its own time.
        """
        idle, counts = TopicStreams(), load["topics"]
        totals = {topic: _totals(states.get(topic, idle), counts.get(topic, {})) for topic in self._topics}
        self._seen.append(_Look(now, load["at_s"], totals))
        while len(self._seen) > 2 and now - self._seen[1].sluice_s >= WINDOW_S:
            self._seen.popleft()
        return [TopicRates(topic, *self._rates(topic), states.get(topic, idle)) for topic in self._topics]

    def _rates(self, topic: str) -> tuple[float, float, float, float]:
        first, last = self._seen[0], self._seen[-1]
        by_sluice, by_load = last.sluice_s - first.sluice_s, last.load_s - first.load_s
        wanted, offered, passed, received = (
            # totals fall when a stream closes: no rate is negative
            max(0, new - old) / seconds if seconds > 0 else 0.0
            for old, new, seconds in zip(
                first.totals[topic],
                last.totals[topic],
                (by_load, by_sluice, by_sluice, by_load),
                strict=True,
            )
        )
        return wanted, offered, passed, received


def _totals(state: TopicStreams, counts: Mapping[str, int]) -> _Totals:
    return counts.get("wanted_messages", 0), state.offered, state.passed, counts.get("received", 0)


PLAIN_S = 5.0


class LivePicture:
    """Shows rows as they come.

    Args:
        console: The terminal or file to write to.
        seconds: Length of the load.
    """

    def __init__(self, console: Console, seconds: float) -> None:
        self._console = console
        self._seconds = seconds
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._next_plain = PLAIN_S / 2

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, at_s: float, rows: Sequence[TopicRates]) -> None:
        """Show the rates `at_s` seconds after the load began."""
        if self._live:
            self._live.update(table(at_s, self._seconds, rows), refresh=True)
        elif at_s >= self._next_plain:
            self._next_plain = at_s + PLAIN_S
            self._console.print(plain_line(at_s, rows), soft_wrap=True, highlight=False)


def table(at_s: float, seconds: float, rows: Sequence[TopicRates]) -> Table:
    """Draw the rows as a table."""
    phase = f"{at_s:.0f} of {seconds:.0f} s" if at_s <= seconds else "waiting for the last receipts"
    result = Table(title=f"messages per second, {phase}", title_justify="left")
    result.add_column("topic")
    for name in ("wanted", "offered", "passed", "received", "limit", "held"):
        result.add_column(name, justify="right")
    result.add_column("waits on")
    for row in rows:
        rates = (row.wanted, row.offered, row.passed, row.received)
        cells = [f"{rate:,.0f}" for rate in rates]
        result.add_row(_short(row.topic), *cells, _limit(row), f"{row.state.held:,}", row.state.waits_on)
    return result


def plain_line(at_s: float, rows: Sequence[TopicRates]) -> str:
    """Write the rows in one line: passed per second, of the limit, and held."""
    parts = [f"{_short(row.topic)} {row.passed:.0f}/s of {_limit(row)}, {row.state.held} held" for row in rows]
    return f"  {at_s:3.0f} s  " + " | ".join(parts)


def _short(topic: str) -> str:
    return topic.removeprefix("persistent://")


def _limit(row: TopicRates) -> str:
    return "-" if row.state.limit_per_s is None else f"{row.state.limit_per_s:,.0f}"


POLL_S = 0.5
TAIL_BYTES = 65_536


class Watch:
    """Keeps the picture up to date while `look` is called repeatedly.

    Args:
        admin: Address of Sluice's admin HTTP, HOST:PORT.
        live: The load generator's file of live counts.
        topics: Full names, in the order of the rows.
        picture: Shows the rows.
    """

    def __init__(self, admin: str, live: Path, topics: Iterable[str], picture: LivePicture) -> None:
        self._admin = admin
        self._live = live
        self._meter = RateMeter(topics)
        self._picture = picture
        self._next = 0.0

    def look(self) -> None:
        """Show the rates, if it is time; nothing while Sluice or the load generator has no answer."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + POLL_S
        streams, load = fetch_streams(self._admin), last_line(self._live)
        if streams is not None and load is not None:
            self._picture.show(load["at_s"], self._meter.rows(now, by_topic(streams), load))


def last_line(live: Path) -> dict[str, Any] | None:
    """The last whole line of the live counts; None before the first."""
    if not live.exists():
        return None
    with live.open("rb") as file:
        file.seek(max(0, live.stat().st_size - TAIL_BYTES))
        lines = file.read().rpartition(b"\n")[0].splitlines()
    return json.loads(lines[-1]) if lines else None
