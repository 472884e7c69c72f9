"""Real processes that take over from each other while clients of Pulsar publish and consume."""

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pulsar
import pytest
import yaml

from adminrest.client import AdminClient, AdminError
from loadgen.real.process import TetheredProcess, free_port
from proxy.limit_state import LimitState
from proxy.policies.bodies import kept_as_own
from proxy.takeover import ABORT, GO, READY, SERVES, Door, Successor
from tests.compliance.real_log import judged_compliant
from tests.loadgen.standin.conftest import new_client, running_broker
from tests.real.broker_record import Held, Step
from tests.real.demand import publishing
from tests.real.receiving_end import ReceivingEnd
from tests.real.traffic import open_sender
from tests.waiting import PATIENCE_S, wait_for

LIMITED, DELIVERED = "persistent://public/default/limited", "persistent://public/default/delivered"
RATE = 100
LIMIT, BURST = 20, 100
"""Low and high: what a slow machine delays is far less than a second burst."""
FILLED_S = BURST / LIMIT
"""In which a bucket is full."""
_LIMIT = {"messages": f"{LIMIT}/s", "burst_messages": BURST}
LIMITS = {"topics": {LIMITED: {"publish": _LIMIT}, DELIVERED: {"dispatch": _LIMIT}}}
THIS = (sys.executable, "-m", "sluice")
CHANGE = "PUT", "/sluice/limits?direction=publish&setting=tenant&name=public", {"messages": "9000/s"}


class InPlace:
    """A proxy whose process is replaced by further ones on the same ports; the first one serves unless `is_awaited`."""

    def __init__(
        self, folder: Path, broker: str, *, is_awaited: bool = False, sluice: Sequence[str] = THIS, **config: object
    ) -> None:
        self.folder = folder
        self.topic = f"persistent://public/default/{folder.name}"
        self.address, admin = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.admin = AdminClient(f"http://{admin}")
        self.door = Door(folder / "state", "front")
        self.processes: list[TetheredProcess] = []
        settings: dict[str, Any] = {
            "proxy_id": "front",
            "listen": self.address,
            "admin": admin,
            "broker": f"pulsar://{broker}",
            "drain": {"state": str(folder / "state"), "delay": 1, "period": 1, "timeout": 4},
            "policies": {"store": str(folder / "policies.db")},
            "access_log": {"dir": str(folder / "access-log")},
        }
        settings |= config
        (folder / "sluice.yaml").write_text(yaml.safe_dump(settings))
        self._environment = {"SLUICE_DRAIN__TIMEOUT": str(settings["drain"]["timeout"])}
        if is_awaited:
            self.door.path.parent.mkdir()
            return
        self.start(sluice=sluice)
        wait_for(lambda: self.admin.is_ready("/readyz"))

    def start(self, *options: str, sluice: Sequence[str] = THIS) -> TetheredProcess:
        command = [*sluice, "serve", "--config", str(self.folder / "sluice.yaml"), *options]
        log = self.folder / f"sluice-{len(self.processes)}.log"
        self.processes.append(TetheredProcess(command, log, self._environment))
        return self.processes[-1]

    def take_over(self, sluice: Sequence[str] = THIS) -> None:
        """Replace the process, and wait until the one before has ended."""
        before = next(process for process in self.processes if process.exit_code is None)
        after = self.start("--takeover", sluice=sluice)
        wait_for(lambda: before.exit_code is not None, evidence=self.lines)
        assert before.exit_code == 0, self.lines()
        wait_for(lambda: "takeover is over" in after.log_path.read_text())

    def pids(self) -> list[int]:
        """Return the ids of all its processes so far."""
        return [process.pid for process in self.processes]

    def events(self) -> Counter[str]:
        return Counter(json.loads(line)["event"] for line in self.lines().splitlines() if line.startswith("{"))

    def lines(self) -> str:
        return "".join(process.log_path.read_text() for process in self.processes)

    def stop(self) -> None:
        for process in self.processes:
            process.kill()


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with running_broker() as (_, address):
        yield address


@contextmanager
def in_place(folder: Path, broker: str, **config: Any) -> Iterator[InPlace]:
    proxy = InPlace(folder, broker, **config)
    try:
        yield proxy
        assert "Traceback" not in proxy.lines(), proxy.lines()
    finally:
        proxy.stop()


