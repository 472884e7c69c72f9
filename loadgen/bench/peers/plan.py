"""What every peer has: a name, a command line, and what it is missing on this machine."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from loadgen.bench.client import wait_listening
from loadgen.bench.errors import BenchError, last_line
from loadgen.real.process import TetheredProcess, free_ports

_START_S = 180.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a peer is to run.

    Attributes:
        folder: For its files; it has it for itself.
        port: Where it is to listen, on the loopback interface.
        spare_port: Another one, for what else it offers.
        broker_port: Of the broker behind it.
    """

    folder: Path
    port: int
    spare_port: int
    broker_port: int


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, and variables of the environment to add."""

    line: list[str]
    env: Mapping[str, str] = field(default_factory=dict)


def nothing() -> str | None:
    """What a peer is missing that runs everywhere."""
    return None


@dataclass(frozen=True, slots=True)
class Plan:
    """How a peer is started.

    Attributes:
        name: For the table.
        command: Writes its files and says its command; may fetch it first, and raise BenchError.
        missing: What there is not on this machine for it, with the remedy; None if it can run.
    """

    name: str
    command: Callable[[Place], Command]
    missing: Callable[[], str | None] = nothing


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer that runs.

    Attributes:
        name: Of its plan.
        port: Where it listens.
        pid: Of its process.
        spare_port: Where what else it offers is.
    """

    name: str
    port: int
    pid: int
    spare_port: int


@contextmanager
def running(plan: Plan, folder: Path, broker_port: int) -> Iterator[Peer]:
    """Start it, and end it with the block.

    Raises:
        BenchError: If it cannot be had, ends, or does not listen in time.
    """
    home = Path(tempfile.mkdtemp(prefix=plan.name.partition(" ")[0], dir=folder))
    port, spare_port = free_ports(0, 0)
    command = plan.command(Place(home, port, spare_port, broker_port))
    process = TetheredProcess(command.line, home / "log", command.env)
    try:
        if not wait_listening(port, _START_S, lambda: process.exit_code is None):
            how = "does not listen" if process.exit_code is None else f"ended with code {process.exit_code}"
            raise BenchError(f"{plan.name} {how}: {last_line(process.last_lines())}")
        yield Peer(plan.name, port, process.pid, spare_port)
    finally:
        process.stop()
