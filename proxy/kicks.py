"""Kicks: an operator ends what clients have open, once; they may come again at once. No I/O and no clock.

A dry block counts in the same way what a block would end.

    tenant, topic                  end producers and consumers: clients get a CLOSE, as where a broker unloads a topic
    role, address, connection      end whole connections, with all that is open on them

Of several words all must fit, and with a tenant or a topic only producers and consumers end. So does what a tenant's
token kicks: a connection may have streams of several tenants.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Protocol

from limiter.limiter import StreamName
from protocol.topic_name import parse_topic
from proxy.block_rules import Key, Rule, Rules, read_network
from proxy.blocking.blocklist import Blockable
from proxy.observe.connection import Connection
from proxy.slices import noting_failure

_LOOKED_AT = 20
"""Sessions that are looked at in one unit of work."""


class KickChoice(Protocol):
    """The connections, or producers and consumers, that end or are counted."""

    @property
    def is_dry(self) -> bool:
        """True if nothing ends, and what would end is counted."""

    @property
    def is_of_connections(self) -> bool:
        """True if whole connections are meant."""

    @property
    def spares_newcomers(self) -> bool:
        """True if connections are not meant whose client has not named its role yet."""

    def means_client(self, connection: Connection) -> bool:
        """Return whether a client's connection is one of those that are chosen."""

    def means_stream(self, name: StreamName) -> bool:
        """Return whether a producer or consumer of such a client is one of those that are chosen."""


@dataclass(frozen=True, slots=True)
class Kick:
    """The choice of what ends.

    Args:
        tenant: Producers and consumers of its topics; empty: of any.
        topic: Those of a topic's full name, of a partitioned one with or without partition; empty: of any.
        role: Those of clients with this role; empty: of any.
        network: Those of clients from these addresses; None: from any.
        connection_id: Those of one connection; None: of any.
        tenants: The tenants of the author's token; None: all.
        is_dry: Whether nothing ends, and what would end is counted.
    """

    tenant: str = ""
    topic: str = ""
    role: str = ""
    network: IPv4Network | IPv6Network | None = None
    connection_id: int | None = None
    tenants: frozenset[str] | None = None
    is_dry: bool = False

    @property
    def is_of_connections(self) -> bool:
        """True if whole connections end."""
        return not self.tenant and not self.topic and self.tenants is None

    @property
    def spares_newcomers(self) -> bool:
        """False: they end as well."""
        return False

    def means_client(self, connection: Connection) -> bool:
        """Return whether a client's connection is one of those that are chosen."""
        if self.connection_id is not None and connection.connection_id != self.connection_id:
            return False
        if self.role and connection.client_role != self.role:
            return False
        return self.network is None or _is_in(self.network, connection.client_host)

    def means_stream(self, name: StreamName) -> bool:
        """Return whether a producer or consumer of such a client is one of those that are chosen."""
        if self.tenant and name.tenant != self.tenant:
            return False
        if self.tenants is not None and name.tenant not in self.tenants:
            return False
        if not self.topic or name.topic == self.topic:
            return True
        return name.topic.startswith(f"{self.topic}-partition-") and parse_topic(name.topic).partitioned == self.topic

    def __str__(self) -> str:
        words = {"tenant": self.tenant, "topic": self.topic, "role": self.role, "address": self.network}
        words["connection"] = None if self.connection_id is None else str(self.connection_id)
        return ", ".join(f"{word} {value}" for word, value in words.items() if value)


class DryBlock:
    """The choice of what a block would end; it is only counted.

    Args:
        key: The subject of the block.
    """

    is_dry = True
    spares_newcomers = True
    """A block turns them away later, and ends nothing of them."""

    def __init__(self, key: Key) -> None:
        self.is_of_connections = key.kind.is_of_connections
        self._rules = Rules()
        self._rules.put(Rule(key))

    def means_client(self, connection: Connection) -> bool:
        """Return whether the block would end this connection, or may end streams of it."""
        if not self.is_of_connections:
            return True
        return self._rules.of_client(connection.client_host, connection.client_role) is not None

    def means_stream(self, name: StreamName) -> bool:
        """Return whether the block would end this producer or consumer."""
        return self._rules.may_mean(name) and self._rules.of_stream(name) is not None


def read_kick(words: Mapping[str, str], tenants: frozenset[str] | None = None, *, is_dry: bool = False) -> Kick:
    """Return what words choose: tenant, topic, role, address, connection, each only where it is given.

    Args:
        words: The choice.
        tenants: The tenants of the author's token; None: all.
        is_dry: Whether nothing ends.

    Raises:
        ValueError: With the mistake and its remedy.
    """
    for word, value in words.items():
        if not value:  # a variable of a script that is not set must not widen the choice
            raise ValueError(f"{word}: is empty; name one, or leave it out")
    if not words:
        raise ValueError("name what to kick: tenant, topic, role, address or connection")
    topic, address, connection = (words.get(word) for word in ("topic", "address", "connection"))
    if connection and not (connection.isascii() and connection.isdecimal()):
        raise ValueError(f"connection: {connection[:50]!r} is no number; /sluice/streams has it as connection_id")
    return Kick(
        words.get("tenant", ""),
        parse_topic(topic).full if topic else "",
        words.get("role", ""),
        read_network(address) if address else None,
        int(connection) if connection else None,
        tenants,
        is_dry=is_dry,
    )


def _is_in(network: IPv4Network | IPv6Network, host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address) in network


@dataclass(slots=True)
class KickEffect:
    """The numbers of connections, and of producers and consumers, that a kick ended, or would end."""

    connections: int = 0
    streams: int = 0

    def __str__(self) -> str:
        return f"{self.connections} connections, {self.streams} producers and consumers"


class Kickable(Blockable, Protocol):
    """A session, as kicks and blocks see it."""

    def kick(self, kick: KickChoice, effect: KickEffect) -> Iterator[None]:
        """End what the choice means, one stream or the session in each step, and count it in `effect`.

        A step without an end looks at a few streams.
        """


def kicking(sessions: Collection[Kickable], kick: KickChoice, effect: KickEffect) -> Iterator[None]:
    """Do a kick, a few sessions or one end in each step, and count it in `effect`.

    What fails in one session fails here when all others are done.
    """
    failures = list[Exception]()
    for number, session in enumerate(list(sessions), 1):
        before = effect.connections
        yield from noting_failure(session.kick(kick, effect), failures)
        if effect.connections != before or number % _LOOKED_AT == 0:
            yield
    if failures:
        raise failures[0]