class Load:
    """A producer, a consumer, and connections that are made all the time."""

    def __init__(self, proxy: InPlace) -> None:
        self.sent = list[int]()
        self.received = Counter[int]()
        self.troubles = list[str]()
        self._address, self._topic = proxy.address, proxy.topic
        self._over, self._sent_all, self._is_subscribed = (threading.Event() for _ in range(3))
        self._threads = [threading.Thread(target=each) for each in (self._publish, self._consume, self._connect)]
        for each in self._threads:
            each.start()

    def _publish(self) -> None:
        with closing(new_client(self._address)) as client:
            producer = client.create_producer(self._topic, batching_enabled=False)
            self._is_subscribed.wait()  # the broker keeps no message that came before
            number = 0
            while not self._over.is_set():
                try:
                    producer.send(b"%d" % number)
                    self.sent.append(number)
                except pulsar.PulsarException as error:
                    self.troubles.append(f"send {number}: {error}")
                number += 1
                time.sleep(1 / RATE)
        self._sent_all.set()

    def _consume(self) -> None:
        with closing(new_client(self._address)) as client:
            consumer = client.subscribe(self._topic, "all", initial_position=pulsar.InitialPosition.Earliest)
            self._is_subscribed.set()
            last = time.monotonic()
            while not self._sent_all.is_set() or set(self.sent) - set(self.received):
                try:
                    message = consumer.receive(100)  # short, as the last message may have come already
                except pulsar.Timeout:
                    if time.monotonic() - last > PATIENCE_S:
                        break
                    continue
                last = time.monotonic()
                self.received[int(message.data())] += 1
                consumer.acknowledge(message)

    def _connect(self) -> None:
        host, _, port = self._address.partition(":")
        while not self._over.is_set():
            try:
                socket.create_connection((host, int(port)), 5).close()
            except OSError as error:
                self.troubles.append(f"connect: {error}")
            time.sleep(0.005)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def goes_on(self, messages: int = 100) -> None:
        """Return when so many further messages have come back."""
        reached = len(self.received)
        wait_for(lambda: len(self.received) > reached + messages)

    def end(self) -> None:
        self._over.set()
        for each in self._threads:
            each.join()


def test_clients_go_on_when_a_process_is_replaced(tmp_path: Path, broker: str) -> None:
    with in_place(tmp_path, broker) as proxy, Load(proxy) as load:
        wait_for(lambda: len(load.received) > 100)
        for _ in range(2):
            proxy.take_over()
            proxy.admin.call(*CHANGE)
            load.goes_on()
        load.end()
        audited = [(each["who"], each["after"]) for each in proxy.admin.call("GET", "/sluice/audit")["changes"]]
        assert audited.count(("takeover", "took over from the process before")) == 2
        assert load.troubles == []
        assert set(load.sent) == set(load.received)
        assert max(load.received.values()) <= 1 + 2, "unacknowledged ones come again, once for each restart"
        assert proxy.events()["drained"] == 2


def held_over(restarts: int, members: int = 1) -> Held:
    """The bound of `LIMITS` at the broker: each restart may have an entry more, the last one of its process."""
    return Held([Step(0.0, LIMIT, FILLED_S)], members + restarts)


@pytest.mark.slow
def test_limit_holds_in_each_interval_of_takeovers(tmp_path: Path, broker: str) -> None:
    """One under load, and one at rest, after which the load begins while the two processes share a full bucket."""
    with in_place(tmp_path, broker, limits=LIMITS) as proxy, ExitStack() as opened:
        end = opened.enter_context(ReceivingEnd(f"pulsar://{broker}", LIMITED, proxy.pids))
        client = opened.enter_context(closing(new_client(proxy.address)))
        senders = [open_sender(client, LIMITED, f"sender-{number}") for number in range(2)]
        end.rest(FILLED_S)
        with publishing(*senders, pending=LIMIT):
            end.wait_for_more(BURST)
            begun, passed = time.monotonic(), len(end.arrivals)
            proxy.take_over()
            end.wait_for_more(LIMIT)
        assert len(end.arrivals) - passed >= LIMIT * (time.monotonic() - begun) * 0.8
        end.rest(FILLED_S)
        after = proxy.start("--takeover")
        wait_for(lambda: '"serving"' in after.log_path.read_text(), evidence=proxy.lines)
        with publishing(*senders, pending=LIMIT):
            wait_for(lambda: "takeover is over" in after.log_path.read_text(), evidence=proxy.lines)
            end.wait_for_more(BURST)
        for sender in senders:
            sender.producer.flush()
        wait_for(lambda: len(end.arrivals) >= sum(len(sender.sent) for sender in senders))
        assert end.excess(held_over(2)) <= 0
        assert [sender.errors for sender in senders] == [{}, {}]
        proxy.processes[-1].stop()
    assert judged_compliant(tmp_path / "access-log") == {"publish"}


