"""`python -m bench leaving`: what clients notice of a restart, beside a broker that unloads their topics.

    StreamCrowd: CrowdProducer, CrowdConsumer ──▶ Sluice, or two ──▶ the broker
                                                      ▲
    Way: a signal, or the broker's unload ────────────┘

A `StreamCrowd` publishes and consumes at a low rate, and keeps the times of all receipts and arrivals. A `Way` has it
leave.
"""

import gc
import json
import logging
import os
import signal
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice, pairwise
from pathlib import Path
from socket import create_connection
from typing import Any, Final, Self

import pulsar

from adminrest.client import AdminClient
from bench import harness, meters
from bench.data_path.proxies import UNREACHED
from bench.harness import BAD_INPUT, CANNOT_START, BenchError, Figure, Found, Goal, Row, Sample, Section, in_rounds
from loadgen.real.jars import VERSION, available
from loadgen.real.process import TetheredProcess, free_ports, is_listening, wait_ready, wait_until
from loadgen.real.standalone import StandaloneBroker
from tests.real.moved_clients import moved_clients, service_url
from tests.real.sluice_process import SluiceProcess, start_sluice

NAME: Final = "leaving"
SLUICE, UNLOAD = "Sluice", "the broker's unload"
PYTHON, JAVA, GO = "python", "java", "go"
MOST_PAUSE_S: Final = 0.3
DRAIN: Final = {"SLUICE_DRAIN__TIMEOUT": "30s"}
"""The default, which processes of load tools do not have."""
_REST_S: Final = 5.0
"""Time before the leaving, in which pauses are measured for comparison, and after it."""
_OVER_S: Final = 120.0
_PATIENCE_S: Final = 60.0
_KNOCKS_S: Final = 0.01
_IDENTITY: Final = struct.Struct(">II")


# ---- The clients


@dataclass(frozen=True, slots=True)
class CrowdSize:
    """The number of streams, half of them producers, and what they share.

    Attributes:
        streams: Producers and consumers.
        topics: The topics, each with as many producers as consumers.
        connections: Clients, each with one connection for its streams.
        period_s: Seconds between two messages of a producer.
    """

    streams: int = 1000
    topics: int = 100
    connections: int = 20
    period_s: float = 1.0


class CrowdProducer:
    """One producer, and the times of its receipts."""

    def __init__(self, number: int, topic: str, producer: Any) -> None:
        self.number = number
        self.topic = topic
        self._producer = producer
        self.offered = self.failed = 0
        self.receipts: list[tuple[int, float]] = []
        """Each with the number of its message and its time, in the order in which they came."""

    def offer(self) -> None:
        """Send the next message."""
        number, self.offered = self.offered, self.offered + 1

        def settled(result: Any, _message_id: object) -> None:
            if result == pulsar.Result.Ok:
                self.receipts.append((number, time.monotonic()))
            else:
                self.failed += 1

        try:
            self._producer.send_async(_IDENTITY.pack(self.number, number), settled)
        except pulsar.PulsarException:
            self.failed += 1

    @property
    def on_their_way(self) -> int:
        """Messages without a receipt or an error."""
        return self.offered - len(self.receipts) - self.failed

    def longest_pause(self, begin: float, end: float, period_s: float) -> float:
        """Return the longest time between two receipts, beyond the period, that overlaps an interval."""
        times = [at for _, at in self.receipts if at <= end] + [end]
        return max((late - early - period_s for early, late in pairwise(times) if late >= begin), default=0.0)


class CrowdConsumer:
    """One consumer, which has a subscription of its own, and the arrivals of its messages."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.arrivals: list[tuple[int, int, float]] = []
        """Each with the numbers of producer and message, and its time, in the order in which they came."""

    def take(self, consumer: Any, message: Any) -> None:
        """Note a message, and acknowledge it."""
        self.arrivals.append((*_IDENTITY.unpack(message.data()), time.monotonic()))
        consumer.acknowledge(message)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The messages of one consumer, compared with the receipts of its topic.

    Attributes:
        lost: Messages with a receipt that have not arrived.
        twice: Arrivals of messages that had arrived before.
        disordered: Messages that first arrived after a later one of their producer.
        longest_wait: The longest time from a receipt to the arrival, of messages on their way in the interval.
    """

    lost: int
    twice: int
    disordered: int
    longest_wait: float


