import pytest

from loadgen.bench.errors import BenchError
from loadgen.bench.rows import bucket


def test_the_bucket_is_timed_from_both_sides_by_the_cpus_time(stage, monkeypatch):
    """In a process whose CPU time is one second each time, whatever the wall says."""
    one_second = "import time; time.process_time = iter((0, 1)).__next__\n"
    for script in ("_FROM_PYTHON", "_INSIDE"):
        monkeypatch.setattr(bucket, script, one_second + getattr(bucket, script).replace("000000", "000"))
    found = bucket.row().measure(stage, "Sluice")
    python, inside = 2_000 / 1e6, 20_000 / 1e6
    assert found == {"take_python": python, "take_inside": inside, "pay_python": python, "pay_inside": inside}
    assert {figure.key for figure in bucket.row().figures} == set(found)


def test_a_script_that_fails_is_an_error(stage, monkeypatch):
    monkeypatch.setattr(bucket, "_FROM_PYTHON", "raise SystemExit('no bucket')")
    with pytest.raises(BenchError, match="no bucket"):
        bucket.row().measure(stage, "Sluice")
