"""What workers are told of the memory of the supervisor's limiters; the messages go into a list."""

from proxy.workers.channel import Kept
from proxy.workers.supervisor import STEP, LimiterMemory

HERE, THERE = "192.0.2.1", "192.0.2.2"


class Told:
    """What two workers are told, and who owes too much."""

    def __init__(self) -> None:
        self.messages: list[Kept] = []
        self.owing: set[str] = set()
        self.memory = LimiterMemory(2, self.owing.__contains__, self.messages.append)


def test_workers_are_told_their_parts_when_it_has_grown_by_a_step_and_when_nothing_is_left() -> None:
    told = Told()
    told.memory.add(HERE, STEP - 1)
    told.memory.add(THERE, STEP - 1)
    assert told.messages == []
    told.memory.add(HERE, 1)
    assert told.messages == [Kept(HERE, STEP // 2, owes=False)]
    told.memory.add(HERE, STEP - 1)
    told.memory.add(HERE, -STEP)
    assert len(told.messages) == 1, "less than a step is told to nobody"
    told.memory.add(HERE, 1 - STEP)
    assert told.messages[1:] == [Kept(HERE, 0, owes=False)]


def test_who_owes_too_much_is_told_at_once_and_when_it_does_no_longer() -> None:
    told = Told()
    told.owing.add(HERE)
    told.memory.add(HERE, 0)
    told.memory.add(HERE, 5)
    told.owing.clear()
    told.memory.add(HERE, 0)
    assert told.messages == [Kept(HERE, 0, owes=True), Kept(HERE, 2, owes=False)]


def test_a_new_worker_is_told_what_the_others_know() -> None:
    told = Told()
    told.memory.add(HERE, 3 * STEP)
    told.memory.add(HERE, 100)
    told.memory.add(THERE, 100)
    assert told.memory.messages() == told.messages == [Kept(HERE, 3 * STEP // 2, owes=False)]
    told.owing.add(THERE)
    told.memory.add(THERE, 0)
    assert Kept(THERE, 50, owes=True) in told.memory.messages()


def test_nothing_is_left_of_addresses_that_nothing_is_kept_for() -> None:
    told = Told()
    for more in (STEP, 5, -5, -STEP):
        told.memory.add(HERE, more)
    assert (told.memory._of, told.memory._told, told.memory._owing) == ({}, {}, set())
