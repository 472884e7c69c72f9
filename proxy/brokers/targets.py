"""Which brokers clients may be connected to, so that nobody uses the proxy to reach anything else (CVE-2022-24280)."""

import asyncio
import contextlib
import fnmatch
import ipaddress
import re
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

from proxy.runtime import RESOLVERS

_OF_CLIENTS: Final = RESOLVERS // 4
"""Threads that may be busy with names of the clients' own choice; whatever these are, the others are left."""

Name = tuple[str, int, bool]
"""Host, port, and whether it was configured or named by a broker."""


class UnresolvedError(Exception):
    """A name leads nowhere; the text says why."""


@dataclass(eq=False, slots=True)
class _Question:
    """A name that is wanted.

    Args:
        task: Waits for a thread, then for the answer: addresses, or why there are none.
        waiting: How many want to know.
        is_asked: It has its thread, which nobody can call back.
    """

    task: "asyncio.Task[list[str] | str]"
    waiting: int = 0
    is_asked: bool = False


class Names:
    """Resolves names; who wants one that is being asked for gets the same answer.

    Few threads resolve names, and each name takes one for as long as its servers are silent. Were one asked for each of
    the thousands of clients that come at once when a broker does, most would have waited too long before their turn.
    """

    def __init__(self) -> None:
        self._wanted: dict[Name, _Question] = {}
        self._of_brokers = asyncio.Semaphore(RESOLVERS - _OF_CLIENTS)
        self._of_clients = asyncio.Semaphore(_OF_CLIENTS)

    def __len__(self) -> int:
        return len(self._wanted)

    async def addresses(self, host: str, port: int, *, is_named: bool) -> list[str]:
        """The addresses of a host, one at least.

        Args:
            host: Its name.
            port: Where it is to be reached.
            is_named: It was configured or named by a broker; else a client chose it.

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
            found = await asyncio.shield(question.task)  # who leaves takes the answer from nobody
        finally:
            question.waiting -= 1
            if not question.waiting and not question.is_asked:
                question.task.cancel()
                del self._wanted[name]
        if isinstance(found, str):
            raise UnresolvedError(found)
        return found

    async def _ask(self, name: Name, line: asyncio.Semaphore) -> list[str] | str:
        host, port, _ = name
        async with line:
            self._wanted[name].is_asked = True
            try:
                found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError) as error:  # the latter for names that DNS cannot have
                return str(error)
            finally:
                del self._wanted[name]
        return [str(address[0]) for *_, address in found]


_MOST_LEARNED = 10_000
MOST_FOLLOWED = 200
"""Redirects of one process that are followed at once: each has a connection of its own. Others wait their turn."""
_HOST_PORT = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<host>[^\s\[\]:,/@\0]+)):(?P<port>[0-9]{1,5})")
"""No NUL: to who resolves names they end there, so `10.0.0.1\\0.allowed` would match a pattern and lead elsewhere."""
LONGEST = 300
"""Characters of an address; a name of DNS has 253 at most."""

Address = tuple[str, int]
Connected = TypeVar("Connected")


class TargetRefusedError(Exception):
    """The wanted broker is not on the allow-list, or cannot be resolved."""


def split_address(address: str) -> Address:
    """`host:port`, `pulsar://host:port` or `[v6]:port` to (host, port). Port 0 lets the system choose where to listen.

    Raises:
        ValueError: If it is none of these.
    """
    if len(address) > LONGEST:  # before anything is remembered: clients name what they like
        raise ValueError(f"{address[:LONGEST]!r}… is not host:port")
    return _split(address)


@lru_cache(_MOST_LEARNED)
def _split(address: str) -> Address:
    bare = address.partition("://")[2] or address
    match = _HOST_PORT.fullmatch(bare.removesuffix("/"))
    if not match or int(match["port"]) > 65535:
        raise ValueError(f"{address!r} is not host:port")
    return match["v6"] or match["host"], int(match["port"])


class Targets:
    """The allow-list: configured brokers, patterns, and the addresses that brokers named in lookup answers.

    Args:
        brokers: Configured brokers.
        patterns: `host-pattern:port` with `*` in the host, case ignored.
        networks: Networks that a pattern's resolved address must lie in; empty means any.

    Attributes:
        followed: To be held by who follows a redirect.
    """

    def __init__(
        self,
        brokers: list[Address],
        patterns: tuple[str, ...] = (),
        networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = (),
    ) -> None:
        self._known = {(host.lower(), port) for host, port in brokers}
        self._patterns = [split_address(pattern.lower()) for pattern in patterns]
        self._networks = networks
        self._learned: OrderedDict[Address, None] = OrderedDict()
        self._at_once: dict[str, Address] = {}
        """What `at_once` found; all of it is allowed still."""
        self._names = Names()
        self.followed = asyncio.Semaphore(MOST_FOLLOWED)

    def learn(self, url: str) -> None:
        """A broker named this address in a lookup answer."""
        try:
            host, port = split_address(url)
        except ValueError:
            return
        self._learned[host.lower(), port] = None
        self._learned.move_to_end((host.lower(), port))
        if len(self._learned) > _MOST_LEARNED:
            self._learned.popitem(last=False)
            self._at_once.clear()

    def at_once(self, wanted: str) -> Address | None:
        """The address of a wanted broker that is allowed and has its address for a name, as most have; else None."""
        found = self._at_once.get(wanted)
        if found is None and (found := self._found_at_once(wanted)) is not None:
            if len(self._at_once) >= _MOST_LEARNED:
                self._at_once.clear()
            self._at_once[wanted] = found
        return found

    def _found_at_once(self, wanted: str) -> Address | None:
        try:
            host, port = split_address(wanted)
        except ValueError:
            return None
        if not _is_address(host):
            return None
        is_allowed = self._is_named(host, port) or (self._matches(host, port) and self._is_inside(host))
        return (host, port) if is_allowed else None

    async def connect(
        self, wanted: str, connect: Callable[[str, int], Awaitable[Connected]], patience: float
    ) -> Connected:
        """Connect to the first of a wanted broker's addresses that answers: checked here, and not resolved again.

        Args:
            wanted: The broker.
            connect: Connects to one address.
            patience: Seconds in all. Each but the last has its share: one that is silent leaves time for the others.

        Raises:
            TargetRefusedError: If the broker is not allowed, or its name leads nowhere.
            OSError: If none of its addresses answers.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + patience
        *others, last = await self.resolve(wanted)
        for left, address in zip(range(len(others) + 1, 1, -1), others, strict=True):
            with contextlib.suppress(OSError):
                async with asyncio.timeout((deadline - clock()) / left):
                    return await connect(*address)
        return await connect(*last)

    async def resolve(self, wanted: str) -> list[Address]:
        """The addresses, one at least, that a wanted broker may be reached at.

        Raises:
            TargetRefusedError: If the broker is not allowed, or its name leads nowhere.
        """
        try:
            host, port = split_address(wanted)
        except ValueError as error:
            raise TargetRefusedError(str(error)) from None
        is_named = self._is_named(host.lower(), port)
        if not is_named and not self._matches(host.lower(), port):
            raise TargetRefusedError(f"{wanted} is neither configured nor was it named by a broker")
        hosts = [host] if _is_address(host) else await self._addresses(host.lower(), port, is_named=is_named)
        allowed = [(each, port) for each in hosts if is_named or self._is_inside(each)]
        if not allowed:
            raise TargetRefusedError(f"{host} resolves to an address outside of allowed_broker_networks")
        return allowed

    def allows(self, wanted: str) -> bool:
        """Whether a broker may be wanted; `resolve` says whether its address may be had, too."""
        try:
            host, port = split_address(wanted.lower())
        except ValueError:
            return False
        return self._is_named(host, port) or self._matches(host, port)

    async def _addresses(self, host: str, port: int, *, is_named: bool) -> list[str]:
        try:
            return await self._names.addresses(host, port, is_named=is_named)
        except UnresolvedError as error:
            raise TargetRefusedError(f"{host} cannot be resolved ({error})") from None

    def _is_named(self, host: str, port: int) -> bool:
        return (host, port) in self._known or (host, port) in self._learned

    def _matches(self, host: str, port: int) -> bool:
        return any(port == allowed and fnmatch.fnmatchcase(host, pattern) for pattern, allowed in self._patterns)

    def _is_inside(self, address: str) -> bool:
        ip = ipaddress.ip_address(address.partition("%")[0])
        return not self._networks or any(ip in network for network in self._networks)


@lru_cache(_MOST_LEARNED)
def _is_address(host: str) -> bool:
    """Whether there is nothing to resolve; a zone (`fe80::1%eth0`) is something."""
    try:
        return "%" not in str(ipaddress.ip_address(host))
    except ValueError:
        return False
