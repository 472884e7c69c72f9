"""Reports to the service manager, heard by a socket in its place."""

import json
import os
import signal
import socket
import struct
from contextlib import ExitStack
from pathlib import Path

import pytest

from loadgen.real.process import TetheredProcess
from proxy.service_manager import ServiceManager
from tests.deploy.pod import SLUICE
from tests.waiting import wait_for


@pytest.fixture
def manager(tmp_path: Path) -> socket.socket:
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.bind(str(tmp_path / "notify"))
    heard.settimeout(60)
    return heard


@pytest.mark.parametrize("processes", [1, 2])
def test_started_proxy_reports_ready_alive_and_stopping(processes: int, manager: socket.socket, tmp_path: Path) -> None:
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "100000"}
    addresses = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--broker", "pulsar://127.0.0.1:1")
    command = [*SLUICE, "serve", *addresses, "--processes", str(processes)]
    proxy = TetheredProcess(command, tmp_path / "log", environment)
    with manager:
        assert manager.recv(1000) == b"READY=1", proxy.last_lines()
        events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
        assert events.count("serving" if processes == 1 else "process serves") == processes
        assert {manager.recv(1000), manager.recv(1000)} == {b"WATCHDOG=1"}
        assert proxy.stop() == 0
        reports = [manager.recv(1000)]
        while reports[-1] != b"STOPPING=1":
            reports.append(manager.recv(1000))
        assert {*reports[:-1]} <= {b"WATCHDOG=1"}


DRAIN = {"SLUICE_DRAIN__DELAY": "0", "SLUICE_DRAIN__PERIOD": "0", "SLUICE_DRAIN__TIMEOUT": "4"}
_CREDENTIALS = struct.Struct("3i")


def heard_from(manager: socket.socket) -> tuple[int, str]:
    """Return the id of the process that reports next, and its report."""
    content, ancillary, _, _ = manager.recvmsg(1000, socket.CMSG_SPACE(_CREDENTIALS.size))
    ((_, _, credentials),) = ancillary
    return _CREDENTIALS.unpack(credentials)[0], content.decode()


def test_process_that_is_taken_over_names_the_next_one(manager: socket.socket, tmp_path: Path) -> None:
    """By its own report, as systemd takes none of another process; and it does not report its end as the service's."""
    manager.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    state = {"SLUICE_DRAIN__STATE": str(tmp_path / "state"), "SLUICE_PROXY_ID": "front"}
    addresses = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--broker", "pulsar://127.0.0.1:1")
    environment = {"NOTIFY_SOCKET": manager.getsockname(), **DRAIN, **state}
    proxy = TetheredProcess([*SLUICE, "serve", *addresses], tmp_path / "log", environment)
    with manager, ExitStack() as ending:
        ending.callback(proxy.kill)
        before, report = heard_from(manager)
        assert report == "READY=1"
        os.kill(before, signal.SIGUSR2)
        reports = [heard_from(manager), heard_from(manager)]
        (after,) = {process for process, _ in reports} - {before}
        assert set(reports) == {(after, "READY=1"), (before, f"MAINPID={after}")}, proxy.last_lines()
        wait_for(lambda: "takeover is over" in proxy.log_path.read_text(), evidence=proxy.last_lines)
        os.kill(after, signal.SIGTERM)
        assert heard_from(manager) == (after, "STOPPING=1")
        wait_for(lambda: proxy.log_path.read_text().count('"ended"') == 2, evidence=proxy.last_lines)


async def test_no_signs_of_life_are_sent_unless_asked(manager: socket.socket) -> None:
    address = manager.getsockname()
    with manager:
        for asked in ({}, {"WATCHDOG_USEC": "100000", "WATCHDOG_PID": str(os.getpid() + 1)}, {"WATCHDOG_USEC": "soon"}):
            await ServiceManager({"NOTIFY_SOCKET": address, **asked}).serving()
            assert manager.recv(1000) == b"READY=1"
        await ServiceManager({"WATCHDOG_USEC": "100000"}).serving()
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.recv(1000)


def test_abstract_address_is_reached() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(f"\0sluice-{os.getpid()}")
        ServiceManager({"NOTIFY_SOCKET": f"@sluice-{os.getpid()}"}).ending()
        assert heard.recv(1000) == b"STOPPING=1"


def test_manager_that_is_gone_ends_nothing(tmp_path: Path) -> None:
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nowhere")}).ending()
