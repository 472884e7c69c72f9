import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compliance.stream.partition_reader import Numbering, above_each


def batch(*places):
    return pa.RecordBatch.from_pylist(
        [{"file": file, "block": block} for file, block in places],
        pa.schema({"file": pa.string(), "block": pa.int64()}),
    )


def test_lines_of_a_block_are_numbered_over_all_batches_and_blocks_of_a_task():
    numbering = Numbering({("a", 100): 7})
    first = numbering.numbers(batch(("a", 0), ("a", 0), ("b", 0), ("a", 100)))
    assert Numbering({}).numbers(batch(("a", 0), ("a", 9))).to_pylist() == [1, 1]
    second = numbering.numbers(batch(("a", 100), ("c", 0)))
    assert (first.to_pylist(), second.to_pylist()) == ([1, 2, 1, 8], [9, 1])
    assert numbering.lines == {("a", 0): 2, ("b", 0): 1, ("a", 100): 2, ("c", 0): 1}
    assert numbering.numbers(batch()).to_pylist() == []


def test_above_a_block_stand_the_lines_of_those_before_it_in_any_order():
    assert above_each([(("a", 9), 1), (("a", 0), 3), (("b", 5), 4), (("a", 5), 2)]) == {
        ("a", 0): 0,
        ("a", 5): 3,
        ("a", 9): 5,
        ("b", 5): 0,
    }


@pytest.mark.parametrize("line", [41, None])
def test_lines_that_have_a_number_or_none_at_all_keep_it(line):
    numbering = Numbering({})
    given_ = pa.record_batch({"file": ["topic/0"], "line": pa.array([line], pa.int64())})
    assert numbering.numbers(given_).to_pylist() == [line]
    assert numbering.lines == {}


@given(
    lines=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(1, 5)), max_size=12),
    cut=st.integers(1, 7),
)
def test_blocks_read_one_by_one_give_the_numbers_of_whole_files(lines, cut):
    blocks = {(file, block * 10): count for file, block, count in lines}
    told = above_each(blocks.items())
    found: list[tuple[str, int]] = []
    for place, count in blocks.items():
        numbering = Numbering(told)
        rows = [place] * count
        for at in range(0, count, cut):
            numbers = numbering.numbers(batch(*rows[at : at + cut])).to_pylist()
            found.extend((place[0], number) for number in numbers)
    assert sorted(found) == sorted(
        (file, number)
        for file in {file for file, _ in blocks}
        for number in range(1, 1 + sum(count for (name, _), count in blocks.items() if name == file))
    )
