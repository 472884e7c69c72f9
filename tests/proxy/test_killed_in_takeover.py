"""Either process is killed in each step of a takeover: the other one serves, no message is lost, and limits are kept.

running process ◀── the test passes messages on, up to a step ──▶ new process
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from enum import Enum
from pathlib import Path

import pytest

from proxy.takeover import GO, READY, Door
from tests.loadgen.standin.conftest import new_client, running_broker
from tests.proxy.test_taken_over import BURST, FILLED_S, LIMIT, LIMITED, LIMITS, InPlace, held_over, in_place
from tests.real.demand import publishing
from tests.real.receiving_end import ReceivingEnd
from tests.real.traffic import digest, open_sender
from tests.waiting import PATIENCE_S, wait_for

SERVES = b'["word","s"]\n'


class Step(Enum):
    """A step of a takeover, by the last message that has arrived."""

    LENT = "the new process has the sockets"
    READY = "the running process knows that the new one is ready"
    GO = "the new process serves, and says so"
    SERVES = "the running process has its clients leave"


class Between:
    """Passes on the messages of a takeover between two real processes, and no further one from a step on.

    Args:
        proxy: The proxy.
    """

    def __init__(self, proxy: InPlace) -> None:
        self._aside = Door(proxy.door.folder, "aside")
        proxy.door.path.rename(self._aside.path)
        self._listening = proxy.door.listen()
        # A process may kill the one that listens, by its id: that of a process that has ended, not of the test.
        command = [sys.executable, "-c", f"import socket; socket.socket(fileno={self._listening.fileno()}).listen()"]
        subprocess.run(command, check=True, pass_fds=[self._listening.fileno()])
        self._listening.setblocking(True)
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def pass_on(self, last: Step) -> None:
        """Pass on what comes up to a step, and return then; what comes about limits goes on until `close`."""
        to_new, _ = self._listening.accept()
        self._listening.close()
        to_running = self._aside.connect(PATIENCE_S)
        assert to_running is not None
        self._connections += to_new, to_running
        content, descriptors, _, _ = socket.recv_fds(to_running, 65_536, 253)
        socket.send_fds(to_new, [content], descriptors)
        for each in descriptors:
            os.close(each)
        assert to_new.recv(1) == READY
        if last is Step.LENT:
            return
        to_running.sendall(READY)
        assert to_running.recv(1) == GO
        if last is Step.READY:
            return
        to_new.sendall(GO)
        has_served = threading.Event()

        def carry(source: socket.socket, target: socket.socket) -> None:
            with suppress(OSError), source.makefile("rb") as lines:
                for line in lines:
                    if line == SERVES:
                        has_served.set()
                    if line != SERVES or last is Step.SERVES:
                        target.sendall(line)

        for pair in ((to_new, to_running), (to_running, to_new)):
            self._threads.append(threading.Thread(target=carry, args=pair))
            self._threads[-1].start()
        assert has_served.wait(PATIENCE_S)

    def close(self) -> None:
        """End both connections."""
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for connection in self._connections:
            connection.close()


@pytest.fixture
def broker() -> Iterator[str]:
    with running_broker() as (_, address):
        yield address


@contextmanager
def loaded(proxy: InPlace, broker: str) -> Iterator[ReceivingEnd]:
    """Publish more than the limit, with a client that goes on when its connection ends; no message may be lost."""
    with ReceivingEnd(f"pulsar://{broker}", LIMITED, proxy.pids) as end, closing(new_client(proxy.address)) as client:
        sender = open_sender(client, LIMITED, "sender", send_timeout_millis=0)
        end.rest(FILLED_S)
        with publishing(sender, pending=LIMIT):
            end.wait_for_more(BURST)
            yield end
        sender.producer.flush()
        wait_for(lambda: {digest(each.payload) for each in list(end.arrivals)} >= set(sender.sent))
        assert not sender.errors


def killed_in_each_step(proxy: InPlace, end: ReceivingEnd, *, is_old: bool) -> None:
    """Take over as often as there are steps, and kill one of the two processes in each."""
    survivor = proxy.processes[0]
    for step in Step:
        between = Between(proxy)
        new = proxy.start("--takeover")
        between.pass_on(step)
        if step is Step.SERVES:
            wait_for(lambda old=survivor: '"draining"' in old.log_path.read_text(), evidence=proxy.lines)  # type: ignore[misc]
        door = proxy.door.path.stat().st_ino
        victim, survivor = (survivor, new) if is_old else (new, survivor)
        victim.kill()
        between.close()
        wait_for(lambda: proxy.admin.is_ready("/readyz"), evidence=proxy.lines)
        end.wait_for_more(LIMIT, proxy.lines)
        # The running process has its door back when it has all else; the new one has had its own from the start.
        wait_for(lambda of_new=door: is_old or proxy.door.path.stat().st_ino != of_new, evidence=proxy.lines)  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["running", "new"])
def test_kill_in_each_step_of_a_takeover_keeps_limits(tmp_path: Path, broker: str, victim: str) -> None:
    with in_place(tmp_path, broker, limits=LIMITS) as proxy:
        with loaded(proxy, broker) as end:
            killed_in_each_step(proxy, end, is_old=victim == "running")
            proxy.take_over()
        assert end.excess(held_over(len(Step) + 1)) <= 0
        running = proxy.processes[-1]
        assert running.stop() == 0
        assert "balances of limits are kept for the next run" in running.log_path.read_text()


@pytest.mark.slow
def test_process_frozen_while_it_drains_is_killed(tmp_path: Path, broker: str) -> None:
    with in_place(tmp_path, broker, limits=LIMITS) as proxy:
        with loaded(proxy, broker) as end:
            before, after = proxy.processes[0], proxy.start("--takeover")
            wait_for(lambda: '"draining"' in before.log_path.read_text(), evidence=proxy.lines)
            os.kill(before.pid, signal.SIGSTOP)
            wait_for(lambda: "takeover is over" in after.log_path.read_text(), evidence=proxy.lines)
            wait_for(lambda: before.exit_code == -signal.SIGKILL)
            end.wait_for_more(LIMIT, proxy.lines)
            proxy.take_over()
        assert end.excess(held_over(2)) <= 0
