"""One run: subscribe, warm up, offer at the scenario's pace, stop, wait for what is on its way, look at both books."""

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from loadgen.load.arrivals import Arrivals
from loadgen.load.clients import Clients, Record
from loadgen.load.offering import Clock, Lane, Origin, Sender, TopicOffer
from loadgen.load.payload import RUN_BYTES
from loadgen.load.results import Books, counts
from loadgen.load.scenario import Scenario, TopicLoad

TICK_S = 0.005
WARM_UP_WAIT_S = 5.0
"""Longest wait for the receipt of each producer's first message."""
WARM_UP_REST_S = 1.0
"""Pause after it: a limiter's bucket fills up again, and the run begins with a whole burst at hand."""
ARRIVAL_WAIT_S = 10.0
"""Longest wait, after the last receipt, for its message at the receiving end."""
QUIET_S = 0.3
"""How long the receiving end goes on listening for repetitions."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to run."""

    scenario: Scenario
    service_url: str
    verify_url: str | None
    seconds: float
    drain_s: float
    """Longest wait for receipts once offering has stopped, seconds."""


class Ends(Protocol):
    """What a run needs of the clients of one service address; see `clients.Clients`."""

    def sender(self, connection: str, topic: str, pending: int) -> Sender: ...  # noqa: D102 - told there
    def subscribe(self, records: Mapping[str, Record]) -> None: ...  # noqa: D102 - told there


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a run takes from outside, so that a test can give its own."""

    clock: Clock = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    clients: Callable[[str], AbstractContextManager[Ends]] = Clients
    progress: Callable[[float, Mapping[str, Any]], None] = lambda _at, _topics: None
    """Called now and then with the seconds since the begin and what both ends have counted, by topic."""
    progress_s: float = 0.5


def run(order: Order, around: Surroundings) -> Books:
    """Offer the load and return both books.

    Raises:
        ClientError: If a client cannot connect, before anything is offered.
    """
    with ExitStack() as stack:
        id_of_run = secrets.token_bytes(RUN_BYTES)
        senders = stack.enter_context(around.clients(order.service_url))
        books = Books(_offers(order.scenario, senders, id_of_run, around.clock), None)
        if order.verify_url is not None:
            receiver = stack.enter_context(around.clients(order.verify_url))
            books.arrivals = _listen(receiver, books.offers, id_of_run, around.clock)
        _Run(order, around, books).to_its_end()
        return books


def _offers(scenario: Scenario, senders: Ends, id_of_run: bytes, clock: Clock) -> dict[str, TopicOffer]:
    offers: dict[str, TopicOffer] = {}
    producer = 0
    for topic, load in scenario.topics():
        lanes = []
        for _ in range(load.producers):
            sender = senders.sender(_connection(topic, load), topic, load.pending)
            lanes.append(Lane(Origin(id_of_run, producer, load.message_bytes, load.pending), sender, clock))
            producer += 1
        offers[topic] = TopicOffer(load, lanes)
    return offers


def _connection(topic: str, load: TopicLoad) -> str:
    return f"alone {topic}" if load.connection is None else f"shared {load.connection}"


def _listen(receiver: Ends, offers: Mapping[str, TopicOffer], id_of_run: bytes, clock: Clock) -> dict[str, Arrivals]:
    arrivals = {
        topic: Arrivals(id_of_run, [lane.origin.producer for lane in offer.lanes]) for topic, offer in offers.items()
    }
    receiver.subscribe({topic: _recorder(book, clock) for topic, book in arrivals.items()})
    return arrivals


def _recorder(book: Arrivals, clock: Clock) -> Callable[[bytes], None]:
    return lambda payload: book.record(clock(), payload)


class _Run:
    """The loop from the first message to the last receipt."""

    def __init__(self, order: Order, around: Surroundings, books: Books) -> None:
        self._order = order
        self._around = around
        self._books = books
        self._next_progress = 0.0

    def to_its_end(self) -> None:
        self._warm_up()
        self._books.began = self._around.clock()
        self._offer()
        self._books.stopped_offering = self._around.clock()
        self._wait(self._order.drain_s, self._all_settled)
        if self._books.arrivals is not None:
            self._wait(ARRIVAL_WAIT_S, self._all_arrived)
            self._wait(QUIET_S, lambda: False)

    def _warm_up(self) -> None:
        """One message of each producer, counted like any other: a broker's first write to a topic takes its time."""
        self._books.began = self._around.clock()
        for offer in self._books.offers.values():
            offer.offer_first()
        self._wait(WARM_UP_WAIT_S, self._all_settled)
        self._wait(WARM_UP_REST_S, lambda: False)

    def _offer(self) -> None:
        elapsed = 0.0
        while elapsed < self._order.seconds:
            elapsed = min(self._around.clock() - self._books.began, self._order.seconds)
            for offer in self._books.offers.values():
                offer.offer_due(elapsed)
            self._tick()

    def _wait(self, longest_s: float, done: Callable[[], bool]) -> None:
        until = self._around.clock() + longest_s
        while not done() and self._around.clock() < until:
            self._tick()

    def _tick(self) -> None:
        now = self._around.clock()
        waiting = {topic: offer.on_their_way for topic, offer in self._books.offers.items()}
        self._books.samples.append((now, waiting))
        if now >= self._next_progress:
            self._next_progress = now + self._around.progress_s
            self._around.progress(now - self._books.began, self._progress())
        self._around.sleep(TICK_S)

    def _all_settled(self) -> bool:
        return not any(offer.on_their_way for offer in self._books.offers.values())

    def _all_arrived(self) -> bool:
        arrivals = self._books.arrivals or {}
        return all(arrivals[t].distinct >= counts(o)["receipts"] for t, o in self._books.offers.items())

    def _progress(self) -> dict[str, Any]:
        arrivals = self._books.arrivals
        return {
            topic: counts(offer) | ({} if arrivals is None else {"received": len(arrivals[topic].times)})
            for topic, offer in self._books.offers.items()
        }
