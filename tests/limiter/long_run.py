"""How long the machines run: 20,000 steps in all, and 10^5 in `make fuzz`."""

from typing import Any
from unittest import TestCase

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant

from tests.examples import examples

STEPS = 50


class Counted(RuleBasedStateMachine):
    """A machine that knows how many steps it has taken."""

    steps_taken = 0

    @invariant()
    def one_step_more(self) -> None:
        type(self).steps_taken += 1


def long_run(machine: type[Counted], at_least: int) -> type[TestCase]:
    """A test that lets `machine` take that many steps, and counts them: hypothesis ends some examples early."""
    base: Any = machine.TestCase
    wanted = examples(at_least)

    class LongRun(base):
        def runTest(self) -> None:  # noqa: N802 - unittest's name
            before = machine.steps_taken
            super().runTest()
            taken = machine.steps_taken - before
            assert taken >= wanted, f"{taken} steps of {wanted}: more examples are needed"

        runTest.is_hypothesis_test = True  # type: ignore[attr-defined] # as the overridden one is: `make fuzz` runs it

    many = 20 + round(1.25 * wanted / STEPS)
    LongRun.settings = settings(max_examples=many, stateful_step_count=STEPS, deadline=None)
    return LongRun
