"""`ends.c`, compiled at the first use, and called from here without the GIL."""

import ctypes
import hashlib
import os
import shlex
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import BenchError, last_line

SOURCE = Path(__file__).with_name("ends.c")
PATIENCE_MS = 5000
"""Milliseconds without any byte after which waiting ends."""
CROWD_PATIENCE_MS = 20_000
"""The bound while many connect: a JVM that has just started takes its time."""
_EVERYTHING = 2**64 - 1
_NS = 1_000_000_000


def compiler() -> list[str] | None:
    """The C compiler of this machine: $CC, else `cc`; None if there is none."""
    try:
        command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    except ValueError:  # a quotation that is not closed names none
        return None
    return command if shutil.which(command[0]) else None


@dataclass(frozen=True, slots=True)
class SinkAnswer:
    """The answer that the receiving end writes to each frame.

    Attributes:
        frame: The answer.
        every: Frames for each: 1 for receipts, more for FLOW.
        sequence_at: The position of the sequence id; -1 if it has none.
        sequence: The id of the first frame.
    """

    frame: bytes
    every: int = 1
    sequence_at: int = -1
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Received:
    """The frames that arrived.

    Attributes:
        frames: Whole frames, by connection.
        first_at: When the first bytes came; seconds of `time.monotonic`, 0 if none did.
        last_at: When the last ones did.
    """

    frames: list[int]
    first_at: float
    last_at: float


class Live:
    """A counter of the frames so far, to be read while they are received.

    Args:
        connections: How many there are.
    """

    def __init__(self, connections: int) -> None:
        self.counts = (ctypes.c_uint64 * connections)()

    @property
    def frames(self) -> int:
        """Whole frames, of all connections together."""
        return sum(self.counts)


class _Answer(ctypes.Structure):
    _fields_ = (
        ("frame", ctypes.c_char_p),
        ("size", ctypes.c_int64),
        ("every", ctypes.c_int64),
        ("sequence_at", ctypes.c_int64),
        ("sequence", ctypes.c_int64),
    )


class _Load(ctypes.Structure):
    _fields_ = (
        ("chunk", ctypes.c_char_p),
        ("size", ctypes.c_int64),
        ("frame", ctypes.c_int64),
        ("obeys", ctypes.c_int64),
    )


