"""Sockets of the service manager: read as sd_listen_fds(3) has them, and kept over restarts of a real process."""

import json
import os
import signal
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

import pytest
import yaml

from adminrest.client import AdminClient
from loadgen.real.process import TetheredProcess, free_port, free_ports
from proxy.config.model import Config
from proxy.runtime import StartError
from proxy.server import Sockets
from proxy.socket_activation import by_address, given_sockets
from tests.loadgen.standin.conftest import running_broker
from tests.proxy.test_taken_over import THIS, Load
from tests.proxy.wire import connect, name_of
from tests.waiting import PATIENCE_S, wait_for

CLOSED = "closed when it has greeted"
FIRST = 900
"""A descriptor that no test has, in place of 3, which the runner of tests may have."""


def described(*sockets: socket.socket, names: str | None = None, **variables: str) -> dict[str, str]:
    """The environment of a process that gets these sockets, which become the descriptors from FIRST on."""
    for descriptor, each in enumerate(sockets, FIRST):
        os.dup2(each.fileno(), descriptor)
        each.close()
    environment = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(sockets))}
    return environment | ({} if names is None else {"LISTEN_FDNAMES": names}) | variables


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def at(listening: socket.socket) -> str:
    return f"127.0.0.1:{listening.getsockname()[1]}"


def matched(environment: dict[str, str], **config: object) -> Sockets:
    sockets = given_sockets(environment, FIRST)
    with ExitStack() as closing:
        for each in sockets:
            closing.enter_context(each.socket)
        listeners = by_address(sockets, Config.model_validate(config))
        assert not any(each.get_inheritable() for group in listeners.by_name.values() for each in group)
    return listeners


@pytest.mark.parametrize("pid", ["", "1", "soon"])
def test_sockets_of_another_process_are_left_alone(pid: str) -> None:
    environment = {"LISTEN_PID": pid, "LISTEN_FDS": "1", "LISTEN_FDNAMES": "x", "LISTEN_PIDFDID": "7", "HOME": "/"}
    assert given_sockets(environment, FIRST) == []
    assert environment == {"HOME": "/"}, "children must not take the sockets for theirs either"


def test_sockets_are_found_by_address_and_by_name(listening: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as admin, socket.create_server(("127.0.0.1", 0)) as other:
        config = {"listen": [at(listening), at(other)], "admin": at(admin)}
        environment = described(listening, admin, other, names="sluice.socket:admin:listen")
        listeners = matched(environment, **config)
    names = {f"listen pulsar://{each}" for each in config["listen"]} | {f"admin http://{config['admin']}"}
    assert ({*listeners.by_name}, listeners.kept, environment) == (names, names, {})
    assert [len(group) for group in listeners.by_name.values()] == [1, 1, 1]


def test_admin_address_of_a_further_process_is_found(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    assert matched(described(listening), admin=f"127.0.0.1:{port - 1}", processes=2).kept == {
        f"admin http://127.0.0.1:{port}"
    }


@pytest.mark.parametrize(
    ("name", "config", "reason"),
    [
        ("sluice.socket", {}, r"\(listen 127.0.0.1:6650, admin 127.0.0.1:8080\)"),
        ("sluice.socket", {"listen": "127.0.0.1:0"}, r"\(listen 127.0.0.1:0, "),
        ("admin", {"listen": "SOCKET"}, r"\(admin 127.0.0.1:8080\)"),
        ("metrics", {"listen": "SOCKET"}, r"\(metrics is not set\)"),
    ],
)
def test_socket_at_no_configured_address_is_refused(
    name: str, config: dict[str, str], reason: str, listening: socket.socket
) -> None:
    own = at(listening)
    config = {key: value.replace("SOCKET", own) for key, value in config.items()}
    with pytest.raises(StartError, match=rf"descriptor {FIRST} \({name}\).* listens on {own}, .*{reason}"):
        matched(described(listening, names=name), **config)


@contextmanager
def _pipe() -> Iterator[None]:
    reads, writes = os.pipe()
    os.dup2(reads, FIRST)
    os.close(reads)
    yield
    os.close(writes)
    os.close(FIRST)


def test_descriptor_that_is_no_socket_is_refused() -> None:
    environment = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
    with _pipe(), pytest.raises(StartError, match=rf"descriptor {FIRST} .*it must be a socket"):
        given_sockets(environment, FIRST)
    assert environment == {}


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX])
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_socket_that_listens_not_for_tcp_is_refused(family: int, kind: int) -> None:
    with pytest.raises(StartError, match=rf"descriptor {FIRST} .*no listening TCP socket: write ListenStream="):
        given_sockets(described(socket.socket(family, kind)), FIRST)


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"LISTEN_FDS": "-1"}, "LISTEN_FDS: '-1': not a number"),
        ({"LISTEN_FDS": ""}, "LISTEN_FDS: '': not a number"),
        ({"LISTEN_FDS": "9" * 30}, f"LISTEN_FDS: '{'9' * 20}': not a number"),
        ({"LISTEN_FDS": "2", "LISTEN_FDNAMES": "one"}, "LISTEN_FDNAMES: 1 names for 2 descriptors"),
    ],
)
def test_variables_that_contradict_are_refused(variables: dict[str, str], reason: str) -> None:
    with pytest.raises(StartError, match=reason):
        given_sockets({"LISTEN_PID": str(os.getpid())} | variables, FIRST)


