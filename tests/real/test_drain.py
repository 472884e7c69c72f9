"""A proxy drains in front of a real broker: clients go on at another one, or at the process that has taken over."""

import json
import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pulsar
import pytest

from bench.leaving import ClientLog
from loadgen.real.process import wait_until
from loadgen.real.standalone import BrokerSettings, StandaloneBroker
from tests.real.broker_record import Held, Step
from tests.real.conftest import IS_DIRECT
from tests.real.demand import publishing, wait_for_more
from tests.real.moved_clients import GO, JAVA, OF_LANGUAGES, PYTHON, STREAMS, moved_clients, service_url
from tests.real.receiving_end import ReceivingEnd
from tests.real.sluice_process import SluiceProcess, start_sluice
from tests.real.traffic import OPERATION_S, digest, digests, open_sender, quiet_client, read_all
from tests.waiting import wait_for

NEEDS_GO = pytest.mark.skipif(shutil.which("go") is None, reason="no Go client here: install Go")
pytestmark = [pytest.mark.real, pytest.mark.skipif(IS_DIRECT, reason="the broker itself does not drain")]

TOPICS = [f"persistent://public/default/drain-{number}" for number in range(4)]
CONFIG = {"limits": {"topics": {TOPICS[0]: {"publish": {"messages": 30}}}}}
DRAIN = {"SLUICE_DRAIN__DELAY": "1s", "SLUICE_DRAIN__PERIOD": "2s", "SLUICE_DRAIN__TIMEOUT": "20s"}


@contextmanager
def two_proxies(folder: Path, broker: StandaloneBroker) -> Iterator[tuple[SluiceProcess, SluiceProcess]]:
    with ExitStack() as started:
        sluices = [start_sluice(folder / name, broker.service_url, CONFIG, env=DRAIN) for name in ("a", "b")]
        for sluice in sluices:
            assert sluice.process is not None
            started.callback(sluice.process.kill)
        yield sluices[0], sluices[1]


