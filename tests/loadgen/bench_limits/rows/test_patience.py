import pytest

from loadgen.bench_limits.errors import BenchError
from loadgen.bench_limits.rows.patience import BATCH, FIGURES, row, samples

DEBT = [0.1] * BATCH


def test_a_second_connection_means_that_the_first_was_lost():
    found = samples({"/127.0.0.1:5 10:00", "/127.0.0.1:6 10:01"}, {0: DEBT, 1: [58.5]}, 100)
    assert found == {"lost": [1], "slipped": [1]}


def test_what_passes_when_the_client_leaves_did_not_slip_through():
    assert samples({"/127.0.0.1:5 10:00"}, {0: DEBT, 1: [100.2]}, 100) == {"lost": [0], "slipped": [0]}


def test_a_part_of_the_batch_that_passes_later_slipped_through_too():
    assert samples({"/127.0.0.1:5 10:00"}, {0: [*DEBT[1:], 60.0], 1: []}, 100)["slipped"] == [1]


@pytest.mark.parametrize(("connections", "debt"), [(set(), DEBT), ({"/127.0.0.1:5 10:00"}, DEBT[:100])])
def test_without_a_debt_there_is_nothing_to_be_patient_with(connections, debt):
    with pytest.raises(BenchError, match="too few for 100 s of debt"):
        samples(connections, {0: debt, 1: []}, 100)


def test_a_quick_run_has_the_same_figures():
    assert row(quick=True).figures is row(quick=False).figures is FIGURES
