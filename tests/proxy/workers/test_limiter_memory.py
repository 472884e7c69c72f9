"""What workers are told of the memory of the supervisor's limiters; the letters go into a list."""

from proxy.workers.letters import Kept
from proxy.workers.limiter_memory import STEP, LimiterMemory

HERE, THERE = "192.0.2.1", "192.0.2.2"


def test_workers_are_told_their_parts_when_it_has_grown_by_a_step_and_when_nothing_is_left() -> None:
    told: list[Kept] = []
    memory = LimiterMemory(2, told.append)
    memory.add(HERE, STEP - 1)
    memory.add(THERE, STEP - 1)
    assert told == []
    memory.add(HERE, 1)
    assert told == [Kept(HERE, STEP // 2)]
    memory.add(HERE, STEP - 1)
    memory.add(HERE, -STEP)
    assert len(told) == 1, "less than a step is told to nobody"
    memory.add(HERE, 1 - STEP)
    assert told[1:] == [Kept(HERE, 0)]


def test_a_new_worker_is_told_what_the_others_know() -> None:
    told: list[Kept] = []
    memory = LimiterMemory(4, told.append)
    memory.add(HERE, 3 * STEP)
    memory.add(HERE, 100)
    memory.add(THERE, 100)
    assert memory.letters() == told == [Kept(HERE, 3 * STEP // 4)]


def test_nothing_is_left_of_addresses_that_nothing_is_kept_for() -> None:
    memory = LimiterMemory(2, lambda _letter: None)
    for more in (STEP, 5, -5, -STEP):
        memory.add(HERE, more)
    assert (memory._of, memory._told) == ({}, {})
