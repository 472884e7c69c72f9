"""Programs with real clients that publish over a limit, and what each of them says became of its messages."""

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pulsar

from loadgen.real.jars import cache_folder
from tests.real.java_programs import java_program
from tests.real.traffic import quiet_client
from tests.waiting import wait_for

_HERE = Path(__file__).parent
_TOLD = re.compile(r"^message (\d+) (\d+) (.*)$", re.MULTILINE)
_PATIENCE_S = 150
STORED = "stored"


@dataclass(frozen=True)
class Rounds:
    """Messages from 0 on: so many in a round as fast as they can be sent, then a pause.

    Attributes:
        kind: `batches`, `single` or `chunks`.
        size: Bytes of each message.
    """

    kind: str
    rounds: int = 3
    in_round: int = 1500
    pause_ms: int = 300
    size: int = 100

    @property
    def arguments(self) -> list[str]:
        """As the programs take them."""
        return [self.kind, *(str(value) for value in (self.rounds, self.in_round, self.pause_ms, self.size))]


@dataclass(frozen=True)
class Fate:
    """What became of a message: how long after it was sent that was known, and `STORED` or the error."""

    number: int
    ms: int
    said: str


def by_java(url: str, topic: str, rounds: Rounds) -> list[Fate]:
    """Published by the Java client."""
    return _fates([*java_program("RejectedPublisher"), url, topic, *rounds.arguments])


def by_go(program: Path, url: str, topic: str, rounds: Rounds) -> list[Fate]:
    """Published by the Go client."""
    return _fates([str(program), url, topic, *rounds.arguments])


@cache
def go_program(package: str = "") -> Path:
    """A program with the Go client; the first building takes a minute, and fetches what go.sum pins.

    It is neither optimized nor linked with C, which takes three times as long: what it sends is counted, not timed.
    """
    go = shutil.which("go")
    assert go is not None
    program = cache_folder().parent / f"rejected-publisher{package and '-' + package}"
    subprocess.run(
        [go, "build", "-gcflags=all=-N -l", "-ldflags=-s -w", "-o", program, f"./{package}"],
        cwd=_HERE / "rejected_publisher",
        env={**os.environ, "CGO_ENABLED": "0"},
        check=True,
        timeout=600,
    )
    return program


@cache
def rust_program() -> Path:
    """A program with the Rust client; the first building takes minutes, and fetches what Cargo.lock pins.

    Its client makes code of Pulsar's protocol file, by a `protoc` that grpcio-tools have.
    """
    cargo = shutil.which("cargo")
    assert cargo is not None, "install Rust, for its client"
    target = cache_folder().parent / "secure-clients"
    target.mkdir(parents=True, exist_ok=True)
    protoc = target / "protoc"
    protoc.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m grpc_tools.protoc "$@"\n')
    protoc.chmod(0o755)
    subprocess.run(
        [cargo, "build", "--locked", "--target-dir", target],
        cwd=_HERE / "secure_clients",
        env={**os.environ, "PROTOC": str(protoc)},
        check=True,
        timeout=1800,
    )
    return target / "debug" / "secure-clients"


def by_python(url: str, topic: str, rounds: Rounds) -> list[Fate]:
    """Published by the Python client, which is the C++ client."""
    client = quiet_client(url)
    options = {"batching_enabled": rounds.kind == "batches", "block_if_queue_full": True}
    producer = client.create_producer(topic, send_timeout_millis=120_000, max_pending_messages=100_000, **options)
    fates: list[Fate] = []

    def send(number: int) -> None:
        sent_at = time.monotonic()

        def settled(result: pulsar.Result, _: pulsar.MessageId) -> None:
            outcome = STORED if result == pulsar.Result.Ok else str(result).rpartition(".")[2]
            fates.append(Fate(number, round(1000 * (time.monotonic() - sent_at)), outcome))

        producer.send_async(str(number).encode().ljust(rounds.size, b"\0"), settled, properties={"producer": "python"})

    for first in range(0, rounds.rounds * rounds.in_round, rounds.in_round):
        for number in range(first, first + rounds.in_round):
            send(number)
        time.sleep(rounds.pause_ms / 1000)
    wait_for(
        lambda: len(fates) >= rounds.rounds * rounds.in_round,
        _PATIENCE_S,
        lambda: f"of {len(fates)} messages it is known what became of them",
    )
    client.close()
    return fates


def _fates(command: list[str]) -> list[Fate]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * _PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return [Fate(int(number), int(ms), outcome) for number, ms, outcome in _TOLD.findall(done.stdout)]
