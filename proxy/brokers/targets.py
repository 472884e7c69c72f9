"""The allow-list of brokers: clients reach nothing else through the proxy (CVE-2022-24280)."""

import asyncio
import contextlib
import fnmatch
import ipaddress
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Final, TypeVar

from protocol.endpoint import BROKERS, PLAIN, Endpoint, EndpointError
from proxy.runtime import RESOLVERS

_OF_CLIENTS: Final = RESOLVERS // 4
"""Most threads that resolve names of the clients' own choice; the others are kept for names of brokers."""

Name = tuple[str, int, bool]
"""Host, port, and whether it was configured or named by a broker."""


class UnresolvedError(Exception):
    """A name cannot be resolved; the text says why."""


@dataclass(eq=False, slots=True)
class _Question:
    """A name that is being resolved.

    Args:
        task: Waits for a thread, then for the answer: addresses, or why there are none.
        waiting: Number of callers that wait for the answer.
        is_asked: A thread resolves the name, and cannot be stopped.
    """

    task: "asyncio.Task[list[str] | str]"
    waiting: int = 0
    is_asked: bool = False


class Names:
    """Resolves names; callers that ask for a name while it is being resolved share its answer.

    Few threads resolve names, and a name occupies one while its servers are silent. With a question for each of the
    thousands of clients that come at once when a broker returns, most clients would wait too long.
    """

    def __init__(self) -> None:
        self._wanted: dict[Name, _Question] = {}
        self._of_brokers = asyncio.Semaphore(RESOLVERS - _OF_CLIENTS)
        self._of_clients = asyncio.Semaphore(_OF_CLIENTS)

    def __len__(self) -> int:
        return len(self._wanted)

    async def addresses(self, host: str, port: int, *, is_named: bool) -> list[str]:
        """Return the addresses of a host, one at least.

        Args:
            host: Its name.
            port: Its port.
            is_named: The broker was configured, or named by another broker; else a client chose it.

        Raises:
            UnresolvedError: If there is none.
        """
        name = host, port, is_named
        question = self._wanted.get(name)
        if question is None:
            line = self._of_brokers if is_named else self._of_clients
            task = asyncio.get_running_loop().create_task(self._ask(name, line))
            question = self._wanted[name] = _Question(task)
        question.waiting += 1
        try:
            answer = await asyncio.shield(question.task)  # a caller that leaves does not cancel it for others
        finally:
            question.waiting -= 1
            if not question.waiting and not question.is_asked:
                question.task.cancel()
                del self._wanted[name]
        if isinstance(answer, str):
            raise UnresolvedError(answer)
        return answer

    async def _ask(self, name: Name, line: asyncio.Semaphore) -> list[str] | str:
        host, port, _ = name
        async with line:
            self._wanted[name].is_asked = True
            try:
                addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError) as error:  # the latter for names that DNS cannot have
                return str(error)
            finally:
                del self._wanted[name]
        return [str(address[0]) for *_, address in addresses]


_MOST_LEARNED = 10_000
SIBLINGS_S: Final = 2.0
"""Seconds for which a connection to an unknown broker waits until another member of the fleet has named that broker.
Members' messages take a tenth of a second, and half a second where one is lost."""
MOST_FOLLOWED = 200
"""Redirects of one process that are followed at once: each has a connection of its own. Others wait their turn."""

Connected = TypeVar("Connected")


class TargetRefusedError(Exception):
    """The wanted broker is not on the allow-list, or cannot be resolved."""


Place = tuple[str, int]
"""The key of a broker in the allow-list: the name of its host and its port, whatever is spoken there."""


def _place(broker: Endpoint) -> Place:
    return broker.name, broker.port


class SiblingBrokers:
    """The brokers that members of a fleet hear of from each other.

    A client's lookup goes through one member, and its next connection may reach another one. That member allows the
    broker when the first one has named it:

        lookup answer ─▶ `name` ─▶ `take_named` ─▶ report ┄▶ grants ─▶ `hear` ─▶ `wait_for` ends

    Args:
        on_named: Called when a broker is named that was not named or heard of before.
    """

    def __init__(self, on_named: Callable[[], None]) -> None:
        self._on_named = on_named
        self._named: dict[Place, None] = {}
        """Brokers that lookup answers have named since the last report."""
        self._heard: OrderedDict[Place, None] = OrderedDict()
        self._awaited: dict[Place, asyncio.Event] = {}

    def name(self, broker: Endpoint) -> None:
        """Take a broker that a lookup answer has named to this member."""
        place = _place(broker)
        if len(self._named) < _MOST_LEARNED:
            self._named[place] = None
        if place not in self._heard:
            self._hear(place)
            self._on_named()

    def take_named(self, most: int) -> list[str]:
        """Return up to `most` of the brokers that lookup answers have named since the last call, as `host:port`."""
        places = list(islice(self._named, most))
        for place in places:
            del self._named[place]
        return [Endpoint(PLAIN, *place).address for place in places]

    def hear(self, addresses: Iterable[str]) -> None:
        """Take brokers, as `host:port`, that members have named; a text that is no address is passed over."""
        for address in addresses:
            with contextlib.suppress(EndpointError):
                self._hear(_place(BROKERS.parse(f"{PLAIN}://{address}")))

    def has(self, place: Place) -> bool:
        """Return whether a member has named a broker."""
        return place in self._heard

    async def wait_for(self, place: Place) -> None:
        """Wait until a member names a broker, `SIBLINGS_S` at most."""
        event = self._awaited.setdefault(place, asyncio.Event())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), SIBLINGS_S)
        if self._awaited.get(place) is event:
            del self._awaited[place]

    def _hear(self, place: Place) -> None:
        self._heard[place] = None
        self._heard.move_to_end(place)
        if len(self._heard) > _MOST_LEARNED:
            self._heard.popitem(last=False)
        event = self._awaited.pop(place, None)
        if event is not None:
            event.set()


