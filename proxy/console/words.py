"""Numbers, durations and names as people read them, in few columns."""

from collections.abc import Callable

from proxy.console.poll import StreamState, Waiting

_SIZES = ("B", "kB", "MB", "GB", "TB")
_UNKNOWN = "-"


def printable(text: str) -> str:
    """A name that clients chose, without what a terminal would obey."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def rate(per_s: float | None) -> str:
    """Messages per second."""
    if per_s is None:
        return _UNKNOWN
    return f"{per_s:,.0f}" if per_s >= 10 or per_s == int(per_s) else f"{per_s:.1f}"


def limit(per_s: float) -> str:
    """A limit of messages: `500/s`, `30/min`, `1/h`."""
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
    """A duration: `250ms`, `3.2s`, `4m10s`, `2h05m`, `3d04h`; empty for none."""
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
    """Without the domain that nearly all have."""
    return name.removeprefix("persistent://")


def who(stream: StreamState) -> str:
    """The producer's name, or the subscription; a producer that has none yet by its number."""
    return stream.subscription or stream.producer_name or f"#{stream.stream_id}"


def since(stream: StreamState) -> str:
    """How long something has been held, or else permits have been withheld."""
    if stream.held_for_ms is None and stream.permits_wait_on is not None:
        return span(stream.permits_wait_on.for_ms)
    return span(stream.held_for_ms)


def obstacle(stream: StreamState) -> str:
    """The limit that a stream waits on with its value, or that withholds its permits, or what observed ones would hold.

    A consumer that has permits at the broker as well waits for what the broker has for it, first of all.
    """
    if stream.waits_on is not None:
        return _valued(stream.waits_on, stream)
    if stream.permits_wait_on is not None:
        at_broker = f" (at the broker {stream.permits_at_broker:,})" if stream.permits_at_broker > 0 else ""
        return f"{stream.permits_withheld:,} permits withheld{at_broker}: {_valued(stream.permits_wait_on, stream)}"
    would = stream.observed.held_messages if stream.observed else 0
    return f"observed: would hold {would:,}" if would else ""


def _valued(waits_on: Waiting, stream: StreamState) -> str:
    values = []
    if waits_on.messages_per_s is not None:
        values.append(_with_parts(limit, waits_on.messages_per_s, waits_on.published_messages_per_s))
    if waits_on.bytes_per_s is not None:
        values.append(_with_parts(_size_limit, waits_on.bytes_per_s, waits_on.published_bytes_per_s))
    name = "" if waits_on.name == stream.topic else short_topic(waits_on.name)
    return " ".join(part for part in (waits_on.level, name, ", ".join(values)) if part)


def _size_limit(per_s: float) -> str:
    return f"{size(per_s)}/s"


def _with_parts(word: Callable[[float], str], per_s: float, published: float | None) -> str:
    """A limit that is relative to the publish rate, with what is configured and what is published."""
    return word(per_s) if published is None else f"{word(per_s)} ({word(per_s - published)} + published)"
