"""One worker: it serves clients, and asks its supervisor whatever concerns others, too."""

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any

import structlog
import uvloop

from limiter.levels import Client, Topic
from limiter.limiter import Answering, Entry, Stream
from limiter.workers.messages import Message, Verdict
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
from proxy.workers.counting import Growth


class RemoteLog:
    """Tells the supervisor as messages what a worker's sessions would write into the access log.

    It stands in the place of the access log, and of what knows the time.

    Args:
        tell: Takes each message.
    """

    def __init__(self, tell: Callable[[Message], None]) -> None:
        self._tell = tell

    def span_since(self, started_at: int) -> LineSpan:
        """From a monotonic moment until now."""
        wall, now = time.time_ns(), time.monotonic_ns()
        return LineSpan(wall - (now - started_at), wall, now - started_at)

    def connection(self, span: LineSpan, connection: Connection, *, detail: str, **end: Any) -> None:
        """A connection ended."""
        self._tell(Ended(whose_of(connection), _stretch(span), detail=detail, **end))

    def throttle(self, span: LineSpan, connection: Connection, side: str, cause: str) -> None:
        """A reason not to read ended."""
        self._tell(Resumed(whose_of(connection), _stretch(span), side, cause))


class WorkerLog(SessionLog):
    """What sessions tell; and that there is something to count.

    Args:
        counters: The worker's.
        log: Gets the lines.
        counted: Called when something was counted.
    """

    def __init__(self, counters: Counters, log: RemoteLog, counted: Callable[[], None]) -> None:
        super().__init__(counters, log, log)
        self._counted = counted

    def opened(self, connection: Connection) -> None:
        """A client connected."""
        super().opened(connection)
        self._counted()

    def role_found(self, connection: Connection, role: str) -> None:
        """Its CONNECT said what it is for."""
        super().role_found(connection, role)
        self._counted()

    def throttle_changed(self, connection: Connection, side: str, cause: Cause, *, is_raised: bool, now: int) -> None:
        """Reading got a reason to stop, or lost it."""
        super().throttle_changed(connection, side, cause, is_raised=is_raised, now=now)
        self._counted()

    def ended(self, connection: Connection, end: SessionEnd, bytes_read: tuple[int, int], started_at: int) -> None:
        """A connection is over."""
        super().ended(connection, end, bytes_read, started_at)
        self._counted()


def whose_of(connection: Connection) -> Whose:
    """A connection, as messages name it."""
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
    """Where streams begin and end: an `Enrolment`.

    Args:
        quota_client: Whom that is told.
    """

    def __init__(self, quota_client: QuotaClient) -> None:
        self._quota_client = quota_client
        self._owing: set[str] = set()

    def open(self, stream: Stream, topic: Topic, now: int, client: Client) -> None:  # noqa: ARG002 - as Enrolment
        """A stream of `topic` begins."""
        whose = stream.connection
        assert isinstance(whose, Connection), "streams of a worker belong to its connections"
        told = (whose.connection_id, whose.client_address, whose.client_version, whose.client_role, whose.is_tls)
        self._quota_client.open(stream, topic.full, told)

    def meter(self, stream: Stream, grant: Callable[[int], None]) -> None:
        """A stream that has been opened is a consumer."""
        stream.permits = WorkerPermits(stream, self._quota_client)
        self._quota_client.meter(stream, grant)

    def answer(self, stream: Stream, answering: Answering) -> None:
        """A stream that has been opened is a producer."""
        self._quota_client.answer(stream, answering)

    def name(self, stream: Stream, producer_name: str, now: int) -> None:  # noqa: ARG002 - as Enrolment
        """The broker accepted a producer, and perhaps named it."""
        if stream.name.producer_name != producer_name:
            stream.name = replace(stream.name, producer_name=producer_name)
            self._quota_client.name(stream, producer_name)

    def when_decided(self, streams: Iterable[Stream], then: Callable[[], None]) -> None:
        """Call `then` when what is held of these streams is held by a limit."""
        self._quota_client.when_decided(streams, then)

    def close(self, stream: Stream, now: int) -> list[Entry]:
        """A stream ends. Gives back what it held."""
        stream.is_open = False
        return self._quota_client.close(stream, now)

    def owes(self, address: str, *, too_much: bool) -> None:
        """The supervisor says so of clients at an address."""
        (self._owing.add if too_much else self._owing.discard)(address)

    def owes_too_much(self, address: str, now: int) -> bool:  # noqa: ARG002 - as Enrolment
        """Whether the supervisor has said so."""
        return address in self._owing


