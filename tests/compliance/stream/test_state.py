import pyarrow as pa
import pytest

from compliance.stream.state import KEPT, State, Totals

pytestmark = pytest.mark.spark
TABLE = pa.table({"x": [1, 2, 3]})


def test_before_the_first_step_there_is_nothing(spark, tmp_path):
    state = State(spark, str(tmp_path))
    assert (state.before(0), state.totals(None), state.read(None, "seen", TABLE.schema)) == (
        None,
        Totals(),
        TABLE.slice(0, 0),
    )


def test_a_step_counts_when_it_is_whole(spark, tmp_path):
    state = State(spark, str(tmp_path))
    state.end(0, Totals(lines=1))
    state.write(1, "seen", TABLE)
    assert state.before(2) == 0
    state.end(1, Totals(lines=2))
    assert state.before(2) == 1
    assert state.totals(1) == Totals(lines=2)
    state.begin(1)
    assert state.before(2) == 0


def test_what_was_written_is_read_and_a_second_writing_replaces_it(spark, tmp_path):
    state = State(spark, str(tmp_path))
    state.write(0, "seen", TABLE)
    state.write(0, "seen", TABLE.slice(1))
    assert state.read(0, "seen", TABLE.schema) == TABLE.slice(1)
    assert spark.read.parquet(state.place(0, "seen")).count() == 2


def test_old_steps_are_removed(spark, tmp_path):
    state = State(spark, str(tmp_path))
    for step in range(KEPT + 2):
        state.end(step, Totals())
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == [
        f"step={step}" for step in range(2, 2 + KEPT)
    ]