def test_second_socket_of_an_address_is_closed(listening: socket.socket) -> None:
    second = listening.dup()
    sockets = Sockets({"listen x": [listening]})
    sockets.add(Sockets({"listen x": [second]}, {"listen x"}))
    assert (sockets.by_name, sockets.kept, second.fileno()) == ({"listen x": [listening]}, {"listen x"}, -1)


class Manager:
    """Stands in for systemd: keeps the port for clients, and starts the service with it."""

    def __init__(self, folder: Path, broker: str, **config: object) -> None:
        self.folder = folder
        self.topic = "persistent://public/default/activated"
        self.listening = socket.create_server(("127.0.0.1", free_port()))
        self.address = at(self.listening)
        self.started = list[subprocess.Popen[bytes]]()
        self.main = 0
        """The id of the process that serves."""
        admin = f"127.0.0.1:{free_ports(0)[0]}"
        self.admin = AdminClient(f"http://{admin}")
        self._settings = {
            "listen": self.address,
            "admin": admin,
            "broker": f"pulsar://{broker}",
            "drain": {"state": str(folder / "state"), "delay": 1, "period": 1, "timeout": 4},
        }
        self.configure(**config)

    def configure(self, **config: object) -> None:
        (self.folder / "sluice.yaml").write_text(yaml.safe_dump(self._settings | config))

    def start(self) -> subprocess.Popen[bytes]:
        command = [*THIS, "serve", "--config", str(self.folder / "sluice.yaml")]
        give = f'exec 3<&{self.listening.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=sluice.socket exec "$@"'
        with (self.folder / "log").open("ab") as log:
            self.started.append(
                subprocess.Popen(
                    ["bash", "-c", give, "bash", *command],
                    pass_fds=[self.listening.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
        self.main = self.started[-1].pid
        return self.started[-1]

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def wait_for(self, event: str, times: int) -> None:
        wait_for(lambda: self.lines(event)[times - 1 :] != [], evidence=self.log)

    def lines(self, event: str) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def restart(self) -> None:
        """Do as `systemctl restart` does."""
        ended = len(self.lines("ended"))
        os.kill(self.main, signal.SIGTERM)
        self.wait_for("ended", ended + 1)
        self.start()

    def replace(self) -> None:
        """Have the process start the next one, which gets no socket from the manager; wait until it is alone."""
        is_over = "takeover is over: the process before has ended"
        times = len(self.lines(is_over))
        os.kill(self.main, signal.SIGUSR2)
        self.wait_for(is_over, times + 1)
        self.main = int(str(self.lines("takeover begins")[-1]["by_pid"]))
        assert b"LISTEN_" not in Path(f"/proc/{self.main}/environ").read_bytes()


@contextmanager
def managed(folder: Path, **config: object) -> Iterator[Manager]:
    with running_broker() as (_, address):
        manager = Manager(folder, address, **config)
        try:
            yield manager
            assert "Traceback" not in manager.log(), manager.log()
        finally:
            manager.listening.close()
            for each in manager.started:
                with suppress(ProcessLookupError):
                    os.killpg(each.pid, signal.SIGKILL)  # and the processes that have taken over from it
                each.wait()


class Greetings:
    """Clients that connect and greet once each, while others publish: libraries try again, and report nothing."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.troubles = Counter[str]()
        self._address = address
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._greet)

    def _greet(self) -> None:
        while not self._over.is_set():
            try:
                with socket.create_connection(self._address, PATIENCE_S) as client:
                    client.sendall(connect())
                    if not client.recv(1000):
                        self.troubles[CLOSED] += 1
            except OSError as error:  # refused, or reset
                self.troubles[str(error)] += 1
            self._over.wait(0.005)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.slow
def test_restart_of_an_activated_service_refuses_no_client(tmp_path: Path) -> None:
    """The second process gets the sockets from the manager, the third from the second, by a takeover."""
    with managed(tmp_path) as manager:
        manager.start()
        with (
            Greetings(manager.listening.getsockname()) as greetings,
            Load(manager) as load,  # type: ignore[arg-type] # it has what the load asks for
        ):
            wait_for(lambda: len(load.received) > 100)
            manager.restart()
            manager.wait_for("serving", 2)
            troubles = greetings.troubles.copy()
            manager.replace()
            assert greetings.troubles == troubles
            manager.restart()
            manager.wait_for("serving", 4)
            load.goes_on()
            load.end()
        assert {*greetings.troubles} <= {CLOSED}
        assert greetings.troubles[CLOSED] <= 2, "one that was accepted just before a process left the queue"
        assert [each.wait(PATIENCE_S) for each in manager.started[:-1]] == [0, 0]
        assert load.troubles == []
        assert set(load.sent) == set(load.received)


def test_dropped_address_of_the_manager_stays_open(tmp_path: Path) -> None:
    """The process that drops it has it from a takeover."""
    with managed(tmp_path) as manager:
        manager.start()
        manager.wait_for("serving", 1)
        manager.replace()
        manager.configure(listen=f"127.0.0.1:{free_port()}")
        manager.replace()
        assert manager.listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN), manager.log()
        with socket.create_connection(manager.listening.getsockname(), PATIENCE_S):
            pass  # it waits for the next start


def test_processes_accept_from_one_given_socket(tmp_path: Path) -> None:
    with managed(tmp_path, processes=2) as manager:
        parent = manager.start()
        manager.wait_for("all processes serve", 1)
        pids = [int(str(line["pid"])) for line in manager.lines("process serves")]
        for pid in pids:
            assert b"LISTEN_" not in Path(f"/proc/{pid}/environ").read_bytes()
        os.kill(pids[0], signal.SIGSTOP)
        _is_served(manager.listening.getsockname())
        os.kill(pids[0], signal.SIGCONT)
        os.kill(pids[1], signal.SIGKILL)
        manager.wait_for("process serves", 3)
        os.kill(pids[0], signal.SIGSTOP)
        _is_served(manager.listening.getsockname())
        os.kill(pids[0], signal.SIGCONT)
        parent.send_signal(signal.SIGUSR2)
        manager.wait_for("all processes are replaced", 1)
        _is_served(manager.listening.getsockname())
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(PATIENCE_S) == 0, manager.log()
        with socket.create_connection(manager.listening.getsockname(), PATIENCE_S):
            pass  # it waits for the next start


def _is_served(address: tuple[str, int]) -> None:
    with socket.create_connection(address, PATIENCE_S) as client, client.makefile("rb") as heard:
        client.sendall(connect())
        size = heard.read(4)
        assert name_of(size + heard.read(int.from_bytes(size))) == "CONNECTED"


@pytest.mark.systemd
def test_connection_wakes_the_service_that_systemd_starts(tmp_path: Path) -> None:
    port, admin = free_ports(0, 0)
    with running_broker() as (_, broker):
        command = [
            *("systemd-socket-activate", "--listen", f"127.0.0.1:{port}", "--fdname", "sluice.socket", *THIS, "serve"),
            *("--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}", "--broker", f"pulsar://{broker}"),
        ]
        service = TetheredProcess(command, tmp_path / "log")
        try:
            wait_for(lambda: "Listening on" in (tmp_path / "log").read_text())
            _is_served(("127.0.0.1", port))
            assert service.stop() == 0, service.last_lines()
        finally:
            service.kill()
