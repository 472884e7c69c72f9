import pytest

from compliance.stream.state import KEPT, State, Totals

pytestmark = pytest.mark.spark


def test_before_the_first_step_there_is_nothing(spark, tmp_path):
    state = State(spark, str(tmp_path))
    assert (state.before(0), state.totals(None), state.read(None, "seen")) == (None, Totals(), None)


def test_a_step_counts_when_it_is_whole(spark, tmp_path):
    state = State(spark, str(tmp_path))
    state.end(0, Totals(lines=1))
    state.write(1, "seen", spark.range(3))
    assert state.before(2) == 0
    state.end(1, Totals(lines=2))
    assert state.before(2) == 1
    assert state.totals(1) == Totals(lines=2)
    state.begin(1)
    assert state.before(2) == 0


def test_what_was_written_is_read_and_a_second_writing_replaces_it(spark, tmp_path):
    state = State(spark, str(tmp_path))
    state.write(0, "seen", spark.range(5))
    assert state.write(0, "seen", spark.range(2)).count() == 2
    kept = state.read(0, "seen")
    assert kept is not None
    assert kept.count() == 2


def test_old_steps_are_removed(spark, tmp_path):
    state = State(spark, str(tmp_path))
    for step in range(KEPT + 2):
        state.end(step, Totals())
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == [
        f"step={step}" for step in range(2, 2 + KEPT)
    ]
