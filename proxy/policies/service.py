"""The service that keeps policies and puts changes into force.

change ─▶ checked ─▶ on disk, with its audit line ─▶ state ─▶ live streams

A thread checks and writes. Then a small change is laid into the state in the loop's own thread. A large one is laid by
the other thread into a copy, which replaces the state in one step: no reader ever sees a part of a change.
"""

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Protocol, TypeVar

import structlog

from limiter.levels import Setting
from limiter.policies import Change as PolicyChange
from limiter.policies import Policies
from proxy.bulk import PIECE, in_pieces, in_thread, let_go
from proxy.degraded import Degraded
from proxy.policies.bodies import BodyError
from proxy.policies.held import ValueBefore, held_by, words_after, written
from proxy.policies.keys import BLOCKS, OPERATOR, Layer, PolicyKey, PolicyKind, Principal
from proxy.policies.layers import FilePolicies, Layers
from proxy.policies.state import BeyondError, FormsAfter, Meaning, PolicyState, check_within
from proxy.policies.store import Action, Store, StoredChange, StoreError, differences
from proxy.runtime import paused_collector

Moment = tuple[int, int]
"""Nanoseconds since 1970, and of the monotonic clock."""


class PolicyKindHandler(Protocol):
    """Reads the bodies of one kind of key, which are plain text to the service."""

    def check(self, key: PolicyKey, kept: str | None) -> None:
        """Check that a body could be in force.

        Raises:
            BodyError: If it could not be.
        """

    def held(self, key: PolicyKey, kept: str) -> list[ValueBefore]:
        """Return what is in force for a key; `kept` is the body of a change of it."""

    def load(self, key: PolicyKey, kept: str) -> None:
        """Put a body of an earlier run in force, before the first client connects."""

    def take(self, key: PolicyKey, kept: str | None, author: Principal) -> None:
        """Put a body of an author, which is on disk, in force.

        Must not fail: nothing takes the body off the disk again.
        """


NOTIFIED_AT_ONCE = 20
"""Changes in one turn of the loop: 1 to 2 ms."""
MOST_WAITING = 200_000
"""Changes that may wait for their callback; then the next change waits as well."""


