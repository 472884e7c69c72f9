"""The supervisor's answers to one worker; what is counted is the same for all."""

import pytest

from limiter.policies import Policies
from limiter.workers.messages import Message
from proxy.admission_control import Admission, AskedBound, BoundName
from proxy.config.model import Config
from proxy.observe.counters import Counters
from proxy.workers.admission_server import AdmissionServer
from proxy.workers.channel import Accepted, Admitted, Enter, Left, NotAdmitted
from tests.manual_clock import ManualClock
from tests.proxy.wire import TOPIC

REFUSED = "producers of one topic: at most 2 (admission.max_producers_per_topic)"


class House:
    """Two doors to one admission."""

    def __init__(self, most: int = 2) -> None:
        bounds = {"max_producers_per_topic": most, "lookup_rate_per_address": "1/h"}
        config = Config.model_validate({"admission": bounds})
        self.counters = Counters()
        self.admission = Admission(config, self.counters, ManualClock(), Policies())
        self.rang = 0
        self.doors = [AdmissionServer(self.admission, self._ring) for _ in range(2)]

    def ask(self, door: int, number: int, *asked: AskedBound) -> list[Message]:
        self.doors[door].asked(Enter(number, list(asked), "192.0.2.7:1", f"192.0.2.{7 + door}", ""))
        return self.doors[door].take()

    def let_in(self, door: int, number: int) -> None:
        """The broker accepts a producer that comes in."""
        assert self.ask(door, number, PRODUCER) == [Admitted(number, has_places=True)]
        self.doors[door].accepted(Accepted(number))

    def _ring(self) -> None:
        self.rang += 1


PRODUCER = (BoundName.PRODUCERS, TOPIC)
LOOKUP = (BoundName.LOOKUP_RATE, "192.0.2.7")


def test_the_places_are_those_of_all_workers_together() -> None:
    house = House()
    house.let_in(0, 1)
    house.let_in(1, 1)
    assert house.ask(0, 2, PRODUCER) == house.ask(1, 2, PRODUCER) == [NotAdmitted(2, BoundName.PRODUCERS, REFUSED)]
    assert house.counters.not_admitted == {BoundName.PRODUCERS: 2}
    house.doors[1].left(Left(1))
    assert house.ask(0, 3, PRODUCER) == [Admitted(3, has_places=True)]
    assert (house.rang, [len(door) for door in house.doors]) == (5, [2, 0])


def test_a_place_is_provisional_until_the_worker_says_that_the_broker_has_accepted_who_has_it() -> None:
    house = House(most=4)
    said = [house.ask(0, number, PRODUCER)[0] for number in range(1, 4)]
    assert [type(message) for message in said] == [Admitted, Admitted, NotAdmitted]
    assert isinstance(said[2], NotAdmitted)
    assert said[2].is_passing
    for number in (1, 1, 3, 9):
        house.doors[0].accepted(Accepted(number))
    assert house.ask(0, 4, PRODUCER) == [Admitted(4, has_places=True)]
    house.doors[0].lose()
    assert (house.admission.taken, house.admission.provisional) == (0, 0)


def test_who_leaves_twice_or_was_refused_gives_back_nothing() -> None:
    house = House()
    house.let_in(0, 1)
    house.let_in(0, 2)
    house.ask(0, 3, PRODUCER)
    for number in (1, 1, 3, 4):
        house.doors[0].left(Left(number))
    assert house.ask(1, 1, PRODUCER) == [Admitted(1, has_places=True)]
    assert house.ask(1, 2, PRODUCER) == [NotAdmitted(2, BoundName.PRODUCERS, REFUSED)]


def test_of_a_rate_alone_there_is_nothing_to_give_back() -> None:
    house = House()
    assert house.ask(0, 1, LOOKUP) == [Admitted(1, has_places=False)]
    assert isinstance(house.ask(1, 1, LOOKUP)[0], NotAdmitted)
    assert [len(door) for door in house.doors] == [0, 0]


def test_a_worker_that_ends_gives_back_what_its_clients_had_and_nothing_of_others() -> None:
    house = House()
    house.let_in(0, 1)
    house.let_in(1, 1)
    house.doors[0].lose()
    house.doors[0].lose()
    assert [len(door) for door in house.doors] == [0, 1]
    assert house.admission.taken == 1
    assert house.ask(1, 2, PRODUCER) == [Admitted(2, has_places=True)]
    assert isinstance(house.ask(1, 3, PRODUCER)[0], NotAdmitted)


def test_what_is_no_topic_is_no_workers_message() -> None:
    with pytest.raises(ValueError, match="topic name"):
        House().doors[0].asked(Enter(1, [PRODUCER], "192.0.2.7:1", "192.0.2.7", "persistent://only/two"))
