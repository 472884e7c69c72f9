"""The link between a member's policies and the topic that all members share: one change of a policy holds in all.

    request ─▶ checked ─▶ topic ─▶ every member: in its store, and in force ─▶ the answer, in the member that was asked

A member reads the compacted topic from its start whenever it connects. Then it sends a *mark*, a message without
content. When the mark comes back, the member has heard all earlier messages. It makes its store equal to the topic, and
puts each later change in force. While it is away, the policies in its store hold, and none can be changed:

    away ─connected─▶ behind: reads the topic ─its mark is back─▶ makes the store the same ─▶ in step
      ▲                                                                                        │
      └──────────────────────── the connection or the topic has ended ─────────────────────────┘
"""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from random import uniform
from typing import Final, Literal, NamedTuple, TypeVar

import structlog

from protocol.pulsar_pb2 import CommandCloseConsumer, CommandSubscribe, CommandSuccess
from proxy.brokers.dialing import BrokerDialer
from proxy.bulk import PIECE, let_go
from proxy.degraded import Degraded
from proxy.fleet.link import LinkCounts
from proxy.fleet.pulsar_connection import Auth, BrokerClient, BrokerConnection, TopicConsumer, TopicEntry, TopicProducer
from proxy.observe.operator_log import ThrottledLog
from proxy.policies.bodies import BodyError
from proxy.policies.keys import PolicyKey, Principal
from proxy.policies.service import NotCarriedError, PolicyService
from proxy.policies.store import StoredChange, StoreError
from proxy.policies.topic_log import (
    DELETED_STAY_S,
    FOUNDED,
    MOST_CHANGE,
    BadChangeError,
    PolicyLog,
    TopicChange,
    founding,
    new_mark,
)
from proxy.slices import Slices, Work, letting_go

KEEPER: Final = "sluice-policies"
"""A durable subscription without a reader. While it exists, brokers neither delete nor trim the topic."""
PATIENCE_S: Final = 5.0
"""Seconds in which a change must come back, and 5 ms more for each change that is sent with it."""
MARK_S: Final = 2.0
"""Seconds after which another mark is sent: a compaction may have removed the first mark before it was read."""
AGAIN_S: Final = 1.0
"""Seconds after which a failed write of the store is repeated."""
SLOW_S: Final = 0.05
"""Seconds after which a message is sent again to a broker that has not read the earlier ones yet."""
CLEAR_S: Final = 600.0
"""Seconds between two rounds that clear changes which other members left behind, at least; twice as many at most."""
MOST_CLEARED: Final = 1000
"""Slots that one round clears, at most."""
MOST_IN_PART: Final = 2000
"""Changes of one request that are on their way at the same time, at most."""
_AT_ONCE: Final = 50
"""Changes that are proposed, or sent, in one turn of the loop; to propose one takes 40 µs."""
_LOOKED_AT: Final = 50
"""Policies that are compared in one unit of work; each takes 1 to 2 µs."""
MOST_PART_BYTES: Final = 2 << 20
"""About how many bytes of changes are on their way: the change that exceeds this is the last."""
MOST_MARKS: Final = 8
"""Marks of one task that may come back, at most: the latest ones."""
REREAD_S: Final = 60.0
"""Seconds between two readings of the topic over one connection, at least."""
_MOST_NAMED: Final = 5
T = TypeVar("T")
_FROM_STORE = Principal("store", "")
_FROM_TOPIC = Principal("topic", "")
TopicState = Literal["away", "behind", "in_step"]


def _what_makes_room_first(changes: Iterable[StoredChange]) -> list[StoredChange]:
    return sorted(changes, key=lambda each: each.after is not None)


class LastChange(NamedTuple):
    """The latest change that was heard and holds: `position` is its ledger and entry."""

    key: PolicyKey
    change: TopicChange
    position: tuple[int, int]


class _Part(NamedTuple):
    """Changes that are sent at the same time.

    Attributes:
        sent: Policy, slot and message of each change.
        conflicts: The number of further changes, which are not sent as they are in conflict.
    """

    sent: list[tuple[PolicyKey, str, bytes]]
    conflicts: int


