"""What is counted."""

import pytest

from proxy.admin.forwarding.broker import Outcome, outcome_of


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, Outcome.DONE), (304, Outcome.DONE), (404, Outcome.REFUSED), (499, Outcome.REFUSED), (500, Outcome.FAILED)],
)
def test_an_answer_is_counted_by_its_status(status: int, outcome: Outcome) -> None:
    assert outcome_of(status) is outcome
