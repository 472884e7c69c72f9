"""Limits as the configuration writes them: the way back from `proxy.config.limits`, to the same limit exactly."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from limiter.levels import About
from limiter.rates import NANOS_PER_SECOND, Limit, Rate, rate
from proxy.config.values import SPANS_NS, CountPerPeriod

Section = dict[str, str | int | bool]
"""Keys of a limit: messages, bytes, their bursts and peaks, mode, relativeToPublishRate."""

_UNITS = {"GiB": 1024**3, "GB": 1000**3, "MiB": 1024**2, "MB": 1000**2, "KiB": 1024, "KB": 1000}
_NS_PER_MS = SPANS_NS["ms"]
_LONGEST_FIRST = sorted(SPANS_NS.items(), key=lambda span: -span[1])


class SubscribeLimit(BaseModel):
    """How often one consumer may subscribe: `messages: 5/30s`, all at once if need be, as with Pulsar."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    messages: CountPerPeriod

    def limit(self) -> Limit:
        """The same, as the limiter takes it."""
        count, period_ns = self.messages
        return Limit(rate(count, period_ns, burst=count))


def section_of(about: About, limit: Limit) -> Section:
    """What to write for a limit; what is the default is left out. Empty for one that limits nothing."""
    section: Section = {}
    if about == "subscribe":
        return {"messages": count_text(limit.messages)} if limit.messages else section
    if limit.messages:
        section |= _part("messages", limit.messages, limit.peak_messages)
    if limit.size:
        section |= _part("bytes", limit.size, limit.peak_size)
    if section and limit.mode != "enforce":
        section["mode"] = limit.mode
    if section and limit.published is not None:
        section["relativeToPublishRate"] = True
    return section


def section_text(section: Section) -> str:
    """A section in one line, for people."""
    return ", ".join(f"{key} {_plain(value)}" for key, value in section.items()) or "no limit"


def count_text(value: Rate) -> str | int:
    """A rate of what is counted."""
    return _per(str(value.tokens), value.period_ns)


def _part(kind: str, sustained: Rate, peak: Rate | None) -> Section:
    text = count_text if kind == "messages" else _bytes_text
    part: Section = {kind: text(sustained)}
    if peak or sustained.burst != rate(sustained.tokens, sustained.period_ns).burst:
        part[f"burst_{kind}"] = sustained.burst if kind == "messages" else _size_text(sustained.burst)
    if peak:
        part[f"peak_{kind}"] = text(peak)
    return part


def _bytes_text(value: Rate) -> str | int:
    return _per(str(_size_text(value.tokens)), value.period_ns)


def _size_text(size: int) -> str | int:
    unit = next((unit for unit, worth in _UNITS.items() if size % worth == 0), None)
    return f"{size // _UNITS[unit]}{unit}" if unit else size


def _per(amount: str, period_ns: int) -> str | int:
    if period_ns == NANOS_PER_SECOND:
        return int(amount) if amount.isdigit() else amount
    return f"{amount}/{_span_text(period_ns)}"


def _span_text(period_ns: int) -> str:
    for unit, worth in _LONGEST_FIRST:
        if period_ns % worth == 0:
            return unit if period_ns == worth else f"{period_ns // worth}{unit}"
    whole, part = divmod(period_ns, _NS_PER_MS)
    return f"{whole}.{part:06d}".rstrip("0") + "ms"


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
