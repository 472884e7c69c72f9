"""`python -m bench neighbour`: the delay of one client beside a busy crowd.

One process is the honest client and the broker of that client, so every message passes Sluice between two sockets of
this process. The kernel stamps each arrival (`SO_TIMESTAMPNS`). The delay of a request is the time from its `send` to
its arrival at the broker, and from the `send` of the answer to its arrival at the client: time in Sluice and in the
kernel, and neither the broker's nor the scheduling of this process. The table also has the time by the client's own
clock: from its `send` until it has read the answer, including the broker's part, some 0.2 ms of Python.

Sluice runs on the first core, all else on the second; there this process is scheduled before all others, and the crowd
before the rest, where the system allows it (root). Each round measures the client alone, and then beside 1,000
connections of another address (`busy connections of one address`: 25 commands a second each, 500 new connections a
second in all).

With `--real` the client has a real broker, which stores each message in memory and syncs nothing: then there is the
client's own clock alone.
"""

import os
import socket
import struct
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from google.protobuf.message import Message

from bench import harness
from bench.data_path.wire import send_frame
from bench.harness import Figure, Found, Row, Sample, Section, in_rounds, percentile
from bench.hostile.trial import ALONE, CONFIG, TOPIC, HostileStage, running
from loadgen.real.process import TetheredProcess, free_port
from loadgen.real.standalone import BrokerSettings, StandaloneBroker
from protocol.commands import decode, encode, encode_with_payload
from protocol.frames import FrameCutter
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandConnected,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandProducer,
    CommandProducerSuccess,
    CommandSend,
    CommandSendReceipt,
    MessageIdData,
    MessageMetadata,
)

_SO_TIMESTAMPNS: Final = 35
"""Source: include/uapi/asm-generic/socket.h; the socket module has no name for it."""
_TIMESPEC: Final = struct.Struct("qq")
_PATIENCE_S: Final = 5.0
_MEASURED_S: Final = 5.0
_ATTACK_S: Final = 12.0
_WARM_S: Final = 5.0
"""Until the crowd is there."""
_REAL_TOPIC: Final = "persistent://public/default/neighbour"
_PACE_S: Final = 0.003
_CROWD: Final = "busy connections of one address"
REQUESTS = ("publish", "lookup")
OWN_CLOCK: Final = ", client's clock"
"""Behind the name of a request."""
_Delays = dict[str, list[float]]
"""Milliseconds by name."""
NAME, BESIDE, SHARES = "neighbour", "beside the crowd", (50, 99)
NAMES = (*REQUESTS, *(name + OWN_CLOCK for name in REQUESTS))


class End:
    """One end of a connection; the kernel stamps what arrives.

    Args:
        connection: The connected socket.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(_PATIENCE_S)
        self._socket = connection
        self._cutter = FrameCutter(2**23)
        self._arrived: deque[tuple[BaseCommand, int]] = deque()

    def say(self, command: Message | bytes) -> int:
        """Send; returns the time just before, nanoseconds since 1970."""
        frame = command if isinstance(command, bytes) else encode(command)
        now = time.time_ns()
        self._socket.sendall(frame)
        return now

    def hear(self, wanted: int) -> tuple[BaseCommand, int]:
        """The next command of this type, and when it arrived, nanoseconds since 1970.

        Raises:
            ConnectionError: If the connection ends before.
            TimeoutError: If nothing comes.
        """
        while True:
            while self._arrived:
                command, at = self._arrived.popleft()
                if command.type == wanted:
                    return command, at
            data, ancillary, _, _ = self._socket.recvmsg(65_536, 256)
            if not data:
                raise ConnectionError(f"ended before a command of type {wanted}")
            (at,) = [seconds * 10**9 + nanos for seconds, nanos in _stamps(ancillary)]
            for frame in self._cutter.feed(data):
                size = int.from_bytes(frame[4:8], "big")
                self._arrived.append((decode(frame[8 : 8 + size]), at))

    def close(self) -> None:
        """Leave."""
        self._socket.close()


def _stamps(ancillary: list[tuple[int, int, bytes]]) -> Iterator[tuple[int, int]]:
    for _, kind, data in ancillary:
        if kind == _SO_TIMESTAMPNS:
            yield _TIMESPEC.unpack_from(data)


def _greet(client: End, broker_port: int) -> None:
    url = f"127.0.0.1:{broker_port}"
    client.say(CommandConnect(client_version="neighbour", protocol_version=20, proxy_to_broker_url=url))


@contextmanager
def _connected(port: int, broker_port: int) -> Iterator[tuple[End, End]]:
    """A client past its handshake with a producer, and its broker."""
    with socket.create_server(("127.0.0.1", broker_port)) as listener:
        listener.settimeout(_PATIENCE_S)
        listener.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)  # also for data before `accept`
        client = End(socket.create_connection(("127.0.0.1", port), _PATIENCE_S))
        _greet(client, broker_port)
        broker = End(listener.accept()[0])
    broker.hear(BaseCommand.CONNECT)
    broker.say(CommandConnected(server_version="neighbour", protocol_version=20, max_message_size=5 << 20))
    client.hear(BaseCommand.CONNECTED)
    client.say(CommandProducer(topic=TOPIC, producer_id=1, request_id=1))
    asked, _ = broker.hear(BaseCommand.PRODUCER)
    broker.say(CommandProducerSuccess(request_id=asked.producer.request_id, producer_name="neighbour"))
    client.hear(BaseCommand.PRODUCER_SUCCESS)
    try:
        yield client, broker
    finally:
        client.close()
        broker.close()


def delays(port: int, broker_port: int, seconds: float) -> _Delays:
    """Return the milliseconds of each request, there and back, by its kind; and those of the client's clock."""
    took: _Delays = {name: [] for name in NAMES}
    entry = send_frame(100).frame
    with _connected(port, broker_port) as (client, broker):
        number, over = 1, time.monotonic() + seconds
        while time.monotonic() < over:
            number += 1
            sent = client.say(entry)
            asked, there = broker.hear(BaseCommand.SEND)
            message_id = MessageIdData(ledger_id=1, entry_id=number)
            receipt = CommandSendReceipt(producer_id=1, sequence_id=asked.send.sequence_id, message_id=message_id)
            answered = broker.say(receipt)
            back = client.hear(BaseCommand.SEND_RECEIPT)[1]
            took["publish" + OWN_CLOCK].append((time.time_ns() - sent) / 1e6)
            took["publish"].append((there - sent + back - answered) / 1e6)

            sent = client.say(CommandLookupTopic(topic=TOPIC, request_id=number))
            asked, there = broker.hear(BaseCommand.LOOKUP)
            response = CommandLookupTopicResponse(
                broker_service_url=f"pulsar://127.0.0.1:{broker_port}",
                response=CommandLookupTopicResponse.Connect,
                request_id=asked.lookup.request_id,
                authoritative=True,
            )
            answered = broker.say(response)
            back = client.hear(BaseCommand.LOOKUP_RESPONSE)[1]
            took["lookup" + OWN_CLOCK].append((time.time_ns() - sent) / 1e6)
            took["lookup"].append((there - sent + back - answered) / 1e6)
            time.sleep(_PACE_S)
    return took


