"""One worker process: serves clients, and leaves to its supervisor whatever concerns other workers, too."""

import asyncio
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any

import structlog
import uvloop

from limiter.levels import Client, Topic
from limiter.limiter import Answering, Entry, Stream
from limiter.workers.messages import Message, QuotaVerdict
from limiter.workers.quota_client import QuotaClient, WorkerPermits
from proxy.blocking.blocklist import Order
from proxy.blocking.rules import Key, Kind
from proxy.config.model import Config, ConfigError
from proxy.observe.connection import Connection
from proxy.observe.counters import Counters
from proxy.observe.log_lines import LineSpan
from proxy.observe.operator_log import set_up_operator_log
from proxy.runtime import Searches, Tasks, keep_for_ever, paused_collector, set_up_runtime
from proxy.server import Server
from proxy.session.engine import Engine
from proxy.session.events import SessionEnd, SessionLog
from proxy.session.session_admission import SessionAdmission
from proxy.session.transport import Cause, PeerTransport
from proxy.workers.admission_server import AdmissionClient, WorkerSessionAdmission
from proxy.workers.channel import (
    Admitted,
    BlockAdded,
    BlockRemoved,
    Bounds,
    CertificatesChanged,
    Channel,
    Down,
    Ended,
    Growth,
    Hello,
    Here,
    Hit,
    Kept,
    Knock,
    NotAdmitted,
    Ready,
    Refused,
    Resumed,
    Stop,
    Stretch,
    Tell,
    Told,
    Whose,
)


class RemoteLog:
    """The access log of a worker's sessions: sends their lines to the supervisor as messages.

    It stands in the place of the access log and of the clock of spans.

    Args:
        tell: Takes each message.
    """

    def __init__(self, tell: Callable[[Message], None]) -> None:
        self._tell = tell

    def span_since(self, started_at: int) -> LineSpan:
        """Return the span from a monotonic moment until now."""
        wall, now = time.time_ns(), time.monotonic_ns()
        return LineSpan(wall - (now - started_at), wall, now - started_at)

    def connection(self, span: LineSpan, connection: Connection, *, detail: str, **end: Any) -> None:
        """Tell of a connection that ended."""
        self._tell(Ended(whose_of(connection), _stretch(span), detail=detail, **end))

    def throttle(self, span: LineSpan, connection: Connection, side: str, cause: str) -> None:
        """Tell of a reason not to read that ended."""
        self._tell(Resumed(whose_of(connection), _stretch(span), side, cause))


class WorkerLog(SessionLog):
    """The session log of a worker, which also reports that there is something to count.

    Args:
        counters: The worker's.
        log: Gets the lines.
        counted: Called when something was counted.
    """

    def __init__(self, counters: Counters, log: RemoteLog, counted: Callable[[], None]) -> None:
        super().__init__(counters, log, log)
        self._counted = counted

    def opened(self, connection: Connection) -> None:
        """Count a client that connected."""
        super().opened(connection)
        self._counted()

    def role_found(self, connection: Connection, role: str) -> None:
        """Count the connection by its role, which its CONNECT tells."""
        super().role_found(connection, role)
        self._counted()

    def throttle_changed(self, connection: Connection, side: str, cause: Cause, *, is_raised: bool, now: int) -> None:
        """Count a reason not to read that came or went."""
        super().throttle_changed(connection, side, cause, is_raised=is_raised, now=now)
        self._counted()

    def ended(self, connection: Connection, end: SessionEnd, bytes_read: tuple[int, int], started_at: int) -> None:
        """Count and tell a connection that ended."""
        super().ended(connection, end, bytes_read, started_at)
        self._counted()


def whose_of(connection: Connection) -> Whose:
    """Return a connection's description for messages."""
    return (
        connection.connection_id,
        connection.client_address,
        connection.client_version,
        connection.client_role,
        connection.role,
        connection.broker,
        connection.is_tls,
        connection.role_is_proved,
    )


def _stretch(span: LineSpan) -> Stretch:
    return span.start_wall, span.end_wall, span.duration