@pytest.mark.slow
def test_delivery_limit_holds_in_each_interval_of_takeovers(tmp_path: Path, broker: str) -> None:
    """At a consumer that has a backlog all the time."""
    with in_place(tmp_path, broker, limits=LIMITS) as proxy, closing(new_client(broker)) as direct:
        with ReceivingEnd(f"pulsar://{proxy.address}", DELIVERED, proxy.pids) as end:
            end.rest(FILLED_S)
            sender = open_sender(direct, DELIVERED, "sender", batching_enabled=False)
            sender.send_all([b"%d" % number for number in range(20 * BURST)])
            end.wait_for_more(BURST)
            for _ in range(2):
                proxy.take_over()
                end.wait_for_more(LIMIT)
        assert end.excess(held_over(2)) <= 0


def test_new_process_that_cannot_start_changes_nothing(tmp_path: Path, broker: str) -> None:
    with (
        in_place(tmp_path, broker) as proxy,
        socket.create_server(("127.0.0.1", 0)) as taken,
        Load(proxy) as load,
    ):
        taken_at = "{}:{}".format(*taken.getsockname())
        failing = proxy.start("--takeover", "--listen", proxy.address, "--listen", taken_at)
        wait_for(lambda: failing.exit_code == 1, evidence=proxy.lines)
        wait_for(lambda: _may_be_changed(proxy))
        load.goes_on()
        load.end()
        assert load.troubles == []
        first = proxy.processes[0]
        assert first.stop() == 0
        assert "balances of limits are kept for the next run" in first.log_path.read_text()


def _offered(proxy: InPlace) -> tuple[socket.socket, list[int]]:
    """Ask as a new process does: once more if the running one has just closed the door to open a new one."""
    for _ in range(100):
        asking = proxy.door.connect(PATIENCE_S)
        assert asking is not None, "the door is never shut without another one"
        with suppress(ConnectionResetError):
            content, descriptors, _, _ = socket.recv_fds(asking, 65_536, 253)
            if content:
                return asking, descriptors
        asking.close()
        time.sleep(0.05)
    raise AssertionError("no offer")


def _may_be_changed(proxy: InPlace) -> bool:
    try:
        proxy.admin.call(*CHANGE)
    except AdminError:
        return False
    return True


def test_new_process_that_is_killed_changes_nothing(tmp_path: Path, broker: str) -> None:
    """With the offer in its hands, and when it may serve."""
    with in_place(tmp_path, broker) as proxy, Load(proxy) as load:
        for messages in (b"", READY):
            asking, descriptors = _offered(proxy)
            asking.sendall(messages)
            assert not messages or asking.recv(1) == GO
            for each in descriptors:
                os.close(each)
            asking.close()
            wait_for(lambda: _may_be_changed(proxy))
        load.goes_on()
        proxy.take_over()
        load.end()
        assert load.troubles == []


def test_nonsense_of_a_new_process_changes_nothing(tmp_path: Path, broker: str) -> None:
    """It may serve, and talks as no version does."""
    with in_place(tmp_path, broker) as proxy, Load(proxy) as load:
        asking, descriptors = _offered(proxy)
        asking.sendall(READY)
        assert asking.recv(1) == GO
        for each in descriptors:
            os.close(each)
        wrong = b'["hand",["publish","topic","t","t","n"],-1,[1],0,0,0]\n["ask"]\n{}\n\xff\n'
        with asking, suppress(BrokenPipeError, ConnectionResetError):
            asking.sendall(wrong * 1000 + b"x" * 1_000_000 + b"\n" + wrong)
        wait_for(lambda: _may_be_changed(proxy))
        load.goes_on()
        proxy.take_over()
        load.end()
        assert load.troubles == []


def test_killed_new_process_gives_its_clients_back(tmp_path: Path, broker: str) -> None:
    """It serves when it is killed, and the process before drains: that one serves again, and can be taken over."""
    with in_place(tmp_path, broker) as proxy, Load(proxy) as load:
        wait_for(lambda: len(load.received) > RATE)
        before, after = proxy.processes[0], proxy.start("--takeover")
        wait_for(lambda: '"draining"' in before.log_path.read_text(), evidence=proxy.lines)
        after.kill()
        wait_for(lambda: "this one serves again" in before.log_path.read_text(), evidence=proxy.lines)
        wait_for(lambda: _may_be_changed(proxy))
        load.goes_on(RATE)
        proxy.take_over()
        load.end()
        assert load.troubles == []
        assert set(load.sent) == set(load.received)