def compared(
    arrivals: Sequence[tuple[int, int, float]], producers: Sequence[CrowdProducer], begin: float, end: float
) -> Comparison:
    """Compare the arrivals at one consumer with the receipts of its topic's producers.

    Args:
        arrivals: As a `CrowdConsumer` has them.
        producers: All producers of its topic.
        begin: The begin of the interval in which waits count.
        end: Its end.
    """
    first: dict[tuple[int, int], float] = {}
    last: dict[int, int] = {}
    disordered = 0
    for producer, number, at in arrivals:
        if (producer, number) not in first:
            first[producer, number] = at
            disordered += number < last.get(producer, -1)
            last[producer] = max(number, last.get(producer, -1))
    lost, longest = 0, 0.0
    for each in producers:
        for number, at in each.receipts:
            arrived = first.get((each.number, number))
            if arrived is None:
                lost += 1
            elif at <= end and arrived >= begin:
                longest = max(longest, arrived - at)
    return Comparison(lost, len(arrivals) - len(first), disordered, longest)


class ClientLog(logging.Logger):
    """A logger that keeps the lines of clients above INFO."""

    def __init__(self) -> None:
        super().__init__("client", logging.WARNING)
        self.lines: list[str] = []

    def handle(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.lines.append(record.getMessage())


class StreamCrowd:
    """Official clients with their streams; they publish from the begin of the block until `end`.

    Args:
        addresses: Their service URL has these, the first client in this order, the next one from the second on.
        size: The number of streams.
        prefix: Begins the names of all topics.
    """

    def __init__(self, addresses: Sequence[str], size: CrowdSize, prefix: str) -> None:
        self.size = size
        turns = [[*addresses[turn:], *addresses[:turn]] for turn in range(len(addresses))]
        self._urls = [f"pulsar://{','.join(turn)}" for turn in turns]
        self._topics = [f"persistent://public/default/{prefix}-{number}" for number in range(size.topics)]
        self._log = ClientLog()
        self._open = ExitStack()
        self._ended = threading.Event()
        self.producers: list[CrowdProducer] = []
        self.consumers: list[CrowdConsumer] = []
        self._late: list[tuple[float, float]] = []

    def __enter__(self) -> Self:
        size = self.size
        with self._open:
            urls = islice(cycle(self._urls), size.connections)
            clients = [pulsar.Client(url, logger=self._log) for url in urls]
            for client in clients:
                self._open.callback(client.close)
            try:
                with ThreadPoolExecutor(size.connections) as pool:
                    for consumers in pool.map(self._subscribed, range(size.connections), clients):
                        self.consumers += consumers
                    for producers in pool.map(self._producers, range(size.connections), clients):
                        self.producers += producers
            except pulsar.PulsarException as error:
                raise BenchError(f"{self._urls[0]}: the clients cannot open their streams: {error}") from error
            thread = threading.Thread(target=self._publish)
            thread.start()
            self._open.callback(thread.join)
            self._open.callback(self._ended.set)
            self._open = self._open.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def end(self) -> None:
        """Publish no more, and return when all receipts and all their messages have come, or will not."""
        self._ended.set()
        wait_until(lambda: not any(each.on_their_way for each in self.producers), _PATIENCE_S)
        by_topic = self._by_topic()
        wait_until(
            lambda: not any(compared(each.arrivals, by_topic[each.topic], 0, 0).lost for each in self.consumers),
            _PATIENCE_S,
            0.5,
        )

    def sample(self, begin: float, end: float) -> dict[str, float]:
        """Return the figures of all streams, the pauses of an interval."""
        by_topic = self._by_topic()
        received = [compared(each.arrivals, by_topic[each.topic], begin, end) for each in self.consumers]
        pauses = [each.longest_pause(begin, end, self.size.period_s) for each in self.producers]
        waits = [each.longest_wait for each in received]
        return {
            "pause": max(pauses),
            "wait": max(waits),
            "paused": sum(each > MOST_PAUSE_S for each in (*pauses, *waits)),
            "late": max((late for at, late in self._late if begin <= at <= end), default=0.0),
            "failed": sum(each.failed + each.on_their_way for each in self.producers),
            "lost": sum(each.lost for each in received),
            "twice": sum(each.twice for each in received),
            "disordered": sum(each.disordered for each in received),
            "lines": len(self._log.lines),
        }

    @property
    def lines(self) -> list[str]:
        """The lines of the clients' log above INFO."""
        return self._log.lines

    def _by_topic(self) -> dict[str, list[CrowdProducer]]:
        by_topic: dict[str, list[CrowdProducer]] = {topic: [] for topic in self._topics}
        for producer in self.producers:
            by_topic[producer.topic].append(producer)
        return by_topic

    def _own(self, client: int) -> list[int]:
        """Return the numbers of a client's producers, and of its consumers; those of a topic are of several clients."""
        size = self.size
        numbers = range(size.streams // 2)
        return [each for each in numbers if (each + each // size.topics) % size.connections == client]

    def _subscribed(self, index: int, client: Any) -> list[CrowdConsumer]:
        consumers = []
        for number in self._own(index):
            consumer = CrowdConsumer(self._topics[number % len(self._topics)])
            client.subscribe(consumer.topic, f"of-{number}", message_listener=consumer.take)
            consumers.append(consumer)
        return consumers

    def _producers(self, index: int, client: Any) -> list[CrowdProducer]:
        producers = []
        for number in self._own(index):
            topic = self._topics[number % len(self._topics)]
            producers.append(CrowdProducer(number, topic, client.create_producer(topic)))
        return producers

    def _publish(self) -> None:
        """Have each producer send once in a period, one after the other, spread evenly over it."""
        step_s = self.size.period_s / len(self.producers)
        due = time.monotonic()
        while True:
            for producer in self.producers:
                if self._ended.wait(max(0.0, due - time.monotonic())):
                    return
                now = time.monotonic()
                self._late.append((now, now - due))
                producer.offer()
                due += step_s


@contextmanager
def _knocking(address: str) -> Iterator[list[str]]:
    """Connect to an address again and again; yields the errors so far."""
    errors: list[str] = []
    host, _, port = address.partition(":")
    over = threading.Event()

    def knock() -> None:
        while not over.wait(_KNOCKS_S):
            try:
                create_connection((host, int(port)), _PATIENCE_S).close()
            except OSError as error:
                errors.append(str(error))

    thread = threading.Thread(target=knock)
    thread.start()
    try:
        yield errors
    finally:
        over.set()
        thread.join()


# ---- How they leave


@dataclass(frozen=True, slots=True)
class CrowdBroker:
    """A broker that runs.

    Attributes:
        address: host:port of the binary protocol.
        admin_url: Its admin REST; empty where it has none.
    """

    address: str
    admin_url: str = ""


@dataclass(frozen=True, slots=True)
class LeavingScene:
    """The place in which a row is played.

    Attributes:
        broker: The broker of all messages.
        size: The number of streams.
        folder: For files; its name begins the names of the topics.
        language: The language of the clients.
    """

    broker: CrowdBroker
    size: CrowdSize
    folder: Path
    language: str = PYTHON


Way = Callable[[LeavingScene], Sample]
"""Starts what is to leave, has a crowd before it, and measures; the scene is its own."""


def _noticed(
    scene: LeavingScene,
    addresses: Sequence[str],
    leave: Callable[[], Mapping[str, float]],
    *,
    is_kept_open: bool = False,
) -> Sample:
    """Have a crowd while something leaves; connections are tried meanwhile, where the first address is kept open."""
    if scene.language != PYTHON:
        return _noticed_by_program(scene, addresses, leave, is_kept_open=is_kept_open)
    with ExitStack() as opened:
        crowd = opened.enter_context(StreamCrowd(addresses, scene.size, scene.folder.name))
        refused = opened.enter_context(_knocking(addresses[0])) if is_kept_open else []
        time.sleep(_REST_S)
        rest = time.monotonic()
        time.sleep(_REST_S)
        begun = time.monotonic()
        figures = leave()
        took_s = time.monotonic() - begun
        time.sleep(_REST_S)
        ended = time.monotonic()
        crowd.end()
        for line in crowd.lines[:5]:
            sys.stderr.write(f"{scene.folder.name}: a client's log: {line}\n")
        at_rest = crowd.sample(rest, begun)
        rest_s = max(at_rest["pause"], at_rest["wait"])
        noticed = {**crowd.sample(begun, ended), **figures, "rest": rest_s, "took": took_s}
        return noticed | ({"refused": len(refused)} if is_kept_open else {})


def _noticed_by_program(
    scene: LeavingScene, addresses: Sequence[str], leave: Callable[[], Mapping[str, float]], *, is_kept_open: bool
) -> Sample:
    """Have a program in another language in the place of the crowd."""
    size = scene.size
    url, kinds = service_url(scene.language, addresses), ["Exclusive"] * (size.streams // 2)
    of_client, pause_ms = len(kinds) // size.connections, round(size.period_s * 1e3)
    with ExitStack() as opened:
        output = scene.folder / "clients.txt"
        clients = moved_clients(scene.language, url, output, kinds, of_client=of_client, pause_ms=pause_ms)
        program = opened.enter_context(clients)
        refused = opened.enter_context(_knocking(addresses[0])) if is_kept_open else []
        time.sleep(2 * _REST_S)
        program.begin_anew()
        begun = time.monotonic()
        figures = leave()
        took_s, troubles = time.monotonic() - begun, program.troubles()
        time.sleep(_REST_S)
        totals = program.end()
        for line in troubles[:5]:
            sys.stderr.write(f"{scene.folder.name}: a client's log: {line}\n")
    counts = {"failed": totals["failed"], "lost": totals["lacking"], "lines": len(troubles)}
    counts |= {name: totals[name] for name in ("twice", "disordered")}
    more = {"refused": len(refused)} if is_kept_open else {}
    return {"pause": totals["longest"] / 1e3, **counts, **figures, "took": took_s, **more}


def drained(scene: LeavingScene) -> Sample:
    """One proxy of two in the service URL drains."""
    with ExitStack() as started:
        first, second = (started.enter_context(_sluice(scene, name)) for name in ("a", "b"))
        return _noticed(scene, [_address(first), _address(second)], partial(_drain, first))


def taken_over(scene: LeavingScene) -> Sample:
    """The process of a proxy is replaced in place."""
    with _sluice(scene, "alone", drain={"state": str(scene.folder / "state")}) as sluice:
        leave = partial(_signalled, sluice, signal.SIGUSR2, "takeover is over")
        return _noticed(scene, [_address(sluice)], leave, is_kept_open=True)


def replaced(scene: LeavingScene) -> Sample:
    """Two processes on one port are replaced, one after the other."""
    namespaces = {"admin_forward": {"url": scene.broker.admin_url}} if scene.broker.admin_url else {}
    with _sluice(scene, "both", processes=2, **namespaces) as sluice:
        port = int(sluice.admin_url.rpartition(":")[2])
        if not wait_until(lambda: meters.scrape(port).values.get("sluice_fleet_members") == 2, _PATIENCE_S):
            raise BenchError(f"the two processes have not formed their fleet within {_PATIENCE_S:g} s")
        leave = partial(_signalled, sluice, signal.SIGUSR2, "all processes are replaced")
        return _noticed(scene, [_address(sluice)], leave, is_kept_open=True)


def unloaded(scene: LeavingScene) -> Sample:
    """The broker unloads all topics of the namespace, in front of nothing."""
    admin = AdminClient(scene.broker.admin_url)

    def leave() -> Mapping[str, float]:
        admin.call("PUT", "/admin/v2/namespaces/public/default/unload")
        return {}

    return _noticed(scene, [scene.broker.address], leave)


@contextmanager
def _sluice(scene: LeavingScene, name: str, **config: Any) -> Iterator[SluiceProcess]:
    settings = {"proxy_id": name, "limits": UNREACHED, **config}
    sluice = start_sluice(scene.folder / name, f"pulsar://{scene.broker.address}", settings, env=DRAIN)
    assert sluice.process is not None
    try:
        yield sluice
    finally:
        sluice.process.kill()


def _drain(sluice: SluiceProcess) -> Mapping[str, float]:
    assert sluice.process is not None
    process = sluice.process
    os.kill(process.pid, signal.SIGTERM)
    if not wait_until(lambda: process.exit_code is not None, _OVER_S):
        raise BenchError(f"a drain has not ended within {_OVER_S:g} s\n{process.last_lines()}")
    return _moved(process.log_path)


def _signalled(sluice: SluiceProcess, number: signal.Signals, over: str) -> Mapping[str, float]:
    """Send a signal, and return when the log has a line that says that its effect is over."""
    assert sluice.process is not None
    process = sluice.process
    os.kill(process.pid, number)
    if not wait_until(lambda: over in process.log_path.read_text(), _OVER_S):
        raise BenchError(f"no line '{over}' within {_OVER_S:g} s\n{process.last_lines()}")
    return _moved(process.log_path)


def _moved(log: Path) -> Mapping[str, float]:
    """Return the number of streams that have left, by the lines that end a drain."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return {"moved": sum(line["streams"] for line in lines if line["event"] == "drained")}


def _address(sluice: SluiceProcess) -> str:
    return sluice.service_url.removeprefix("pulsar://")


# ---- Rows

_NONE = (Goal("≤", 0),)
_BASE = (
    Figure("pause", "longest pause of a producer", " s", 2, (Goal("≤", MOST_PAUSE_S),)),
    Figure("wait", "longest wait of a consumer", " s", 2, (Goal("≤", MOST_PAUSE_S),)),
    Figure("rest", "either of them in 5 s before", " s", 2),
    Figure("late", "of these, standstill of the clients' own process", " s", 2),
    Figure("paused", f"streams with more than {MOST_PAUSE_S:g} s"),
    Figure("moved", "streams that left"),
    Figure("took", "until all had left", " s", 1),
    Figure("failed", "sends that failed", goals=_NONE),
    Figure("lost", "messages that a consumer lacks", goals=_NONE),
    Figure("disordered", "messages out of order", goals=_NONE),
    Figure("lines", "lines above INFO in the clients' log", goals=_NONE),
)
_OF_PROGRAMS = (
    Figure("pause", "longest time until a receipt", " s", 2, (Goal("≤", MOST_PAUSE_S),)),
    *(figure for figure in _BASE if figure.key in {"moved", "took", "failed", "lost", "disordered", "lines"}),
)
"""Figures of clients in other languages: programs that count by themselves."""
_TWICE = Figure("twice", "messages that a consumer got twice")
_BEYOND = Figure("beyond", "of these, more than with the unload", goals=_NONE)
_REFUSED = Figure("refused", "connections refused", goals=_NONE)
REAL = "real-"
"""Begins the name of a row with a real broker."""
_WAYS: tuple[tuple[str, str, Way, tuple[Figure, ...]], ...] = (
    ("drained", "one proxy of two in the service URL drains (SIGTERM)", drained, ()),
    ("taken-over", "a proxy is replaced in place (SIGUSR2)", taken_over, (_REFUSED,)),
    ("replaced", "two processes of one proxy are replaced in turn (SIGUSR2)", replaced, (_REFUSED,)),
)
LANGUAGES: Final = {PYTHON: "", JAVA: f"-{JAVA}", GO: f"-{GO}"}
"""The languages of clients, and how the names of their rows end."""
LeavingRow = Row[Way]
ROWS: tuple[LeavingRow, ...] = (
    *(
        Row(name, f"{text}, before the stand-in broker", (*_BASE, _TWICE, *more), way, (SLUICE,))
        for name, text, way, more in _WAYS
    ),
    *(
        Row(
            f"{REAL}{name}{end}",
            f"{text}, before a real broker" + (f"; clients in {language.capitalize()}" if end else ""),
            (*(_OF_PROGRAMS if end else _BASE), _TWICE, _BEYOND, *more),
            way,
            (UNLOAD, SLUICE),
            None,
            True,
        )
        for language, end in LANGUAGES.items()
        for name, text, way, more in _WAYS
    ),
)
TEXT = """\
## Leaving

Made by `python -m bench leaving --real --write docs/benchmarks.md`, which writes this section
itself. Clients with {streams:,} streams publish and consume while their proxy leaves: by a drain,
or because another process takes its place. Beside it, the broker's own unload of all topics, which
these clients then reach directly.

{table}

Measured on {machine}.

How it is measured:

- **Clients** are {connections} official Python clients in one process, each with one connection for
  its streams. Half of the streams are producers, which publish once a second each, to {topics}
  topics. The others are consumers, each with an Exclusive subscription of its own.
- **Clients in Java and Go** are a program each, with a client for {of_client} topics, each of which has a
  producer and an Exclusive consumer. The longest time until a receipt takes the place of pauses. Of
  lines above INFO, those of the Go client about producers that are closed are left out: the
  broker's own unload brings them as well.
- **Pause of a producer**: the time between two receipts, beyond its period.
- **Wait of a consumer**: the time from the receipt of a message until it arrives.
- **Brokers** are the stand-in and a real Pulsar {pulsar} standalone, which syncs nothing.
- **Got twice**: messages that a consumer had not acknowledged at the broker when it left. Clients
  send acknowledgements each 0.1 s. The figure of the unload differs as much from run to run.
- **Times** are the defaults of `drain`. Sluice has limits that nothing reaches.
- **One proxy of two that drains** shows the clients' own way to another address: each producer and
  consumer takes the addresses of its service URL in turn. Those that come back are served, and
  leave again, so more streams leave than there were.
- **Connections** are tried each 10 ms where the port is kept open.
- **Scheduling**: all these processes run before other work of the machine (`SCHED_RR`), where the
  system allows it.
- **Numbers** are medians, with (least to most) where several were measured and differ.
"""


def main(words: Sequence[str]) -> int:
    """Run the command line; returns the exit code, which says whether all goals are reached."""
    usual = CrowdSize()
    parser = harness.parser(NAME, __doc__, [row.name for row in ROWS], rounds=3)
    parser.add_argument("--real", action="store_true", help="with a real broker as well (Java 17+, Maven)")
    parser.add_argument("--streams", type=harness.count, default=usual.streams, help="producers and consumers")
    arguments = parser.parse_args(words)
    size = CrowdSize(arguments.streams)
    if arguments.write and (arguments.only or not arguments.real):
        return harness.failed(NAME, "--write: a page gets all rows only: add --real, leave out --only", BAD_INPUT)
    rows = [row for row in ROWS if row.name in (arguments.only or [row.name]) and (arguments.real or not row.is_real)]
    if any(row.is_real for row in rows) and (missing := available()):
        return harness.failed(NAME, f"a real Pulsar broker is needed: {missing}", CANNOT_START)

    def text(tables: str, _measurements: Found) -> str:
        values = {"streams": size.streams, "connections": size.connections, "topics": size.topics, "pulsar": VERSION}
        values |= {"of_client": size.streams // 2 // size.connections}
        return harness.prose(TEXT.format(table=tables, machine=harness.machine(), **values))

    measured = partial(_measured, rows, arguments.rounds, size)
    return harness.carry_out(NAME, arguments.write, [Section(NAME, rows, text)], measured, harness.missed)


def _measured(rows: Sequence[LeavingRow], rounds: int, size: CrowdSize) -> Found:
    gc.disable()  # a full collection stops the clients' callbacks for 20 ms and more (measured)
    measurements: dict[str, harness.Rounds] = {}
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name, ExitStack() as opened:
        folder, brokers = Path(name), dict[bool, CrowdBroker]()
        for row in rows:
            if row.is_real not in brokers:
                start = _real if row.is_real else _standin
                brokers[row.is_real] = opened.enter_context(start(folder))
            _come_first()
            scene = LeavingScene(brokers[row.is_real], size, folder)
            measurements[row.name] = in_rounds(row, rounds, partial(_play, row, scene), partial(print, file=sys.stderr))
    return measurements


def _come_first() -> None:
    """Schedule this process, and all that it has started, before other work of the machine, as far as that is allowed.

    Sluices inherit it; a broker that starts later has it from the next call on.
    """
    if os.geteuid() != 0:
        return
    for pid in (os.getpid(), *meters.children(os.getpid())):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(ProcessLookupError, PermissionError):
                os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))


def _play(row: LeavingRow, scene: LeavingScene, number: int) -> Mapping[str, Sequence[Sample]]:
    samples: dict[str, dict[str, float]] = {}
    last = row.name.rpartition("-")[2]
    language = last if last in LANGUAGES else PYTHON
    for peer in row.peers:
        folder = scene.folder / f"{row.name}-{number}-{peer.partition(' ')[0].lower()}"
        folder.mkdir()
        way = unloaded if peer == UNLOAD else row.measure
        samples[peer] = dict(way(LeavingScene(scene.broker, scene.size, folder, language)))
        gc.collect()
    if UNLOAD in samples:
        samples[SLUICE]["beyond"] = max(0.0, samples[SLUICE]["twice"] - samples[UNLOAD]["twice"])
    return {peer: [sample] for peer, sample in samples.items()}


@contextmanager
def _standin(folder: Path) -> Iterator[CrowdBroker]:
    (port,) = free_ports(0)
    command = [sys.executable, "-m", "sluice", "broker", "--listen", f"127.0.0.1:{port}"]
    process = TetheredProcess(command, folder / "broker.log")
    try:
        wait_ready(process, partial(is_listening, port), _PATIENCE_S)
        yield CrowdBroker(f"127.0.0.1:{port}")
    finally:
        process.kill()


@contextmanager
def _real(folder: Path) -> Iterator[CrowdBroker]:
    with StandaloneBroker(folder / "broker") as broker:
        yield CrowdBroker(broker.address, broker.admin_url)