class ChangeNotifier:
    """Calls back for each change that came into force, a few in one turn of the loop.

    Args:
        changed: Called with each change, its author, and the moment at which it came into force.
    """

    def __init__(self, changed: Callable[[StoredChange, Principal, Moment], None]) -> None:
        self._changed = changed
        self._waiting: deque[tuple[deque[StoredChange], Principal, Moment]] = deque()
        self._left = 0
        """Changes that wait."""
        self._notifying: asyncio.Task[None] | None = None

    def notify(self, changes: Sequence[StoredChange], author: Principal, at: Moment) -> None:
        """Call back for changes that came into force: for a few at once, unless earlier ones wait."""
        if changes:
            self._waiting.append((deque(changes), author, at))
        self._left += len(changes)
        if self._notifying is None:
            self._notify_some()
            if self._waiting:
                self._notifying = asyncio.get_running_loop().create_task(self._notify_all())

    async def room(self) -> None:
        """Wait until fewer than `MOST_WAITING` changes wait."""
        if self._left >= MOST_WAITING:
            await self.done()

    async def done(self) -> None:
        """Wait until every change has had its callback."""
        if self._notifying is not None:
            await asyncio.shield(self._notifying)

    async def _notify_all(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(0)
                self._notify_some()
        finally:
            self._notifying = None

    def _notify_some(self) -> None:
        for _ in range(NOTIFIED_AT_ONCE):
            if not self._waiting:
                break
            changes, author, at = self._waiting[0]
            change = changes.popleft()
            self._left -= 1
            if not changes:
                self._waiting.popleft()
            self._changed(change, author, at)
            structlog.get_logger().info(
                "policy changed",
                policy=str(change.key),
                before=change.before,
                held=change.held,
                after=change.after,
                by=author.name,
                address=author.address,
            )


class NotCarriedError(Exception):
    """A change could not be carried to all members.

    Args:
        reason: Why, and whether the change may still come into force.
        was_sent: Whether it may come into force later.
    """

    def __init__(self, reason: str, *, was_sent: bool) -> None:
        super().__init__(reason)
        self.was_sent = was_sent


class NotAsExpectedError(Exception):
    """A policy is not the one that the change expects to replace; nothing has changed."""


class Carrier(Protocol):
    """Carries changes to all members of a fleet, this one included; they come into force in the carrier's order."""

    async def catch_up(self) -> None:
        """Return when all changes that were sent before are in force here.

        Raises:
            NotCarriedError: If this cannot be found out.
        """

    async def carry(self, changes: Sequence[StoredChange], author: Principal) -> int:
        """Send changes, and return when they have come back and are in force here.

        Returns:
            How many were refused, as another member's change was first; that change is in force here.

        Raises:
            BodyError: If a change cannot be sent at all. Nothing was sent then.
            NotCarriedError: If some change has not come back.
        """


@dataclass(frozen=True, slots=True)
class Expected:
    """The condition on a policy under which it is changed.

    Args:
        key: The key of the policy.
        tags: The policy must have one of these tags (`tag_of`); None: it must be set.
        is_refused: The opposite: the policy must have none of the tags, or not be set.
    """

    key: PolicyKey
    tags: frozenset[str] | None
    is_refused: bool = False

    def check(self, kept: str | None) -> None:
        """Compare the policy with the condition.

        Args:
            kept: The body that is kept under the key.

        Raises:
            NotAsExpectedError: If it does not meet the condition.
        """
        matches = kept is not None if self.tags is None else tag_of(kept) in self.tags
        if matches == self.is_refused:
            raise NotAsExpectedError(f"{self.key.shown}: it is not what was expected; its tag is {tag_of(kept)}")


def tag_of(kept: str | None) -> str:
    """Return a short name of a kept body, the same in all members; `unset` for none."""
    return "unset" if kept is None else hashlib.blake2b(kept.encode(), digest_size=12).hexdigest()


MOST_FOLLOWED = 1_000
"""Changes of another process that may wait until they are in force here."""
MOST_NOTED = 10_000
"""Policies of which it is noted that a change was followed; others are read again when the store comes back."""
MOST_ATTEMPTS = 20
"""Attempts to send a change of a policy that other members change at the same time; then it is refused."""
MOST_BODY = 16 * 1024
"""Characters of a body, at most: a block with the longest names has 12,000."""
LAID_AT_ONCE = 100
"""Values that are laid in one turn of the loop: 1 ms."""
TAKEN_AT_ONCE = 20
"""Bodies that handlers take in one turn of the loop: 1 ms."""
Planner = Callable[[], Awaitable[Mapping[PolicyKey, str | None]]]
"""Plans a change: returns the new bodies."""
T = TypeVar("T")


async def _at_once() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Around:
    """The callbacks around a change.

    Args:
        before: Called before values change, so that no line of the access log mixes two values. Returns the moment of
            the change: nanoseconds since 1970, and of the monotonic clock.
        after: Called after they changed, with the changes and the monotonic moment; of a large change, with the
            directions only.
        changed: Called with each change, its author, and the moment at which it came into force; for a large change
            over several turns of the loop.
        handlers: The handlers of policies that are no limits; for these alone, neither `before` nor `after` is called.
        ready: Awaited before `before`, until the access log has no line to make that should come before the change's.
        on_degraded: Called when the store begins to refuse changes, and when it takes one again.
    """

    before: Callable[[], Moment]
    after: Callable[[list[PolicyChange], int], None]
    changed: Callable[[StoredChange, Principal, Moment], None] = lambda _change, _author, _at: None
    handlers: Mapping[PolicyKind, PolicyKindHandler] = field(default_factory=dict)
    ready: Callable[[], Awaitable[None]] = _at_once
    on_degraded: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class _Aside:
    """The contents after a large change.

    Args:
        contents: The policies that come into force.
        changes: The changes for streams: one of the outermost limit for each direction, so that all streams follow.
    """

    contents: PolicyState
    changes: list[PolicyChange]


@dataclass(frozen=True, slots=True)
class _Laying:
    """A change before it comes into force.

    Args:
        lay: Lays it into contents; it cannot fail.
        aside: Contents into which a large change has been laid already.
    """

    lay: Callable[[PolicyState], None]
    aside: _Aside | None


@dataclass(frozen=True, slots=True)
class _Draft:
    """A change that is on disk and not yet in force.

    Args:
        kept: Changes of policies that handlers keep.
        limits: Changes of limits.
        laying: How the changes of limits come into force.
        needless: The meanings of the changes, which are let go once they are in force.
    """

    kept: list[StoredChange]
    limits: list[StoredChange]
    laying: _Laying
    needless: list[Meaning]


class PolicyService(PolicyState):
    """Keeps policies, and puts them in force.

    Args:
        policies: The policies that the limiter reads.
        file: The policies of the configuration file.
        store: The store of the policies that are set at run time.
        around: Called around changes.
        wall: Nanoseconds since 1970.

    Raises:
        StoreError: If the store cannot be read.

    Attributes:
        ending: Set once the service closes: large work in threads ends, unless it is on disk.
    """

    def __init__(
        self,
        policies: Policies,
        file: FilePolicies,
        store: Store,
        around: Around,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        super().__init__(Layers(policies), store)
        self._around, self._wall = around, wall
        self._notifier = ChangeNotifier(around.changed)
        self._carrier: Carrier | None = None
        self._turn = asyncio.Lock()
        self._carrying = asyncio.Lock()
        self.ending = Event()
        self._changing: set[asyncio.Task[Any]] = set()
        self._followed: deque[tuple[StoredChange, Principal]] = deque()
        self._following: asyncio.Task[None] | None = None
        self._as_followed: dict[PolicyKey, int] = {}
        """The hash of each body that was followed since the store was lent; not of more than `MOST_NOTED`."""
        self._is_stored = True
        self.lay_file(file, file.values)
        self.lay(self._kept())
        self.layers.forget_changes()  # they concern no stream yet

    def carry_by(self, carrier: Carrier) -> None:
        """Carry changes to the other members of a fleet from now on; before, they are this process's own."""
        self._carrier = carrier

    @property
    def is_carried(self) -> bool:
        """True if changes also go to other members of a fleet."""
        return self._carrier is not None

    def degraded(self) -> Iterator[Degraded]:
        """Yield the state in which the store refused the latest change, if it did."""
        if not self._is_stored:
            yield Degraded(
                "policies_not_stored",
                "the policy store did not take the latest change: changes get 500, and earlier policies hold",
                "see the log: a full disk, or a file that was replaced; the next change that is stored ends this",
            )

    async def change(
        self, bodies: Mapping[PolicyKey, str | None], author: Principal, expected: Expected | None = None
    ) -> int:
        """Set policies and take them back, all or nothing: on disk first, then in force on live streams.

        With a carrier each policy changes by itself: some may have changed when another could not.

        Args:
            bodies: The new bodies as `proxy.policies.bodies` keeps them; None takes a policy back.
            author: The author, for the audit log.
            expected: The condition under which anything changes.

        Returns:
            The number of policies that changed; a policy with the same body does not count.

        Raises:
            BodyError: If a body cannot be read, or has no room. Nothing has changed then.
            BeyondError: If the author may not make the change. Nothing has changed then.
            StoreError: If the store cannot be written. Nothing has changed then.
            NotAsExpectedError: If the condition is not met. Nothing has changed then.
            NotCarriedError: If it is not known whether all members will have it.
        """
        return await self.rework(lambda: bodies, author, expected)

    async def rework(
        self, plan: Callable[[], Mapping[PolicyKey, str | None]], author: Principal, expected: Expected | None = None
    ) -> int:
        """Change as `change` does, by a plan that is made while no other change is under way.

        With a carrier the plan is made again whenever another member's change was first.
        """

        async def planner() -> Mapping[PolicyKey, str | None]:
            return plan()

        return await self.rework_slowly(planner, author, expected)

    async def rework_slowly(self, plan: Planner, author: Principal, expected: Expected | None = None) -> int:
        """Change as `rework` does, by a plan that takes a while to make."""
        change = self._change(plan, author, expected) if self._carrier is None else self._carry(plan, author, expected)
        # a change on disk comes into force even if the caller hangs up
        return await asyncio.shield(self._awaited_at_end(change))

    def note(self, action: Action, author: Principal) -> asyncio.Task[None]:
        """Write an action into the audit log, and return the task; an action that cannot be written is logged."""
        return self._awaited_at_end(self._note(action, author))

    def _awaited_at_end(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start work that `close` awaits."""
        task = asyncio.get_running_loop().create_task(work)
        self._changing.add(task)
        task.add_done_callback(self._changing.discard)
        return task

    async def _note(self, action: Action, author: Principal) -> None:
        try:
            await asyncio.to_thread(self.store.note, action, self._wall(), author.name, author.address)
        except StoreError as error:
            structlog.get_logger().error(
                "policies: an action is not in the audit log", action=action.kind, by=author.name, error=str(error)
            )

    async def take(self, changes: Mapping[PolicyKey, str | None], author: Principal) -> list[PolicyKey]:
        """Put changes in force that came by the carrier.

        Returns:
            The policies that cannot be read here, and therefore do not change.

        Raises:
            StoreError: If the store cannot be written. Nothing has changed then.
        """

        async def plan() -> Mapping[PolicyKey, str | None]:
            return readable

        readable = changes
        try:
            await self._change(plan, author, None)
        except StoreError:
            raise
        except Exception:  # noqa: BLE001 - no body that a stranger wrote to the topic may keep other changes out
            readable = await asyncio.to_thread(self._readable, changes)
            await self._change(plan, author, None)
        if readable is changes:
            return []
        return await asyncio.to_thread(lambda: [key for key in changes if key not in readable])

    def follow(self, change: StoredChange, author: Principal) -> None:
        """Put a change in force soon that another process has stored, which has the store now.

        A change that cannot be read here, as that process is of a later version, or for which there is no room, is
        logged and not in force.

        Args:
            change: The change; those of one process are to come in their order.
            author: Its author there.
        """
        if len(self._followed) >= MOST_FOLLOWED:
            _log_not_followed(change.key, f"{MOST_FOLLOWED} changes wait")
            return
        self._followed.append((change, author))
        if self._following is None:
            self._following = self._awaited_at_end(self._follow())

    async def _follow(self) -> None:
        try:
            while self._followed:
                await self._notifier.room()
                async with self._turn:
                    author, changes = self._followed[0][1], list[StoredChange]()
                    while self._followed and self._followed[0][1] == author:
                        changes.append(self._followed.popleft()[0])
                    await self._put_in_force(await asyncio.to_thread(self._followed_draft, changes), author)
        finally:
            self._following = None

    def _followed_draft(self, changes: Sequence[StoredChange]) -> _Draft:
        draft = self._read_by_another(changes)
        for change in (*draft.limits, *draft.kept):
            if len(self._as_followed) < MOST_NOTED or change.key in self._as_followed:
                self._as_followed[change.key] = hash(change.after)
        for owner, more in differences([*draft.limits, *draft.kept]).items():
            self.store.room.add(owner, *more)
        return draft

    async def come_back(self, author: Principal) -> None:
        """Put in force what another process has stored while it had the store, as far as that was not followed.

        Args:
            author: The author of these changes, for the log.

        Raises:
            StoreError: If the store cannot be read.
        """
        if self._following is not None:
            await self._following
        async with self._turn:
            await self._put_in_force(await asyncio.to_thread(self._missed), author)
            self._as_followed.clear()

    def _missed(self) -> _Draft:
        followed, changed = self._as_followed, self.store.changed_while_lent()
        missed = [StoredChange(key, None, kept) for key, kept in changed.items() if followed.get(key) != hash(kept)]
        return self._read_by_another(missed)

    def _read_by_another(self, changes: Sequence[StoredChange]) -> _Draft:
        readable, meanings = list[StoredChange](), list[Meaning]()
        for change in changes:
            try:
                meaning = self._check(change.key, change.after)
            except (BodyError, ValueError) as error:
                _log_not_followed(change.key, str(error))
                continue
            readable.append(change)
            if meaning is not None:
                meanings.append(meaning)
        return self._draft(readable, meanings)

    async def look(self, look: Callable[[PolicyState], T]) -> T:
        """Read the policies in a thread, while no change is under way.

        Args:
            look: Reads the policies; all that it reads is of the same moment.
        """
        async with self._turn:
            return await asyncio.to_thread(look, self)

    async def take_file(
        self, file: FilePolicies, compare: Callable[[FilePolicies], T], beside: Callable[[T, Moment], None]
    ) -> bool:
        """Put the policies of another file in force.

        Args:
            file: The policies of the other file.
            compare: Called in a thread with the file's present policies; `beside` gets its result.
            beside: Called in the step in which values change, after them, with the moment.

        Returns:
            Whether anything changes.

        Raises:
            BodyError: If a body cannot be read under the other file. Nothing has changed then.
            StoreError: If the store cannot be read. Nothing has changed then.
        """
        async with self._turn:
            seen, laying, needless = await asyncio.to_thread(self._file_drafted, file, compare)
            if laying is None:
                beside(seen, self._now())
                return False
            await self._come_into_force(laying, lambda at: beside(seen, at))
            await asyncio.to_thread(let_go, needless)  # thousands of values, else the loop would free them in one turn
            return True

    async def close(self) -> None:
        """Finish the changes that are on disk, abandon large ones that are not, and close the store."""
        self.ending.set()
        while self._changing:
            await asyncio.wait(self._changing)
        async with self._turn:
            await self._notifier.done()
            await asyncio.to_thread(self.store.close)

    def _kept(self) -> Iterator[Meaning]:
        for key, kept in self.store.policies():
            handler = self._around.handlers.get(key.kind)
            try:
                if handler is None:
                    yield self.meaning(key, kept)
                else:
                    handler.load(key, kept)
            except (BodyError, ValueError) as error:
                raise StoreError(self.store.damaged(f"{key.shown}: {error}")) from None

    def _readable(self, changes: Mapping[PolicyKey, str | None]) -> dict[PolicyKey, str | None]:
        read, readable = dict[PolicyKey, Meaning | None](), dict[PolicyKey, str | None]()
        for key, kept in changes.items():
            with suppress(Exception):
                read[key] = self._check(key, kept)
        forms = FormsAfter(self, [meaning for meaning in read.values() if meaning is not None])
        for key, meaning in read.items():
            with suppress(BodyError):
                if meaning is not None:
                    forms.check(meaning)
                readable[key] = changes[key]
        return readable

    def _check(self, key: PolicyKey, kept: str | None) -> Meaning | None:
        """Return the meaning of a limit's body; None if the body is a handler's, which has checked it."""
        if kept is not None and len(kept) > MOST_BODY:
            raise BodyError(f"{key.shown}: the body has more than {MOST_BODY // 1024} KiB")
        handler = self._around.handlers.get(key.kind)
        if handler is None:
            return self.meaning(key, kept)
        handler.check(key, kept)
        return None

    def _check_of(self, author: Principal, key: PolicyKey, kept: str | None) -> Meaning | None:
        """Check a change, and that its author may make it."""
        meaning = self._check(key, kept)
        if author.tenants is not None:
            check_within(self, meaning, key, author.tenants)
        return meaning

    def _check_forms(self, meanings: Sequence[Meaning]) -> None:
        """Check that changes which are made together leave patterns of few forms."""
        forms = FormsAfter(self, meanings)
        for meaning in meanings:
            forms.check(meaning)

    def _check_room(self, changes: Iterable[StoredChange]) -> None:
        """Check that there is room; with a carrier only for tenants, as the carrier checks its own room."""
        for owner, (policies, size) in differences(changes).items():
            is_more = (policies > 0 or size > 0) and not (self.is_carried and owner in {OPERATOR, BLOCKS})
            problem = self.store.room.problem(owner, policies, size) if is_more else ""
            if problem:
                raise BodyError(problem)

    async def _carry(self, plan: Planner, author: Principal, expected: Expected | None) -> int:
        """Plan by the policies in force here; if they may be out of date, catch up and plan again."""
        carrier, done, is_fresh = self._carrier, 0, False
        assert carrier is not None, "changes are carried"
        async with self._carrying:
            for _ in range(MOST_ATTEMPTS):
                try:
                    changes = await self._planned(plan, author, expected)
                except (StoreError, BodyError, BeyondError):
                    raise
                except Exception:
                    if is_fresh:
                        raise
                    changes = []
                if changes:
                    refused = await carrier.carry(changes, author)
                    done += len(changes) - refused
                    if not refused:
                        return done
                elif is_fresh:
                    return done
                else:
                    await carrier.catch_up()
                is_fresh = True
        raise NotCarriedError("other members keep changing the same policies; try again", was_sent=done > 0)

    async def _planned(self, plan: Planner, author: Principal, expected: Expected | None) -> list[StoredChange]:
        """Return the planned changes that differ from the policies in force."""

        def checked() -> list[StoredChange]:
            meanings = [self._check_of(author, key, kept) for key, kept in bodies.items()]
            self._check_forms([meaning for meaning in meanings if meaning is not None])
            let_go(meanings)
            changes = self._differences(bodies)
            self._check_room(changes)
            return changes

        async with self._turn:
            if expected is not None:
                expected.check(self.store.read(expected.key))
            bodies = await plan()
            return await asyncio.to_thread(checked)

    def _differences(self, bodies: Mapping[PolicyKey, str | None]) -> list[StoredChange]:
        before = {key: self.store.read(key) for key in bodies}
        return [
            StoredChange(
                key,
                before[key],
                kept,
                written(self._held(key, kept or before[key] or "")),
                words_after(self, key, kept, bodies.keys()),
            )
            for key, kept in bodies.items()
            if before[key] != kept
        ]

    def _held(self, key: PolicyKey, kept: str) -> list[ValueBefore]:
        handler = self._around.handlers.get(key.kind)
        return held_by(self, key) if handler is None else handler.held(key, kept)

    async def _change(self, plan: Planner, author: Principal, expected: Expected | None) -> int:
        async with self._turn:
            await self._notifier.room()
            if expected is not None:
                expected.check(self.store.read(expected.key))
            try:
                draft = await in_thread(self.ending, self._drafted, await plan(), author)
            except StoreError as error:
                self._note_stored(error)
                raise
            if draft.kept or draft.limits:
                self._note_stored(None)
            await self._put_in_force(draft, author)
        return len(draft.limits) + len(draft.kept)

    async def _put_in_force(self, draft: _Draft, author: Principal) -> None:
        if not draft.limits:
            self._notifier.notify(draft.kept, author, self._now())
            await self._hand_over(draft.kept, author)
        else:
            try:
                at = await self._come_into_force(draft.laying, lambda at: self._notifier.notify(draft.kept, author, at))
            finally:
                await self._hand_over(draft.kept, author)
            self._notifier.notify(draft.limits, author, at)
        if len(draft.needless) > PIECE:
            await asyncio.to_thread(let_go, draft.needless)

    def _note_stored(self, error: StoreError | None) -> None:
        if self._is_stored == (error is None):
            return
        self._is_stored = error is None
        if error is not None:
            structlog.get_logger().error("policies: the store takes no change", error=str(error))
        self._around.on_degraded()

    def _drafted(self, bodies: Mapping[PolicyKey, str | None], author: Principal) -> _Draft:
        """Check and prepare all changes, and write them last: a change on disk comes into force."""
        meanings = list[Meaning]()
        with paused_collector():
            for items in in_pieces(bodies.items()):
                for key, kept in items:
                    meaning = self._check_of(author, key, kept)
                    if meaning is not None:
                        meanings.append(meaning)
            self._check_forms(meanings)
            changes = self._differences(bodies)
            if self._carrier is None:  # else the carrier has checked the room
                self._check_room(changes)
            changed = {change.key for change in changes}
            new = [meaning for meaning in meanings if meaning.key in changed]
            if len(new) < len(meanings):
                let_go(meanings)
            draft = self._draft(changes, new)
            if changes:
                self.store.write(changes, self._wall(), author.name, author.address)
            return draft

    def _draft(self, changes: Sequence[StoredChange], meanings: list[Meaning]) -> _Draft:
        handlers = self._around.handlers
        kept_by_handlers = [change for change in changes if change.key.kind in handlers]
        limits = [change for change in changes if change.key.kind not in handlers]
        laying = self._laying(len(meanings), lambda contents: contents.lay(meanings))
        return _Draft(kept_by_handlers, limits, laying, meanings)

    def _file_drafted(
        self, file: FilePolicies, compare: Callable[[FilePolicies], T]
    ) -> tuple[T, _Laying | None, list[Any]]:
        """Compare another file's policies with those in force, and prepare the change.

        Returns:
            The result of `compare`, the change if there is one, and tables that are let go once it is in force.
        """
        with paused_collector():
            seen = compare(self.file)
            changed = self.layers.difference(Layer.FILE, file.values)
            if not changed and self.attaches_as(file):
                return seen, None, []
            over = [meaning for target, value in changed.items() for meaning in self.meanings_over(target, value)]
            regrouped = self.regrouped(file)
            file = self.file if self.attaches_as(file) else file  # whose tables stay, and are not freed
            size = len(changed) + len(regrouped)
            laying = self._laying(size, lambda contents: contents.lay_file(file, changed, over, regrouped))
            return seen, laying, [changed, over, regrouped]

    def _laying(self, size: int, lay: Callable[[PolicyState], None]) -> _Laying:
        """Return how `size` values come into force: a large change is laid into a copy of the contents beforehand."""
        if size <= LAID_AT_ONCE:
            return _Laying(lay, None)
        contents = self.copy()
        lay(contents)
        abouts = {change.about for change in contents.layers.changes()}
        return _Laying(lay, _Aside(contents, [PolicyChange(about, Setting.PROXY, "") for about in sorted(abouts)]))

    async def _hand_over(self, changes: list[StoredChange], author: Principal) -> None:
        for number, change in enumerate(changes, 1):
            self._around.handlers[change.key.kind].take(change.key, change.after, author)
            if number % TAKEN_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _now(self) -> Moment:
        return self._wall(), time.monotonic_ns()

    async def _come_into_force(self, laying: _Laying, beside: Callable[[Moment], None]) -> Moment:
        """Lay a change here, or replace the contents by the copy into which it was laid.

        Returns:
            The moment of the change.
        """
        await self._around.ready()
        at = self._around.before()
        try:
            self._lay(laying, at[1])
        finally:  # afterwards: connections that the change ends must end after it
            beside(at)
        if laying.aside is not None:
            await asyncio.to_thread(_dissolve, laying.aside.contents)
        return at

    def _lay(self, laying: _Laying, now: int) -> None:
        if laying.aside is None:
            laying.lay(self)
            self._around.after(self.layers.changes(), now)
        else:
            self.exchange(laying.aside.contents)
            self._around.after(laying.aside.changes, now)


def _log_not_followed(key: PolicyKey, why: str) -> None:
    structlog.get_logger().warning(
        "policy changed in the new process of a takeover alone", policy=key.shown, reason=why
    )


def _dissolve(contents: PolicyState) -> None:
    with paused_collector():
        contents.layers.dissolve()
