"""No client is somebody else: 10^5 steps of a client that says anything, against the model of a broker."""

from collections import Counter

import pytest

from tests.proxy.session.ids import product_view as view
from tests.proxy.session.ids.counts import by_unit
from tests.proxy.session.ids.driver import STEPS, run, shrunk, steps_of, told
from tests.proxy.session.ids.duel import Duel

SEEDS = 600
"""They find each hole of `test_holes.py`, and take 10^5 steps."""
IN_ONE_TEST = 100


def test_the_machine_is_not_idle() -> None:
    """Streams are accepted, publishes and deliveries pass, connections end, before it says that nothing breaks."""
    seen: Counter[str] = Counter()
    for seed in range(IN_ONE_TEST):
        duel, connections = Duel(), {}
        for step in steps_of(seed):
            duel.do(step)
            connections[duel.begun] = duel.model.persisted, duel.received
            producers, consumers = view.accepted(duel.session)
            again = view.reopening(duel.session)
            seen.update({"producers": len(producers), "consumers": len(consumers), "opened again": again})
        for persisted, received in connections.values():
            seen.update({"published": by_unit(persisted)["entries"], "delivered": by_unit(received)["entries"]})
        seen["connections"] += duel.begun
        duel.close()
    least = {
        "producers": 5000,
        "consumers": 3900,
        "opened again": 500,
        "published": 150,
        "delivered": 30,
        "connections": 150,
    }
    assert {name: seen[name] for name, number in least.items() if seen[name] < number} == {}


def test_there_are_as_many_steps_as_promised() -> None:
    assert SEEDS * STEPS >= 10**5


@pytest.mark.parametrize(
    "first",
    [pytest.param(first, marks=pytest.mark.slow if first else ()) for first in range(0, SEEDS, IN_ONE_TEST)],
)
def test_what_sluice_believes_is_what_the_broker_does(first: int) -> None:
    for seed in range(first, first + IN_ONE_TEST):
        steps = steps_of(seed)
        if run(steps) is not None:
            pytest.fail(f"seed {seed}, shortened:\n{told(shrunk(steps))}")