class Native:
    """Both ends in C. Connections are given as sockets of Python; those that a function ends are detached from them.

    Raises:
        BenchError: If there is no C compiler, or it fails.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(_compiled()))
        self._library.send_for.restype = self._library.send_paced.restype = ctypes.c_int64

    def receive(
        self,
        connections: Sequence[socket.socket],
        answer: SinkAnswer | None = None,
        wanted: int = _EVERYTHING,
        live: Live | None = None,
        frame_size: int = 0,
    ) -> Received:
        """Read whole frames until all connections have ended, `wanted` have come, or nothing comes any more.

        The call updates `live`, of as many connections, as it goes. If `frame_size` says that all are of one size, only
        the first frame of each connection is read.
        """
        frames = (live or Live(len(connections))).counts
        at = (ctypes.c_int64 * 2)()
        given = answer and _Answer(answer.frame, len(answer.frame), answer.every, answer.sequence_at, answer.sequence)
        self._library.receive(
            _numbers(connections), len(connections), given and ctypes.byref(given), PATIENCE_MS,
            ctypes.c_uint64(wanted), ctypes.c_uint64(frame_size), frames, at,
        )  # fmt: skip
        return Received(list(frames), at[0] / _NS, at[1] / _NS)

    def send_for(
        self,
        connections: Sequence[socket.socket],
        chunk: bytes,
        frame_size: int,
        seconds: float,
        *,
        obeys: bool = False,
    ) -> tuple[float, list[int]]:
        """Send the chunk's frames again and again for a time, then close at once; return the begin and the frames sent.

        `obeys` says that no more is sent than FLOWs that come back permit; such connections are the caller's to close.
        """
        frames = (ctypes.c_uint64 * len(connections))()
        load = _Load(chunk, len(chunk), frame_size, obeys)
        begun = self._library.send_for(
            (_numbers if obeys else _detached)(connections),
            len(connections),
            ctypes.byref(load),
            ctypes.c_int64(int(seconds * _NS)),
            frames,
        )
        return begun / _NS, list(frames)

    def send_paced(self, connections: Sequence[socket.socket], chunk: bytes, interval_s: float, count: int) -> float:
        """Write the chunk each `interval_s`, on one connection after the other; when it began.

        Raises:
            BenchError: If a connection fails.
        """
        begun = self._library.send_paced(
            _numbers(connections), len(connections), chunk, ctypes.c_int64(len(chunk)),
            ctypes.c_int64(round(interval_s * _NS)), ctypes.c_int64(count),
        )  # fmt: skip
        if begun < 0:
            raise BenchError("a connection failed while small writes were sent")
        return float(begun) / _NS

    def ask(
        self,
        connections: Sequence[socket.socket],
        frame: bytes,
        *,
        sequence_at: int,
        first_sequence: int,
        interval_s: float,
        count: int,
    ) -> list[list[float]]:
        """Send a frame each `interval_s`, by turns on each connection, and await its answer; what each took, seconds.

        `sequence_at` is the position of the sequence id in the frame, `first_sequence` the first id of each connection,
        and `count` the number of frames of each.

        Raises:
            BenchError: If a connection fails.
        """
        several = len(connections)
        took = (ctypes.c_int64 * (count * several))()
        failed = self._library.ask(
            _numbers(connections), several, ctypes.create_string_buffer(frame), ctypes.c_int64(len(frame)),
            ctypes.c_int64(sequence_at), ctypes.c_int64(first_sequence), ctypes.c_int64(round(interval_s * _NS)),
            ctypes.c_int64(count * several), took,
        )  # fmt: skip
        if failed:
            raise BenchError("a connection failed while answers were awaited")
        return [[each / _NS for each in took[at::several]] for at in range(several)]

    def connect_many(self, port: int, count: int, hello: bytes) -> tuple[list[int], int, float]:
        """Connect and greet all at once: the sockets' numbers, how many were answered, the seconds it took."""
        sockets, took = (ctypes.c_int * count)(), ctypes.c_int64()
        size = ctypes.c_int64(len(hello))
        done = self._library.connect_many(port, count, hello, size, CROWD_PATIENCE_MS, sockets, ctypes.byref(took))
        return list(sockets), done, took.value / _NS

    def welcome_many(self, listener: socket.socket, count: int, answer: bytes) -> list[int]:
        """Accept `count` connections, answer the first frame of each, and return the sockets' numbers."""
        sockets = (ctypes.c_int * count)()
        size = ctypes.c_int64(len(answer))
        self._library.welcome_many(listener.fileno(), count, answer, size, CROWD_PATIENCE_MS, sockets)
        return list(sockets)

    def reset_all(self, sockets: Sequence[int]) -> None:
        """Close them, without a farewell."""
        self._library.reset_all((ctypes.c_int * len(sockets))(*sockets), len(sockets))


def _numbers(connections: Sequence[socket.socket]) -> Any:
    return (ctypes.c_int * len(connections))(*[connection.fileno() for connection in connections])


def _detached(connections: Sequence[socket.socket]) -> Any:
    return (ctypes.c_int * len(connections))(*[connection.detach() for connection in connections])


def _compiled() -> Path:
    """The shared object of this very source, made once a machine."""
    command = compiler()
    if command is None:
        raise BenchError("no C compiler: install one (for example the package gcc), or name it in $CC")
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    made = Path(tempfile.gettempdir()) / f"sluice-bench-{os.getuid()}" / f"ends-{digest}.so"
    _keep_to_ourselves(made.parent)
    if not made.exists():
        unfinished = made.with_suffix(f".{os.getpid()}")
        done = subprocess.run(  # noqa: S603 - the user's own compiler, fixed arguments
            [*command, "-O2", "-shared", "-fPIC", "-o", str(unfinished), str(SOURCE)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise BenchError(f"{SOURCE.name} does not compile: {last_line(done.stderr)}")
        unfinished.replace(made)
    return made


def _keep_to_ourselves(folder: Path) -> None:
    """Everybody may make that folder where all have their temporary files, and what lies in it is executed."""
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise BenchError(f"{folder}: others can write there: remove it, or set $TMPDIR to a folder of your own")
