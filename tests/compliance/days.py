"""Logs of several days, by the file in which each line is."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.compliance.planted import PlantedLog

MIDNIGHT = datetime(2026, 11, 22, tzinfo=UTC)
DAYS = ["2026-11-21", "2026-11-22", "2026-11-23"]


def three_days():
    """A limit that lasts over two midnights, one that has no line around one, and a change of the first."""
    log = PlantedLog(begin=MIDNIGHT - timedelta(seconds=20))
    for day in range(2):
        for second in range(40):
            log.second = 86_400 * day + second
            if second == 25 and day:
                log.change(before='{"a": 100}', after='{"a": 90}')
            rate = 90.0 if day and second >= 25 else 100.0
            passed = int(rate) + (10 if second == 0 else 0)
            log.interval(passed, limit_messages=rate)
            log.limit(passed, rate=rate, tokens_messages=0.0)
            if second in {3, 33}:
                log.limit(7, name="rare", throttled_ms=0.0, tokens_messages=3.0, began_messages=None)
            log.beat()
    return log


def files_of(log):
    """Its lines, by the file in which each is: one a day, and a part of the second day that comes late."""
    files: dict[str, list[Any]] = {}
    for line in log.lines:
        name = f"{line.start.date()}-late" if 80 <= line.seq < 90 else f"{line.start.date()}"
        files.setdefault(name, []).append(line)
    return {name: PlantedLog(lines=lines).encoded() for name, lines in files.items()}


def burst_at_midnight():
    """A limiter that is empty at midnight, and passes a burst then: by the lines of that day alone it may."""
    log = PlantedLog(begin=MIDNIGHT - timedelta(seconds=20))
    for second in range(40):
        log.tick(150 if second == 20 else 100, tokens_messages=0.0)
    return log
