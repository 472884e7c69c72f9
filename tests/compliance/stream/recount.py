"""Counts an access log in plain Python, by its own reading of the rules, to compare the job's tables with."""

import json

from compliance.tables import read_tables
from tests.access_log_files import closed_files, content_of


class Recount:
    """What the tables must hold after all files of a folder."""

    def __init__(self, folder):
        self.keys = set()
        self.malformed = set()
        self.doubled = 0
        for file in closed_files(folder):
            for number, line in enumerate(content_of(file).splitlines(), 1):
                self._count(file.name, number, line)

    def _count(self, name, number, line):
        try:
            record = json.loads(line)
        except ValueError:
            self.malformed.add((name, number))
            return
        key = record["proxy_id"], record["boot_id"], record["seq"]
        self.doubled += key in self.keys
        self.keys.add(key)


def keys_of(rows):
    return sorted(map(tuple, rows.select("proxy_id", "boot_id", "seq").collect()))


def assert_all_there(spark, out, folder):
    """Every row and every malformed line, each once; returns the summary."""
    expected, tables = Recount(folder), read_tables(spark, str(out))
    assert keys_of(tables.rows.frame) == sorted(expected.keys)
    assert sorted((row.file, row.line) for row in tables.quarantine.collect()) == sorted(expected.malformed)
    assert tables.copies.count() == expected.doubled
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["rows"], summary["duplicates"]) == (len(expected.keys), expected.doubled)
    assert summary["malformed"] == len(expected.malformed)
    return summary
