import pytest

from compliance.judging.bypasses import LIMITED, Suspicion
from compliance.judging.fleets import FleetNotes
from compliance.judging.judge import Judging
from compliance.log_lines import KeptLines
from tests.compliance.arrow import summed_of
from tests.compliance.planted import exact_log, frame, topic_of


@pytest.mark.spark
def test_limits_are_judged_alike_in_one_part_and_in_several(spark):
    """Each topic has two proxies, whose lines come to one task."""
    names = [(proxy, topic) for proxy in "ab" for topic in "uvwx"]
    logs = [exact_log(5, proxy_id=proxy, topic=topic_of(topic)) for proxy, topic in names]
    judging = Judging({}, {}, FleetNotes(), Suspicion(summed_of(LIMITED, *logs), {}))
    lines = KeptLines.of_frame(frame(spark, logs).repartition(3))
    whole, several = ({name: rows_of(table) for name, table in judging.of(lines, shards).items()} for shards in (1, 4))
    assert several.pop("minutes") != whole.pop("minutes"), "the driver adds up the parts"
    assert several == whole
    assert {name: len(rows) for name, rows in whole.items() if rows} == dict.fromkeys(
        ("judged", "limiters", "configured", "episodes", "in_force", "use", "used", "last_lines"), len(names)
    )


def rows_of(table):
    """The rows of a figure in any order."""
    return sorted(map(repr, table.to_pylist()))
