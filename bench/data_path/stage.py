"""The stage of measurements: both ends, the peers that run, a real broker for rows that want one; the rounds."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from socket import socket
from typing import TypeVar

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from adminrest.client import AdminError
from bench import meters
from bench.data_path import wire
from bench.data_path.native import Native
from bench.data_path.proxies import HAPROXY_CONFIG, PeerPlan, RunningPeer, Tls, haproxy_command, running
from bench.data_path.wire import LoopbackSink
from bench.harness import BenchError, Found, Progress, Row, Sample, in_rounds, last_line
from loadgen.real.jars import RealPulsarError
from loadgen.real.process import TetheredProcess, free_ports, is_listening, wait_until
from loadgen.real.standalone import StandaloneBroker


class RealBroker(ExitStack):
    """A real broker, which starts when the first peer is asked for and ends with the block, as all peers do.

    Args:
        folder: For everybody's files.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._port: int | None = None
        self._peers: dict[str, RunningPeer] = {}

    def peer(self, plan: PeerPlan) -> RunningPeer:
        """Return the peer before the real broker, which goes on running, as a JVM is slow at first.

        Raises:
            BenchError: If the broker or the peer cannot be had.
        """
        if plan.name not in self._peers:
            self._peers[plan.name] = self.enter_context(running(plan, self._folder, self._broker()))
        return self._peers[plan.name]

    def _broker(self) -> int:
        if self._port is None:
            try:
                broker = self.enter_context(StandaloneBroker(self._folder / "broker"))
            except RealPulsarError as error:
                raise BenchError(f"no real broker: {str(error).splitlines()[0]}") from error
            self._port = broker.service_port
        return self._port


_Result = TypeVar("_Result")
_LOOK_S = 0.1
_AT_REST = 0.02
"""Of a core: more than any peer needs that has nothing to do."""


_ONLY = " ssl-min-ver TLSv1.3 ciphersuites TLS_AES_256_GCM_SHA384"
_SEALING = f" ssl verify required ca-file {{0}}/ca.pem verifyhost localhost no-ssl-reuse{_ONLY}"
_OPENING = f" ssl crt {{0}}/both.pem no-tls-tickets{_ONLY}"


class TlsLines(ExitStack):
    """Lines of peers that have TLS, all with one certificate (ECDSA P-256), one version (1.3), one cipher.

    The ends of a line are as they are without TLS. An HAProxy encrypts before a peer whose clients have TLS, and
    another one decrypts before the sink: their CPU time counts for no peer. They resume no sessions.

    Args:
        folder: For everybody's files.
        sink: Behind all peers whose broker has no TLS.
    """

    def __init__(self, folder: Path, sink: LoopbackSink) -> None:
        super().__init__()
        self._folder = folder
        self._sinks = {False: (sink, sink.port)}
        self._peers: dict[tuple[str, bool, bool], RunningPeer] = {}
        self._files: Path | None = None

    def sink(self, *, broker: bool) -> LoopbackSink:
        """The sink behind peers that reach the broker with TLS, or without."""
        return self._behind(broker=broker)[0]

    def direct(self) -> int:
        """The port of a line with TLS that has no peer in it.

        Raises:
            BenchError: If HAProxy cannot be had.
        """
        return self._sealed("direct", self._behind(broker=True)[1])

    def peer(self, plan: PeerPlan, *, client: bool, broker: bool) -> RunningPeer:
        """The peer with TLS on these legs; its port is the one where a client without TLS comes in.

        Raises:
            BenchError: If it, or HAProxy, cannot be had.
        """
        which = (plan.name, client, broker)
        if which not in self._peers:
            self._peers[which] = self.enter_context(self.started(plan, client=client, broker=broker))
        return self._peers[which]

    @contextmanager
    def started(self, plan: PeerPlan, *, client: bool, broker: bool) -> Iterator[RunningPeer]:
        """Start a peer with TLS on these legs for one measurement."""
        tls = Tls(self._made(), client, broker)
        with running(plan, self._folder, self._behind(broker=broker)[1], tls) as peer, ExitStack() as stack:
            port = stack.enter_context(self._end(peer.port, server=_SEALING)) if client else peer.port
            yield replace(peer, port=port)

    def _sealed(self, name: str, to: int) -> int:
        which = (name, True, True)
        if which not in self._peers:
            port = self.enter_context(self._end(to, server=_SEALING))
            self._peers[which] = RunningPeer(name, port, 0, 0)
        return self._peers[which].port

    def _behind(self, *, broker: bool) -> tuple[LoopbackSink, int]:
        """The sink, and the port by which peers reach it."""
        if broker not in self._sinks:
            (port,) = free_ports(0)
            sink = self.enter_context(LoopbackSink(port))
            self.enter_context(self._end(sink.port, bind=_OPENING, port=port))
            self._sinks[broker] = sink, port
        return self._sinks[broker]

    @contextmanager
    def _end(self, to: int, *, bind: str = "", server: str = "", port: int = 0) -> Iterator[int]:
        """An HAProxy that opens or seals."""
        home = Path(tempfile.mkdtemp(prefix="end", dir=self._folder))
        port, files = port or free_ports(0)[0], self._made()
        config = HAPROXY_CONFIG.format(port=port, to=to, bind=bind.format(files), server=server.format(files))
        (home / "haproxy.cfg").write_text(config)
        command = haproxy_command(home / "haproxy.cfg")
        process = TetheredProcess(command.line, home / "log", command.env)
        try:
            wait_until(lambda: is_listening(port) or process.exit_code is not None, 10.0)
            if process.exit_code is not None:
                raise BenchError(f"an end with TLS does not start: {last_line(process.last_lines())}")
            yield port
        finally:
            process.stop()

    def _made(self) -> Path:
        """Return the folder of an authority and its certificate, made for this run."""
        if self._files is None:
            self._files = Path(tempfile.mkdtemp(prefix="tls", dir=self._folder))
            authority = trustme.CA()
            issued = authority.issue_cert("127.0.0.1", "localhost")
            key = load_pem_private_key(issued.private_key_pem.bytes(), None)
            pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            chain = b"".join(part.bytes() for part in issued.cert_chain_pems)
            parts = {"ca": authority.cert_pem.bytes(), "cert": chain, "key": pem, "both": chain + pem}
            for name, part in parts.items():
                (self._files / f"{name}.pem").write_bytes(part)
                (self._files / f"{name}.pem").chmod(0o600)
        return self._files


