"""Writes access logs of a size: one proxy, a hundred topics, a line of stream and of limiter for each and second."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from pathlib import Path

import msgspec

from accesslog.record import HeartbeatLine, IntervalLine, LimitLine, Line

TOPICS = 100
LINES_A_FILE = 100_000
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)


def write_log(folder: Path, lines: int) -> int:
    """Writes so many lines in closed files; returns their bytes."""
    folder.mkdir(parents=True)
    encoder, made, size = msgspec.json.Encoder(), islice(_lines(), lines), 0
    for number in count():
        part = encoder.encode_lines(list(islice(made, LINES_A_FILE)))
        if not part:
            return size
        (folder / f"{number:06}.jsonl").write_bytes(part)
        size += len(part)
    raise AssertionError


def _lines() -> Iterator[Line]:
    numbers = count()
    for second in count():
        start = _BEGIN + timedelta(seconds=second)
        for topic in range(TOPICS):
            passed = 90 + (second + topic) % 20
            for template in (_INTERVAL, _LIMIT):
                yield msgspec.structs.replace(
                    template,
                    seq=next(numbers),
                    start=start,
                    end=start + _SECOND,
                    tenant=f"tenant-{topic % 10}",
                    passed_entries=passed,
                    passed_messages=passed,
                    passed_bytes=100 * passed,
                    throttled_ms=12.5 * (topic % 7),
                    **_named(template, topic),
                )
        yield msgspec.structs.replace(_HEARTBEAT, seq=next(numbers), start=start, end=start + _SECOND)


def _named(template: Line, topic: int) -> dict[str, str]:
    name = f"persistent://tenant-{topic % 10}/orders/topic-{topic}"
    return {"topic": name} if isinstance(template, IntervalLine) else {"name": name}


_HEARTBEAT = HeartbeatLine(
    proxy_id="proxy-1",
    boot_id="boot-1",
    seq=0,
    start=_BEGIN,
    end=_BEGIN,
    duration_ms=1000.0,
    dropped_lines=0,
    last=False,
)
_INTERVAL = IntervalLine(
    proxy_id="proxy-1",
    boot_id="boot-1",
    seq=0,
    start=_BEGIN,
    end=_BEGIN,
    duration_ms=1000.0,
    direction="publish",
    tenant="",
    namespace="orders",
    topic="",
    connection_id=17,
    client_address="10.0.0.17:50000",
    client_version="Pulsar-CPP-v4.2.0",
    stream_id=3,
    producer_name="producer-17",
    subscription="",
    offered_entries=100,
    offered_messages=100,
    offered_bytes=10_000,
    passed_entries=0,
    passed_messages=0,
    passed_bytes=0,
    dropped_messages=0,
    dropped_bytes=0,
    held_messages=0,
    held_bytes=0,
    throttled_ms=0.0,
    delay_max_ms=12.5,
    reason="topic",
    limit_level="topic",
    limit_messages=100.0,
    limit_bytes=None,
    permits_asked=0,
    permits_granted=0,
)
_LIMIT = LimitLine(
    proxy_id="proxy-1",
    boot_id="boot-1",
    seq=0,
    start=_BEGIN,
    end=_BEGIN,
    duration_ms=1000.0,
    direction="publish",
    level="topic",
    name="",
    tenant="",
    namespace="orders",
    source="topic file",
    mode="enforce",
    limit_messages=100.0,
    limit_bytes=None,
    burst_messages=10.0,
    burst_bytes=None,
    passed_entries=0,
    passed_messages=0,
    passed_bytes=0,
    largest_entry_messages=1,
    largest_entry_bytes=100,
    throttled_ms=0.0,
)
