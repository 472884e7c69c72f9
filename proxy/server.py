"""Accepts clients and gives each its session."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

import structlog

from protocol.endpoint import Endpoint
from proxy.observe.operator_log import ThrottledLog
from proxy.session.engine import Engine
from proxy.session.events import SessionLog
from proxy.session.keep_alive import set_options
from proxy.session.session import Session
from proxy.slices import Work

LISTENERS = 4
"""Duplicates of each listening socket. libuv accepts one connection per listener and loop turn. Four duplicates accept
four, which makes connection storms cheaper; a lone connection costs three extra accept calls."""
BACKLOG = 4096
"""Most connections that wait to be accepted, if the system allows as many."""
ACCEPTED_AT_ONCE = 64
"""Most connections of a queue that are accepted in one turn of the loop."""


def serves_both(endpoint: Endpoint, all_: Iterable[Endpoint]) -> bool:
    """Return whether an endpoint of the list takes clients of IPv6 and of IPv4.

    `[::]` does, unless another one, as `0.0.0.0`, takes clients of IPv4 on the same port.
    """
    if endpoint.host != "::" or not socket.has_dualstack_ipv6():
        return False
    return not any(other.port == endpoint.port != 0 and ":" not in other.host for other in all_)


@dataclass(frozen=True, slots=True)
class Sockets:
    """Listening sockets that a process gets from another one.

    Attributes:
        by_name: The sockets, by the key and the value of their address in the configuration.
        kept: The names of those that the service manager keeps open: while no process accepts, connections wait in
            their queues.
    """

    by_name: dict[str, list[socket.socket]] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)

    def add(self, others: "Sockets") -> None:
        """Take the sockets of names that have none, and close the others: two of one address are one socket."""
        for name, group in others.by_name.items():
            if self.by_name.setdefault(name, group) is not group:
                for each in group:
                    each.close()
        self.kept.update(others.kept)


def _named(endpoint: Endpoint, bound: list[socket.socket]) -> Endpoint:
    return endpoint._replace(port=bound[0].getsockname()[1])


async def _accept_last(listening: socket.socket, accept: Callable[[], asyncio.BaseProtocol]) -> None:
    """Accept the clients of a queue, and close it at once when it is empty: a client that comes between is reset."""
    listening.setblocking(False)
    for _ in range(BACKLOG // ACCEPTED_AT_ONCE):
        accepted: list[socket.socket] = []
        with contextlib.suppress(OSError):  # the queue is empty, or no descriptor is left
            while len(accepted) < ACCEPTED_AT_ONCE:
                accepted.append(listening.accept()[0])
        is_last = len(accepted) < ACCEPTED_AT_ONCE
        if is_last:
            listening.close()
        for each in accepted:
            await asyncio.get_running_loop().connect_accepted_socket(accept, each)
        if is_last:
            return


class _Closed(asyncio.Protocol):
    """A client connection that is closed as soon as it is accepted."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        transport.abort()  # type: ignore[attr-defined] # each transport of a socket has it