class WorkerRegistry:
    """The registry of streams in a worker, an `Enrolment`: passes openings and ends on to the quota client.

    Args:
        quota_client: The quota client, which is told.
    """

    def __init__(self, quota_client: QuotaClient) -> None:
        self._quota_client = quota_client
        self._owing: set[str] = set()

    def open(self, stream: Stream, topic: Topic, now: int, client: Client) -> None:  # noqa: ARG002 - as Enrolment
        """Open a stream of `topic`."""
        whose = stream.connection
        assert isinstance(whose, Connection), "streams of a worker belong to its connections"
        told = (whose.connection_id, whose.client_address, whose.client_version, whose.client_role, whose.is_tls)
        self._quota_client.open(stream, topic.full, told)

    def meter(self, stream: Stream, grant: Callable[[int], None]) -> None:
        """Make an open stream a consumer's; `grant` passes its permits on."""
        stream.permits = WorkerPermits(stream, self._quota_client)
        self._quota_client.meter(stream, grant)

    def answer(self, stream: Stream, answering: Answering) -> None:
        """Make an open stream a producer's."""
        self._quota_client.answer(stream, answering)

    def name(self, stream: Stream, producer_name: str, now: int) -> None:  # noqa: ARG002 - as Enrolment
        """Note the name that the broker gave a producer."""
        if stream.name.producer_name != producer_name:
            stream.name = replace(stream.name, producer_name=producer_name)
            self._quota_client.name(stream, producer_name)

    def when_decided(self, streams: Iterable[Stream], then: Callable[[], None]) -> None:
        """Call `then` once limits hold the held entries of these streams."""
        self._quota_client.when_decided(streams, then)

    def close(self, stream: Stream, now: int) -> list[Entry]:
        """Close a stream; return the entries that it held."""
        stream.is_open = False
        return self._quota_client.close(stream, now)

    def owes(self, address: str, *, too_much: bool) -> None:
        """Note whether clients at an address owe too much, as the supervisor says."""
        (self._owing.add if too_much else self._owing.discard)(address)

    def owes_too_much(self, address: str, now: int) -> bool:  # noqa: ARG002 - as Enrolment
        """Return whether the supervisor has said so of the address."""
        return address in self._owing


class WorkerEngine(Engine):
    """The engine of a worker: what outlives its sessions, with the limits elsewhere.

    Args:
        config: A worker's own part of it; without limits and blocks, which come from the supervisor.
        counters: The counters of the data path.
        quota_client: The rate limiter of the worker's sessions.
        admission_client: Asks the supervisor for admission.
    """

    registry: WorkerRegistry

    def __init__(
        self, config: Config, counters: Counters, quota_client: QuotaClient, admission_client: AdmissionClient
    ) -> None:
        super().__init__(config, counters)
        self.registry = WorkerRegistry(quota_client)
        self.rate_limiter = quota_client
        self._admission_client = admission_client

    def session_admission(self, connection: Connection, client: PeerTransport) -> SessionAdmission:
        """Return the admission of a session, which asks the supervisor."""
        return WorkerSessionAdmission(self._admission_client, connection, self.refusals, client)


