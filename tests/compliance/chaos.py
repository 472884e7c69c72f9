"""A real proxy under load while everything around it changes, ends and begins again."""

import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count, cycle
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from loadgen.real.process import TetheredProcess, free_port
from protocol.commands import encode_with_payload
from protocol.frames import FrameCutter
from protocol.pulsar_pb2 import CommandSend, MessageMetadata
from tests.proxy.wire import connect, flow, name_of, producer, subscribe
from tests.real.sluice_process import SluiceProcess
from tests.waiting import wait_for

TENANT = "acme"
NAMESPACES = (f"{TENANT}/orders", f"{TENANT}/audit")
TOPICS = tuple(f"persistent://{namespace}/{name}" for namespace in NAMESPACES for name in ("a", "b"))
SIZES = (50, 700)
"""A sender of each topic for each; on connections of their own, so each has a stream of its own."""
MOST_PENDING = 50
PERMITS = 50
PACE_S = 0.004
PATIENCE_S = 5.0
AGAIN_S = 0.05


def configuration() -> dict[str, Any]:
    return {
        "proxy_id": "chaos",
        "limits": {
            "each_topic": {"publish": {"messages": 150}, "dispatch": {"messages": 120}},
            "namespaces": {NAMESPACES[0]: {"publish_total": {"messages": 200, "bytes": 100_000}}},
            "tenants": {TENANT: {"publish": {"messages": 3000}}},
            "resource_groups": {
                "gold": {"publish": {"messages": 1800}, "namespaces": [NAMESPACES[1]]},
                "iron": {"publish": {"messages": 60}},
            },
            "topics": {
                TOPICS[2]: {"publish": {"messages": 1000, "bytes": "1MB"}},
                TOPICS[3]: {"publish": {"messages": 40, "mode": "observe"}},
            },
        },
    }


