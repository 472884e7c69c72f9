"""Hosts that die without a FIN or RST, while Sluice vouches for them: real kernels, with a keep-alive of 5 s."""

import contextlib
import json
import select
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from loadgen.real.process import TetheredProcess, wait_until
from protocol.frames import FrameCutter
from tests.access_log_files import closed_files, content_of
from tests.netns.hosts import BROKER, SLUICE_FOR_CLIENTS, Hosts
from tests.proxy.wire import (
    PING,
    PONG,
    TOPIC,
    body,
    connect,
    connected,
    message,
    name_of,
    producer,
    producer_success,
    send,
    subscribe,
    success,
)

pytestmark = pytest.mark.netns

KEEP_ALIVE_S = 5.0
PATIENCE_S = 60.0
"""Without probes it takes two minutes and more; how soon it is, `test_silent_peers.py` tells by a clock of its own."""
LIMITED = (TOPIC, f"{TOPIC}-too")
RATE = {"messages": "1/min"}
_TURN_S = 0.01
"""How long one thread of a peer may hold its connection: TLS must not be read and written by two threads at once."""


class RawPeer:
    """One end of a connection; its thread hears all frames, and answers PINGs, while its process is not stopped."""

    def __init__(self, connection: Any, *, reads: bool = True) -> None:
        self.connection = connection
        connection.settimeout(_TURN_S)
        self.heard: list[bytes] = []
        self.has_ended = False
        self._cutter = FrameCutter(2**31)
        self._goes_on = threading.Event()
        self._has_turn = threading.Lock()
        if reads:
            self._goes_on.set()
        threading.Thread(target=self._read, daemon=True).start()

    def say(self, *frames: bytes) -> None:
        rest = memoryview(b"".join(frames))
        while rest:
            with self._has_turn, contextlib.suppress(TimeoutError, ssl.SSLWantWriteError):
                rest = rest[self.connection.send(rest) :]

    def stops(self) -> None:
        """As by SIGSTOP: its kernel goes on, and it does not."""
        self._goes_on.clear()

    def waits_for(self, name: str) -> bytes:
        assert wait_until(lambda: name in map(name_of, self.heard), PATIENCE_S), list(map(name_of, self.heard))
        return next(frame for frame in self.heard if name_of(frame) == name)

    def _received(self) -> bytes:
        """Return the next bytes."""
        while True:
            if not (isinstance(self.connection, ssl.SSLSocket) and self.connection.pending()):
                select.select([self.connection], [], [])
            with self._has_turn, contextlib.suppress(TimeoutError, ssl.SSLWantReadError):
                return bytes(self.connection.recv(65536))

    def _read(self) -> None:
        try:
            while self._goes_on.wait() and (data := self._received()):
                for frame in self._cutter.feed(data):
                    self.heard.append(frame)
                    if frame == PING:
                        self.say(PONG)
        except (OSError, ValueError):  # the latter for a socket that is closed
            pass
        self.has_ended = True


class Stage:
    """Sluice between a client and a broker, which both are what a test makes of them."""

    def __init__(self, hosts: Hosts, folder: Path, *, is_tls: bool) -> None:
        self._hosts = hosts
        self._folder = folder
        self._is_tls = is_tls
        self._port = 6651 if is_tls else 6650
        self._listener = hosts.listening()
        self._authority = trustme.CA()
        self.process = self._start(self._listener.getsockname()[1])
        self._peers: list[RawPeer] = []
        self._answer_first()

    def _answer_first(self) -> None:
        """Answer the proxy's own question whether the broker is there, by which it is ready from then on."""
        asking = self._accepted()
        asking.waits_for("CONNECT")
        asking.say(connected())
        self._peers.append(asking)

    def _accepted(self) -> RawPeer:
        accepted, _ = self._listener.accept()
        return RawPeer(self._as_broker(accepted) if self._is_tls else accepted)

    def pair(self) -> tuple[RawPeer, RawPeer]:
        """A client and its broker, past the handshake."""
        raw = self._hosts.connected(self._port)
        client = RawPeer(self._as_client(raw) if self._is_tls else raw)
        client.say(connect())
        broker = self._accepted()
        broker.waits_for("CONNECT")
        broker.say(connected())
        client.waits_for("CONNECTED")
        self._peers += [client, broker]
        return client, broker

    def publisher(self, topic: str = TOPIC) -> tuple[RawPeer, RawPeer]:
        """A client that is not read: it published more than may be held."""
        client, broker = self.pair()
        client.say(producer(topic=topic))
        broker.say(producer_success(request_id=body(broker.waits_for("PRODUCER")).request_id))
        client.waits_for("PRODUCER_SUCCESS")
        client.say(*(send(number) for number in range(100)))
        broker.waits_for("SEND")
        return client, broker

    def consumer(self) -> tuple[RawPeer, RawPeer]:
        """A consumer whose broker is not read: it sent more than may be held."""
        client, broker = self.pair()
        client.say(subscribe())
        broker.say(success(body(broker.waits_for("SUBSCRIBE")).request_id))
        client.waits_for("SUCCESS")
        broker.say(*(message(number, size=3000) for number in range(100)))
        client.waits_for("MESSAGE")
        return client, broker

    def end_causes(self) -> Counter[str]:
        """Why connections ended, by the access log."""
        self.process.stop()
        lines = [
            json.loads(line) for file in closed_files(self._folder / "log") for line in content_of(file).splitlines()
        ]
        ends = [line for line in lines if line["kind"] == "connection" and line["role"] != "handshake"]
        return Counter(line["end_cause"] for line in ends)

    def close(self) -> None:
        self.process.kill()
        self._listener.close()
        for peer in self._peers:
            peer.connection.close()

    def _start(self, broker_port: int) -> TetheredProcess:
        scheme = "pulsar+ssl" if self._is_tls else "pulsar"
        certificate = self._authority.issue_cert(BROKER, SLUICE_FOR_CLIENTS)
        certificate.private_key_and_cert_chain_pem.write_to_path(self._folder / "both.pem")
        (self._folder / "both.pem").chmod(0o600)
        self._authority.cert_pem.write_to_path(self._folder / "ca.pem")
        config: dict[str, Any] = {
            "listen": f"{scheme}://{SLUICE_FOR_CLIENTS}:{self._port}",
            "broker": f"{scheme}://{BROKER}:{broker_port}",
            "admin": "127.0.0.1:0",
            "keep_alive": f"{KEEP_ALIVE_S}s",
            "publish": {"hold_connection": "4KiB"},
            "limits": {"topics": {topic: {"publish": RATE, "dispatch": RATE} for topic in LIMITED}},
            "dispatch": {"preciseDispatcherFlowControl": False},
            "access_log": {"dir": str(self._folder / "log")},
        }
        if self._is_tls:
            both = str(self._folder / "both.pem")
            config |= {"tls": {"certificate": both, "key": both}, "broker_tls": {"ca": str(self._folder / "ca.pem")}}
        (self._folder / "sluice.yaml").write_text(yaml.safe_dump(config))
        command = [sys.executable, "-m", "sluice", "serve", "--config", str(self._folder / "sluice.yaml")]
        process = TetheredProcess(self._hosts.command("sluice", *command), self._folder / "sluice.log")
        assert wait_until(self._is_listening, PATIENCE_S), process.last_lines()
        return process

    def _is_listening(self) -> bool:
        try:
            self._hosts.connected(self._port).close()
        except OSError:
            return False
        return True

    def _as_client(self, connection: Any) -> ssl.SSLSocket:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._authority.configure_trust(context)
        return context.wrap_socket(connection, server_hostname=SLUICE_FOR_CLIENTS)

    def _as_broker(self, connection: Any) -> ssl.SSLSocket:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._folder / "both.pem")
        return context.wrap_socket(connection, server_side=True)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with Hosts.made() as hosts:
        yield hosts


