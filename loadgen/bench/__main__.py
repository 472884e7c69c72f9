"""Sends frames, by turns, through a bare forwarder, through Sluice, and through Sluice with limits out of reach."""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadgen.bench.ends import Load, Sink, connect, send_all, send_frame

ROUNDS = 3
LOADS = ((100, 4_000_000), (1024, 1_000_000), (16384, 100_000))
"""Bytes of a frame, and how many are sent."""
PATIENCE_S = 60.0

_UNREACHED = "{publish: {messages: 1000000000, bytes: 1000GB}, publish_total: {messages: 1000000000}}"
_CONFIGS = {
    "sluice": "limits: {}\n",
    "sluice, limits on": f"limits: {{namespaces: {{public/default: {_UNREACHED}}}}}\n",
}
BARE = "bare forwarder"
PEERS = (BARE, *_CONFIGS)


def main() -> None:
    """Measure and print: frames a second, CPU seconds of the forwarder per million frames, ratios of medians."""
    print(f"{'':20}{'frame':>8}{'frames/s':>14}{'ratio':>8}{'CPU s/M':>9}{'ratio':>8}   medians of {ROUNDS}")  # noqa: T201
    for size, frames in LOADS:
        load = Load(send_frame(size), frames)
        found: dict[str, list[tuple[float, float]]] = {peer: [] for peer in PEERS}
        for _ in range(ROUNDS):
            for peer in PEERS:
                found[peer].append(measure(peer, load))
        rates = {peer: statistics.median(rate for rate, _ in runs) for peer, runs in found.items()}
        costs = {peer: statistics.median(cost for _, cost in runs) for peer, runs in found.items()}
        for peer in PEERS:
            rate, cost = rates[peer], costs[peer]
            ratios = f"{rate / rates[BARE]:8.2f}{cost:9.2f}{cost / costs[BARE]:8.2f}"
            print(f"{peer:20}{size:>8}{rate:>14,.0f}{ratios}")  # noqa: T201


def measure(peer: str, load: Load) -> tuple[float, float]:
    """One run: frames a second, CPU seconds per million frames.

    Raises:
        RuntimeError: If not every byte arrived.
    """
    sink = Sink(load)
    port = _free_port()
    with _running(peer, port, sink.port) as process, connect(port, PATIENCE_S) as connection:
        cpu = _cpu_seconds(process.pid)
        begun = send_all(connection, load)
        if not sink.wait(PATIENCE_S):
            raise RuntimeError(f"{peer}: {sink.received} of {load.size} bytes arrived in {PATIENCE_S:g} s")
        cpu = _cpu_seconds(process.pid) - cpu
    return load.frames / (sink.finished_at - begun), cpu / load.frames * 1e6


@contextmanager
def _running(peer: str, port: int, broker_port: int) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "loadgen.bench.forwarder", str(port), str(broker_port)]
        if peer in _CONFIGS:
            config = Path(folder) / "sluice.yaml"
            config.write_text(_CONFIGS[peer])
            command = [sys.executable, "-m", "sluice", "serve", "--config", str(config)]
            command += ["--listen", f"127.0.0.1:{port}", "--broker", f"pulsar://127.0.0.1:{broker_port}"]
            command += ["--admin", f"127.0.0.1:{_free_port()}", "--access-log", f"{folder}/log"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: S603 - our own commands
        try:
            yield process
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
