"""Writes access logs of an ideal limiter, with its own little model, and plants what the job must find.

One proxy run, one line per stream and limiter and second, a heartbeat at the end of each second.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from backports import zstd
from pyspark.sql import functions as F

from accesslog.file_names import compression_of
from accesslog.record import ChangeLine, HeartbeatLine, IntervalLine, LimitLine, LossLine, RejectLine, ShareLine
from compliance.schema import row_schema

ROW_NAMES = row_schema().names
BEGIN = datetime(2026, 11, 21, 11, 29, tzinfo=UTC)
EPOCH, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
TOPIC = "persistent://acme/orders/new"


@dataclass
class PlantedLog:
    """Lines of one run, second by second."""

    proxy_id: str = "proxy-1"
    boot_id: str = "boot-1"
    topic: str = TOPIC
    begin: datetime = BEGIN
    lines: list[Any] = field(default_factory=list)
    second: int = 0
    ahead_s: float = 0.0
    """By how much the wall clock has been set ahead since the run began."""

    @property
    def _head(self):
        start = self.begin + timedelta(seconds=self.second + self.ahead_s)
        return {
            "proxy_id": self.proxy_id,
            "boot_id": self.boot_id,
            "seq": len(self.lines),
            "start": start,
            "end": start + timedelta(seconds=1),
            "duration_ms": 1000.0,
        }

    def add(self, kind, **fields):
        """Add a line; its monotonic clock reads what the wall clock would if it had never been set."""
        values = self._head | fields
        ahead = timedelta(seconds=self.ahead_s)
        self.lines.append(kind(**({"mono_us": (values["end"] - ahead - EPOCH) // MICROSECOND} | values)))

    def limit(self, passed, rate=100.0, throttled_ms=1000.0, **more):
        values = {
            "direction": "publish",
            "level": "topic",
            "name": self.topic,
            "tenant": "acme",
            "namespace": "orders",
            "source": "topic file",
            "mode": "enforce",
            "limit_messages": rate,
            "limit_bytes": None,
            "burst_messages": None if rate is None else rate / 10,
            "burst_bytes": None,
            "passed_entries": passed,
            "passed_messages": passed,
            "passed_bytes": passed * 100,
            "largest_entry_messages": min(1, passed),
            "largest_entry_bytes": 100 * min(1, passed),
            "throttled_ms": throttled_ms,
        }
        self.add(LimitLine, **(values | more))

    def interval(self, passed, offered=None, **more):
        offered = passed if offered is None else offered
        values = {
            "direction": "publish",
            "tenant": "acme",
            "namespace": "orders",
            "topic": self.topic,
            "connection_id": 1,
            "client_address": "127.0.0.1:5000",
            "client_version": "test",
            "stream_id": 1,
            "producer_name": "p",
            "subscription": "",
            "offered_entries": offered,
            "offered_messages": offered,
            "offered_bytes": offered * 100,
            "passed_entries": passed,
            "passed_messages": passed,
            "passed_bytes": passed * 100,
            "dropped_messages": 0,
            "dropped_bytes": 0,
            "held_messages": offered - passed,
            "held_bytes": (offered - passed) * 100,
            "throttled_ms": 0.0,
            "delay_max_ms": 0.0,
            "reason": "",
            "limit_level": "topic",
            "limit_messages": 100.0,
            "limit_bytes": None,
            "permits_asked": 0,
            "permits_granted": 0,
        }
        fields = self._head | values | more
        fields.setdefault("limit_levels", fields["limit_level"])
        if fields["held_messages"]:
            fields.setdefault("held_since", fields["end"] - timedelta(milliseconds=fields["throttled_ms"]))
        self.add(IntervalLine, **fields)

    def change(self, **more):
        """Somebody changes something at the begin of the second."""
        moment = {"end": self._head["start"], "duration_ms": 0.0}
        values = {"who": "ann", "address": "192.0.2.1", "what": "publish", "setting": "topic", "name": self.topic}
        self.add(ChangeLine, **(moment | values | {"before": None, "after": '{"a": 1}'} | more))

    def loss(self, of_boot, lost_lines, **more):
        """The proxy says that lines are lost."""
        moment = {"end": self._head["start"], "duration_ms": 0.0, "lost_until": self._head["start"]}
        values = {"cause": "killed", "detail": "", "first_seq": 0, "last_seq": None, "lost_from": self.begin}
        self.add(LossLine, **(moment | values | {"of_boot": of_boot, "lost_lines": lost_lines} | more))

    def reject(self, rejected, **more):
        """Lookups, producers or consumers are refused."""
        values = {"connection_id": 1, "client_address": "127.0.0.1:5000", "topic": self.topic}
        why = {"reason": "admission.lookups", "detail": "too many lookups", "rejected": rejected}
        self.add(RejectLine, **(values | why | more))

    def shared(self, passed, share, rate=100.0, **more):
        """The limiter has a share of a limit that the fleet holds together, with a burst of ten."""
        own = max(share, 1e-6)
        of_fleet = {"share_messages": share, "shared_messages": rate, "shared_burst_messages": 10.0}
        self.limit(passed, rate=rate * own, **({"burst_messages": max(1.0, 10 * own)} | of_fleet | more))

    def share(self, before, after, cause, **more):
        """The share of the limit changes at the begin of the second."""
        moment = {"end": self._head["start"], "duration_ms": 0.0}
        of = {"fleet": "front", "direction": "publish", "level": "topic", "name": self.topic, "unit": "messages"}
        values = {
            "share_before": before,
            "share_after": after,
            "epoch": 1 << 60,
            "coordinator": "fleet-a",
            "members": 2,
        }
        values |= {"coordinator_ahead_ms": 20.0, "coordinator_ahead_within_ms": 4.0}
        self.add(ShareLine, **(moment | of | values | {"cause": cause} | more))

    def beat(self, **more):
        """Ends the second."""
        self.add(HeartbeatLine, **({"dropped_lines": 0, "last": False} | more))
        self.second += 1

    def tick(self, passed, **more):
        """A whole second in which the limiter and one stream passed the same."""
        self.interval(passed, limit_messages=more.get("rate", 100.0))
        self.limit(passed, **more)
        self.beat()

    def encoded(self):
        return [msgspec.json.encode(line) for line in self.lines]


def write_file(folder: Path, name: str, lines):
    """Write a file of the log; it is compressed if its name says so."""
    folder.mkdir(parents=True, exist_ok=True)
    content = b"".join(line + b"\n" for line in lines)
    (folder / name).write_bytes(zstd.compress(content) if compression_of(name) == "zstd" else content)


def exact_log(seconds=30, rate=100, **names):
    """A greedy stream at an exact limiter: the burst once, then the rate."""
    log = PlantedLog(**names)
    for second in range(seconds):
        log.tick(rate + (rate // 10 if second == 0 else 0), rate=float(rate))
    return log


def topic_of(proxy_id):
    """Each planted log has its own topic, so that all can be judged in one go."""
    return f"persistent://acme/orders/{proxy_id}"


def planted(proxy_id, seconds=0, **names):
    return exact_log(seconds, proxy_id=proxy_id, topic=topic_of(proxy_id), **names)


def row_of(line):
    """A line as a row of `compliance.schema.row_schema`, made without the parser."""
    kind = type(line).__struct_config__.tag
    return tuple(kind if name == "kind" else getattr(line, name, None) for name in ROW_NAMES)


def frame(spark, logs, kind=None):
    """The lines of some planted logs as a data frame, with the day and the place that the job would add."""
    rows = [row_of(line) for log in logs for line in log.lines]
    place = {"file": F.lit("a.jsonl"), "line": F.col("seq") + 1}
    made = spark.createDataFrame(rows, row_schema()).withColumns({"day": F.to_date("start"), **place})
    return made if kind is None else made.where(F.col("kind") == kind)
