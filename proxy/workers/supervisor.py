"""The supervisor of a proxy's workers stands in the server's place: limits, counts and log lines are kept here.

clients ══▶ worker ══▶ brokers        each worker listens on the port itself (SO_REUSEPORT)
              ║ messages
           supervisor: limits, policies, blocks, admin REST, metrics, access log
"""

import asyncio
import contextlib
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Mapping

import structlog

from limiter.limiter import Limiter, Stream
from limiter.workers.quota_server import DeferredRejections
from protocol.endpoint import Endpoint
from proxy.blocking.rules import Key
from proxy.config.model import Config
from proxy.limiter_engine import LimiterEngine
from proxy.observe.access_log import AccessLog
from proxy.runtime import Tasks
from proxy.server import serves_both
from proxy.workers.channel import CertificatesChanged, Hello, Kept, Stop
from proxy.workers.connection import WorkerConnection

FIRST_PAUSE_S = 0.1
"""Seconds before a worker that has ended is replaced for the first time; before each further one twice as many."""
LONGEST_PAUSE_S = 30.0
"""Seconds before a worker is replaced, at most. A worker that has lived for longer is followed by the first pause."""
_GRACE_S = 2.0
"""Seconds in which a worker that is not connected any more may end by itself."""
IDS_APART = 1_000_000
"""Numbers of connections that a process may have given and not reported, as it ended too soon, at most."""
OF_SUPERVISOR = frozenset(
    {
        *("scheduling", "admin", "metrics", "proxy_id", "access_log", "limits"),
        *("admission", "policies", "admin_access", "admin_forward", "blocks", "fleet", "processes"),
    }
)
"""Keys of the configuration that a worker is not told, but for the log's interval: the supervisor acts by them."""


class WorkerProcess:
    """Keeps one worker running: starts its process, and the next one when that ends.

    Args:
        index: The worker's index, from 0.
        engine: The limits and counters of all.
        new_connection: Makes the supervisor's end of the channel.

    Attributes:
        connection: The connection of the running worker.
        up: Set when the worker listens, or has ended before.
        why: The reason why no worker runs, for people; empty as long as none has ended.
    """

    def __init__(
        self, index: int, engine: LimiterEngine, new_connection: Callable[["WorkerProcess"], WorkerConnection]
    ) -> None:
        self.index = index
        self.connection: WorkerConnection | None = None
        self.up = asyncio.Event()
        self.why = ""
        self._engine = engine
        self._new_connection = new_connection
        self._tasks = Tasks()
        self._listen = engine.config.listen
        self._process: Process | None = None
        self._gone = asyncio.Event()
        self._killing: asyncio.TimerHandle | None = None
        self._ended = asyncio.Event()
        self._is_ending = False
        self._next_id = index + 1

    @property
    def is_up(self) -> bool:
        """True if there is a worker that listens."""
        return self.connection is not None and self.connection.is_listening

    async def start(self, listen: tuple[Endpoint, ...]) -> None:
        """Have a worker listen at these endpoints from now on."""
        self._listen = listen
        self._tasks.start(self._keep(), f"worker {self.index}")

    async def stop(self, patience_s: float) -> None:
        """End the worker, after what its sessions still have to send."""
        self._is_ending = True
        process = self._process
        if self.connection is not None:
            self.connection.channel.send([Stop()])
        if process is None:
            self._tasks.cancel()
            return
        try:
            await asyncio.wait_for(self._ended.wait(), patience_s + _GRACE_S)
        except TimeoutError:
            self._kill()
            await self._ended.wait()

    def cut_off(self) -> None:
        """End a worker that sends nothing any more, unless it ends by itself."""
        self._gone.set()
        self._killing = asyncio.get_running_loop().call_later(_GRACE_S, self._kill)

    def silent(self) -> None:
        """Kill a worker that hangs; only another one can serve its clients."""
        structlog.get_logger().error("worker does not answer", worker=self.index)
        self._kill()

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _keep(self) -> None:
        pause, log = 0.0, structlog.get_logger()
        while not self._is_ending:
            began = time.monotonic()
            how = await self._employ()
            if self._is_ending:
                break
            self.why = _in_words(how)
            self.up.set()
            self._engine.counters.workers_lost += 1
            pause = next_pause(pause, time.monotonic() - began)
            log.error("worker ended", worker=self.index, **how, next_in_s=pause)
            await asyncio.sleep(pause)
        self._ended.set()

    async def _employ(self) -> dict[str, object]:
        """Run one worker from its start to its end; return how it ended."""
        try:
            process = self._process = await self._start_process()
        except OSError as error:  # the system has no room for another process or connection: later it may
            return {"error": repr(error)}
        code = await process.wait()
        await self._gone.wait()
        self._process = None
        self._let_go()
        return {"code": code}

    def _let_go(self) -> None:
        """Give up the connection of a worker that has ended, once all that it sent is heard."""
        if self._killing is not None:
            self._killing.cancel()
            self._killing = None
        connection, self.connection = self.connection, None
        if connection is not None:
            self._next_id = self._following(connection.last_id)
            self._engine.sessions.discard(connection)
            connection.write_off()

    async def _start_process(self) -> Process:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        try:
            with theirs:
                # -P: what lies in the working directory must not be taken for our packages.
                command = (sys.executable, "-P", "-m", "proxy.workers.worker", str(theirs.fileno()))
                process = await asyncio.create_subprocess_exec(
                    *command, stdin=DEVNULL, pass_fds=(theirs.fileno(),), start_new_session=True
                )
            await self._greet(ours)
        except BaseException:  # also when the proxy ends meanwhile
            ours.close()
            raise
        return process

    async def _greet(self, ours: socket.socket) -> None:
        self._gone.clear()
        connection = self._new_connection(self)
        await asyncio.get_running_loop().create_unix_connection(lambda: connection.channel, sock=ours)
        self.connection = connection
        config = self._engine.config.model_copy(update={"listen": self._listen})
        connection.channel.send(
            [Hello(told(config), self.index, self._next_id, config.workers), connection.bounds(), *connection.kept()]
        )
        connection.expect()
        self._engine.sessions.add(connection)
        for rule in self._engine.blocklist.rules.all():
            connection.rule_added(rule)
        self._tasks.start(self._watch(connection), f"worker {self.index} comes up")

    async def _watch(self, connection: WorkerConnection) -> None:
        await connection.ready.wait()
        self.up.set()

    def _following(self, last_id: int) -> int:
        """Return the first connection number of the next worker here; other workers have the numbers between."""
        if last_id == 0:
            return self._next_id
        return last_id + IDS_APART * self._engine.config.workers