class WorkerEngine(Engine):
    """What sessions use in a worker, with its limits elsewhere: the parts of a worker that outlive a session.

    Args:
        config: A worker's own part of it; without limits and blocks, which come from the supervisor.
        counters: What the data path counts into.
        quota_client: The gate.
        admission_client: Who asks whether somebody may come in.
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
        """What a session asks whether its client, its lookups and its streams may come in."""
        return WorkerSessionAdmission(self._admission_client, connection, self.rejects, client)


def share_of(config: Config, index: int) -> Config:
    """One worker's part of what all may do together: what is counted is divided, so that the sum is what is configured.

    Args:
        config: Of all.
        index: Which worker, from 0.
    """

    def share(whole: int) -> int:
        return max(1, whole // config.workers + (index < whole % config.workers))

    publish = config.publish.model_copy(update={"hold_total": share(config.publish.hold_total)})
    lookups = share(config.max_lookups_in_flight)
    memory = config.client_memory.model_copy(update={"total": share(config.client_memory.total)})
    return config.model_copy(update={"max_lookups_in_flight": lookups, "publish": publish, "client_memory": memory})


BEFORE_BOUNDARY_NS = 20_000_000
"""So long before each boundary of an interval counts are told, so that its lines have them."""
_LONGEST_NS = 1_000_000_000


class Worker:
    """Started by the supervisor's `Hello`, ended by its `Stop` or its end.

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
        """Somebody waits for what there is to tell."""
        if not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._flush)

    def sometime(self) -> None:
        """Something is to be counted: before the next boundary at the latest."""
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
        """What the supervisor could read is in force here, too; else, until the next change, what was."""
        async with self._reading:
            try:
                takes = await asyncio.to_thread(self._read_again)
            except ConfigError as error:
                for problem in error.problems:
                    structlog.get_logger().error("certificates not reloaded", problem=problem)
            else:
                for take in takes:
                    take()

    def _read_again(self) -> list[Callable[[], None]]:
        verifier = self._engine.identity
        return [self._engine.tls.read_again(), *([] if verifier is None else [verifier.read_again()])]

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
        """Whatever goes wrong with one client, all others go on."""
        try:
            self._admission.heard(message)
        except Exception:  # noqa: BLE001 - whatever it is
            structlog.get_logger().exception("who waited to be let in was not served as he should be")

    def _obey(self, verdict: Verdict) -> None:
        """Whatever goes wrong with one entry that leaves, all other streams go on."""
        try:
            self._quota_client.obey(verdict, self._engine.clock())
        except Exception:  # noqa: BLE001 - whatever it is
            structlog.get_logger().exception("a held entry did not leave as it should")

    def _set_up(self, hello: Hello) -> None:
        """At once: whatever is said next, there is somebody to hear it."""
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
        """A worker that cannot do what it is for makes room for the next one."""
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
        """Tell all; whether there was anything."""
        messages, self._messages = self._messages, []
        messages += self._quota_client.report()
        messages += [
            Refused(whose_of(reject.connection), reject.reason, reject.topic, reject.detail, reject.rejected)
            for reject in self._engine.rejects.take()
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
    """Service managers signal all processes of a service at once; who is to end when, the supervisor knows."""
