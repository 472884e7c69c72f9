"""One worker: it serves clients, and asks its supervisor whatever concerns others, too."""

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

import structlog
import uvloop

from limiter.workers.deputy import Deputy
from limiter.workers.letters import Letter, Verdict
from proxy.blocking.blocklist import Order
from proxy.blocking.rules import Key, Kind
from proxy.config.model import Config, ConfigError
from proxy.observe.counters import Counters
from proxy.observe.operator_log import set_up_operator_log
from proxy.runtime import Searches, Tasks, keep_for_ever, paused_collector, set_up_runtime
from proxy.server import Server
from proxy.workers.channel import Channel
from proxy.workers.counting import Growth
from proxy.workers.far import FarEngine, share_of
from proxy.workers.far_admission import FarAdmission
from proxy.workers.letters import (
    Admitted,
    BlockAdded,
    BlockRemoved,
    Bounds,
    CertificatesChanged,
    Down,
    Hello,
    Here,
    Hit,
    Kept,
    Knock,
    NotAdmitted,
    Ready,
    Refused,
    Stop,
    Tell,
    Told,
)
from proxy.workers.telling import FarLog, WorkerLog, whose_of

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
        self._log = FarLog(self._tell)
        self._letters: list[Letter] = []
        self._admission = FarAdmission(self._ask)
        self._is_waking = False
        self._reporting: asyncio.TimerHandle | None = None
        self._kept: dict[str, int] = {}
        self._elsewhere = (0, 0, 0, 0, 0)
        self._tasks = Tasks()
        self._reading = asyncio.Lock()
        self._deputy: Deputy
        self._engine: FarEngine
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

    def _tell(self, letter: Letter) -> None:
        self._ask(letter)
        self.sometime()

    def _ask(self, letter: Letter) -> None:
        self._letters.append(letter)
        self.soon()

    def _heard(self, letter: Down) -> None:
        match letter:
            case Hello():
                self._set_up(letter)
                self._tasks.start(self._or_end(self._start()), "start")
            case BlockAdded() | BlockRemoved() | CertificatesChanged():
                self._change(letter)
            case Bounds() | Admitted() | NotAdmitted():
                self._admit(letter)
            case Kept():
                self._keep(letter)
            case Tell():
                self._report()
                self.channel.send([Told()])
            case Knock():
                self.channel.send([Here()])
            case Stop():
                self._tasks.start(self._or_end(self._stop()), "stop")
            case _:
                self._obey(letter)

    def _change(self, letter: BlockAdded | BlockRemoved | CertificatesChanged) -> None:
        if isinstance(letter, CertificatesChanged):
            self._tasks.start(self._read_certificates(), "read certificates")
        else:
            self._block(letter)

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

    def _block(self, letter: BlockAdded | BlockRemoved) -> None:
        kind, name, within = letter.key
        order = Order(letter.reason, letter.since_ns) if isinstance(letter, BlockAdded) else None
        self._engine.blocklist.put(Key(Kind(kind), name, within), order, quietly=True)
        if order is not None:
            self.sometime()

    def _keep(self, letter: Kept) -> None:
        self._engine.registry.owes(letter.address, too_much=letter.owes)
        self._engine.memory.add(letter.address, letter.size - self._kept.pop(letter.address, 0))
        if letter.size:
            self._kept[letter.address] = letter.size

    def _admit(self, letter: Bounds | Admitted | NotAdmitted) -> None:
        """Whatever goes wrong with one client, all others go on."""
        try:
            self._admission.heard(letter)
        except Exception:  # noqa: BLE001 - whatever it is
            structlog.get_logger().exception("who waited to be let in was not served as he should be")

    def _obey(self, verdict: Verdict) -> None:
        """Whatever goes wrong with one entry that leaves, all other streams go on."""
        try:
            self._deputy.obey(verdict, self._engine.clock())
        except Exception:  # noqa: BLE001 - whatever it is
            structlog.get_logger().exception("a held entry did not leave as it should")

    def _set_up(self, hello: Hello) -> None:
        """At once: whatever is said next, there is somebody to hear it."""
        whole = Config.model_validate_json(hello.config)
        config = share_of(whole, hello.index)
        self._interval_ns = min(round(config.access_log.interval * 1e9), _LONGEST_NS)
        self._deputy = Deputy(self, tells_all=not config.dispatch.dispatchThrottlingOnNonBacklogConsumerEnabled)
        self._engine = FarEngine(config, self._counters, self._deputy, self._admission)
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
        letters, self._letters = self._letters, []
        letters += self._deputy.take()
        if letters:
            self.channel.send(letters)

    def _report_in_time(self) -> None:
        self._reporting = None
        if self._report():
            self.sometime()

    def _report(self) -> bool:
        """Tell all; whether there was anything."""
        letters, self._letters = self._letters, []
        letters += self._deputy.report()
        letters += [
            Refused(whose_of(reject.connection), reject.reason, reject.topic, reject.detail, reject.rejected)
            for reject in self._engine.rejects.take()
        ]
        hits = self._engine.blocklist.hits
        letters += [Hit((str(key.kind), key.name, key.within), times) for key, times in hits.items() if times]
        hits.clear()
        counted = self._growth.take(self._others())
        if counted is not None:
            letters.append(counted)
        self.channel.send(letters)
        return bool(letters) or not self._deputy.is_at_rest

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