class Targets:
    """The allow-list: configured brokers, patterns, and the addresses that brokers named in lookup answers.

    Args:
        brokers: Configured brokers.
        patterns: Brokers with `*` in the host, case ignored.
        networks: Networks in which the resolved address must lie of a broker that only a pattern allows, or another
            member of the fleet; empty means any.
        siblings: The brokers that other members of the fleet name; None without a fleet.

    Attributes:
        brokers: The configured brokers, one at least.
        followed: To be held by who follows a redirect.
    """

    def __init__(
        self,
        brokers: Iterable[Endpoint],
        patterns: tuple[Endpoint, ...] = (),
        networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = (),
        siblings: SiblingBrokers | None = None,
    ) -> None:
        self._siblings = siblings
        self._learned: OrderedDict[Place, None] = OrderedDict()
        self._reachable: set[Endpoint] = set()
        """Brokers for which `is_reachable` has said yes, and that are allowed still."""
        self._names = Names()
        self.followed = asyncio.Semaphore(MOST_FOLLOWED)
        self.configure(brokers, patterns, networks)

    def configure(
        self,
        brokers: Iterable[Endpoint],
        patterns: tuple[Endpoint, ...] = (),
        networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = (),
    ) -> None:
        """Put other configured brokers, patterns and networks in force; brokers that others have named stay allowed."""
        self.brokers = tuple(brokers)
        self._known = {_place(broker) for broker in self.brokers}
        self._patterns = [_place(pattern) for pattern in patterns]
        self._networks = networks
        self._reachable.clear()

    def learn(self, broker: Endpoint) -> None:
        """Allow a broker that another one named in a lookup's answer."""
        place = _place(broker)
        self._learned[place] = None
        self._learned.move_to_end(place)
        if self._siblings is not None:
            self._siblings.name(broker)
        if len(self._learned) > _MOST_LEARNED:
            self._learned.popitem(last=False)
            self._reachable.clear()

    def is_reachable(self, wanted: Endpoint) -> bool:
        """Return whether a broker is allowed and its host is an IP address, as most are: no name must be resolved."""
        if wanted in self._reachable:
            return True
        if not self._is_reachable(wanted):
            return False
        if len(self._reachable) >= _MOST_LEARNED:
            self._reachable.clear()
        self._reachable.add(wanted)
        return True

    def _is_reachable(self, wanted: Endpoint) -> bool:
        host = wanted.host
        return _is_address(host) and (self._is_named(wanted) or (self._matches(wanted) and self._is_inside(host)))

    async def connect(
        self, wanted: Endpoint, connect: Callable[[str, int], Awaitable[Connected]], patience: float
    ) -> Connected:
        """Connect to the first of a wanted broker's addresses that answers: checked here, and not resolved again.

        Args:
            wanted: The broker.
            connect: Connects to one IP address and port.
            patience: Seconds in all. Each but the last has its share: one that is silent leaves time for the others.

        Raises:
            TargetRefusedError: If the broker is not allowed, or its name leads nowhere.
            OSError: If none of its addresses answers.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + patience
        *others, last = await self.resolve(wanted)
        for left, each in zip(range(len(others) + 1, 1, -1), others, strict=True):
            with contextlib.suppress(OSError):
                async with asyncio.timeout((deadline - clock()) / left):
                    return await connect(each.host, each.port)
        return await connect(last.host, last.port)

    async def resolve(self, wanted: Endpoint) -> list[Endpoint]:
        """Return the endpoints, one at least, that a wanted broker may be reached at; their hosts are IP addresses.

        Raises:
            TargetRefusedError: If the broker is not allowed, or its name leads nowhere.
        """
        if not self.allows(wanted) and self._siblings is not None:
            await self._siblings.wait_for(_place(wanted))
        if not self.allows(wanted):
            raise TargetRefusedError(f"{wanted} is neither configured nor was it named by a broker")
        is_named, host = self._is_named(wanted), wanted.host
        hosts = [host] if _is_address(host) else await self._addresses(host.lower(), wanted.port, is_named=is_named)
        allowed = [Endpoint(wanted.scheme, each, wanted.port) for each in hosts if is_named or self._is_inside(each)]
        if not allowed:
            raise TargetRefusedError(f"{host} resolves to an address outside of allowed_broker_networks")
        return allowed

    def allows(self, wanted: Endpoint) -> bool:
        """Return whether clients may name a broker; `resolve` decides on its IP addresses."""
        is_heard = self._siblings is not None and self._siblings.has(_place(wanted))
        return is_heard or self._is_named(wanted) or self._matches(wanted)

    async def _addresses(self, host: str, port: int, *, is_named: bool) -> list[str]:
        try:
            return await self._names.addresses(host, port, is_named=is_named)
        except UnresolvedError as error:
            raise TargetRefusedError(f"{host} cannot be resolved ({error})") from None

    def _is_named(self, broker: Endpoint) -> bool:
        place = _place(broker)
        return place in self._known or place in self._learned

    def _matches(self, broker: Endpoint) -> bool:
        host, port = _place(broker)
        return any(port == allowed and fnmatch.fnmatchcase(host, pattern) for pattern, allowed in self._patterns)

    def _is_inside(self, address: str) -> bool:
        ip = ipaddress.ip_address(address.partition("%")[0])
        return not self._networks or any(ip in network for network in self._networks)


@lru_cache(_MOST_LEARNED)
def _is_address(host: str) -> bool:
    """Return whether a host is an address without a name to resolve; a zone (`fe80::1%eth0`) is a name."""
    try:
        return "%" not in str(ipaddress.ip_address(host))
    except ValueError:
        return False