class Acknowledger:
    """Acknowledges all that a consumer gets, and counts it."""

    def __init__(self, client: pulsar.Client, topic: str, kind: pulsar.ConsumerType) -> None:
        self.got: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.consumer = client.subscribe(topic, f"all-{kind.name}", kind, message_listener=self._take)

    def _take(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        with self._lock:
            self.got[digest(message.data())] += 1
        consumer.acknowledge(message)

    def has(self, marks: set[str]) -> bool:
        with self._lock:
            return set(self.got) == marks


def stream_count(sluice: SluiceProcess) -> int:
    count: int = sluice.get("/sluice/streams")["totals"]["streams"]
    return count


def drain(sluice: SluiceProcess) -> str:
    """Send SIGTERM, and return the log when the process has ended."""
    process = sluice.process
    assert process is not None
    os.kill(process.pid, signal.SIGTERM)
    wait_for(lambda: process.exit_code is not None, 60, lambda: f"it did not end\n{process.last_lines()}")
    log = process.log_path.read_text()
    assert process.exit_code == 0, log
    assert "Traceback" not in log, log
    return log


@pytest.mark.slow
def test_clients_go_on_elsewhere_while_a_proxy_drains(real_broker: StandaloneBroker, tmp_path: Path) -> None:
    client_log = ClientLog()
    with two_proxies(tmp_path, real_broker) as (first, second), ExitStack() as closing:
        url = f"{first.service_url},{second.service_url.removeprefix('pulsar://')}"
        client = pulsar.Client(url, logger=client_log, operation_timeout_seconds=OPERATION_S)
        closing.callback(client.close)
        kinds = [pulsar.ConsumerType.Shared, pulsar.ConsumerType.Failover, pulsar.ConsumerType.Exclusive]
        readers = [Acknowledger(client, topic, kind) for topic, kind in zip(TOPICS[1:], kinds, strict=True)]
        senders = [open_sender(client, topic, f"{topic[-7:]}-{number}") for topic in TOPICS for number in range(2)]
        with publishing(*senders, per_s=25, pending=30):
            wait_for_more(senders, 30)
            busy, other = sorted((first, second), key=stream_count, reverse=True)
            log = drain(busy)
            troubles = list(client_log.lines)  # a client that looks up later finds the first address closed
            wait_for_more(senders, 30)
        for sender in senders:
            sender.producer.flush()
        assert stream_count(other) == len(senders) + len(readers)
        assert '"outcome": "moved"' in log, log
        assert troubles == []
        direct = quiet_client(real_broker.service_url)
        closing.callback(direct.close)
        in_broker = {name: marks for topic in TOPICS for name, marks in digests(read_all(direct, topic)).items()}
        for sender in senders:
            assert not sender.failed
            assert in_broker[sender.name] == sender.sent, "in order, none lost, none twice"
        for topic, reader in zip(TOPICS[1:], readers, strict=True):
            sent = {mark for sender in senders if sender.name.startswith(topic[-7:]) for mark in sender.sent}
            assert wait_until(partial(reader.has, sent), 30), f"{reader.consumer.subscription_name()} lacks messages"


@pytest.fixture(scope="module")
def broker_of_kinds(short_lived_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneBroker]:
    """Its largest message is small, as the client of Python makes its chunks as large."""
    settings = BrokerSettings(properties={"transactionCoordinatorEnabled": "true", "maxMessageSize": "16384"})
    with StandaloneBroker(tmp_path_factory.mktemp("broker"), settings) as broker:
        yield broker


def check_unnoticed(language: str, url: str, output: Path, leave: Callable[[], SluiceProcess]) -> None:
    """Have clients of each kind before proxies that leave.

    Args:
        language: Of the clients.
        url: Their service URL.
        output: A file for what they print.
        leave: Does it, one after the other, and returns the proxy that all clients have in the end.
    """
    kinds = OF_LANGUAGES[language]
    with moved_clients(language, url, output, kinds) as program:
        last = leave()
        wait_for(lambda: stream_count(last) >= sum(STREAMS[kind] for kind in kinds), evidence=program.printed)
        counts = program.end()
        troubles, late_chunks = program.troubles(), program.late_chunks()
    assert troubles == []
    assert counts["sent"] > 100
    assert counts["failed"] == 0, counts
    assert counts["disordered"] + counts["lacking"] <= late_chunks, counts


LANGUAGES = pytest.mark.parametrize(
    "language",
    [PYTHON, pytest.param(JAVA, marks=pytest.mark.slow), pytest.param(GO, marks=[pytest.mark.slow, NEEDS_GO])],
)


@LANGUAGES
def test_clients_of_each_kind_notice_no_rolling_restart(
    broker_of_kinds: StandaloneBroker, tmp_path: Path, language: str
) -> None:
    """Of two proxies in the service URL each drains and starts again, one after the other."""
    with two_proxies(tmp_path, broker_of_kinds) as both, ExitStack() as started:
        url = service_url(language, [each.service_url.removeprefix("pulsar://") for each in both])

        def roll() -> SluiceProcess:
            busy, other = sorted(both, key=stream_count, reverse=True)
            assert stream_count(busy)
            for each in (busy, other):
                log = drain(each)
                assert '"outcome": "moved"' in log, log
                again = each.started_again(DRAIN)
                assert again.process is not None
                started.callback(again.process.kill)
            return busy

        check_unnoticed(language, url, tmp_path / "clients.txt", roll)


@LANGUAGES
def test_clients_of_each_kind_notice_no_takeover(
    broker_of_kinds: StandaloneBroker, tmp_path: Path, language: str
) -> None:
    config = {"proxy_id": "alone", "drain": {"state": str(tmp_path / "state")}}
    sluice = start_sluice(tmp_path, broker_of_kinds.service_url, config, env=DRAIN)
    process = sluice.process
    assert process is not None

    def take_over() -> SluiceProcess:
        os.kill(process.pid, signal.SIGUSR2)
        wait_for(lambda: _has_line(process.log_path, "takeover is over", 1), 60, process.last_lines)
        return sluice

    try:
        check_unnoticed(language, sluice.service_url, tmp_path / "clients.txt", take_over)
    finally:
        process.kill()


LIMIT, BURST, RESTARTS = 40, 4, 2
OFFERED = 24
"""Messages a second of each of two producers: a little more than the limit, as held ones are awaited in each drain."""


@pytest.mark.slow
def test_clients_go_on_while_a_process_is_taken_over(real_broker: StandaloneBroker, tmp_path: Path) -> None:
    """Two restarts in place by a signal. Two producers offer more than their limit, at the broker it is always kept."""
    topics = [f"persistent://public/default/taken-{number}" for number in range(3)]
    limits = {"topics": {topics[0]: {"publish": {"messages": LIMIT, "burst_messages": BURST}}}}
    config = {"proxy_id": "alone", "limits": limits, "drain": {"state": str(tmp_path / "state")}}
    client_log = ClientLog()
    sluice = start_sluice(tmp_path, real_broker.service_url, config, env=DRAIN)
    process = sluice.process
    assert process is not None
    with ExitStack() as closing:
        closing.callback(process.kill)
        client = pulsar.Client(sluice.service_url, logger=client_log, operation_timeout_seconds=OPERATION_S)
        closing.callback(client.close)
        direct = quiet_client(real_broker.service_url)
        closing.callback(direct.close)
        reader = Acknowledger(client, topics[1], pulsar.ConsumerType.Shared)
        end = closing.enter_context(ReceivingEnd(real_broker.service_url, topics[0], list))
        senders = [open_sender(client, topic, f"{topic[-7:]}-{number}") for topic in topics for number in range(2)]
        running = process.pid
        with publishing(*senders, per_s=OFFERED):
            wait_for_more(senders, LIMIT)
            for times in range(1, RESTARTS + 1):
                os.kill(running, signal.SIGUSR2)
                is_over = partial(_has_line, process.log_path, "takeover is over", times)
                wait_for(is_over, 60, process.last_lines)
                running = int(_last_value(process.log_path, "by_pid"))
                wait_for_more(senders, LIMIT)
        for sender in senders:
            sender.producer.flush()
        assert client_log.lines == []
        assert end.excess_since_begin(Held([Step(0.0, LIMIT, BURST / LIMIT)], 1 + RESTARTS)) <= 0
        in_broker = {name: marks for topic in topics for name, marks in digests(read_all(direct, topic)).items()}
        for sender in senders:
            assert not sender.failed
            assert in_broker[sender.name] == sender.sent, "in order, none lost, none twice"
        sent = {mark for sender in senders if sender.name.startswith(topics[1][-7:]) for mark in sender.sent}
        assert wait_until(partial(reader.has, sent), 30)


def _has_line(log: Path, text: str, times: int) -> bool:
    return log.read_text().count(text) >= times


def _last_value(log: Path, field: str) -> str:
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return [str(line[field]) for line in lines if field in line][-1]
