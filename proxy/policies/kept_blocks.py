"""Blocks that are set at run time, kept in the policy store: audited, and in force again after a restart.

request ─▶ order ─▶ on disk, with its audit line ─▶ blocklist ─▶ live sessions
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from proxy.block_rules import Key, Rule, read_key, read_reason
from proxy.blocking.blocklist import Blocklist, EndedByRule, Order, SetBy, nothing_ended
from proxy.bulk import in_thread
from proxy.policies.bodies import BodyError, read_body
from proxy.policies.held import ValueBefore, held_of_block
from proxy.policies.keys import PolicyKey, PolicyKind, Principal
from proxy.policies.policy_set import is_kept
from proxy.policies.service import PolicyService

FILE = Principal("file", "")
"""The principal of changes that follow from another configuration file."""


class KeptBlock(msgspec.Struct, frozen=True, omit_defaults=True):
    """An order as it is stored; `within` is a full topic name or `tenant/namespace`, empty for everywhere."""

    kind: str
    name: str
    within: str = ""
    reason: str = ""
    since_ns: int = 0
    lifts: bool = False

    def key(self) -> Key:
        """Return the key that the order is about.

        Raises:
            ValueError: If the fields make no valid key.
        """
        if "://" in self.within:
            return read_key(self.kind, self.name, topic=self.within)
        return read_key(self.kind, self.name, namespace=self.within)

    def order(self) -> Order:
        """Return the order.

        Raises:
            ValueError: If the reason is not one line.
        """
        return Order(read_reason(self.reason), self.since_ns, self.lifts)


@dataclass(slots=True)
class BlockOutcome:
    """The result of a request to block or unblock.

    Args:
        rule: The rule in force; after unblocking, the rule that was in force. None: nothing was blocked.
        ended: The numbers of connections and streams that were ended.
    """

    rule: Rule | None = None
    ended: EndedByRule = field(default_factory=nothing_ended)


class KeptBlocks:
    """The policy service's handler for blocks.

    Args:
        blocklist: The blocklist in which they are in force.
    """

    def __init__(self, blocklist: Blocklist) -> None:
        self.blocklist = blocklist
        self.awaited: tuple[PolicyKey, BlockOutcome] | None = None
        """Filled with the result of the change under way."""
        self._block_keys: dict[PolicyKey, Key] = {}

    def check(self, key: PolicyKey, kept: str | None) -> None:
        """Check that a body is valid and belongs to its key."""
        if kept is not None:
            _read(key, kept)

    def held(self, key: PolicyKey, kept: str) -> list[ValueBefore]:
        """Return the rule in force for the key of a body."""
        return held_of_block(self.blocklist.rules.get(_read(key, kept)[0]))

    def load(self, key: PolicyKey, kept: str) -> None:
        """Put a stored order of an earlier run in force."""
        self._block_keys[key], order = _read(key, kept)
        self.blocklist.put(self._block_keys[key], order, quietly=True)

    def take(self, key: PolicyKey, kept: str | None, author: Principal) -> None:
        """Put a changed order in force, or remove it (None)."""
        if kept is None:
            order, lifted = None, self._block_keys.pop(key, None)
            if lifted is None:  # the other process of a takeover has set it, and had no room to say so
                return
            block_key = lifted
        else:
            block_key, order = _read(key, kept)
            self._block_keys[key] = block_key
        ended = self.blocklist.put(block_key, order, SetBy(author.name, author.address))
        if self.awaited is not None and self.awaited[0] == key:
            outcome = self.awaited[1]
            outcome.ended, outcome.rule = ended, self.blocklist.rules.get(block_key) or outcome.rule


class BlockDesk:
    """Handles requests to block and unblock.

    Args:
        service: Stores and audits changes, and puts them in force.
        kept: The handler for blocks of that service.
    """

    def __init__(self, service: PolicyService, kept: KeptBlocks) -> None:
        self._service = service
        self._kept = kept
        self.blocklist = kept.blocklist

    async def block(self, key: Key, reason: str, author: Principal) -> BlockOutcome:
        """Set a rule, and end the connections and streams that it blocks. An existing rule keeps its age.

        An empty reason keeps the rule's present one.

        Raises:
            TooManyRulesError: If there is no room. Nothing is kept then.
            StoreError: If the store cannot be written. Nothing has changed then.
        """
        outcome = BlockOutcome()

        def plan() -> Mapping[PolicyKey, str | None]:
            order = self.blocklist.order_to_block(key, reason)
            self._kept.awaited, outcome.rule = (kept_key(key), outcome), self.blocklist.rules.get(key)
            return {kept_key(key): None if order is None else body(key, order)}

        await self._service.rework(plan, author)
        await outcome.ended.over.wait()
        return outcome

    async def unblock(self, key: Key, author: Principal) -> BlockOutcome:
        """Remove a rule; a rule of the file is lifted.

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

        await self._service.rework(plan, author)
        return outcome

    def plan(self, wanted: Mapping[Key, Rule]) -> dict[PolicyKey, str | None]:
        """Return the changes after which exactly these rules are in force; changes that make room come first."""
        rules, changes = self.blocklist.rules, dict[PolicyKey, str | None]()
        for rule in rules.all():
            if rule.key not in wanted:
                order = self.blocklist.order_to_unblock(rule.key)
                changes[kept_key(rule.key)] = None if order is None else body(rule.key, order)
        for key, rule in wanted.items():
            if not is_kept(rule, rules.get(key)):
                order = self.blocklist.order_to_block(key, rule.reason, is_room_made=True)
                changes[kept_key(key)] = None if order is None else body(key, order)
        return changes

    async def forget_needless(self) -> None:
        """Remove orders that lift keys which the file no longer has.

        Otherwise a key that returned to the file would stay unblocked. In a fleet the orders stay: another member's
        file may have the key.

        Raises:
            StoreError: If the store cannot be written.
        """
        if self._service.is_carried:
            return

        def plan() -> dict[PolicyKey, str | None]:
            return {kept_key(key): None for key in self.blocklist.needless()}

        async def planner() -> dict[PolicyKey, str | None]:
            return await in_thread(self._service.ending, plan)

        await self._service.rework_slowly(planner, FILE)


def kept_key(key: Key) -> PolicyKey:
    """Return the key under which the store has a block; names are quoted in it, so no two keys are equal."""
    return PolicyKey(PolicyKind.BLOCK, "", str(key))


def body(key: Key, order: Order) -> str:
    """Return the stored form of an order."""
    parts = KeptBlock(key.kind.value, key.name, key.within, order.reason, order.since_ns, order.lifts)
    return msgspec.json.encode(parts).decode()


def _read(key: PolicyKey, kept: str) -> tuple[Key, Order]:
    block = read_body(kept, KeptBlock)
    try:
        block_key, order = block.key(), block.order()
    except ValueError as error:
        raise BodyError(f"{key.shown}: {error}") from None
    if kept_key(block_key) != key:
        raise BodyError(f"{key.shown}: the body is that of {kept_key(block_key).shown}")
    return block_key, order
