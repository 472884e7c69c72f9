import numpy as np

from compliance.stream.partition_reader import KnownBatch
from compliance.stream.runs import Seen

RUN = ("p", "b")


def seen(*numbers):
    made = Seen()
    made.added(RUN, np.array(numbers, np.int64))
    return made


def test_a_line_that_several_parts_have_belongs_to_the_first():
    known = KnownBatch(seen(0), {0: seen(1, 2), 1: seen(2, 3), 2: seen(3)})
    assert [known.before(part).there() for part in (0, 1, 2)] == [1, 3, 4]


def test_all_parts_are_read_unless_some_are_named():
    assert KnownBatch().wants(5)
    assert [KnownBatch(again=frozenset({1})).wants(part) for part in (0, 1)] == [False, True]
