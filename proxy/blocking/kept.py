"""Blocks that are set at run time, as the policy store keeps them: audited, and there after a restart.

request ─▶ order ─▶ on disk, with its audit line ─▶ blocklist ─▶ live sessions
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from proxy.blocking.blocklist import NOTHING_ENDED, Blocklist, EndedByRule, Order
from proxy.blocking.rules import Key, Rule, read_key, read_reason
from proxy.policies.bodies import BodyError, read_body
from proxy.policies.keys import PolicyKey, PolicyKind, Principal
from proxy.policies.service import PolicyService

FILE = Principal("file", "")
"""Who makes the changes that follow from another configuration file."""


class KeptBlock(msgspec.Struct, frozen=True, omit_defaults=True):
    """An order, as it is kept; `within` is a full topic name or `tenant/namespace`, empty for everywhere."""

    kind: str
    name: str
    within: str = ""
    reason: str = ""
    since_ns: int = 0
    lifts: bool = False

    def key(self) -> Key:
        """Whom it means.

        Raises:
            ValueError: If nobody can be meant so.
        """
        if "://" in self.within:
            return read_key(self.kind, self.name, topic=self.within)
        return read_key(self.kind, self.name, namespace=self.within)

    def order(self) -> Order:
        """What is said of that.

        Raises:
            ValueError: If the reason is not one line.
        """
        return Order(read_reason(self.reason), self.since_ns, self.lifts)


@dataclass(slots=True)
class BlockOutcome:
    """What came of a request to block or unblock.

    Args:
        rule: The one that holds; of an unblocking, the one that held. None: nothing was blocked.
        ended: What that ended.
    """

    rule: Rule | None = None
    ended: EndedByRule = NOTHING_ENDED


class KeptBlocks:
    """What the service asks of blocks.

    Args:
        blocklist: Where they are in force.
    """

    def __init__(self, blocklist: Blocklist) -> None:
        self.blocklist = blocklist
        self.awaited: BlockOutcome | None = None
        """Told what comes of the change under way."""
        self._meant: dict[PolicyKey, Key] = {}

    def check(self, key: PolicyKey, kept: str | None) -> None:
        """A body must be one, and that of its key."""
        if kept is not None:
            _read(key, kept)

    def load(self, key: PolicyKey, kept: str) -> None:
        """Of an earlier run."""
        self._meant[key], order = _read(key, kept)
        self.blocklist.put(self._meant[key], order, quietly=True)

    def take(self, key: PolicyKey, kept: str | None) -> None:
        """Of a request."""
        if kept is None:
            meant, order = self._meant.pop(key), None
        else:
            meant, order = _read(key, kept)
            self._meant[key] = meant
        ended = self.blocklist.put(meant, order)
        if self.awaited is not None:
            self.awaited.ended = ended
            self.awaited.rule = self.blocklist.rules.get(meant) or self.awaited.rule


class BlockDesk:
    """Takes requests to block and unblock.

    Args:
        service: Keeps, audits, and puts in force.
        kept: Is asked by that service.
    """

    def __init__(self, service: PolicyService, kept: KeptBlocks) -> None:
        self._service = service
        self._kept = kept
        self.blocklist = kept.blocklist

    async def block(self, key: Key, reason: str, who: Principal) -> BlockOutcome:
        """Set a rule, and end what it means. One that is there keeps its age, and its reason if none is given.

        Raises:
            TooManyRulesError: If there is no room. Nothing is kept then.
            StoreError: If the store cannot be written. Nothing has changed then.
        """
        outcome = BlockOutcome()

        def plan() -> Mapping[PolicyKey, str | None]:
            order = self.blocklist.order_to_block(key, reason)
            self._kept.awaited, outcome.rule = outcome, self.blocklist.rules.get(key)
            return {kept_key(key): None if order is None else body(key, order)}

        await self._service.rework(plan, who)
        return outcome

    async def unblock(self, key: Key, who: Principal) -> BlockOutcome:
        """Take a rule back; one of the file is lifted.

        Raises:
            StoreError: If the store cannot be written. Nothing has changed then.
        """
        outcome = BlockOutcome()

        def plan() -> Mapping[PolicyKey, str | None]:
            self._kept.awaited, outcome.rule = None, self.blocklist.rules.get(key)
            order = self.blocklist.order_to_unblock(key)
            if outcome.rule is None:
                return {}
            return {kept_key(key): None if order is None else body(key, order)}

        await self._service.rework(plan, who)
        return outcome

    async def forget_needless(self) -> None:
        """What was lifted and does not stand in the file any more would block again if it came back there.

        Raises:
            StoreError: If the store cannot be written.
        """
        await self._service.rework(lambda: {kept_key(key): None for key in self.blocklist.needless()}, FILE)


def kept_key(key: Key) -> PolicyKey:
    """Under what it is kept; names are quoted there, so no two are the same."""
    return PolicyKey(PolicyKind.BLOCK, "", str(key))


def body(key: Key, order: Order) -> str:
    """How it is kept."""
    parts = KeptBlock(key.kind.value, key.name, key.within, order.reason, order.since_ns, order.lifts)
    return msgspec.json.encode(parts).decode()


def _read(key: PolicyKey, kept: str) -> tuple[Key, Order]:
    found = read_body(kept, KeptBlock)
    try:
        meant, order = found.key(), found.order()
    except ValueError as error:
        raise BodyError(f"{key}: {error}") from None
    if kept_key(meant) != key:
        raise BodyError(f"{key}: the body is that of {kept_key(meant)}")
    return meant, order
