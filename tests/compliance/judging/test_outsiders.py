"""A stream that says not to be under a limit that holds all of its name."""

import pytest

from compliance.judging.clocks import with_axis
from compliance.judging.contradictions import outsiders
from tests.compliance.planted import PlantedLog, frame

pytestmark = pytest.mark.spark


def found(spark, log):
    lines, limits = frame(spark, [log], "interval"), frame(spark, [log], "limit")
    changes = frame(spark, [log], "change")
    return [
        (row.level, row.name)
        for row in outsiders(with_axis(lines, {}), with_axis(limits, {}), with_axis(changes, {})).collect()
    ]


def spans(level="topic", name=None, *, told="", direction="publish", **stream):
    """Three spans: a stream under the limit, and one that says not to be."""
    log = PlantedLog()
    for _ in range(3):
        log.interval(10, limit_levels=level, direction=direction)
        log.interval(300, limit_levels=told, direction=direction, stream_id=9, **stream)
        log.limit(10, level=level, name=log.topic if name is None else name, direction=direction)
        log.beat()
    return log


@pytest.mark.parametrize(
    ("level", "name", "stream"),
    [
        ("namespace", "acme/orders", {}),
        ("topic", "persistent://acme/orders/new", {}),
        ("partitioned_topic", "persistent://acme/orders/new", {}),
        ("role", "billing", {"client_role": "billing"}),
        ("producer", "p@persistent://acme/orders/new", {"producer_name": "p"}),
        ("resource_group", "gold", {"resource_group": "gold"}),
    ],
)
def test_whoever_publishes_under_a_name_is_under_its_limit(spark, level, name, stream):
    assert found(spark, spans(level, name, **stream)) == [(level, name)]
    assert found(spark, spans(level, name, told=f"tenant {level}", **stream)) == []


OWN = "persistent://acme/orders/__change_events"


@pytest.mark.parametrize("more", [{"direction": "dispatch"}, {"exempt": True, "topic": OWN}])
def test_consumers_may_be_spared_and_pulsars_own_topics_are(spark, more):
    assert found(spark, spans(**more)) == []
