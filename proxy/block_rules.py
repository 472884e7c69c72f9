"""The rules of the blocklist, and look-ups in them. No I/O and no clock.

    address, role                     end or refuse whole connections
    topic                             ends or refuses all of its producers and consumers
    producer, consumer, subscription  end or refuse those of that name: everywhere, or in one topic or namespace

Pulsar's own topics (policies, transactions, heartbeats) are never blocked: a topic's rule cannot name one, and rules of
names do not apply there. Otherwise brokers and clients would stall that have nothing to do with the block.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import NamedTuple

from pydantic import Field, field_validator, model_validator
from pydantic_core.core_schema import ValidationInfo

from limiter.limiter import StreamName
from limiter.names import Networks
from protocol.topic_name import TopicName, is_entity, parse_topic
from proxy.bulk import in_order
from proxy.mistakes import ConfigSection

MOST_RULES = 10_000
MOST_REASON = 200
"""Most characters of a reason: clients get it in an error."""
MOST_NAME = 1_000
"""Most characters of a name."""
MOST_ROLE = 256
"""Characters of a role; a longer one counts as none. Other names may be longer for the sake of subscriptions; a role is
the subject of a token, and each connection keeps its own."""
_MAPPED_BITS = 96
"""Bits of the prefix of IPv4 addresses within IPv6 (::ffff:0:0/96)."""


class Kind(StrEnum):
    """The kind of a blocked thing; each is a label of `sluice_blocked_total` and `sluice_blocks`."""

    __hash__ = str.__hash__  # an enumeration's own is a call of Python, and each look-up makes some

    ADDRESS = "address"
    ROLE = "role"
    PRODUCER = "producer"
    CONSUMER = "consumer"
    SUBSCRIPTION = "subscription"
    TOPIC = "topic"

    @property
    def is_narrowable(self) -> bool:
        """True if a name of this kind may differ in meaning by topic: a rule may name one topic or namespace."""
        return self in {Kind.PRODUCER, Kind.CONSUMER, Kind.SUBSCRIPTION}

    @property
    def is_of_connections(self) -> bool:
        """True if this kind concerns whole connections."""
        return self in {Kind.ADDRESS, Kind.ROLE}


class Key(NamedTuple):
    """The subject of a rule; there is one rule for each.

    Args:
        kind: The kind of `name`.
        name: The name in its canonical form: a network or address as `ipaddress` writes it, a topic's full name.
        within: For names: the full topic name or `tenant/namespace` that the rule is narrowed to; empty: everywhere.
    """

    kind: Kind
    name: str
    within: str = ""

    def __str__(self) -> str:
        place = f" in {self.within}" if self.within else ""
        return f"{self.kind} {self.name!r}{place}"


@dataclass(frozen=True, slots=True)
class Rule:
    """A block of one key.

    Args:
        key: The subject of the rule.
        reason: The reason for people; clients get it in their error.
        since_ns: When the rule was set, nanoseconds since 1970.
        origin: Where the rule was written: `file` or `rest`.
    """

    key: Key
    reason: str = ""
    since_ns: int = 0
    origin: str = "rest"

    def __str__(self) -> str:
        return f"{self.key} is blocked by Sluice" + (f": {self.reason}" if self.reason else "")


class TooManyRulesError(Exception):
    """A rule cannot be added: there are MOST_RULES already."""


def read_key(kind: str, name: str, topic: str = "", namespace: str = "") -> Key:
    """Return the key that an operator names.

    Raises:
        ValueError: With the mistake and its remedy.
    """
    if kind not in list(Kind):
        raise ValueError(f"{kind!r} cannot be blocked; write one of {', '.join(Kind)}")
    if kind == Kind.ROLE:
        read_role(name)
    key = Key(Kind(kind), _read_name(Kind(kind), name), _read_place(topic, namespace))
    if key.within and not key.kind.is_narrowable:
        raise ValueError(f"a block of {key.kind} has no topic or namespace; leave it out")
    return key


def read_role(name: str) -> str:
    """Return the name, checked that a client can have it as its role.

    Raises:
        ValueError: If the name is empty, too long, or not one line.
    """
    if not name or len(name) > MOST_ROLE or not name.isprintable():
        raise ValueError(
            f"write the role in one line of 1 to {MOST_ROLE} characters: longer roles of clients are not known"
        )
    return name


def read_reason(text: str) -> str:
    """Return the reason, checked to be one line.

    Raises:
        ValueError: If the reason is too long or not one line.
    """
    if len(text) > MOST_REASON or not (text.isprintable()):
        raise ValueError(f"write the reason in one line of at most {MOST_REASON} characters")
    return text


def read_network(text: str) -> IPv4Network | IPv6Network:
    """Parse an address or network. IPv4 within IPv6 (::ffff:192.0.2.7) becomes IPv4, as in look-ups of clients.

    Raises:
        ValueError: With the mistake and the right form.
    """
    if "%" in text:
        raise ValueError(f"{text!r} has a zone, which is ignored; leave out the % and the text after it")
    try:
        network = ip_network(text)
    except ValueError as error:
        raise ValueError(f"{error}; write an address as 192.0.2.7 or 2001:db8::7, a range as 192.0.2.0/24") from None
    if isinstance(network, IPv6Network):
        mapped = network.network_address.ipv4_mapped
        if mapped is not None and network.prefixlen >= _MAPPED_BITS:
            return IPv4Network((int(mapped), network.prefixlen - _MAPPED_BITS))
    return network


class Rules:
    """All rules in force; each look-up costs the same few steps, however many rules there are."""

    def __init__(self) -> None:
        self._rules: dict[Key, Rule] = {}
        self._networks: Networks[Rule] = Networks()
        self._numbers = dict.fromkeys(Kind, 0)
        self._names: dict[Kind, dict[str, int]] = {kind: {} for kind in Kind if not kind.is_of_connections}
        """For each kind of streams, the names that are blocked somewhere, and in how many rules."""

    def __len__(self) -> int:
        return len(self._rules)

    def copy(self) -> "Rules":
        """Return an independent copy."""
        other = Rules()
        other._rules = dict(self._rules)
        other._networks = self._networks.copy()
        other._numbers = dict(self._numbers)
        other._names = {kind: dict(names) for kind, names in self._names.items()}
        return other

    def all(self) -> list[Rule]:
        """Return every rule, by kind and name. May be called in any thread."""
        return in_order_of_keys(list(self._rules.values()))

    def by_kind(self) -> dict[str, int]:
        """Return the number of rules of each kind."""
        return {kind.value: number for kind, number in self._numbers.items()}

    def get(self, key: Key) -> Rule | None:
        """Return the rule for exactly this key, or None."""
        return self._rules.get(key)

    def check_room(self, key: Key) -> None:
        """Check that a rule for `key` could be set.

        Raises:
            TooManyRulesError: If there is no room.
        """
        if key not in self._rules and len(self._rules) >= MOST_RULES:
            raise TooManyRulesError(f"{MOST_RULES} rules are set, the most that can be; unblock some first")

    def put(self, rule: Rule) -> None:
        """Set a rule, replacing one for the same key.

        Raises:
            TooManyRulesError: If there is no room.
        """
        self.check_room(rule.key)
        if rule.key not in self._rules:
            self._count(rule.key, 1)
        self._rules[rule.key] = rule
        if rule.key.kind is Kind.ADDRESS:
            self._networks.put(rule.key.name, rule)

    def remove(self, key: Key) -> Rule | None:
        """Remove and return a rule; None if there was none."""
        rule = self._rules.pop(key, None)
        if rule is None:
            return None
        self._count(key, -1)
        if key.kind is Kind.ADDRESS:
            self._networks.put(key.name, None)
        return rule

    def _count(self, key: Key, more: int) -> None:
        self._numbers[key.kind] += more
        if key.kind.is_of_connections:
            return
        names = self._names[key.kind]
        names[key.name] = names.get(key.name, 0) + more
        if not names[key.name]:
            del names[key.name]

    def may_mean(self, name: StreamName) -> bool:
        """Return whether a rule could block a stream: a quick test, as there may be thousands of streams."""
        names, topic = self._names, name.topic
        topics = names[Kind.TOPIC]
        if topics and (topic in topics or topic.rpartition("-partition-")[0] in topics):
            return True
        if name.direction == "publish":
            return name.producer_name in names[Kind.PRODUCER]
        return name.consumer_name in names[Kind.CONSUMER] or name.subscription in names[Kind.SUBSCRIPTION]

    def of_client(self, host: str, role: str) -> Rule | None:
        """Return the rule that blocks a client by address (without port) or role; of several networks the narrowest."""
        rule = self._networks.find(host) if self._networks else None
        return rule or (self._rules.get(Key(Kind.ROLE, role)) if role else None)

    def of_stream(self, name: StreamName, topic: TopicName | None = None) -> Rule | None:
        """Return the rule that blocks a producer or consumer; its topic is read from the name if it is not given."""
        if not self._rules:
            return None
        topic = topic or parse_topic(name.topic)
        if name.direction == "publish":
            return self.of_producer(topic, name.producer_name)
        return self.of_consumer(topic, name.subscription, name.consumer_name)

    def of_producer(self, topic: TopicName, name: str) -> Rule | None:
        """Return the rule that blocks a producer; its name is empty while the broker has not chosen one."""
        return self._of_names(topic, ((Kind.PRODUCER, name),))

    def of_consumer(self, topic: TopicName, subscription: str, name: str) -> Rule | None:
        """Return the rule that blocks a consumer."""
        return self._of_names(topic, ((Kind.SUBSCRIPTION, subscription), (Kind.CONSUMER, name)))

    def _of_names(self, topic: TopicName, names: tuple[tuple[Kind, str], ...]) -> Rule | None:
        if not self._rules or topic.is_system:
            return None
        keys = [Key(Kind.TOPIC, topic.full), Key(Kind.TOPIC, topic.partitioned)]
        places = ("", topic.namespace_name, topic.partitioned, topic.full)
        keys += [Key(kind, name, place) for kind, name in names if name for place in places]
        return next((self._rules[key] for key in keys if key in self._rules), None)


def in_order_of_keys(rules: Iterable[Rule]) -> list[Rule]:
    """Return the rules by kind and name, sorted in pieces: other threads run in between."""
    return [rule for _, rule in in_order((rule.key, rule) for rule in rules)]


def _read_name(kind: Kind, name: str) -> str:
    if not name or len(name) > MOST_NAME or not name.isprintable():
        raise ValueError(f"write the {kind} in one line of at most {MOST_NAME} characters")
    if kind is Kind.ADDRESS:
        return _written(read_network(name))
    return _read_topic(name) if kind is Kind.TOPIC else name


def _written(network: IPv4Network | IPv6Network) -> str:
    is_host = network.prefixlen == network.max_prefixlen
    return str(network.network_address) if is_host else str(network)


def _read_topic(name: str) -> str:
    topic = parse_topic(name)
    if not topic.local.isprintable():
        raise ValueError(f"{name!r} has invisible characters; block a producer or consumer of its namespace")
    if topic.is_system:
        raise ValueError(f"{topic.full} is Pulsar's own topic, which cannot be blocked; block a role or an address")
    return topic.full


def _read_place(topic: str, namespace: str) -> str:
    if topic and namespace:
        raise ValueError("a block is narrowed by a topic or by a namespace, not by both")
    if topic:
        return _read_topic(topic)
    if namespace and (namespace.count("/") != 1 or not all(map(is_entity, namespace.split("/")))):
        raise ValueError(f"{namespace!r} is not a namespace; write tenant/namespace")
    return namespace


_KINDS = tuple(kind.value for kind in Kind if kind is not Kind.TOPIC)


class Block(ConfigSection):
    """An entry of the list `blocks`: the subject of a block, and its reason."""

    address: str | None = Field(None, description="client address or range: 192.0.2.7, 2001:db8::/32")
    role: str | None = Field(None, description="what clients authenticate as")
    producer: str | None = Field(None, description="producer name")
    consumer: str | None = Field(None, description="consumer name")
    subscription: str | None = Field(None, description="subscription name")
    topic: str | None = Field(
        None, description="alone: a whole topic or one partition; else: where the name is blocked"
    )
    namespace: str | None = Field(None, description="where the name is blocked: tenant/namespace")
    reason: str = Field("", description="for people; clients get it in their error")

    @field_validator(*_KINDS, "topic")
    @classmethod
    def _readable(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None:
            read_key(str(info.field_name), value)
        return value

    @field_validator("reason")
    @classmethod
    def _one_line(cls, value: str) -> str:
        return read_reason(value)

    @model_validator(mode="after")
    def _means_one(self) -> "Block":
        self.key()
        return self

    def key(self) -> Key:
        """Return the key of this entry.

        Raises:
            ValueError: If it names no subject, or several.
        """
        named = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if len(named) > 1 or not (named or self.topic):
            raise ValueError(f"write one of {', '.join(_KINDS)}, topic")
        if not named:
            return read_key(Kind.TOPIC, self.topic or "", namespace=self.namespace or "")
        return read_key(named[0], getattr(self, named[0]), self.topic or "", self.namespace or "")

    def rule(self) -> Rule:
        """Return this entry as a rule of the file."""
        return Rule(self.key(), self.reason, origin="file")


def each_once(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Return the list after the check that no key is in it twice.

    Raises:
        ValueError: If one does, or if there are too many entries.
    """
    if len(blocks) > MOST_RULES:
        raise ValueError(f"{len(blocks)} entries; {MOST_RULES} are the most that can be")
    seen: set[Key] = set()
    for block in blocks:
        if block.key() in seen:
            raise ValueError(f"{block.key()} is listed twice; leave one out")
        seen.add(block.key())
    return blocks
