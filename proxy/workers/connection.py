"""The supervisor's side of one worker: turns its messages into what they would have been in one process."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import structlog

from limiter.limiter import Stream, StreamName
from limiter.workers.messages import Closed, Message, Opened
from limiter.workers.quota_server import DeferredRejections, QuotaServer, hear
from protocol.topic_name import parse_topic
from proxy.blocking.blocklist import EndedByRule
from proxy.blocking.rules import Key, Kind, Rule
from proxy.limiter_engine import LimiterEngine
from proxy.observe.access_log import AccessLog
from proxy.observe.connection import Connection, client_of
from proxy.observe.log_lines import LineSpan
from proxy.workers.admission_server import AdmissionServer
from proxy.workers.channel import (
    Accepted,
    BlockAdded,
    BlockRemoved,
    Bounds,
    Channel,
    Counted,
    Ended,
    Enter,
    Here,
    Hit,
    Kept,
    Knock,
    Left,
    Ready,
    Refused,
    Resumed,
    Sums,
    Tell,
    Told,
    Up,
    Whose,
)

CALM_S = 30.0
"""Seconds of silence after which a worker is probed."""
PATIENCE_S = 10.0
"""Seconds that a probed worker has for an answer."""
URGENT_S = 1.0
"""As `CALM_S`, where other workers wait: releases that the worker has not confirmed fill the buckets of all workers."""
URGENT_PATIENCE_S = 3.0
"""As `PATIENCE_S`, where other workers wait."""
ASKED_AT_MOST = 3
"""Probes without an answer, each within that patience, after which a worker counts as hanging. One would not do: the
supervisor may have stood still itself, and then looks at the time before it reads the answer."""


class LivenessProbe:
    """Detects a worker that hangs, which would keep its clients and loans for ever.

    Asks for a sign of life, but only while it matters and nothing else is heard; else there is no timer.

    Args:
        ask: Sends the worker a probe.
        matters: Returns whether anything waits for the worker.
        presses: Returns whether other workers wait for it; when that begins, call `hurry`.
        silent: Called when the worker does not answer.
    """

    def __init__(
        self,
        ask: Callable[[], None],
        matters: Callable[[], bool],
        presses: Callable[[], bool],
        silent: Callable[[], None],
    ) -> None:
        self._ask = ask
        self._matters = matters
        self._presses = presses
        self._silent = silent
        self._is_urgent = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_heard = False
        self._asked = 0

    @property
    def is_at_rest(self) -> bool:
        """True if there is no timer."""
        return self._timer is None

    def heard(self) -> None:
        """Note that the worker sent something, or begins."""
        self._is_heard = True
        if self._timer is None or self._asked:
            self._begin()

    def watch(self) -> None:
        """Begin to probe: an answer of the worker is awaited from now on."""
        if self._timer is None:
            self._begin()

    def hurry(self) -> None:
        """Probe urgently: other workers' clients wait for this worker."""
        if not self._is_urgent:
            self._is_urgent, self._is_heard = True, False
            self._look_in(URGENT_PATIENCE_S if self._asked else URGENT_S)

    def stop(self) -> None:
        """End probing: the worker will send nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._asked, self._is_heard = 0, False
        self._look_later()

    def _look_later(self) -> None:
        self._is_urgent = self._presses()
        self._look_in(URGENT_S if self._is_urgent else CALM_S)

    def _look_in(self, seconds: float) -> None:
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._matters():
            self._asked, self._is_urgent = 0, False
        elif self._is_heard:
            self._is_heard = False
            self._look_later()
        elif self._asked < ASKED_AT_MOST:
            self._asked += 1
            self._look_in(URGENT_PATIENCE_S if self._is_urgent else PATIENCE_S)
            self._ask()
        else:
            self._silent()


_NOW = ("held_used", "lookups_used", "memory_used")
_ELSEWHERE = (*_NOW, "lookups_refused", "memory_refused")
"""Numbers of a worker that are no fields of `Counters`."""


class WorkerConnection:
    """Decides, counts and logs for one worker.

    Args:
        engine: The limits and counters of all.
        access: The access log, for the lines of the worker's connections.
        deferred: The deferred rejections, which all workers' quota servers share.
        lost: Called when nothing more is heard of the worker, which need not have ended yet; `write_off` is for when
            it has.
        silent: Called when the worker hangs.
        kept: Returns what limiters keep for clients, which the worker counts from its start on.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what its Args say
        self,
        engine: LimiterEngine,
        access: AccessLog,
        deferred: DeferredRejections,
        lost: Callable[[], None],
        silent: Callable[[], None],
        kept: Callable[[], list[Kept]] = list,
    ) -> None:
        self.quota_server = QuotaServer(engine.registry, engine.rate_limiter, self._soon, deferred)
        self._admission_server = AdmissionServer(engine.admission, self._soon)
        self.channel: Channel[Up] = Channel(Up, self._heard, self._lost)
        self.ready = asyncio.Event()
        """Set when the worker listens, or is gone."""
        self.is_listening = False
        self.last_id = 0
        """The highest number of a connection that it has told of."""
        self._engine = engine
        self._access = access
        self._when_lost = lost
        self._kept = kept
        self._sums = Sums(engine.counters)
        self._elsewhere = dict.fromkeys(_ELSEWHERE, 0)
        self._connections: dict[int, Connection] = {}
        self._streams_of: dict[int, int] = {}
        self._connection_of: dict[int, int] = {}
        self._liveness = LivenessProbe(lambda: self.channel.send([Knock()]), self._is_owing, self._is_pressing, silent)
        self._is_waking = False
        self._is_gone = False
        self._questions: list[asyncio.Event] = []

    def expect(self) -> None:
        """Begin to probe the worker, which has just been started."""
        self._liveness.heard()

    def write_off(self) -> None:
        """Give up all that a worker had, because it has ended: lent tokens count as used, clients are gone.

        Not before: as long as it lives it may pass what it was lent, whatever is heard of it.
        """
        lost = self.quota_server.lose(self._engine.clock())
        if any(lost):
            structlog.get_logger().warning("tokens lent to a worker are lost", messages=lost[0], bytes=lost[1])
        self._admission_server.lose()
        self._sums.lose()
        for name in _NOW:
            self._add_elsewhere(name, -self._elsewhere[name])

    def rule_added(self, rule: Rule, _ended: EndedByRule | None = None) -> Iterator[None]:
        """Tell the worker of a blocking rule; the worker logs what the rule ends."""
        self.channel.send([BlockAdded(_told(rule.key), rule.reason, rule.since_ns, rule.origin)])
        return iter(())

    def rule_removed(self, key: Key) -> None:
        """Tell the worker of a blocking rule that is lifted."""
        self.channel.send([BlockRemoved(_told(key))])

    def bounds(self) -> Bounds:
        """Return the message that tells the worker the bounds in force."""
        return Bounds(sorted(self._engine.admission.in_force))

    def kept(self) -> list[Kept]:
        """Return the messages that tell a new worker what limiters keep for clients."""
        return self._kept()

    def ask(self) -> asyncio.Event:
        """Have the worker report all that it has counted; the event is set when it has."""
        told = asyncio.Event()
        if self._is_gone:
            told.set()
        else:
            self._questions.append(told)
            self._liveness.watch()
        self.channel.send([Tell()])
        return told

    def _is_owing(self) -> bool:
        """Return whether clients, a question or a loan wait for the worker."""
        if not self.is_listening or self._questions:
            return True
        return self._sums.connections > 0 or not self.quota_server.is_at_rest

    def _is_pressing(self) -> bool:
        """Return whether releases are unconfirmed: their tokens are missing to all workers."""
        return self.quota_server.awaits_confirmation

    def _heard(self, message: Up) -> None:
        self._liveness.heard()
        handler = self._HANDLERS.get(type(message))
        if handler is not None:
            handler(self, message)
        else:
            hear(self.quota_server, message, self._engine.clock())  # type: ignore[arg-type]

    def _closed(self, message: Closed) -> None:
        self.quota_server.close(message.stream, self._engine.clock())
        self._forget(message.stream)

    def _opened(self, message: Opened) -> None:
        topic, connection = parse_topic(message.topic), self._connection(message)
        name = StreamName(
            "publish" if message.direction == "publish" else "dispatch",
            topic.tenant,
            topic.namespace,
            topic.full,
            message.stream_id,
            producer_name=message.producer_name,
            subscription=message.subscription,
            consumer_name=message.consumer_name,
        )
        by_entry = name.direction == "dispatch" and self._engine.dispatch_rules.by_entry
        stream = Stream(name, (), _nothing, connection, by_entry=by_entry)
        self.quota_server.open(message.stream, stream, topic, client_of(name, connection), self._engine.clock())

    def _connection(self, message: Opened) -> Connection:
        """Return the connection of a stream; all streams of one connection share it."""
        number, address, version, role, is_tls = message.whose
        self.last_id = max(self.last_id, number)
        self._connection_of[message.stream] = number
        self._streams_of[number] = self._streams_of.get(number, 0) + 1
        known = self._connections.get(number)
        if known is None:
            is_proved = self._engine.identity is not None  # else the worker would not have let it in
            known = self._connections[number] = Connection(
                number, address, version, role, "data", is_tls=is_tls, role_is_proved=is_proved
            )
        return known

    def _forget(self, stream: int) -> None:
        number = self._connection_of.pop(stream, None)
        if number is None:
            return
        self._streams_of[number] -= 1
        if self._streams_of[number] == 0:
            del self._streams_of[number], self._connections[number]

    def _counted(self, message: Counted) -> None:
        self._sums.add(message)
        for name in _ELSEWHERE:
            more = message.numbers.get(name, 0)
            self._elsewhere[name] += more
            self._add_elsewhere(name, more)

    def _add_elsewhere(self, name: str, more: int) -> None:
        if name == "held_used":
            self._engine.held.hold_elsewhere(more)
            return
        of, what = name.split("_")
        pool = self._engine.lookups if of == "lookups" else self._engine.memory
        if what == "used":
            pool.used_elsewhere(more)
        else:
            pool.refused += more
            if of == "memory" and more > 0:
                self._engine.registry.make_room(self._engine.clock())

    def _ended(self, message: Ended) -> None:
        connection = _connection(message.whose)
        self.last_id = max(self.last_id, connection.connection_id)
        self._access.connection(
            LineSpan(*message.span),
            connection,
            end_cause=message.end_cause,
            detail=message.detail,
            bytes_from_client=message.bytes_from_client,
            bytes_from_broker=message.bytes_from_broker,
        )

    def _resumed(self, message: Resumed) -> None:
        self._access.throttle(LineSpan(*message.span), _connection(message.whose), message.side, message.cause)

    def _refused(self, message: Refused) -> None:
        self._engine.refusals.note(
            _connection(message.whose), message.reason, message.topic, message.detail, times=message.times
        )

    def _hit(self, message: Hit) -> None:
        kind, name, within = message.key
        key = Key(Kind(kind), name, within)
        if self._engine.blocklist.rules.get(key) is not None:  # else it was lifted meanwhile
            self._engine.blocklist.hits[key] += message.times

    def _enter(self, message: Enter) -> None:
        self._admission_server.asked(message)

    def _accepted(self, message: Accepted) -> None:
        self._admission_server.accepted(message)

    def _left(self, message: Left) -> None:
        self._admission_server.left(message)

    def _is_ready(self, _message: Ready) -> None:
        self.is_listening = True
        self._engine.counters.workers_running += 1
        self.ready.set()

    def _told_all(self, _message: Told) -> None:
        if self._questions:
            self._questions.pop(0).set()

    def _is_there(self, _message: Here) -> None:
        """Do nothing: hearing the worker was all."""

    def _soon(self) -> None:
        if not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._is_waking = False
        messages: list[Message] = self.quota_server.take() + self._admission_server.take()
        if messages:
            self.channel.send(messages)
        if self.quota_server.awaits_confirmation and not self._is_gone:
            self._liveness.hurry()

    def _lost(self) -> None:
        """Handle the end of the channel, once all that the worker sent has been heard."""
        self._is_gone = True
        self._liveness.stop()
        self._engine.counters.workers_running -= self.is_listening
        self.is_listening = False
        for told in self._questions:
            told.set()
        self.ready.set()
        self._when_lost()

    _HANDLERS: dict[type, Callable[["WorkerConnection", Any], None]] = {  # noqa: RUF012 - one table for all
        Opened: _opened,
        Closed: _closed,
        Counted: _counted,
        Ended: _ended,
        Resumed: _resumed,
        Refused: _refused,
        Hit: _hit,
        Enter: _enter,
        Accepted: _accepted,
        Left: _left,
        Ready: _is_ready,
        Told: _told_all,
        Here: _is_there,
    }


def _connection(whose: Whose) -> Connection:
    number, address, version, client_role, role, broker, is_tls, role_is_proved = whose
    return Connection(number, address, version, client_role, role, broker, is_tls=is_tls, role_is_proved=role_is_proved)


def _told(key: Key) -> tuple[str, str, str]:
    return str(key.kind), key.name, key.within


def _nothing(_stream: object, _entry: object) -> None:
    """Do nothing: the quota server replaces this."""
