"""docs/metrics.md says what /metrics has."""

from dataclasses import fields
from pathlib import Path

from proxy.admin.metrics import OF_COUNTERS
from proxy.admin.metrics_reference import families, labels_of, reference
from proxy.counters import Counters

PAGE = Path(__file__).resolve().parents[3] / "docs/metrics.md"


def test_the_page_is_fresh() -> None:
    """Remedy: python -m proxy.admin.metrics_reference > docs/metrics.md."""
    assert PAGE.read_text() == reference(), "docs/metrics.md is not as the code has it: run `make references`"


def test_every_family_is_there_once_with_its_labels_and_a_meaning() -> None:
    page = reference()
    for family in families():
        labels = f"{{{','.join(labels_of(family))}}}" if labels_of(family) else ""
        suffix = {"counter": "_total", "histogram": "_bucket"}.get(family.type, "")
        assert page.count(f"`{family.name}{suffix}{labels}`") == 1
        assert len(family.documentation) > 3
    assert max(map(len, page.splitlines())) <= 100


def test_every_counter_is_shown() -> None:
    counted = {row.source() for row in OF_COUNTERS}
    computed = {"loop_lag_ns", "loop_lag_max_ns", "timers_by_lateness", "beat_lag_ns", "beats_by_lateness"}
    computed |= {"work_ns", "broker_round_trip_ns"}
    assert counted | computed == {field.name for field in fields(Counters)}
    assert not counted & computed
