"""Whether a part of a real Pulsar is ready, and waiting for it."""

import http.client
import socket
import time
from collections.abc import Callable

from loadgen.real.errors import ProcessFailed
from loadgen.real.tethered_process import TetheredProcess


def is_healthy(web_port: int) -> bool:
    """Whether the broker behind this port of its admin REST says that it can publish and consume."""
    connection = http.client.HTTPConnection("127.0.0.1", web_port, timeout=5)
    try:
        connection.request("GET", "/admin/v2/brokers/health")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def is_listening(port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def wait_ready(process: TetheredProcess, is_ready: Callable[[], bool], timeout_s: float) -> None:
    """Return as soon as it is ready.

    Raises:
        ProcessFailed: If it ends, or is not ready in time.
    """
    deadline = time.monotonic() + timeout_s
    while not is_ready():
        process.check_running()
        if time.monotonic() > deadline:
            raise ProcessFailed(f"{process.name} was not healthy within {timeout_s:g} s", process.last_lines())
        time.sleep(0.1)