class _Client(BrokerClient):
    """A client of the brokers that calls `on_failure` when the topic could not be opened."""

    def __init__(
        self,
        dialer: BrokerDialer,
        auth: Auth | None,
        name: str,
        on_failure: Callable[[], None],
    ) -> None:
        super().__init__(dialer, auth, name, MOST_CHANGE)
        self._on_failure = on_failure

    def failed(self, error: Exception) -> None:
        super().failed(error)
        self._on_failure()


class _Reader(TopicConsumer):
    """The consumer of the topic. Before it reads, it makes sure of the durable subscription `KEEPER`."""

    async def open(self, connection: BrokerConnection) -> None:
        keeper = self.client.next_id()
        await connection.request(
            CommandSubscribe(
                topic=self.topic,
                subscription=KEEPER,
                sub_type=CommandSubscribe.Shared,
                consumer_id=keeper,
                initial_position=CommandSubscribe.Earliest,
            ),
            CommandSuccess,
        )
        connection.send_command(CommandCloseConsumer(consumer_id=keeper, request_id=connection.next_request()))
        await super().open(connection)


class _Writer(TopicProducer):
    """The producer to the topic; `is_ready` is set while it is open."""

    def __init__(self, client: BrokerClient, topic: str) -> None:
        super().__init__(client, topic)
        self.is_ready = asyncio.Event()

    async def open(self, connection: BrokerConnection) -> None:
        await super().open(connection)
        self.is_ready.set()

    def closed(self) -> None:
        self.is_ready.clear()
        super().closed()


