import json

import pyarrow as pa
import pytest

from compliance.stream.options import JobError
from compliance.stream.storage import KEPT, VERSION, State, TableTotals

pytestmark = pytest.mark.spark
TABLE = pa.table({"x": [1, 2, 3]})


def test_before_the_first_step_there_is_nothing(spark, tmp_path):
    state = State(spark, str(tmp_path))
    assert (state.before(0), state.totals(None), state.read(None, "seen", TABLE.schema)) == (
        None,
        TableTotals(),
        TABLE.slice(0, 0),
    )


def test_a_step_counts_when_it_is_whole(spark, tmp_path):
    state = State(spark, str(tmp_path))
    state.end(0, TableTotals(lines=1))
    state.write(1, "seen", TABLE)
    assert state.before(2) == 0
    state.end(1, TableTotals(lines=2))
    assert state.before(2) == 1
    assert state.totals(1) == TableTotals(lines=2)
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
        state.end(step, TableTotals())
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == [
        f"step={step}" for step in range(2, 2 + KEPT)
    ]


@pytest.mark.parametrize(
    ("said", "version"), [({"lines": 5, "rows": 5}, 0), ({"version": VERSION + 1, "totals": 7}, 2)]
)
def test_what_another_version_kept_is_refused_with_the_remedy(spark, tmp_path, said, version):
    state = State(spark, f"{tmp_path}/out/_work")
    state.end(0, TableTotals(lines=5))
    state.check()
    (tmp_path / "out/_work/state/step=0/totals.json").write_text(json.dumps(said))
    told = rf"/out: .*_work/state is of version {version}, and .* give another --out, or delete this folder"
    for reads in (state.check, lambda: state.totals(0)):
        with pytest.raises(JobError, match=told):
            reads()


def test_what_was_read_without_a_state_behind_it_is_refused(spark, tmp_path):
    """Batches would go on from zeros, and what they wrote before would be there besides."""
    (tmp_path / "out/_work/checkpoint/commits").mkdir(parents=True)
    state = State(spark, f"{tmp_path}/out/_work")
    state.check()
    (tmp_path / "out/_work/checkpoint/commits/0").touch()
    with pytest.raises(JobError, match=r"batches were read, but .*_work/state says of none"):
        state.check()