@pytest.mark.slow
def test_signal_is_kept_when_the_new_process_is_killed(tmp_path: Path, broker: str) -> None:
    """A process that drains for the next one is stopped: it ends, though the next one is killed then."""
    with in_place(tmp_path, broker) as proxy, Load(proxy) as load:
        wait_for(lambda: len(load.received) > RATE)
        before, after = proxy.processes[0], proxy.start("--takeover")
        wait_for(lambda: '"draining"' in before.log_path.read_text(), evidence=proxy.lines)
        os.kill(before.pid, signal.SIGTERM)
        after.kill()
        wait_for(lambda: before.exit_code is not None, evidence=proxy.lines)
        assert before.exit_code == 0


def test_stopped_new_process_ends_both(tmp_path: Path, broker: str) -> None:
    """A signal to the process that serves ends the proxy, although the process before has not ended yet."""
    with in_place(tmp_path, broker) as proxy:
        with closing(new_client(proxy.address)) as client:
            client.create_producer(proxy.topic).send(b"1")
            before, after = proxy.processes[0], proxy.start("--takeover")
            wait_for(lambda: '"serving"' in after.log_path.read_text(), evidence=proxy.lines)
            os.kill(after.pid, signal.SIGTERM)
        wait_for(lambda: None not in {before.exit_code, after.exit_code}, evidence=proxy.lines)
        assert (before.exit_code, after.exit_code) == (0, 0), proxy.lines()
        assert not proxy.door.path.exists()
        next_one = proxy.start("--takeover")
        wait_for(lambda: proxy.admin.is_ready("/readyz"))
        wait_for(lambda: "limits go on with the balances of the run before" in next_one.log_path.read_text())


@contextmanager
def asked(proxy: InPlace) -> Iterator[tuple[TetheredProcess, socket.socket]]:
    """The test is the process before, and a new one has connected to it, and awaits its offer."""
    with proxy.door.listen() as door:
        door.setblocking(True)
        new = proxy.start("--takeover")
        asking, _ = door.accept()
        with asking:
            yield new, asking


def test_process_stopped_before_it_serves_leaves_the_ports(tmp_path: Path, broker: str) -> None:
    """The test is the process before, and has it wait for `go`."""
    with in_place(tmp_path, broker, is_awaited=True) as proxy, asked(proxy) as (stopped, asking):
        asking.sendall(b'{"v":1,"names":[],"kept":[]}')
        assert asking.recv(1) == READY
        os.kill(stopped.pid, signal.SIGTERM)
        wait_for(lambda: "stopped before it served" in proxy.lines(), evidence=proxy.lines)
        asking.sendall(GO)
        wait_for(lambda: stopped.exit_code == 1, evidence=proxy.lines)
        with suppress(ConnectionResetError):
            assert asking.recv(10) == b""


def test_killed_process_leaves_its_ports_to_the_new_one(tmp_path: Path, broker: str) -> None:
    """The test is the process before: it offers a socket in whose queue a client waits, and ends."""
    with in_place(tmp_path, broker, is_awaited=True) as proxy:
        host, _, port = proxy.address.partition(":")
        with socket.create_server((host, int(port))) as offered, asked(proxy) as (_, asking):
            offer = json.dumps({"v": 1, "names": [[f"listen pulsar://{proxy.address}", 1]], "kept": []}).encode()
            socket.send_fds(asking, [offer], [offered.fileno()])
            assert asking.recv(1) == READY
            offered.close()
            with closing(new_client(proxy.address)) as client:
                producer = client.create_producer
                asking.close()
                producer(proxy.topic).send(b"1")
        wait_for(lambda: proxy.admin.is_ready("/readyz"))


def test_balances_go_on_when_a_process_ends_before_go(tmp_path: Path, broker: str) -> None:
    """The test is the new process, which gets no `go`; then the one before, which has left balances meanwhile."""
    with in_place(tmp_path, broker) as proxy:
        asking, descriptors = _offered(proxy)
        for each in descriptors:
            os.close(each)
        assert proxy.processes[0].stop() == 0
        asking.close()
        kept = "balances of limits are kept for the next run"
        assert kept in proxy.processes[0].log_path.read_text()
        with asked(proxy) as (new, asking):
            asking.sendall(b'{"v":1,"names":[],"kept":[]}')
            assert asking.recv(1) == READY
            before = LimitState(proxy.door.folder, "front", "before", (), time.monotonic_ns)
            before.serve()
            before.end([])
            asking.close()
            wait_for(lambda: proxy.admin.is_ready("/readyz"))
            wait_for(lambda: "limits go on with the balances of the run before" in new.log_path.read_text())
            assert new.stop() == 0
        assert kept in new.log_path.read_text()


