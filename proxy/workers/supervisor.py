"""The workers of one proxy, in the place of its own server: their limits, counts and lines are kept here.

clients ══▶ worker ══▶ brokers        each worker listens on the port itself (SO_REUSEPORT)
              ║ letters
           supervisor: limits, policies, blocks, admin REST, metrics, access log
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable

from limiter.limiter import Limiter, Stream
from limiter.workers.court import Court
from protocol.endpoint import Endpoint
from proxy.blocking.rules import Key
from proxy.near_engine import NearEngine
from proxy.observe.access_log import AccessLog
from proxy.server import serves_both
from proxy.workers.desk import Desk
from proxy.workers.letters import CertificatesChanged, Kept
from proxy.workers.post import Post

START_S = 30.0
"""So long workers may take to be there."""
_ANSWER_S = 0.25
"""So long somebody who wants to see counts waits for a worker that does not answer."""


STEP = 65_536
"""Bytes by which that of an address is another before the workers are told: they would be told of each limiter else."""


class LimiterMemory:
    """What limiters take, by the address that they are kept for, and who owes too much.

    Each worker counts its part as taken of its own `client_memory`, so that the parts add up to the whole.

    Args:
        workers: How many parts there are.
        owes_too_much: Says of an address whether it may open no more streams; see `limiter.registry.Limiters`.
        tell: Sends a letter to every worker.
    """

    def __init__(self, workers: int, owes_too_much: Callable[[str], bool], tell: Callable[[Kept], None]) -> None:
        self._workers = workers
        self._owes_too_much = owes_too_much
        self._tell = tell
        self._owing: set[str] = set()
        self._of: dict[str, int] = {}
        self._told: dict[str, int] = {}

    def add(self, address: str, more: int) -> None:
        """So many bytes more (less: negative) are kept for clients at `address`."""
        size = self._of.get(address, 0) + more
        if size:
            self._of[address] = size
        else:
            self._of.pop(address, None)
        told, owes = self._told.get(address, 0), self._owes_too_much(address)
        if abs(size - told) < STEP and (size or not told) and owes is (address in self._owing):
            return
        self._told[address] = size
        if not size:
            del self._told[address]
        (self._owing.add if owes else self._owing.discard)(address)
        self._tell(self._letter(address))

    def letters(self) -> list[Kept]:
        """What a new worker is to be told."""
        return [self._letter(address) for address in {*self._told, *self._owing}]

    def _letter(self, address: str) -> Kept:
        return Kept(address, self._told.get(address, 0) // self._workers, address in self._owing)


class Supervisor:
    """Has workers, and keeps them going.

    Args:
        engine: The limits and counters of all.
        access: The access log of all.
    """

    def __init__(self, engine: NearEngine, access: AccessLog) -> None:
        self._engine = engine
        self._access = access
        self._court = Court(engine.rate_limiter, self._recall)
        self._posts = [Post(index, engine, self._new_desk) for index in range(engine.config.workers)]
        self._memory = LimiterMemory(engine.config.workers, engine.registry.owes_now, self._tell)
        self._reserved: list[socket.socket] = []
        engine.registry.wired = self._wired
        engine.registry.tuned = self._tuned
        engine.kept = self._memory.add
        engine.blocklist.removed = self._unblocked
        engine.admission.changed = self._bounds_changed

    async def start(self) -> str:
        """Start all; returns each address on which they listen, with the port that the system chose for port 0.

        Raises:
            OSError: If an address cannot be had, or a worker does not come up.
        """
        listen = self._engine.config.listen
        reserved = []
        for endpoint in listen:
            self._reserved.append(_reserve(endpoint, is_of_both=serves_both(endpoint, listen)))
            host, port = self._reserved[-1].getsockname()[:2]
            reserved.append(Endpoint(endpoint.scheme, host, port))
        await asyncio.gather(*(post.start(tuple(reserved)) for post in self._posts))
        for post in self._posts:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(post.up.wait(), START_S)
            if not post.is_up:
                why = post.why or f"it is not there within {START_S:g} s"
                await self.stop(0)
                raise OSError(f"worker {post.index} does not come up: {why}")
        return ", ".join(endpoint._replace(port=at.port).address for endpoint, at in zip(listen, reserved, strict=True))

    async def stop(self, patience_s: float) -> None:
        """Have all workers end their sessions, and wait for what is left to be sent."""
        await asyncio.gather(*(post.stop(patience_s) for post in self._posts))
        reserved, self._reserved = self._reserved, []
        for each in reserved:
            each.close()

    def certificates_changed(self) -> None:
        """Have all workers read the files of TLS again, which have just been read here."""
        for desk in self._desks():
            desk.channel.send([CertificatesChanged()])

    async def settle(self) -> None:
        """Have all workers tell what they have counted, because somebody wants to see it."""
        told = [post.desk.ask() for post in self._posts if post.desk is not None]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(one.wait() for one in told)), _ANSWER_S)

    def _new_desk(self, post: Post) -> Desk:
        return Desk(self._engine, self._access, self._court, post.cut_off, post.silent, self._memory.letters)

    def _desks(self) -> list[Desk]:
        return [post.desk for post in self._posts if post.desk is not None]

    def _tell(self, letter: Kept) -> None:
        for desk in self._desks():
            desk.channel.send([letter])

    def _recall(self, limiter: Limiter) -> None:
        for desk in self._desks():
            desk.judge.recall(limiter)

    def _tuned(self, limiter: Limiter, now: int) -> None:
        for desk in self._desks():
            desk.judge.tuned(limiter, now)

    def _wired(self, stream: Stream, now: int) -> None:
        for desk in self._desks():
            desk.judge.wired(stream, now)

    def _unblocked(self, key: Key) -> None:
        for desk in self._desks():
            desk.rule_removed(key)

    def _bounds_changed(self) -> None:
        for desk in self._desks():
            desk.channel.send([desk.bounds()])


def _reserve(endpoint: Endpoint, *, is_of_both: bool) -> socket.socket:
    """A socket that is bound and does not listen: the port stays this proxy's while workers come and go."""
    family, kind, proto, _, address = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)[0]
    reserved = socket.socket(family, kind, proto)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _say_which(reserved, is_of_both=is_of_both)
        _refuse_strangers(family, address, is_of_both=is_of_both)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(address)
    except OSError:
        reserved.close()
        raise
    return reserved


def _say_which(of_ipv6: socket.socket, *, is_of_both: bool) -> None:
    """Have a socket of IPv6 take IPv4 as well, or not; else the system decides."""
    if of_ipv6.family == socket.AF_INET6:
        of_ipv6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not is_of_both)


def _refuse_strangers(family: int, address: tuple[object, ...], *, is_of_both: bool) -> None:
    """Another proxy of the same user could share the port, and each would let its limits through.

    Without SO_REUSEPORT the port cannot be had while anybody listens there.
    """
    if address[1] == 0:
        return
    with socket.socket(family, socket.SOCK_STREAM) as alone:
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _say_which(alone, is_of_both=is_of_both)
        alone.bind(address)
