"""The election among peers, over a simulated network: any delays, losses and stops."""

import random

import pytest

from fleet.election import Election, Ping

LEASE = 2_000
ORDER = ("a", "b", "c", "d", "e")


class Network:
    """Members with pings and votes on their way."""

    def __init__(self, order: tuple[str, ...], loss: float, seed: int) -> None:
        self.random = random.Random(seed)
        self.loss = loss
        self.now = 0
        self.order = order
        self.members = {each: Election(order, each, LEASE, 0) for each in order}
        self.down: set[str] = set()
        self.cut: set[frozenset[str]] = set()
        self.queue: list[tuple[int, str, str, Ping | int]] = []

    def leaders(self) -> list[str]:
        return [each for each, member in self.members.items() if member.leads(self.now)]

    def run(self, until: int) -> None:
        while self.now < until:
            self.now += 50
            for at, by, to, what in [each for each in self.queue if each[0] <= self.now and each[2] not in self.down]:
                self.queue.remove((at, by, to, what))
                if isinstance(what, int):
                    self.members[to].voted(by, what)
                elif self.members[to].pinged(by, what, self.now):
                    self.send(to, by, what.sequence)
            if self.now % 500 == 0:
                for each in set(self.order) - self.down:
                    ping = self.members[each].ping(self.now)
                    for other in set(self.order) - {each}:
                        self.send(each, other, ping)
            assert len(self.leaders()) <= 1

    def send(self, by: str, to: str, what: Ping | int) -> None:
        if self.random.random() >= self.loss and frozenset((by, to)) not in self.cut:
            delays = (0, 50, 200, 200, 3000) if self.loss else (0, 50, 200)
            self.queue.append((self.now + self.random.choice(delays), by, to, what))

    def restart(self, name: str) -> None:
        self.members[name] = Election(self.order, name, LEASE, self.now)
        self.down.discard(name)


def test_the_first_of_all_leads_within_three_leases() -> None:
    network = Network(ORDER, 0, 1)
    network.run(3 * LEASE)
    assert network.leaders() == ["a"]


def test_the_next_leads_when_it_is_gone_and_stays_when_it_is_back() -> None:
    network = Network(ORDER, 0, 2)
    network.run(3 * LEASE)
    network.down.add("a")
    network.run(7 * LEASE)
    assert network.leaders() == ["b"]
    network.restart("a")
    network.run(20 * LEASE)
    assert network.leaders() == ["b"]


@pytest.mark.parametrize("starts_anew", [True, False], ids=["starts anew", "stood still"])
def test_who_led_before_votes_for_who_leads_when_it_is_back(starts_anew: bool) -> None:  # noqa: FBT001
    """Else its reports reach nobody: they go to whom it votes for."""
    network = Network(ORDER, 0, 2)
    network.run(3 * LEASE)
    network.down.add("a")
    network.run(7 * LEASE)
    if starts_anew:
        network.restart("a")
    network.down.discard("a")
    network.run(10 * LEASE)
    assert network.leaders() == ["b"]
    assert {member.votes_for for member in network.members.values()} == {"b"}


def test_who_reaches_no_majority_is_passed_over() -> None:
    network = Network(("a", "b", "c", "d"), 0, 3)
    network.cut = {frozenset("ac"), frozenset("ad")}
    network.run(6 * LEASE)
    assert network.leaders() == ["b"]


def test_no_majority_no_leader() -> None:
    network = Network(ORDER, 0, 4)
    network.run(3 * LEASE)
    network.down |= {"b", "c", "d"}
    network.run(6 * LEASE)
    assert network.leaders() == []


@pytest.mark.parametrize("seed", range(30))
def test_never_two_at_once(seed: int) -> None:
    network = Network(ORDER, 0.2, seed)
    led = 0
    for step in range(40):
        name = network.random.choice(ORDER)
        if name in network.down:
            network.restart(name) if network.random.random() < 0.5 else network.down.discard(name)
        elif len(network.down) < 2:
            network.down.add(name)
        network.run((step + 1) * 2 * LEASE)
        led += len(network.leaders())
    assert led > 0


def test_a_confirmation_dates_from_the_ping_that_the_last_of_a_majority_answered() -> None:
    a = Election(("a", "b", "c"), "a", LEASE, 0)
    for each in ("b", "c"):
        a.pinged(each, Ping(1, reaches=True, leads=False), LEASE)
    first, second = a.ping(LEASE).sequence, a.ping(LEASE + 500).sequence
    assert not a.leads(LEASE + 500)
    a.voted("b", first)
    assert a.asked_at == LEASE
    a.voted("c", second)
    assert a.asked_at == LEASE + 500
    a.voted("b", first)  # twice, and late
    assert a.asked_at == LEASE + 500
    assert a.leads(LEASE + 500 + int(LEASE * 0.98) - 1)
    assert not a.leads(LEASE + 500 + int(LEASE * 0.98))
