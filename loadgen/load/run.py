"""One run of `sluice load`: subscribe, warm up, offer at the scenario's pace, stop, await receipts, report."""

import gc
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TextIO

from loadgen.load.clients import ClientError, Clients, Record, read_service_url
from loadgen.load.offering import Clock, Lane, MessageOrigin, Sender, TopicOffer
from loadgen.load.payload import RUN_BYTES
from loadgen.load.results import Arrivals, Books, counts, document
from loadgen.load.scenario import Scenario, ScenarioError, load_scenario
from protocol.endpoint import EndpointError
from protocol.exit_codes import ExitCode


class LiveLines:
    """Writes `{"at_s": seconds since the begin, "topics": {name: counts so far}}` and a newline, at once."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __call__(self, at_s: float, topics: Mapping[str, Any]) -> None:
        """Write one line."""
        self._out.write(json.dumps({"at_s": round(at_s, 3), "topics": topics}) + "\n")
        self._out.flush()


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
class LoadOrder:
    """The plan of a run."""

    scenario: Scenario
    service_url: str
    verify_url: str | None
    seconds: float
    drain_s: float
    """Longest wait for receipts once offering has stopped, seconds."""


class Ends(Protocol):
    """The clients of one service address, as a run needs them; see `clients.Clients`."""

    def sender(self, connection: str, topic: str, pending: int) -> Sender: ...  # noqa: D102 - documented there
    def subscribe(self, records: Mapping[str, Record]) -> None: ...  # noqa: D102 - documented there


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings of a run, which tests replace."""

    clock: Clock = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    clients: Callable[[str], AbstractContextManager[Ends]] = Clients
    progress: Callable[[float, Mapping[str, Any]], None] = lambda _at, _topics: None
    """Called now and then with the seconds since the begin and what both ends have counted, by topic."""
    progress_s: float = 0.5


def run(order: LoadOrder, around: Surroundings) -> Books:
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
        connection = f"alone {topic}" if load.connection is None else f"shared {load.connection}"
        lanes = []
        for _ in range(load.producers):
            sender = senders.sender(connection, topic, load.pending)
            lanes.append(Lane(MessageOrigin(id_of_run, producer, load.message_bytes, load.pending), sender, clock))
            producer += 1
        offers[topic] = TopicOffer(load, lanes)
    return offers


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

    def __init__(self, order: LoadOrder, around: Surroundings, books: Books) -> None:
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


@dataclass(frozen=True, slots=True)
class Request:
    """The choices of the command line."""

    scenario: Path
    service_url: str
    verify_url: str | None
    seconds: float
    drain_s: float
    out: Path | None
    """Where the result goes; None for standard output."""
    live: str | None
    """Where the counts on the way go: a file's name, `-` for standard output, None for nowhere."""
    ca: Path | None = None
    """Verifies addresses with TLS; None for the system's authorities."""
    prints: bool = False
    """Whether the result goes to standard output, even where `out` names a file."""


def main(request: Request) -> int:
    """Run the load; returns the exit code: of one that was not run, too."""
    try:
        for url in (request.service_url, request.verify_url):
            if url is not None:
                read_service_url(url)
    except EndpointError as error:
        return _fail(str(error), ExitCode.USAGE)
    try:
        result = _result(request)
    except (ScenarioError, ClientError) as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}: give another file")
    for fault in result["faults"]:
        _say(fault)
    return ExitCode.FINDINGS if result["faults"] else ExitCode.DONE


def _result(request: Request) -> dict[str, Any]:
    scenario = load_scenario(request.scenario)
    if request.ca is not None:
        request.ca.open("rb").close()  # the native client does not say of a missing file which one it is
    order = LoadOrder(scenario, request.service_url, request.verify_url, request.seconds, request.drain_s)
    with ExitStack() as stack:
        stack.enter_context(_no_collector())
        stdout = stack.enter_context(_own_stdout())
        out = stdout if request.out is None else stack.enter_context(_writable(request.out))
        around = Surroundings(clients=partial(Clients, ca=request.ca))
        if request.live is not None:
            live = stdout if request.live == "-" else stack.enter_context(_writable(Path(request.live)))
            around = replace(around, progress=LiveLines(live))
        result = document(run(order, around), scenario.limits)
        text = json.dumps(result, indent=1) + "\n"
        for target in {out, stdout} if request.prints else {out}:
            target.write(text)
    return result


def _writable(file: Path) -> TextIO:
    return file.open("w", encoding="utf-8")


@contextmanager
def _no_collector() -> Iterator[None]:
    """Nothing here makes cycles, and a full collection stops both ends for 20 ms and more (measured)."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _own_stdout() -> Iterator[TextIO]:
    """Standard output for our lines alone: the native client's file descriptor 1 is stderr in the block."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(kept, "w", encoding="utf-8", closefd=False) as out:
            yield out
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _fail(text: str, code: ExitCode = ExitCode.FAILED) -> int:
    for line in text.splitlines():
        _say(line)
    return code


def _say(line: str) -> None:
    sys.stderr.write(f"sluice load: {line}\n")