class Server:
    """The listening sockets for Pulsar clients.

    Args:
        engine: The objects that sessions share.
        log: The sessions' log.
        most: Sessions that there are file descriptors for; None: any number.

    Attributes:
        engine: The objects that all sessions share.
        sessions: The sessions whose connections are not both gone, in the order in which they were accepted.
        accepted: The number of sessions so far, which is the number of the last one.
    """

    def __init__(self, engine: Engine, log: SessionLog, most: int | None = None) -> None:
        self._most = most
        self._refusals = ThrottledLog(engine.clock)
        self.engine = engine
        self._log = log
        self._bound: dict[Endpoint, list[socket.socket]] = {}
        """The listening sockets of each configured address; clients wait in their queues while none accepts."""
        self._accepting: dict[Endpoint, list[asyncio.Server]] = {}
        self._kept: set[Endpoint] = set()
        """The addresses whose sockets the service manager keeps open."""
        self.sessions: dict[Session, None] = {}
        self.accepted = 0
        self._all_gone = asyncio.Event()

    async def start(self) -> str:
        """Listen and accept; returns each address as `host:port`, with the port that the system chose for port 0.

        Raises:
            OSError: If an address cannot be had.
        """
        listen = await self.bind(Sockets())
        try:
            await self.accept()
        except BaseException:
            self.stop_listening()
            raise
        return listen

    async def bind(self, inherited: Sockets) -> str:
        """Listen, and accept no client yet; returns the addresses.

        Args:
            inherited: Sockets for the addresses of their names, which are taken out.

        Raises:
            OSError: If an address cannot be had.
        """
        endpoints = self.engine.config.listen
        try:
            for endpoint in endpoints:
                name = f"listen {endpoint}"
                taken = inherited.by_name.pop(name, None)
                self._bound[endpoint] = await self._bind(endpoint) if taken is None else taken
                if taken is not None and name in inherited.kept:
                    self._kept.add(endpoint)
                for each in taken or ():
                    each.listen(BACKLOG)  # the process before may lack this address: another program has it by now
                for each in self._bound[endpoint]:
                    set_options(each, self.engine.config.keep_alive)
        except BaseException:
            self.stop_listening()
            raise
        return ", ".join(_named(endpoint, self._bound[endpoint]).address for endpoint in endpoints)

    def sockets(self) -> dict[str, list[socket.socket]]:
        """Return the listening sockets, by the names of their addresses."""
        return {f"listen {endpoint}": list(bound) for endpoint, bound in self._bound.items()}

    async def accept(self) -> None:
        """Accept clients at all addresses.

        Raises:
            OSError: As `accept_from`.
        """
        for bound in list(self._bound.values()):
            for listening in bound:
                await self.accept_from(listening)

    async def accept_from(self, listening: socket.socket) -> None:
        """Accept the clients of one of `sockets`.

        Raises:
            OSError: If the system has no descriptor for it; EADDRINUSE: the next process, which has ended, has shut the
                address, and another program has it.
        """
        listening.listen(BACKLOG)  # uvloop's create_server hides the error
        endpoint, bound = next(each for each in self._bound.items() if listening in each[1])
        accept, loop = partial(self._accept, _named(endpoint, bound)), asyncio.get_running_loop()
        with contextlib.ExitStack() as unless_all:
            accepting: list[asyncio.Server] = []
            for _ in range(LISTENERS):
                with contextlib.ExitStack() as unless_taken:
                    same = unless_taken.enter_context(socket.socket(fileno=os.dup(listening.fileno())))
                    accepting.append(await loop.create_server(accept, sock=same, backlog=BACKLOG))
                    unless_taken.pop_all()
                unless_all.callback(accepting[-1].close)
            unless_all.pop_all()
        self._accepting.setdefault(endpoint, []).extend(accepting)

    def pause_accepting(self) -> None:
        """Accept no client until `accept` is called again; new ones wait in the system's queues."""
        self._pause(list(self._accepting))

    def leave_queues(self) -> None:
        """Accept no client where the service manager keeps the sockets: new ones wait for the next process."""
        self._pause(self._kept)

    def _pause(self, endpoints: Iterable[Endpoint]) -> None:
        for endpoint in endpoints:
            for server in self._accepting.pop(endpoint, ()):
                server.close()

    async def stop(self, patience_s: float) -> None:
        """Accept no more, end every session, and wait until the bytes left are sent."""
        self.stop_listening()
        self.end_sessions()
        if self.sessions:
            self._all_gone.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), patience_s)
        self.engine.slices.finish(Work.ENDINGS)

    def accepted_after(self, number: int) -> Iterator[Session]:
        """Yield the open sessions with higher numbers, the last one first."""
        return takewhile(lambda session: session.connection.connection_id > number, reversed(self.sessions))

    def end_sessions(self) -> None:
        """End every session."""
        for session in list(self.sessions):
            session.shut_down()

    async def _bind(self, endpoint: Endpoint) -> list[socket.socket]:
        """Return listening sockets at every address that the host stands for; all or none."""
        config = self.engine.config
        takes_both = serves_both(endpoint, config.listen)
        resolved = await asyncio.get_running_loop().getaddrinfo(
            endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        with contextlib.ExitStack() as unless_bound:
            bound = [
                unless_bound.enter_context(
                    socket.create_server(
                        address,
                        family=family,
                        backlog=BACKLOG,
                        reuse_port=config.processes > 1,
                        dualstack_ipv6=takes_both,
                    )
                )
                for family, *_, address in dict.fromkeys(resolved)
            ]
            unless_bound.pop_all()
        return bound

    def stop_listening(self) -> None:
        """Listen no more; connections that are open stay."""
        self.pause_accepting()
        bound, self._bound = self._bound, {}
        for listening in bound.values():
            for each in listening:
                each.close()

    async def leave_port(self) -> None:
        """Listen no more, where other processes have the port; clients in queues of this one are accepted first."""
        self.pause_accepting()
        for endpoint, bound in self._bound.items():
            accept = partial(self._accept, _named(endpoint, bound))
            for listening in () if endpoint in self._kept else bound:
                await _accept_last(listening, accept)
        self.stop_listening()

    def _accept(self, endpoint: Endpoint) -> asyncio.BaseProtocol:
        if self._most is not None and len(self.sessions) >= self._most:
            self._count_refused()
            return _Closed()
        self.accepted += 1
        session = Session(self.engine, self.accepted, self._log, self._finished, endpoint)
        self.sessions[session] = None
        return session.client.protocol

    def _count_refused(self) -> None:
        """Count a client that gets no session, and no answer either: an answer would keep its descriptor."""
        self.engine.counters.descriptors_refused += 1
        times = self._refusals.due("descriptors")
        if times:
            structlog.get_logger().warning(
                "client connections are closed at once: the file descriptors that are left are kept for brokers, the "
                "admin address and log files; raise the limit (ulimit -n, LimitNOFILE, --ulimit nofile)",
                connections=len(self.sessions),
                refused=times,
            )

    def _finished(self, session: Session) -> None:
        self.sessions.pop(session, None)
        if not self.sessions:
            self._all_gone.set()
        self.engine.shared.heap.freed()
