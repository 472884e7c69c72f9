"""Counts an access log in plain Python, by its own reading of the rules, to compare the job's tables with."""

import gzip
import json
from collections import defaultdict
from datetime import datetime
from typing import Any

from tests.access_log_files import closed_files, content_of

WIDTHS_S = (1, 10, 60, 300, 3600)
TOPIC = ("tenant", "namespace", "topic", "direction")
LIMITER = ("proxy_id", "direction", "level", "name", "tenant", "namespace")
KEYS = {"interval": TOPIC, "limit": LIMITER}
TABLES = {"interval": "topic_windows", "limit": "limiter_windows"}


class Recount:
    """What the tables must hold after all files of a folder."""

    def __init__(self, folder):
        self.keys = set()
        self.malformed = set()
        self.doubled = 0
        self.windows: Any = defaultdict(lambda: [0, 0, 0.0])
        for file in closed_files(folder):
            for number, line in enumerate(content_of(file).splitlines(), 1):
                self._count(file.name, number, line)

    def _count(self, name, number, line):
        try:
            said = json.loads(line)
        except ValueError:
            self.malformed.add((name, number))
            return
        key = said["proxy_id"], said["boot_id"], said["seq"]
        if key in self.keys:
            self.doubled += 1
            return
        self.keys.add(key)
        if said["kind"] in KEYS:
            self._add(said)

    def _add(self, said):
        second = int(datetime.fromisoformat(said["start"]).timestamp())
        whose = tuple(said[name] for name in KEYS[said["kind"]])
        for width in WIDTHS_S:
            sums = self.windows[TABLES[said["kind"]], width, second // width * width, *whose]
            sums[0] += 1
            sums[1] += said["passed_messages"]
            sums[2] += said["throttled_ms"]


def windows_in(spark, out):
    """All windows of both tables by key; a key that is there twice fails."""
    found = {}
    for kind, table in TABLES.items():
        rows = spark.read.parquet(f"{out}/{table}").selectExpr("*", "unix_seconds(start) AS start_s").collect()
        for row in rows:
            key = (table, row.width_s, row.start_s, *(row[name] for name in KEYS[kind]))
            assert key not in found, f"{key} is there twice"
            found[key] = [row.lines, row.passed_messages, row.throttled_ms]
    return found


def quarantined_in(out):
    """File and line of each quarantined line, in order."""
    files = out.glob("quarantine/step=*/*.json.gz")
    said = [json.loads(line) for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]
    return sorted((line["file"], line["line"]) for line in said)


def assert_all_there(spark, out, folder):
    """Every row, every window, every malformed line, each once."""
    expected = Recount(folder)
    rows = spark.read.parquet(f"{out}/rows").select("proxy_id", "boot_id", "seq").collect()
    assert sorted(map(tuple, rows)) == sorted(expected.keys)
    assert quarantined_in(out) == sorted(expected.malformed)
    assert windows_in(spark, out) == dict(expected.windows)
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["rows"], summary["duplicates"]) == (len(expected.keys), expected.doubled)
    assert summary["malformed"] == len(expected.malformed)
    return summary