def share_of(config: Config, index: int) -> Config:
    """Return one worker's part of a configuration: counted bounds are divided, and add up to the configured ones.

    Args:
        config: Of all.
        index: The worker's index, from 0.
    """

    def share(whole: int) -> int:
        return max(1, whole // config.workers + (index < whole % config.workers))

    publish = config.publish.model_copy(update={"hold_total": share(config.publish.hold_total)})
    lookups = share(config.max_lookups_in_flight)
    memory = config.client_memory.model_copy(update={"total": share(config.client_memory.total)})
    return config.model_copy(update={"max_lookups_in_flight": lookups, "publish": publish, "client_memory": memory})


BEFORE_BOUNDARY_NS = 20_000_000
"""Counts are told this long before each boundary of an interval, so that its lines have them."""
_LONGEST_NS = 1_000_000_000


class Worker:
    """Serves clients from the supervisor's `Hello` until its `Stop`, or until the supervisor is gone.

    Args:
        ended: Called when there is nothing left to do.
    """

    def __init__(self, ended: asyncio.Event) -> None:
        self.channel: Channel[Down] = Channel(Down, self._heard, ended.set)
        self._ended = ended
        self._counters = Counters()
        self._growth = Growth(self._counters)
        self._log = RemoteLog(self._tell)
        self._messages: list[Message] = []
        self._admission = AdmissionClient(self._ask)
        self._is_waking = False
        self._reporting: asyncio.TimerHandle | None = None
        self._kept: dict[str, int] = {}
        self._elsewhere = (0, 0, 0, 0, 0)
        self._tasks = Tasks()
        self._reading = asyncio.Lock()
        self._quota_client: QuotaClient
        self._engine: WorkerEngine
        self._server: Server

    def soon(self) -> None:
        """Send messages at the end of this turn of the loop."""
        if not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._flush)

    def sometime(self) -> None:
        """Report counts before the next boundary of an interval."""
        if self._reporting is None:
            left = self._interval_ns - (time.time_ns() + BEFORE_BOUNDARY_NS) % self._interval_ns
            self._reporting = asyncio.get_running_loop().call_later(left / 1e9, self._report_in_time)

    def _tell(self, message: Message) -> None:
        self._ask(message)
        self.sometime()

    def _ask(self, message: Message) -> None:
        self._messages.append(message)
        self.soon()

    def _heard(self, message: Down) -> None:
        match message:
            case Hello():
                self._set_up(message)
                self._tasks.start(self._or_end(self._start()), "start")
            case BlockAdded() | BlockRemoved() | CertificatesChanged():
                self._change(message)
            case Bounds() | Admitted() | NotAdmitted():
                self._admit(message)
            case Kept():
                self._keep(message)
            case Tell():
                self._report()
                self.channel.send([Told()])
            case Knock():
                self.channel.send([Here()])
            case Stop():
                self._tasks.start(self._or_end(self._stop()), "stop")
            case _:
                self._obey(message)

    def _change(self, message: BlockAdded | BlockRemoved | CertificatesChanged) -> None:
        if isinstance(message, CertificatesChanged):
            self._tasks.start(self._read_certificates(), "read certificates")
        else:
            self._block(message)

    async def _read_certificates(self) -> None:
        """Put in force what can be read; what cannot be read here waits for the next change."""
        verifier = self._engine.identity
        async with self._reading:
            for reader in (*self._engine.tls.readers(), *(verifier.readers() if verifier else ())):
                try:
                    take = await asyncio.to_thread(reader.read)
                except ConfigError as error:
                    for problem in error.problems:
                        structlog.get_logger().error("certificates not reloaded", problem=problem)
                else:
                    take()

    def _block(self, message: BlockAdded | BlockRemoved) -> None:
        kind, name, within = message.key
        order = Order(message.reason, message.since_ns) if isinstance(message, BlockAdded) else None
        self._engine.blocklist.put(Key(Kind(kind), name, within), order, quietly=True)
        if order is not None:
            self.sometime()

    def _keep(self, message: Kept) -> None:
        self._engine.registry.owes(message.address, too_much=message.owes)
        self._engine.memory.add(message.address, message.size - self._kept.pop(message.address, 0))
        if message.size:
            self._kept[message.address] = message.size

    def _admit(self, message: Bounds | Admitted | NotAdmitted) -> None:
        """Take an answer about admission; whatever goes wrong with one client, all others go on."""
        try:
            self._admission.heard(message)
        except Exception:  # noqa: BLE001 - whatever it is
            structlog.get_logger().exception("an answer about admission could not be handled")

    def _obey(self, verdict: QuotaVerdict) -> None:
        """Obey a verdict; whatever goes wrong with one entry that leaves, all other streams go on."""
        try:
            self._quota_client.obey(verdict, self._engine.clock())
        except Exception:  # noqa: BLE001 - whatever it is
            structlog.get_logger().exception("a verdict of the quota server could not be obeyed")

    def _set_up(self, hello: Hello) -> None:
        """Make the server's parts before anything else is heard: the next message needs them."""
        whole = Config.model_validate_json(hello.config)
        config = share_of(whole, hello.index)
        self._interval_ns = min(round(config.access_log.interval * 1e9), _LONGEST_NS)
        self._quota_client = QuotaClient(
            self, tells_all=not config.dispatch.dispatchThrottlingOnNonBacklogConsumerEnabled
        )
        self._engine = WorkerEngine(config, self._counters, self._quota_client, self._admission)
        structlog.contextvars.bind_contextvars(worker=hello.index)
        log = WorkerLog(self._counters, self._log, self.sometime)
        self._server = Server(self._engine, log, (hello.first_id, hello.step))

    async def _start(self) -> None:
        await self._server.start()
        self.channel.send([Ready()])

    async def _stop(self) -> None:
        await self._server.stop(self._engine.config.linger)
        self._report()
        self.channel.close()
        self._ended.set()

    async def _or_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Do `work`, or end: a worker that cannot do its work makes room for the next one."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - whatever it is
            structlog.get_logger().exception("worker cannot go on", error=repr(error))
            self._ended.set()

    def _flush(self) -> None:
        self._is_waking = False
        messages, self._messages = self._messages, []
        messages += self._quota_client.take()
        if messages:
            self.channel.send(messages)

    def _report_in_time(self) -> None:
        self._reporting = None
        if self._report():
            self.sometime()

    def _report(self) -> bool:
        """Report everything; return whether there was anything."""
        messages, self._messages = self._messages, []
        messages += self._quota_client.report()
        messages += [
            Refused(whose_of(refused.connection), refused.reason, refused.topic, refused.detail, refused.refused)
            for refused in self._engine.refusals.take()
        ]
        hits = self._engine.blocklist.hits
        messages += [Hit((str(key.kind), key.name, key.within), times) for key, times in hits.items() if times]
        hits.clear()
        counted = self._growth.take(self._others())
        if counted is not None:
            messages.append(counted)
        self.channel.send(messages)
        return bool(messages) or not self._quota_client.is_at_rest

    def _others(self) -> dict[str, int]:
        lookups, memory = self._engine.lookups, self._engine.memory
        now = self._engine.held.memory, lookups.used, lookups.refused, memory.used, memory.refused
        before, self._elsewhere = self._elsewhere, now
        names = ("held_used", "lookups_used", "lookups_refused", "memory_used", "memory_refused")
        return {name: one - other for name, one, other in zip(names, now, before, strict=True)}


def main(fd: int) -> None:
    """Serve until the supervisor says so, or is gone."""
    set_up_operator_log()
    set_up_runtime()
    uvloop.run(_serve(socket.socket(fileno=fd)))


async def _serve(connection: socket.socket) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, _supervisor_decides)
    with paused_collector():
        worker = Worker(ended)
        await loop.create_unix_connection(lambda: worker.channel, sock=connection)
        keep_for_ever()
    with Searches(loop.call_soon_threadsafe).at_work():
        await ended.wait()


def _supervisor_decides() -> None:
    """Ignore a signal: service managers signal all processes, and the supervisor decides who ends when."""


if __name__ == "__main__":
    main(int(sys.argv[1]))