def told(config: Config) -> str:
    """Return the part of a configuration that a worker gets, as JSON."""
    names = Config.model_fields.keys() - OF_SUPERVISOR
    return config.model_dump_json(include={"access_log": {"interval"}, **dict.fromkeys(names, True)})


def next_pause(pause: float, lived_s: float) -> float:
    """Return the seconds before the next worker; `pause` were waited for the last one (0: it was the first)."""
    if pause == 0 or lived_s > LONGEST_PAUSE_S:
        return FIRST_PAUSE_S
    return min(2 * pause, LONGEST_PAUSE_S)


def _in_words(how: Mapping[str, object]) -> str:
    if "error" in how:
        return f"no process can be had for it: {how['error']}"
    return f"it ended with code {how['code']}; the lines before this one say why"


START_S = 30.0
"""Seconds in which workers have to come up."""
_ANSWER_S = 0.25
"""Seconds for which a reader of counts waits for a worker that does not answer."""


STEP = 65_536
"""Bytes by which that of an address is another before the workers are told: they would be told of each limiter else."""


class LimiterMemory:
    """Counts the bytes that limiters keep for each client address, and which addresses owe too much.

    Each worker counts its part as taken of its own `client_memory`, so that the parts add up to the whole.

    Args:
        workers: How many parts there are.
        owes_too_much: Says of an address whether it may open no more streams; see `limiter.registry.LimiterCache`.
        tell: Sends a message to every worker.
    """

    def __init__(self, workers: int, owes_too_much: Callable[[str], bool], tell: Callable[[Kept], None]) -> None:
        self._workers = workers
        self._owes_too_much = owes_too_much
        self._tell = tell
        self._owing: set[str] = set()
        self._of: dict[str, int] = {}
        self._told: dict[str, int] = {}

    def add(self, address: str, more: int) -> None:
        """Add bytes (or subtract: negative) that are kept for clients at `address`."""
        size = self._of.get(address, 0) + more
        if size:
            self._of[address] = size
        else:
            self._of.pop(address, None)
        told, owes = self._told.get(address, 0), self._owes_too_much(address)
        if abs(size - told) < STEP and (size or not told) and owes is (address in self._owing):
            return
        self._told[address] = size
        if not size:
            del self._told[address]
        (self._owing.add if owes else self._owing.discard)(address)
        self._tell(self._message(address))

    def messages(self) -> list[Kept]:
        """Return what a new worker is to be told."""
        return [self._message(address) for address in {*self._told, *self._owing}]

    def _message(self, address: str) -> Kept:
        return Kept(address, self._told.get(address, 0) // self._workers, address in self._owing)


class Supervisor:
    """Starts the workers of a proxy, and keeps them running.

    Args:
        engine: The limits and counters of all.
        access: The access log of all.
    """

    def __init__(self, engine: LimiterEngine, access: AccessLog) -> None:
        self._engine = engine
        self._access = access
        self._deferred = DeferredRejections(engine.rate_limiter, self._recall)
        self._workers = [WorkerProcess(index, engine, self._new_connection) for index in range(engine.config.workers)]
        self._memory = LimiterMemory(engine.config.workers, engine.registry.owes_now, self._tell)
        self._reserved: list[socket.socket] = []
        engine.registry.report_to(self._wired, self._tuned)
        engine.kept = self._memory.add
        engine.blocklist.removed = self._unblocked
        engine.admission.changed = self._bounds_changed

    async def start(self) -> str:
        """Start all; returns each address on which they listen, with the port that the system chose for port 0.

        Raises:
            OSError: If an address cannot be had, or a worker does not come up.
        """
        listen = self._engine.config.listen
        reserved = []
        for endpoint in listen:
            self._reserved.append(_reserve(endpoint, is_of_both=serves_both(endpoint, listen)))
            host, port = self._reserved[-1].getsockname()[:2]
            reserved.append(Endpoint(endpoint.scheme, host, port))
        await asyncio.gather(*(worker.start(tuple(reserved)) for worker in self._workers))
        for worker in self._workers:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(worker.up.wait(), START_S)
            if not worker.is_up:
                why = worker.why or f"it is not there within {START_S:g} s"
                await self.stop(0)
                raise OSError(f"worker {worker.index} does not come up: {why}")
        return ", ".join(endpoint._replace(port=at.port).address for endpoint, at in zip(listen, reserved, strict=True))

    async def stop(self, patience_s: float) -> None:
        """Have all workers end their sessions, and wait for what is left to be sent."""
        await asyncio.gather(*(worker.stop(patience_s) for worker in self._workers))
        reserved, self._reserved = self._reserved, []
        for each in reserved:
            each.close()

    def certificates_changed(self) -> None:
        """Have all workers read the files of TLS again, which have just been read here."""
        for connection in self._connections():
            connection.channel.send([CertificatesChanged()])

    async def settle(self) -> None:
        """Have all workers report what they have counted, because the counts are about to be read."""
        told = [worker.connection.ask() for worker in self._workers if worker.connection is not None]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(one.wait() for one in told)), _ANSWER_S)

    def _new_connection(self, worker: WorkerProcess) -> WorkerConnection:
        return WorkerConnection(
            self._engine, self._access, self._deferred, worker.cut_off, worker.silent, self._memory.messages
        )

    def _connections(self) -> list[WorkerConnection]:
        return [worker.connection for worker in self._workers if worker.connection is not None]

    def _tell(self, message: Kept) -> None:
        for connection in self._connections():
            connection.channel.send([message])

    def _recall(self, limiter: Limiter) -> None:
        for connection in self._connections():
            connection.quota_server.recall(limiter)

    def _tuned(self, limiter: Limiter, now: int) -> None:
        for connection in self._connections():
            connection.quota_server.tuned(limiter, now)

    def _wired(self, stream: Stream, now: int) -> None:
        for connection in self._connections():
            connection.quota_server.wired(stream, now)

    def _unblocked(self, key: Key) -> None:
        for connection in self._connections():
            connection.rule_removed(key)

    def _bounds_changed(self) -> None:
        for connection in self._connections():
            connection.channel.send([connection.bounds()])


def _reserve(endpoint: Endpoint, *, is_of_both: bool) -> socket.socket:
    """A socket that is bound and does not listen: the port stays this proxy's while workers come and go."""
    family, kind, proto, _, address = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)[0]
    reserved = socket.socket(family, kind, proto)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _say_which(reserved, is_of_both=is_of_both)
        _refuse_strangers(family, address, is_of_both=is_of_both)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(address)
    except OSError:
        reserved.close()
        raise
    return reserved


def _say_which(of_ipv6: socket.socket, *, is_of_both: bool) -> None:
    """Have a socket of IPv6 take IPv4 as well, or not; else the system decides."""
    if of_ipv6.family == socket.AF_INET6:
        of_ipv6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not is_of_both)


def _refuse_strangers(family: int, address: tuple[object, ...], *, is_of_both: bool) -> None:
    """Refuse a port that another proxy of the same user listens at and would share: each would let its limits through.

    Without SO_REUSEPORT the port cannot be had while anybody listens there.
    """
    if address[1] == 0:
        return
    with socket.socket(family, socket.SOCK_STREAM) as alone:
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _say_which(alone, is_of_both=is_of_both)
        alone.bind(address)
