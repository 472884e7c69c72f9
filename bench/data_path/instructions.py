"""`python -m bench instructions`: the number of instructions that one chunk of SENDs costs Sluice.

Sluice runs under valgrind's callgrind, which counts the instructions outside the kernel: the same number each time, to
one in a hundred, whatever else the machine does. Chunks go one by one, so each is one read and one write.
"""

import argparse
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from socket import socket

from bench import harness
from bench.data_path import wire
from bench.data_path.native import Native
from bench.data_path.proxies import SLUICE, Command, PeerPlan, Place, running, sluice_plan
from bench.data_path.stage import Stage, close_all
from bench.data_path.wire import LoopbackSink
from bench.harness import BenchError, Figure, Found, Row, Section, last_line

NAME = "instructions"
CHUNKS = ((1, 100), (2, 100), (8, 100), (640, 100), (64, 1024), (4, 16384))
"""Frames in a chunk, and bytes of each: small writes, then what a read takes of a full stream."""
_WARM = 100
LARGEST_FRAME = 5 * 1024 * 1024
"""Bytes of the largest frame that clients and brokers send by default."""
_QUIET = {"SLUICE_ACCESS_LOG__INTERVAL": "60s"}
"""The access log's lines of each second would be counted more often the slower the machine is."""
LAYERS = {
    "__mypyc": "Sluice, compiled",
    "libpython": "the interpreter",
    "python3": "the interpreter",
    "loop.": "uvloop",
    "libc": "C library",
}
_ALL, _OTHER = "instructions", "other"
_FIGURES = tuple(Figure(name, name) for name in (_ALL, *dict.fromkeys(LAYERS.values()), _OTHER))
_LINE = re.compile(r"^ *(?P<count>[\d,]+) \([^)]*\) +\S+:(?P<function>[^\[]+?)(?: \[(?P<object>[^\]]+)\])?$")


def layers(annotated: Iterable[str]) -> dict[str, int]:
    """Instructions by layer, from the lines of `callgrind_annotate`."""
    counts: dict[str, int] = {}
    last = _OTHER
    for line in annotated:
        match = _LINE.match(line)
        if match is None or match["function"] == "TOTALS":
            continue
        # inlined parts name no object: they follow the one that they are in
        last = _layer(match["object"]) if match["object"] else last
        counts[last] = counts.get(last, 0) + int(match["count"].replace(",", ""))
    return counts


def row(count: int, size: int) -> Row[None]:
    """Return the row of a chunk: all instructions, and those of each layer."""
    return Row(f"{count}x{size}", f"{count} x {size:,} B", _FIGURES, None, (SLUICE,))


def _layer(path: str) -> str:
    name = Path(path).name
    return next((layer for part, layer in LAYERS.items() if part in name), _OTHER)


def _command(out: Path, place: Place) -> Command:
    command = sluice_plan().command(place)
    valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
    return Command([*valgrind, *command.line], _QUIET)


def _count(native: Native, per_chunk: int, size: int, *, chunks: int) -> dict[str, float]:
    frame = wire.send_frame(size).frame
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name, LoopbackSink() as sink:
        folder = Path(name)
        out = folder / "callgrind.out"
        with running(PeerPlan(SLUICE, partial(_command, out)), folder, sink.port) as peer:
            here, there = Stage(native, sink, {}, {}, 0.0, folder).producers(peer.port, 1)
            _send(native, here[0], there[0], frame * per_chunk, per_chunk, _WARM)
            _run(["callgrind_control", "--instr=on", str(peer.pid)])
            _send(native, here[0], there[0], frame * per_chunk, per_chunk, chunks)
            _run(["callgrind_control", "--instr=off", str(peer.pid)])
            close_all([*here, *there])
        annotated = _run(["callgrind_annotate", "--auto=no", "--threshold=100", "--show=Ir", str(out)])
    counted = {layer: count / chunks for layer, count in layers(annotated.splitlines()).items()}
    return {**dict.fromkeys(LAYERS.values(), 0.0), _OTHER: 0.0, **counted, _ALL: sum(counted.values())}


def _send(native: Native, here: socket, there: socket, chunk: bytes, per_chunk: int, times: int) -> None:
    for _ in range(times):
        here.sendall(chunk)
        if native.receive([there], wanted=per_chunk).frames != [per_chunk]:
            raise BenchError("Sluice under valgrind does not pass on what it is sent")


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - valgrind's own tools
    if done.returncode:
        raise BenchError(f"{command[0]} failed: {last_line(done.stderr)}")
    return done.stdout


def kind(text: str) -> tuple[int, int]:
    """A chunk of FRAMESxBYTES: how many frames, and of how many bytes each.

    Raises:
        argparse.ArgumentTypeError: If it is none.
    """
    frames, _, size = text.partition("x")
    try:
        chunk = harness.count(frames), harness.count(size)
    except argparse.ArgumentTypeError:
        chunk = 0, 0
    if not 0 < chunk[0] * chunk[1] <= LARGEST_FRAME:
        requirement = f"FRAMESxBYTES belongs here, both above 0, {LARGEST_FRAME:,} bytes together at most: 8x100"
        raise argparse.ArgumentTypeError(f"{text!r}: {requirement}")
    return chunk


def main(words: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    parser = harness.parser(NAME, __doc__)
    parser.add_argument("--chunks", type=harness.count, default=200, help="of each kind (default: 200)")
    parser.add_argument("--kind", dest="kinds", action="append", type=kind, metavar="FRAMESxBYTES", help="only this")
    arguments = parser.parse_args(words)
    if shutil.which("valgrind") is None:
        return harness.failed(NAME, "valgrind is needed: install the package valgrind", harness.CANNOT_START)

    rows = {kind: row(*kind) for kind in arguments.kinds or CHUNKS}

    def measured() -> Found:
        native = Native()
        return {row.name: {SLUICE: [_count(native, *kind, chunks=arguments.chunks)]} for kind, row in rows.items()}

    return harness.carry_out(NAME, arguments.write, [Section(NAME, list(rows.values()), is_listed=True)], measured)