class PolicyTopic:
    """Carries the changes of a member's policies to all members, and theirs to it.

    Args:
        topic: The topic: `persistent://tenant/namespace/name`.
        dialer: Connects to the configured brokers, which are asked first, and to brokers that they name.
        auth: The credentials that brokers are shown; None: none.
        member: The member's name.
        service: The member's policies, which change only by the topic from now on.
        slices: Compares the policies of the topic with those of the store, some in each turn of the loop.
        wall: Nanoseconds since 1970.
        is_of_one_proxy: Whether only the processes of one proxy follow the topic. While the proxy had one process, its
            changes were in its store alone: they hold then, and not the older ones on the topic.

    Attributes:
        log: The changes that were heard since this member last began to read the topic from its start.
        dropped: Changes that were not taken, by cause. Cause `body`: the change holds, and this member cannot read it.
        conflicts: Changes of this member that do not hold, as another member's change of the same policy was first.
        last: The latest change that was heard and holds; None before the first.
        position: The latest message's ledger and entry; None before the first.
        problem: Why the topic is not reached, and the remedy; empty if it is.
    """

    def __init__(
        self,
        topic: str,
        dialer: BrokerDialer,
        auth: Auth | None,
        member: str,
        service: PolicyService,
        slices: Slices,
        wall: Callable[[], int] = time.time_ns,
        *,
        is_of_one_proxy: bool = False,
    ) -> None:
        self.topic = topic
        self._is_of_one_proxy = is_of_one_proxy
        self.dropped: Counter[str] = Counter()
        self._share = service.store.room.share
        self.log = PolicyLog(self.dropped, self._share)
        self.conflicts = 0
        self.last: LastChange | None = None
        self.position: tuple[int, int] | None = None
        self.problem = "not connected yet"
        self._member, self._service, self._wall = member, service, wall
        self._slices = slices
        self._client = _Client(dialer, auth, member, self._failed)
        self._reader = _Reader(self._client, topic, self._heard, self._begins, self._ends, from_start=True)
        self._writer = _Writer(self._client, topic)
        self._is_complete = False
        """Whether this member has heard all messages that were on the topic when it began to read."""
        self._began, self._news, self._in_step = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._marks: dict[str, asyncio.Future[None]] = {}
        self._pending: dict[str, asyncio.Future[bool]] = {}
        """Changes of this member that have not come back, by slot. The result says whether the change holds."""
        self._changed: dict[PolicyKey, None] = {}
        """Policies whose latest change is yet to come into force, in the order of the changes."""
        self._unreadable: dict[PolicyKey, None] = {}
        """Policies with a change that holds and that this member cannot read: its store has the earlier one."""
        self._waiting: list[tuple[asyncio.Future[bool], bool]] = []
        """Futures that wait until all policies in `_changed` are in force, and the result that each gets then."""
        self._lost_at = 0.0
        """The time at which this member last ceased to be in step, by the loop's clock."""
        self._reread_at = -REREAD_S
        self._warnings = ThrottledLog(time.monotonic_ns)
        self._trouble = ""
        """Why changes that were heard are not in force here; empty if they are."""
        service.carry_by(self)

    @property
    def state(self) -> TopicState:
        """Whether this member hears and sends changes: `away`: no; `behind`: after it has read the topic; `in_step`."""
        if not (self._reader.is_open and self._writer.is_ready.is_set()):
            return "away"
        return "in_step" if self._in_step.is_set() else "behind"

    def degraded(self) -> Iterator[Degraded]:
        """Yield the states in which policies here may differ from those of other members."""
        if self.state != "in_step" and asyncio.get_running_loop().time() - self._lost_at >= PATIENCE_S:
            remedy = self._client.remedy(self.topic)
            why = self.problem.removesuffix(f"; {remedy}") or "its history is still being read"
            yield Degraded(
                "policies_cut_off",
                f"policies do not follow {self.topic}: {why}; the store's policies hold, and changes get 503",
                remedy or "see that brokers are reached; sluice fleet says how far this member has read",
            )
        if self._trouble:
            yield Degraded(
                "policies_not_in_force",
                "changes of other members are not in force here: the store takes none",
                "see the disk of policies.store; the log has the error",
            )
        elif self._unreadable:
            yield Degraded(
                "policies_not_in_force",
                f"{len(self._unreadable)} policies cannot be read here, and keep their earlier values",
                "give all members the same version of Sluice; the log names the policies",
            )
        if self.log.is_partial:
            yield Degraded(
                "policies_full",
                f"{self.topic} has more changes than a member keeps, and further ones are refused",
                "see which roles may write there, and take policies back",
            )

    @property
    def counts(self) -> LinkCounts:
        """Totals of the messages that the link to the brokers has carried."""
        return self._client.counts

    def dropped_messages(self) -> Counter[str]:
        """Return the number of messages that were not taken, by cause."""
        return self.dropped + self.counts.dropped

    async def start(self) -> None:
        """Begin to connect. Return before anything is connected."""
        self._lost_at = asyncio.get_running_loop().time()
        for run in (self._reader.run, self._writer.run, self._ask, self._keep_up, self._clear):
            self._client.tasks.start(run)

    async def stop(self) -> None:
        """End: no connection, task or timer is left. Requests that wait for a change get a `NotCarriedError`."""
        await self._client.stop()
        self._lost_at = -PATIENCE_S
        for outcome in (*self._pending.values(), *(waiting for waiting, _ in self._waiting)):
            if not outcome.done():
                outcome.set_exception(self._not_seen())
                outcome.exception()  # marks it as retrieved: the request that waited may be gone

    # ---- called for requests to this member

    async def catch_up(self) -> None:
        """Return when all changes are in force here that any member sent before this call.

        Raises:
            NotCarriedError: If this takes too long; nothing has changed.
        """
        await self._reached()
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    await self._in_step.wait()
                    if await self._mark(self.log):
                        break
                await self._in_force()
        except TimeoutError:
            if not self._trouble:
                self._reread()
            raise self._not_reached() from None

    async def carry(self, changes: Sequence[StoredChange], author: Principal) -> int:
        """Send changes, and return when they have come back and are in force here.

        Many changes go in parts: a part is sent when the last one has come back. A change is in conflict, and not sent,
        if the policy on the topic is another one than in the change's plan: changes may have been heard that are not
        in force yet. If the topic is full, changes that take a policy back go first, as they make room.

        Returns:
            The number of changes that do not hold, as another change was first.

        Raises:
            BodyError: If a change cannot be sent, and none was.
            NotCarriedError: If the topic is not reached, or a change did not come back in time; its text says which.
        """
        await self._reached()
        if self.log.is_full:
            changes = await asyncio.to_thread(_what_makes_room_first, changes)
        conflicts, rest, was_sent = 0, deque(changes), False
        while rest:
            try:
                part = await self._part(rest, author)
            except BodyError as error:
                if not was_sent:
                    raise
                raise NotCarriedError(f"a part was sent, and holds; of the rest: {error}", was_sent=True) from None
            conflicts += part.conflicts
            if part.sent:
                conflicts += await self._carry(part.sent, was_sent=was_sent)
                was_sent = True
        self.conflicts += conflicts
        if conflicts:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._in_force()
            except TimeoutError:
                raise self._not_seen() if was_sent else self._not_reached() from None
        return conflicts

    async def _reached(self) -> None:
        """Wait until changes can be sent, at most `PATIENCE_S` after the moment at which they no longer could."""
        lost = self._lost_at if not self._in_step.is_set() else asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(lost + PATIENCE_S):
                await self._in_step.wait()
                await self._writer.is_ready.wait()
        except TimeoutError:
            raise self._not_reached() from None

    async def _in_force(self) -> None:
        """Return when all changes are in force that were heard before this call."""
        applied: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((applied, True))
        self._news.set()
        await applied

    async def _part(self, rest: deque[StoredChange], author: Principal) -> _Part:
        sent, conflicts, size = list[tuple[PolicyKey, str, bytes]](), 0, 0
        while rest and size < MOST_PART_BYTES and len(sent) < MOST_IN_PART:
            change = rest.popleft()
            key = change.key
            if key in self._unreadable:
                change = replace(change, before=self.log.body_of(key))
            try:
                proposed = self.log.propose(change, author, self._member, self._wall())
            except BadChangeError as error:
                if sent and error.cause == "full":  # the part before may make room
                    rest.appendleft(change)
                    break
                raise BodyError(str(error)) from None
            conflicts += not proposed
            for slot, message in proposed:
                sent.append((key, slot, message))
                size += len(slot) + len(message)
            if not len(rest) % _AT_ONCE:
                await asyncio.sleep(0)
        return _Part(sent, conflicts)

    async def _carry(self, part: list[tuple[PolicyKey, str, bytes]], *, was_sent: bool) -> int:
        loop, outcomes = asyncio.get_running_loop(), dict[str, asyncio.Future[bool]]()
        try:
            for number, (_, slot, message) in enumerate(part, 1):
                if not number % _AT_ONCE:
                    await asyncio.sleep(0)
                outcomes[slot] = self._pending[slot] = loop.create_future()
                if not self._writer.send(message, slot):
                    if was_sent or len(outcomes) > 1:
                        raise self._not_seen()
                    raise self._not_reached()
            async with asyncio.timeout(PATIENCE_S + len(part) / 200):
                await asyncio.gather(*outcomes.values())
        except TimeoutError:
            if not self._pending.keys().isdisjoint(outcomes):
                self._reread()
            raise self._not_seen() from None
        finally:
            for slot in outcomes:
                self._pending.pop(slot, None)
        lost = [slot for slot, outcome in outcomes.items() if not outcome.result()]
        await self._tidy((key for key, _, _ in part), lost)
        return len(lost)

    async def _tidy(self, changed: Iterable[PolicyKey], lost: Iterable[str]) -> None:
        """Clear the slots of changes that no longer hold, and mark the topic as one with a history.

        Args:
            changed: Policies that were changed: their superseded changes are cleared.
            lost: Slots of changes of this member that did not hold.
        """
        cleared = set(lost)
        for slot in cleared:
            self._writer.send(b"", slot)
        for number, key in enumerate(changed, 1):
            for slot in self.log.superseded(key):
                if slot not in cleared:
                    cleared.add(slot)
                    self._writer.send(b"", slot)
            if not number % _AT_ONCE:
                await asyncio.sleep(0)
        if not self.log.is_founded:
            self._writer.send(founding(self._wall(), self._member), FOUNDED)

    def _not_reached(self) -> NotCarriedError:
        why = self.problem or self._trouble or "its history is still being read"
        return NotCarriedError(f"nothing has changed: {self.topic} (policies.topic): {why}", was_sent=False)

    def _not_seen(self) -> NotCarriedError:
        problem = f"not in force here: {self._trouble}" if self._trouble else "not back in time"
        text = f"sent to {self.topic} (policies.topic), and {problem}: it may hold now, or later; look again"
        return NotCarriedError(text, was_sent=True)

    # ---- from the topic

    def _begins(self) -> None:
        """Called when the consumer begins to read the topic from its start."""
        self._ends()
        before, changed = self.log, self._changed
        self.log = PolicyLog(self.dropped, self._share)
        self._changed, self._unreadable = {}, {}
        self._slices.run(Work.MEMORY, chain(before.let_go(), letting_go(changed)), later=True)
        self._began.set()

    def _ends(self) -> None:
        """Called when the topic is no longer heard."""
        if self._in_step.is_set():
            self._lost_at = asyncio.get_running_loop().time()
        self._is_complete = False
        self._in_step.clear()

    def _heard(self, entry: TopicEntry) -> None:
        self.position = entry.position
        mark = self._marks.get(entry.key)
        if mark is not None and not mark.done():
            mark.set_result(None)
        taken = self.log.take(entry.key, entry.message)
        does_hold = not entry.message  # a tombstone has cleared its slot in any case
        if taken is not None:
            key, change_id = taken
            holding = self.log.holds(key)
            if holding is not None and holding.id == change_id:
                self.last, does_hold = LastChange(key, holding, entry.position), True
            if self._is_complete:
                self._changed[key] = None
                self._news.set()
        elif self.log.is_partial and (times := self._warnings.due("full")):
            structlog.get_logger().error(
                "policies: the topic has more changes than a member keeps, and further ones are refused: see which "
                "roles may write there, and take policies back",
                topic=self.topic,
                times=times,
            )
        outcome = self._pending.pop(entry.key, None) if self._is_complete else None
        if outcome is not None:
            self._waiting.append((outcome, does_hold))
            self._news.set()

    def _reread(self) -> None:
        """Open consumer and producer again: a message did not come back, so one of the two may be broken."""
        now = time.monotonic()
        if now - self._reread_at >= REREAD_S:
            self._reread_at = now
            self._reader.closed()
            self._writer.closed()

    async def _ask(self) -> None:
        """A task: whenever the topic is read from its start, send a mark, and wait until it is back."""
        if self._reader.is_open and not self._is_complete:
            self._began.set()  # this task was started again, and its mark may be lost
        while True:
            await self._began.wait()
            self._began.clear()
            log = self.log
            if await self._mark(log) and self.log is log:
                self._is_complete = True
                self._news.set()

    async def _mark(self, log: PolicyLog) -> bool:
        """Send a mark, and wait until it is back; False if the topic is reread, or no longer heard, before that."""
        heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        marks = list[str]()
        try:
            while self.log is log and self._reader.is_open:
                try:
                    async with asyncio.timeout(MARK_S):
                        await self._writer.is_ready.wait()
                        marks.append(new_mark())
                        self._marks[marks[-1]] = heard
                        if len(marks) > MOST_MARKS:
                            del self._marks[marks.pop(0)]
                        self._writer.send(b"", marks[-1])
                        await asyncio.shield(heard)
                        return self.log is log
                except TimeoutError:
                    continue
            return False
        finally:
            for mark in marks:
                self._marks.pop(mark, None)

    async def _keep_up(self) -> None:
        """A task: put changes in force as they come."""
        self._news.set()  # if this task was started again, changes may be left
        while True:
            await self._news.wait()
            self._news.clear()
            if not self._is_complete:
                continue
            try:
                if not self._in_step.is_set():
                    await self._take_over()
                if self._in_step.is_set():  # else the topic is read again, and what it has is not in force here yet
                    await self._come_into_force()
                self._trouble = ""
            except StoreError as error:
                self._trouble = str(error)
                if times := self._warnings.due("store"):
                    structlog.get_logger().error(
                        "policies: changes on the topic are not in force here", error=self._trouble, times=times
                    )
                await asyncio.sleep(AGAIN_S)
                self._news.set()

    async def _take_over(self) -> None:
        """Make the store equal to the topic. A topic without a history gets the store's policies.

        This takes some turns of the loop, in which the topic may be read again: its log is another one then, and what
        was found out in the one before is not used.
        """
        log, store = self.log, self._service.store
        own = await asyncio.to_thread(lambda: dict(store.policies()))
        if self._is_of_one_proxy and log.is_founded and store.ahead_ns is not None:
            await self._bring_up(log, own, store.ahead_ns)
        is_founded, missing = log.is_founded, dict[PolicyKey, None]()
        await self._choose(own, lambda key: log.holds(key) is None, missing)
        if own and not is_founded and self.log is log:
            await self._found(log, own, missing)
        if store.ahead_ns is not None and self.log is log:
            await asyncio.to_thread(store.follow_topic)
        changed = missing if is_founded else {}
        await self._choose(log.policies(), lambda key: log.body_of(key) != own.get(key), changed)
        await self._with_each(list(self._pending), self._settle)
        if self.log is log and self._is_complete:
            self._come_into_step(changed, is_new_here=bool(own and changed))
        if len(own) > PIECE:
            await asyncio.to_thread(let_go, own)

    async def _found(self, log: PolicyLog, own: dict[PolicyKey, str], missing: dict[PolicyKey, None]) -> None:
        """Give a topic without a history the policies of this member that it lacks, and then mark it as one with."""
        structlog.get_logger().warning(
            "policies: the topic has no history; it gets this member's policies",
            topic=self.topic,
            policies=len(missing),
        )
        given = list[StoredChange]()
        await self._with_each(missing, lambda key: given.append(StoredChange(key, None, own[key])))
        if await self._give(log, given):
            self._writer.send(founding(self._wall(), self._member), FOUNDED)
            await self._mark(log)  # a change before they are back would be one of policies that the topic lacks

    def _come_into_step(self, changed: dict[PolicyKey, None], *, is_new_here: bool) -> None:
        changes_here, first = len(changed), [str(key) for key in islice(changed, _MOST_NAMED)]
        changed.update(self._changed)  # those that were heard meanwhile
        self._changed = changed
        self._in_step.set()
        self.problem = ""
        structlog.get_logger().log(
            logging.WARNING if is_new_here else logging.INFO,
            "policies: in step with the topic",
            topic=self.topic,
            policies=self.log.changes,
            changes_here=changes_here,
            **({"first": first} if is_new_here else {}),
        )

    async def _bring_up(self, log: PolicyLog, own: dict[PolicyKey, str], ahead_ns: int) -> None:
        """Give the topic the store's policies where it has older ones, until they have come back, or it is reread."""
        while self.log is log:
            changes = await self._brought_up(log, own, ahead_ns)
            if self.log is not log or not changes:
                return
            structlog.get_logger().warning(
                "policies: the store has changed since it followed the topic, which gets its policies",
                topic=self.topic,
                policies=len(changes),
                first=[str(change.key) for change in changes[:_MOST_NAMED]],
            )
            if await self._give(log, changes) and await self._mark(log):
                await self._tidy((change.key for change in changes), ())
                return
            await asyncio.sleep(AGAIN_S)

    async def _brought_up(self, log: PolicyLog, own: dict[PolicyKey, str], ahead_ns: int) -> list[StoredChange]:
        """Return the changes that the topic lacks."""
        changes = list[StoredChange]()

        def compare(key: PolicyKey) -> None:
            holding = log.holds(key)
            change = StoredChange(key, None if holding is None else holding.body, own.get(key))
            if change.before != change.after and (holding is None or holding.at_ns <= ahead_ns):
                changes.append(change)

        def compare_new(key: PolicyKey) -> None:
            if key not in own:
                compare(key)

        await self._with_each(own, compare)
        await self._with_each(log.policies(), compare_new)
        return changes

    async def _choose(
        self, keys: Collection[PolicyKey], is_chosen: Callable[[PolicyKey], bool], chosen: dict[PolicyKey, None]
    ) -> None:
        """Add the keys to `chosen` that are to be in it, a few in each turn of the loop."""

        def choose(key: PolicyKey) -> None:
            if is_chosen(key):
                chosen[key] = None

        await self._with_each(keys, choose)

    async def _with_each(self, keys: Collection[T], do: Callable[[T], None]) -> None:
        """Call `do` with each key, a few in each turn of the loop; `keys` must not change meanwhile."""

        def units() -> Iterator[None]:
            for number, key in enumerate(keys, 1):
                do(key)
                if number % _LOOKED_AT == 0:
                    yield

        await self._slices.done(Work.POLICIES, units())

    async def _give(self, log: PolicyLog, changes: Sequence[StoredChange]) -> bool:
        """Write policies of this member's store to the topic; return whether all were sent. If cut short, repeat it."""
        at_ns = self._wall()
        store = self._service.store
        authors = await asyncio.to_thread(
            lambda: {each.key: store.author(each.key) or _FROM_STORE.name for each in changes}
        )
        for number, change in enumerate(changes, 1):
            if not number % _AT_ONCE:
                await asyncio.sleep(0)
            if self.log is not log:
                return False
            try:
                by = Principal(authors[change.key], _FROM_STORE.address)
                proposed = log.propose(change, by, self._member, at_ns)
            except BadChangeError as error:
                structlog.get_logger().error(
                    "policies: a policy stays in this member alone", policy=str(change.key), error=str(error)
                )
                continue
            for slot, message in proposed:  # none for a policy that another member has written
                while not self._writer.send(message, slot):
                    if self.log is not log or not self._writer.is_open:
                        return False
                    await asyncio.sleep(SLOW_S)
        return True

    def _settle(self, slot: str) -> None:
        """Answer a change of this member that was on its way when the connection was lost, if it holds."""
        outcome = self._pending.get(slot)
        if outcome is not None and self.log.is_held(slot):
            del self._pending[slot]
            self._waiting.append((outcome, True))

    async def _come_into_force(self) -> None:
        changed, self._changed = self._changed, {}
        waiting, self._waiting = self._waiting, []
        parts: dict[Principal, dict[PolicyKey, str | None]] = {}

        log = self.log

        def put(key: PolicyKey) -> None:
            body, author = self._on_topic(log, key)
            parts.setdefault(author, {})[key] = body

        try:
            await self._with_each(changed, put)
            if self.log is not log:  # it is empty; whatever differs from the other one comes into force with that
                parts.clear()
                self._waiting, waiting = waiting + self._waiting, []
            for author, changes in parts.items():
                unreadable = await self._service.take(changes, author)
                if self._unreadable:
                    await self._with_each(changes, lambda key: self._unreadable.pop(key, None))
                await self._with_each(unreadable, self._unreadable.setdefault)
                self.dropped["body"] += len(unreadable)
                if unreadable and (times := self._warnings.due("body")):
                    first = [str(key) for key in unreadable[:_MOST_NAMED]]
                    structlog.get_logger().error(
                        "policies: changes on the topic cannot be read here", first=first, times=times
                    )
        except BaseException:
            changed.update(self._changed)
            self._changed = changed
            self._waiting = [each for each in waiting + self._waiting if not each[0].done()]
            raise
        for future, outcome in waiting:
            if not future.done():
                future.set_result(outcome)
        if len(changed) > PIECE:
            await asyncio.to_thread(let_go, [changed, parts])

    def _on_topic(self, log: PolicyLog, key: PolicyKey) -> tuple[str | None, Principal]:
        """Return the body of a policy on the topic, and its author."""
        change = log.holds(key)
        if change is None:
            return None, _FROM_TOPIC
        if change.member == self._member:
            return change.body, change.by
        return change.body, Principal(change.by.name, f"{change.by.address} by {change.member}".strip())

    async def _clear(self) -> None:
        """A task: clear from time to time the changes that members left behind when they ended."""
        while True:
            await asyncio.sleep(CLEAR_S * uniform(1, 2))  # noqa: S311 - so that one member clears, and the others hear it
            if self.state == "in_step":
                now = self._wall()
                before = now - round(CLEAR_S * 1e9), now - DELETED_STAY_S * 10**9
                for slot in self.log.garbage(*before, MOST_CLEARED):
                    self._writer.send(b"", slot)
                if self.log.is_partial and not self.log.is_full:
                    self._reread()

    def _failed(self) -> None:
        self.problem = self._client.problem(self.topic)
