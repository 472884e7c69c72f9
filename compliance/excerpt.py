"""The part of a log that a report is about: a time, a tenant, or all of it.

A line belongs to the time in which it begins, as to its day. Balances and streams' sums need whole lines, so limits are
judged by the lines that lie wholly within, and lines on its edges are only looked at: `MARGIN`.
"""

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from math import inf
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from compliance.schema import BEGIN_OF_1970, TIME
from limiter import levels as limiting

MARGIN = timedelta(seconds=61)
"""No line is longer, but for a time in which the proxy stood still. Source: `access_log.steady_interval`"""
_MICROSECOND = timedelta(microseconds=1)
MARGIN_US = MARGIN // _MICROSECOND
DAY = timedelta(days=1)
DAY_US = DAY // _MICROSECOND
OF_ONE_TENANT = frozenset(level.word for level in limiting.LEVELS if level.within)
"""Levels of which each limit is of one tenant."""
_SETTINGS_OF_ONE_TENANT = frozenset(
    setting.word
    for level in limiting.LEVELS
    for setting in level.settings
    if level.within and setting.named and setting.named[-1] in limiting.INDEXED
)
"""Settings whose names say whose they are: of a tenant, a namespace, a topic or a subscription."""
_DOMAINS = ("persistent://", "non-persistent://")


class Excerpt(Struct, frozen=True, kw_only=True):
    """The part of a log that a report is about; without any field it is the whole log."""

    begin: datetime | None = None
    """Lines that begin earlier are left out."""
    end: datetime | None = None
    """Lines that begin then or later are left out."""
    tenant: str = ""
    """Streams and limits of other tenants are left out, and limits that span tenants."""

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole log."""
        return self == WHOLE_LOG

    @property
    def has_whole_days(self) -> bool:
        """Whether it begins and ends with a UTC day, and has all tenants."""
        return not self.tenant and all(bound is None or bound.time() == time() for bound in (self.begin, self.end))

    @property
    def of_all_tenants(self) -> "Excerpt":
        """The excerpt of the same time that has all tenants."""
        return Excerpt(begin=self.begin, end=self.end)

    @property
    def with_margin(self) -> "Excerpt":
        """The excerpt that also has the lines on the edges of this one."""
        return Excerpt(begin=self.begin and self.begin - MARGIN, end=self.end and self.end + MARGIN, tenant=self.tenant)

    @property
    def times_us(self) -> tuple[float, float]:
        """The begin and the end, microseconds since 1970; infinite without one."""
        return _micros(self.begin, -inf), _micros(self.end, inf)

    @staticmethod
    def of_days(first: str, last: str) -> "Excerpt":
        """Return the excerpt that has these days, as in `2026-11-21`, and those between them."""
        return Excerpt(begin=begin_of(first), end=_end_of(begin_of(last)))

    def days(self, times: Iterable[pa.ChunkedArray]) -> "list[Excerpt]":
        """Return the UTC days of which it has some of these times, in their order; without any, one part.

        Args:
            times: Microseconds since 1970.
        """
        begin_us, end_us = self.times_us
        numbers = {number for column in times for number in _days(column)}
        within = (day for day in sorted(numbers) if begin_us < (day + 1) * DAY_US and day * DAY_US < end_us)
        return [self._of_day(BEGIN_OF_1970 + number * DAY) for number in within] or [self]

    def _of_day(self, begin: datetime) -> "Excerpt":
        return Excerpt(
            begin=max(begin, self.begin or begin),
            end=min(filter(None, (_end_of(begin), self.end)), default=None),
            tenant=self.tenant,
        )

    def has_day(self, day: str) -> bool:
        """Return whether lines that begin on a day, as in `2026-11-21`, may be within."""
        is_early = self.begin is not None and day < self.begin.date().isoformat()
        is_late = self.end is not None and day > (self.end - timedelta.resolution).date().isoformat()
        return not is_early and not is_late

    def of(self, lines: pa.Table) -> pa.Table:
        """Return the lines that are within; those of a tenant are known by `tenant`, or by `topic` if it is there."""
        for bound, is_within in ((self.begin, pc.greater_equal), (self.end, pc.less)):
            if bound is not None:
                lines = only(lines, is_within(lines["start"], pa.scalar(bound, TIME)))
        if self.tenant:
            lines = _own(lines, pc.equal(lines["tenant"], self.tenant))
            if "topic" in lines.column_names:
                of_domains = [pc.starts_with(lines["topic"], begin) for begin in self.topics]
                lines = _own(lines, pc.or_(*of_domains))
        return lines

    def has_setting(self, setting: str, name: str) -> bool:
        """Return whether a setting of that name is within; of a tenant, the settings of it alone are.

        A name of two parts is `subscription@topic`, and both may have an @: any topic it may mean is the tenant's.
        """
        if not self.tenant:
            return True
        if setting not in _SETTINGS_OF_ONE_TENANT:
            return False
        begins = [at for at in range(len(name)) if at == 0 or name[at - 1] == "@"]
        topics = [name[at:] for at in begins if name.startswith(_DOMAINS, at)]
        if topics:
            return all(topic.startswith(self.topics) for topic in topics)
        return name.partition("/")[0] == self.tenant

    @property
    def topics(self) -> tuple[str, ...]:
        """How the names of the tenant's topics begin."""
        return tuple(f"{domain}{self.tenant}/" for domain in _DOMAINS)


def _own(lines: pa.Table, is_own: Any) -> pa.Table:
    """Return a tenant's lines, and those of kinds that name none."""
    return only(lines, pc.or_(is_own.is_null(), pc.fill_null(is_own, False)))


def only(rows: pa.Table, wanted: Any) -> pa.Table:
    """Return the rows for which a column of truth values is true; of all or none of them no copy is made."""
    number = pc.sum(wanted).as_py() or 0
    if number in (0, len(rows)):
        return rows.slice(0, number)
    return rows.filter(wanted)


def number_of(day: str) -> int:
    """Return the number of a day since 1970."""
    return (begin_of(day) - BEGIN_OF_1970) // DAY


def begin_of(day: str) -> datetime:
    """Return the begin of a day, as in `2026-11-21`."""
    return datetime.combine(date.fromisoformat(day), time(), UTC)


def _end_of(begin: datetime) -> datetime | None:
    return begin + DAY if begin.date() < date.max else None


def _days(times: pa.ChunkedArray) -> list[int]:
    days: list[int] = np.unique(times.cast(pa.int64()).to_numpy() // DAY_US).tolist()
    return days


def _micros(moment: datetime | None, without: float) -> float:
    return without if moment is None else (moment - BEGIN_OF_1970) // _MICROSECOND


WHOLE_LOG = Excerpt()