@pytest.fixture
def stages(hosts: Hosts, tmp_path: Path) -> Iterator[list[Stage]]:
    """One without and one with TLS, between the same hosts."""
    with contextlib.ExitStack() as opened:
        stages = []
        for is_tls in (False, True):
            folder = tmp_path / ("tls" if is_tls else "plain")
            folder.mkdir()
            stages.append(Stage(hosts, folder, is_tls=is_tls))
            opened.callback(stages[-1].close)
        yield stages


@pytest.mark.parametrize("side", ["client", "broker"])
def test_the_other_side_hears_of_a_dead_host(hosts: Hosts, stages: list[Stage], side: str) -> None:
    """With a client that is not read, with a broker that is not, and where neither side probes the other."""
    pairs = [[stage.publisher(), stage.consumer(), stage.pair()] for stage in stages]
    others = [broker if side == "client" else client for of_stage in pairs for client, broker in of_stage]
    time.sleep(1)  # what is under way arrives
    hosts.dies(side)
    assert wait_until(lambda: all(other.has_ended for other in others), PATIENCE_S)
    assert [stage.end_causes() for stage in stages] == [{f"{side}_gone": len(of_stage)} for of_stage in pairs]


class Throttled:
    """A stopped client, a stopped broker, and a broker that reads nothing for long, but sends its own PINGs."""

    def __init__(self, stage: Stage) -> None:
        (stopped, self.its_broker), (self.its_client, stopped_broker) = (stage.publisher(topic) for topic in LIMITED)
        self.client, self.broker = stage.pair()
        self.client.say(producer(topic=f"{TOPIC}-free"))
        self.broker.say(producer_success(request_id=body(self.broker.waits_for("PRODUCER")).request_id))
        self.client.waits_for("PRODUCER_SUCCESS")
        for peer in (stopped, stopped_broker, self.broker):
            peer.stops()
        threading.Thread(target=_publish, args=(self.client, 16 * 1024**2), daemon=True).start()


@pytest.mark.slow
def test_a_stopped_process_ends_and_a_throttling_broker_stays(stages: list[Stage]) -> None:
    """There is no room on the way to the latter."""
    scenes = [Throttled(stage) for stage in stages]
    for _ in range(4):
        time.sleep(KEEP_ALIVE_S)
        for scene in scenes:
            scene.broker.say(PING)
    # Before any is stopped, which may take longer than a broker may say nothing.
    for scene in scenes:
        ended = scene.its_broker, scene.its_client
        assert wait_until(lambda ended=ended: all(peer.has_ended for peer in ended), PATIENCE_S)  # type: ignore[misc]
        assert not scene.client.has_ended
        assert scene.client.heard.count(PONG)
    for stage in stages:
        stage.process.check_running()
    with ThreadPoolExecutor() as at_once:  # each takes as long
        for causes in at_once.map(Stage.end_causes, stages):
            assert causes["client_gone"] == causes["broker_gone"] == 1


def _publish(client: RawPeer, size: int) -> None:
    try:
        for number in range(size // 65536):
            client.say(send(number, size=65536))
    except OSError:
        return
