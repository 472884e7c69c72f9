"""A stand-in broker in a process of its own, and official clients that talk to it."""

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pulsar
import pytest

READY = "stand-in broker for clients and fleets, listening on "


@contextmanager
def running_broker(*options: str, listen: str = "127.0.0.1:0") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The broker's process and its address; ended with SIGTERM in the end."""
    command = [sys.executable, "-m", "sluice", "broker", "--listen", listen, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().strip()
            assert line.startswith(READY)
            yield process, line.removeprefix(READY)
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def broker_address() -> Iterator[str]:
    with running_broker("--partitioned", "persistent://public/parts/four=4", "--retention-mb", "8") as (_, address):
        yield address


@pytest.fixture
def client(broker_address: str) -> Iterator[pulsar.Client]:
    connected = new_client(broker_address)
    yield connected
    connected.close()


@pytest.fixture
def second_client(broker_address: str) -> Iterator[pulsar.Client]:
    connected = new_client(broker_address)
    yield connected
    with suppress(pulsar.AlreadyClosed):  # a producer that has lost its access may end by itself at this moment
        connected.close()


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/{uuid.uuid4().hex}"


@pytest.fixture
def counts_file(tmp_path: Path) -> Path:
    return tmp_path / "counts.json"


def new_client(address: str) -> pulsar.Client:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(f"pulsar://{address}", logger=logger, operation_timeout_seconds=60)