def delays_with_broker(port: int, broker_port: int, seconds: float) -> _Delays:
    """Milliseconds of each request to a broker that is another process, by the client's own clock alone."""
    took: _Delays = {name + OWN_CLOCK: [] for name in REQUESTS}
    metadata = MessageMetadata(producer_name="neighbour", sequence_id=1, publish_time=1).SerializeToString()
    entry = len(metadata).to_bytes(4, "big") + metadata + bytes(100)
    frame = encode_with_payload(CommandSend(producer_id=1, sequence_id=1, num_messages=1), entry)
    number, over = 1, time.monotonic() + seconds
    client = End(socket.create_connection(("127.0.0.1", port), _PATIENCE_S))
    _greet(client, broker_port)
    client.hear(BaseCommand.CONNECTED)
    client.say(CommandProducer(topic=_REAL_TOPIC, producer_id=1, request_id=1))
    client.hear(BaseCommand.PRODUCER_SUCCESS)
    while time.monotonic() < over:
        number += 1
        for name, request, answer in (
            ("publish", frame, BaseCommand.SEND_RECEIPT),
            ("lookup", CommandLookupTopic(topic=_REAL_TOPIC, request_id=number), BaseCommand.LOOKUP_RESPONSE),
        ):
            sent = client.say(request)
            client.hear(answer)
            took[name + OWN_CLOCK].append((time.time_ns() - sent) / 1e6)
        time.sleep(_PACE_S)
    client.close()
    return took


def _beside_crowd(stage: HostileStage, measure: Callable[[], _Delays], folder: Path) -> _Delays:
    command = [sys.executable, "-m", "bench.hostile.attack", _CROWD, f"127.0.0.1:{stage.port}", f"{_ATTACK_S:g}"]
    crowd = TetheredProcess(command, folder / "crowd.log")
    if os.geteuid() == 0:
        os.setpriority(os.PRIO_PROCESS, crowd.pid, -10)
    try:
        time.sleep(_WARM_S)
        return measure()
    finally:
        crowd.stop()


def _sample(took: _Delays) -> Sample:
    return {f"{name} {share}": percentile(values, share / 100) for name, values in took.items() for share in SHARES}


def row(names: Sequence[str]) -> Row[None]:
    """Return the row of some of `NAMES`: the median and the 99th percentile of each."""
    figures = tuple(Figure(f"{name} {share}", f"{name}: p{share}", " ms", 2) for name in names for share in SHARES)
    return Row(NAME, f"{_CROWD}: the delay of one client of another address", figures, None, (ALONE, BESIDE))


def main(words: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    parser = harness.parser(NAME, __doc__, rounds=4)
    parser.add_argument("--real", action="store_true", help="with a real broker (Java 17+, Maven)")
    asked = parser.parse_args(words)
    section = Section(NAME, [row(NAMES[-2:] if asked.real else NAMES)])
    measured = partial(_measured, section.rows[0], asked.rounds, is_real=asked.real)
    return harness.carry_out(NAME, asked.write, [section], measured)


def _measured(measured: Row[None], rounds: int, *, is_real: bool) -> Found:
    cores = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, cores[-1:])
    with ExitStack() as open_:
        folder = Path(open_.enter_context(tempfile.TemporaryDirectory()))
        broker_port = free_port()
        if is_real:
            open_.enter_context(StandaloneBroker(folder / "broker", BrokerSettings(port=broker_port)))
        more = {**CONFIG, "allowed_brokers": [f"127.0.0.1:{broker_port}"]}
        stage = open_.enter_context(running(folder, more=more))
        for pid in stage.pids():
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), cores[:1])
        if os.geteuid() == 0:
            os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        measure = partial(delays_with_broker if is_real else delays, stage.port, broker_port, _MEASURED_S)

        def play(_number: int) -> dict[str, list[Sample]]:
            return {ALONE: [_sample(measure())], BESIDE: [_sample(_beside_crowd(stage, measure, folder))]}

        return {NAME: in_rounds(measured, rounds, play, partial(print, file=sys.stderr, flush=True))}
