"""No client is somebody else: 10^5 steps of a client that says anything, against the model of a broker."""

import pytest

from tests.proxy.identity.driver import STEPS, run, shrunk, steps_of, told

SEEDS = 500
IN_ONE_TEST = 50


def test_there_are_as_many_steps_as_promised() -> None:
    assert SEEDS * STEPS >= 10**5


@pytest.mark.parametrize("first", range(0, SEEDS, IN_ONE_TEST))
def test_what_sluice_believes_is_what_the_broker_does(first: int) -> None:
    for seed in range(first, first + IN_ONE_TEST):
        steps = steps_of(seed)
        if run(steps) is not None:
            pytest.fail(f"seed {seed}, shortened:\n{told(shrunk(steps))}")