@dataclass(frozen=True, slots=True)
class Stage:
    """The surroundings of a measurement.

    Attributes:
        native: What sends and receives.
        sink: The broker behind all peers.
        peers: Those that run all the time, by name.
        plans: How these were started.
        seconds: How long each measurement sends.
        folder: For peers that are started for one measurement.
        real: Makes a peer before a real broker, by its plan; None if the run has none.
        tls: Makes peers with TLS.
    """

    native: Native
    sink: LoopbackSink
    peers: Mapping[str, RunningPeer]
    plans: Mapping[str, PeerPlan]
    seconds: float
    folder: Path
    real: Callable[[PeerPlan], RunningPeer] | None = None
    tls: TlsLines | None = None

    def producers(self, port: int, count: int, streams: int = 1) -> tuple[list[socket], list[socket]]:
        """Open connections through a peer, each with producers on a topic of its own; returns both ends."""
        return self._opened(count, lambda topic: wire.open_producer(topic, port, streams))

    def consumers(self, port: int, count: int) -> tuple[list[socket], list[socket]]:
        """Open connections through a peer, each with a consumer of a topic of its own; returns both ends."""
        return self._opened(count, lambda topic: wire.open_consumer(topic, port))

    def started(self, plan: PeerPlan) -> AbstractContextManager[RunningPeer]:
        """A peer for one measurement."""
        return running(plan, self.folder, self.sink.port)

    def _opened(self, count: int, opened: Callable[[str], socket]) -> tuple[list[socket], list[socket]]:
        here, there = [], []
        for number in range(count):
            here.append(opened(f"persistent://public/default/bench-{number:03}"))
            there.append(self.sink.opened())
            here[-1].settimeout(None)
        return here, there


@contextmanager
def beside(work: Callable[[], _Result]) -> Iterator[Future[_Result]]:
    """Do `work` in a thread while the block runs; the end of the block waits for it, and raises its error."""
    with ThreadPoolExecutor(1) as thread:
        doing = thread.submit(work)
        yield doing
    doing.result()


class CpuClock:
    """CPU seconds and wake-ups of a process, from the moment of its making on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = meters.used(pid)

    def read(self) -> meters.Used:
        """Return the CPU time and memory used since the clock was started."""
        now = meters.used(self._pid)
        return meters.Used(now.cpu_s - self._before.cpu_s, now.wake_ups - self._before.wake_ups)


def settle(pid: int, most_s: float = 10.0) -> None:
    """Wait until a process and its children are idle or have ended, for `most_s` seconds at most.

    Work after one measurement, as for thousands of connections that have ended, must not be part of the next.
    """
    over = time.monotonic() + most_s
    with suppress(OSError):
        while time.monotonic() < over:
            processes = pid, *meters.children(pid)
            clocks = [CpuClock(each) for each in processes]
            time.sleep(_LOOK_S)
            used_s = sum(clock.read().cpu_s for clock in clocks)
            if used_s <= _AT_REST * _LOOK_S and not any(map(meters.is_runnable, processes)):
                return


def close_all(connections: Sequence[socket]) -> None:
    """Close them."""
    for connection in connections:
        connection.close()


DataRow = Row[Callable[[Stage, str], Sample]]
"""A row of the data path: one measurement of the peer with this name."""


def measure(rows: Sequence[DataRow], stage: Stage, rounds: int, progress: Progress) -> Found:
    """Measure each row; return the samples by row name. A failed measurement is reported, and its sample is None.

    Peers take turns, so that other work of the machine affects all alike.
    """

    def play(row: DataRow, number: int) -> Mapping[str, Sequence[Sample | None]]:
        names = [name for name in row.peers if name in stage.plans]
        return {name: [_one(row, stage, name, progress)] for name in _rotated(names, number)}

    return {row.name: in_rounds(row, rounds, partial(play, row), progress, warms_up=row.rounds is None) for row in rows}


def _rotated(names: Sequence[str], by: int) -> list[str]:
    """Rotate the peers: in each round another one begins, as the last finds the machine as the others leave it."""
    turn = by % len(names)
    return [*names[turn:], *names[:turn]]


def _one(row: DataRow, stage: Stage, name: str, progress: Progress) -> Sample | None:
    try:
        return row.measure(stage, name)
    except (BenchError, AdminError, OSError, ZeroDivisionError) as error:
        progress(f"{row.name}: {name} failed: {error or type(error).__name__}")
        return None
    finally:
        if name in stage.peers:
            settle(stage.peers[name].pid)