class Broker:
    """The stand-in for a broker, always at one address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        self.start()

    @property
    def url(self) -> str:
        return f"pulsar://{self.address}"

    def start(self) -> None:
        command = [sys.executable, "-m", "sluice", "broker", "--listen", self.address]
        self._process = TetheredProcess(command, self._folder / "broker.log")
        wait_for(self._accepts)

    def kill(self) -> None:
        self._process.kill()

    def _accepts(self) -> bool:
        self._process.check_running()
        host, _, port = self.address.rpartition(":")
        with suppress(OSError):
            socket.create_connection((host, int(port)), timeout=1).close()
            return True
        return False


def entry(number: int, size: int) -> bytes:
    """A SEND of one message as clients send it."""
    metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1).SerializeToString()
    payload = len(metadata).to_bytes(4, "big") + metadata + bytes(size)
    return encode_with_payload(CommandSend(producer_id=1, sequence_id=number, num_messages=1), payload)


class Peer:
    """One connection through the proxy.

    Args:
        service_url: The proxy's.
        broker: Where it is to connect to, HOST:PORT.
    """

    def __init__(self, service_url: str, broker: str) -> None:
        where = urlsplit(service_url)
        self._socket = socket.create_connection((where.hostname, where.port), timeout=PATIENCE_S)
        self._cutter = FrameCutter(2**24)
        self._heard: deque[str] = deque()
        try:
            self.say(connect(broker))
            self.hear("CONNECTED")
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def say(self, *frames: bytes) -> None:
        self._socket.sendall(b"".join(frames))

    def hear(self, wanted: str) -> None:
        """Wait for an answer of this name; what else comes goes by.

        Raises:
            OSError: If it does not come.
        """
        while True:
            while self._heard:
                if self._heard.popleft() == wanted:
                    return
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("ended")
            self._heard.extend(name_of(frame) for frame in self._cutter.feed(data))


class Load:
    """Senders that always have something to send, and consumers that take all of it.

    Args:
        service_url: The proxy's.
        broker: Where it is to connect them to.
    """

    def __init__(self, service_url: str, broker: str) -> None:
        self._to = service_url, broker
        self._over = threading.Event()
        self.receipts = 0
        self._threads = [
            *(self._thread(self._send, topic, size) for topic in TOPICS for size in SIZES),
            *(self._thread(self._receive, topic) for topic in TOPICS),
        ]

    def _thread(self, work: Callable[..., None], *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=self._again, args=(work, *arguments), daemon=True)
        thread.start()
        return thread

    def _again(self, work: Callable[..., None], *arguments: Any) -> None:
        """Whatever ended it."""
        while not self._over.wait(AGAIN_S):
            with suppress(OSError), Peer(*self._to) as peer:
                work(peer, *arguments)

    def _send(self, peer: Peer, topic: str, size: int) -> None:
        peer.say(producer(topic=topic))
        peer.hear("PRODUCER_SUCCESS")
        for number in count():
            if self._over.is_set():
                return
            peer.say(entry(number, size))
            time.sleep(PACE_S)
            if number >= MOST_PENDING:
                peer.hear("SEND_RECEIPT")
                self.receipts += 1

    def _receive(self, peer: Peer, topic: str) -> None:
        peer.say(subscribe(topic=topic))
        peer.hear("SUCCESS")
        peer.say(flow(PERMITS))
        while not self._over.is_set():
            peer.hear("MESSAGE")
            peer.say(flow(1))

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


@contextmanager
def loaded(service_url: str, broker: str) -> Iterator[Load]:
    load = Load(service_url, broker)
    try:
        yield load
    finally:
        load.end()


def flapping_limits(sluice: SluiceProcess, broker: Broker, seconds: float) -> None:
    """Each 100 ms: the rate of a topic, of a namespace's topics, and whether bytes are limited, too."""
    topic = TOPICS[0].replace("persistent://", "persistent/")
    values = cycle([(3000, -1), (20, -1), (900, 20_000), (-1, 500_000), (-1, -1)])
    for messages, size in _each(0.1, seconds, values):
        body = {"publishThrottlingRateInMsg": messages, "publishThrottlingRateInByte": size}
        sluice.send("POST", f"/admin/v2/{topic}/publishRate", body)
        sluice.send("POST", f"/admin/v2/namespaces/{NAMESPACES[1]}/publishRate", body)
        sluice.send("POST", "/admin/v2/brokers/configuration/maxPublishRatePerTopicInMessages/" + str(max(0, messages)))


def swapped_groups(sluice: SluiceProcess, broker: Broker, seconds: float) -> None:
    """Each 200 ms a namespace belongs to another resource group, or to none."""
    for group in _each(0.2, seconds, cycle(["iron", "gold", None])):
        path = f"/admin/v2/namespaces/{NAMESPACES[0]}/resourcegroup"
        if group is None:
            sluice.send("DELETE", path)
        else:
            sluice.send("POST", f"{path}/{group}")


def reconnecting(sluice: SluiceProcess, broker: Broker, seconds: float) -> None:
    """Each 50 ms somebody comes, sends a few messages and is gone without waiting for receipts."""
    for topic in _each(0.05, seconds, cycle(TOPICS)):
        with suppress(OSError), Peer(sluice.service_url, broker.address) as peer:
            peer.say(producer(topic=topic))
            peer.hear("PRODUCER_SUCCESS")
            peer.say(*(entry(number, 100) for number in range(5)))


def broker_killed(_sluice: SluiceProcess, broker: Broker, seconds: float) -> None:
    broker.kill()
    broker.start()
    time.sleep(seconds)


Step = Callable[[SluiceProcess, Broker, float], None]


def side_by_side(steps: Sequence[Step], sluice: SluiceProcess, broker: Broker, seconds: float) -> None:
    """Take steps at once; what goes wrong in one is raised."""
    with ThreadPoolExecutor(len(steps)) as pool:
        for step in [pool.submit(step, sluice, broker, seconds) for step in steps]:
            step.result()


def _each(period_s: float, seconds: float, values: Iterator[Any]) -> Iterator[Any]:
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        yield next(values)
        time.sleep(max(0.0, now + period_s - time.monotonic()))