def test_process_that_is_given_up_ends(tmp_path: Path, broker: str) -> None:
    with in_place(tmp_path, broker, is_awaited=True) as proxy, asked(proxy) as (given_up, asking):
        asking.sendall(b'{"v":1,"names":[],"kept":[]}')
        assert asking.recv(1) == READY
        asking.sendall(ABORT)
        asking.close()
        wait_for(lambda: given_up.exit_code == 1)
        assert "given this one up" in proxy.lines()


def test_policy_of_the_new_process_holds_in_the_one_before(tmp_path: Path, broker: str) -> None:
    """The test is the new process, and is killed before it reports that it serves."""
    with in_place(tmp_path, broker) as proxy:
        asking, descriptors = _offered(proxy)
        asking.sendall(READY)
        assert asking.recv(1) == GO
        change = ["policy", "publish", "tenant", "public", None, kept_as_own({"messages": "7/s"}), None, "ann", ""]
        asking.sendall(json.dumps(change).encode() + b"\n")
        wait_for(lambda: '"policy changed"' in proxy.lines(), evidence=proxy.lines)
        for each in descriptors:
            os.close(each)
        asking.close()
        wait_for(lambda: proxy.admin.is_ready("/readyz"))
        limits = proxy.admin.get_json("/sluice/explain", {"topic": "persistent://public/default/any"})
        assert "'messages': 7" in str(limits)


async def test_address_that_is_dropped_is_shut(tmp_path: Path, broker: str) -> None:
    """The test is a new process without an address; it is killed, and the one before opens all again."""
    with in_place(tmp_path, broker) as proxy:
        new = await asyncio.to_thread(Successor.ask, proxy.door, PATIENCE_S)
        assert new is not None
        host, _, port = proxy.address.partition(":")
        assert sorted(name.split()[0] for name in new.sockets.by_name) == ["admin", "listen"]
        await new.ready()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), PATIENCE_S)
        assert not proxy.admin.is_ready("/readyz")
        new.link.close()
        await asyncio.sleep(0)
        await asyncio.to_thread(wait_for, lambda: proxy.admin.is_ready("/readyz"), evidence=proxy.lines)
        with closing(new_client(proxy.address)) as client:
            await asyncio.to_thread(client.create_producer, proxy.topic)


def test_new_process_tells_the_one_before_of_policies(tmp_path: Path, broker: str) -> None:
    """The test is the process before."""
    with in_place(tmp_path, broker, is_awaited=True) as proxy, asked(proxy) as (_, asking):
        asking.sendall(b'{"v":1,"names":[],"kept":[]}')
        assert asking.recv(1) == READY
        asking.sendall(GO)
        with asking.makefile("rb") as lines:
            assert json.loads(lines.readline()) == ["word", SERVES.decode()]
            proxy.admin.call(*CHANGE)
            policy = next(line for line in map(json.loads, lines) if line[0] == "policy")
        assert policy[1:5] == ["publish", "tenant", "public", None]
        assert "9000/s" in policy[5]


def test_signal_replaces_and_two_at_once_take_turns(tmp_path: Path, broker: str) -> None:
    with in_place(tmp_path, broker) as proxy, Load(proxy) as load:
        both = [proxy.start("--takeover") for _ in range(2)]
        wait_for(lambda: proxy.lines().count("takeover is over") == 2, evidence=proxy.lines)
        wait_for(lambda: sorted(each.exit_code is None for each in both) == [False, True])
        running = next(each for each in both if each.exit_code is None)
        os.kill(running.pid, signal.SIGUSR2)
        wait_for(lambda: proxy.lines().count("takeover is over") == 3, evidence=proxy.lines)
        load.end()
        assert load.troubles == []


def test_signal_applies_another_name_and_state_folder(tmp_path: Path, broker: str) -> None:
    with in_place(tmp_path, broker) as proxy, Load(proxy) as load:
        file, door = tmp_path / "sluice.yaml", Door(tmp_path / "other", "renamed.v2")
        changed = yaml.safe_load(file.read_text()) | {"proxy_id": door.proxy_id}
        changed["drain"]["state"] = str(door.folder)
        file.write_text(yaml.safe_dump(changed))
        os.kill(proxy.processes[0].pid, signal.SIGUSR2)
        wait_for(lambda: "takeover is over" in proxy.lines(), evidence=proxy.lines)
        with closing(door.connect(PATIENCE_S) or socket.socket()) as asking:
            assert asking.getpeername()
        load.end()
        assert load.troubles == []


def test_process_starts_as_usual_when_none_runs(tmp_path: Path, broker: str) -> None:
    with in_place(tmp_path, broker) as proxy:
        proxy.processes[0].kill()
        proxy.start("--takeover")
        wait_for(lambda: proxy.admin.is_ready("/readyz"))
