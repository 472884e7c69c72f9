import pytest

from loadgen.bench.errors import BenchError
from loadgen.bench.rows import bucket


def test_the_bucket_is_timed_from_both_sides(stage, monkeypatch):
    for script in ("_FROM_PYTHON", "_INSIDE"):
        monkeypatch.setattr(bucket, script, getattr(bucket, script).replace("000000", "000"))
    found = bucket.row().measure(stage, "Sluice")
    assert min(found.values()) > 0
    assert {figure.key for figure in bucket.row().figures} == set(found)


def test_a_script_that_fails_is_an_error(stage, monkeypatch):
    monkeypatch.setattr(bucket, "_FROM_PYTHON", "raise SystemExit('no bucket')")
    with pytest.raises(BenchError, match="no bucket"):
        bucket.row().measure(stage, "Sluice")
