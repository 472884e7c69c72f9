"""What is counted."""

import pytest

from proxy.admin.forwarding.broker import ForwardOutcome, outcome_of


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, ForwardOutcome.DONE),
        (304, ForwardOutcome.DONE),
        (404, ForwardOutcome.REFUSED),
        (499, ForwardOutcome.REFUSED),
        (500, ForwardOutcome.FAILED),
    ],
)
def test_an_answer_is_counted_by_its_status(status: int, outcome: ForwardOutcome) -> None:
    assert outcome_of(status) is outcome
