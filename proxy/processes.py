"""`processes: N`: N ordinary Sluices on one port, members of one fleet. A small parent starts, watches and ends them.

    parent ─starts─▶ python -m proxy.processes SPEC    one for each index, again and again
       │  ◀─Serving, then a beat a second─┤            over a socket pair; the end of either side ends the child
       └─SIGTERM, SIGHUP─────────────────▶┘            SIGUSR2: each is ended and started again, in turn

The parent holds the ports, serves no client and knows no limit. The kernel spreads connections over the processes
(SO_REUSEPORT); of a socket that the service manager has given, all accept from one queue. The fleet makes one limit
hold over all processes.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from limiter.levels import SHARED_BY_PROCESSES
from protocol.endpoint import Endpoint
from proxy import typed_json
from proxy.assembly import ConfigSource
from proxy.config.model import Config, ConfigError, load_config
from proxy.config.rereading import ConfigFiles
from proxy.config.sections import Fleet
from proxy.kept_state import retire_others
from proxy.limit_state import name_of_process
from proxy.observe.operator_log import choose_form, lines_by_thread, lines_written, set_up_operator_log
from proxy.policies.store import StoreError, left_over, spread, store_of
from proxy.runtime import StartError, Tasks
from proxy.serve import run
from proxy.server import Sockets, serves_both
from proxy.service_manager import ServiceManager
from proxy.start_check import StartCheck, address_of_process, addresses_of

BEAT_S: Final = 1.0
"""Seconds between two signs of life of a process."""
_MOST_SERVING: Final = 10
"""Configurations of replacements that were not complete that are remembered: processes may have them."""
SILENT_S: Final = 30.0
"""Seconds without a sign of life after which a process is killed, as with gunicorn's `timeout`: it serves no client."""
START_S: Final = 60.0
"""Seconds in which a process must serve, or it is killed."""
GRACE_S: Final = 5.0
"""Seconds that a process has beyond `drain.timeout` and `linger` for its end, before it is killed."""
FIRST_PAUSE_S: Final = 0.1
MOST_PAUSE_S: Final = 30.0
"""A process that ends is replaced after 0.1 s, each further one after twice as long, up to 30 s; a process that has
lived for longer than that begins the series again."""


class Spec(msgspec.Struct, frozen=True):
    """The configuration of one process: its source, as the parent was given it, and its place among the processes.

    Attributes:
        file: The configuration's file.
        flags: The flags of `sluice serve`.
        index: The number of the process, from 0.
        ports: The port of each address in `listen`, for those with port 0.
        members: The number of members of the fleet, if its members are these processes alone; else 0.
        given: The descriptors of the service manager's sockets that the process gets, by the names of their addresses.
    """

    file: str | None
    flags: dict[str, Any]
    index: int
    ports: tuple[int, ...]
    members: int
    given: dict[str, list[int]] = {}


Serving = dict[str, str | None]
"""The addresses and files of a process that serves, by the names of their keys in the configuration."""


def as_process(config: Config, index: int, ports: Sequence[int] = ()) -> Config:
    """Return the configuration of one of `config.processes`.

    Each process has a name, addresses and a policy store of its own, derived from the one configured; the store
    of the first process is that one. Bounds of memory and of connections are divided, so that their sums hold. Without
    a section `fleet` the processes are a fleet by themselves, and share the limits of all levels.

    Args:
        config: The configuration of all.
        index: The number of the process, from 0.
        ports: The port of each address in `listen`, for those with port 0.
    """
    count = config.processes

    def part(whole: int) -> int:
        return max(1, whole // count)

    def address(endpoint: Endpoint | None) -> Endpoint | None:
        return endpoint and address_of_process(endpoint, index)

    listen = config.listen
    if len(ports) == len(listen):
        listen = tuple(at._replace(port=at.port or port) for at, port in zip(listen, ports, strict=True))
    memory, publish = config.client_memory, config.publish
    store = config.policies.store and store_of(config.policies.store, index)
    fleet = config.fleet or Fleet(name=config.proxy_id).model_copy(update={"shared": SHARED_BY_PROCESSES})
    return config.model_copy(
        update={
            "listen": listen,
            "admin": address(config.admin),
            "metrics": address(config.metrics),
            "proxy_id": name_of_process(config.proxy_id, index),
            "fleet": fleet,
            "max_connections": part(config.max_connections),
            "max_lookups_in_flight": part(config.max_lookups_in_flight),
            "client_memory": memory.model_copy(update={"total": part(memory.total)}),
            "publish": publish.model_copy(update={"hold_total": part(publish.hold_total)}),
            "access_log": config.access_log.part_of(count),
            "policies": config.policies.model_copy(update={"store": store}),
        }
    )


class ChildProcess:
    """Keeps one process running: starts it, and starts it again where it ends, is silent or does not come up.

    Args:
        spec: Its configuration.
        patience_s: Seconds that it has for its end.
        clock: Seconds, monotonic.

    Attributes:
        serving: The addresses and files of the process that serves; None while none does.
        has_served: Set when the first process serves.
    """

    def __init__(self, spec: Spec, patience_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.spec = spec
        self.serving: Serving | None = None
        self._patience_s = patience_s
        self._clock = clock
        self._process: Process | None = None
        self._ending, self._is_replaced = asyncio.Event(), False
        self.has_served, self._next_serves = asyncio.Event(), asyncio.Event()
        self._log = structlog.get_logger().bind(process=spec.index)

    async def keep(self) -> None:
        """Run one process after the other until `stop`, or until the first one ends before it serves."""
        pause_s = 0.0
        while not self._ending.is_set():
            began = self._clock()
            try:
                code: int | str = await self._run()
            except OSError as error:  # the system has no process, memory or descriptor for it
                code = error.strerror or str(error)
            if self._ending.is_set() or not self.has_served.is_set():
                return
            if self._is_replaced:
                self._is_replaced = False
                continue
            pause_s = next_pause(pause_s, self._clock() - began)
            self._log.error("process ended", code=code, next_in_s=pause_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause_s)

    async def stop(self, number: signal.Signals) -> None:
        """Send a signal that ends the process after it has sent the bytes left; kill it if that takes too long."""
        self._ending.set()
        await self._end(number)

    async def replace(self) -> None:
        """Have the process that runs drain and end; return when the next one serves, by the configuration of then.

        Raises:
            TimeoutError: If it does not serve in time; it is started again and again.
        """
        self._next_serves.clear()
        self._is_replaced = self._process is not None
        await self._end(signal.SIGTERM if self.serving is None else signal.SIGUSR2)
        async with asyncio.timeout(START_S):
            await self._next_serves.wait()

    async def _end(self, number: signal.Signals) -> None:
        self.signal(number)
        process = self._process
        if process is None:
            return
        try:
            await asyncio.wait_for(process.wait(), self._patience_s + GRACE_S)
        except TimeoutError:
            self._log.error("process killed: it did not end", after_s=self._patience_s + GRACE_S)
            self.signal(signal.SIGKILL)
            await process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process that runs.

        One that does not serve yet has nothing to drain. SIGTERM ends it without a word, also while it imports modules.
        """
        if number == signal.SIGINT and self.serving is None:
            number = signal.SIGTERM
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _run(self) -> int:
        """Run one process from its start to its end; return its exit code, negative for a signal."""
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as unless_started, theirs:
            unless_started.callback(ours.close)
            # -P: a file in the working directory is never imported in place of this package.
            command = (sys.executable, "-P", "-m", "proxy.processes", msgspec.json.encode(self.spec).decode())
            passed = (theirs.fileno(), *chain.from_iterable(self.spec.given.values()))
            process = await asyncio.create_subprocess_exec(
                *command, str(theirs.fileno()), stdin=DEVNULL, pass_fds=passed, start_new_session=True
            )
            unless_started.pop_all()
        self._process = process
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        try:
            await self._hear(reader)
            return await process.wait()
        finally:
            self._process, self.serving = None, None
            writer.close()

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        """Read signs of life until the process ends; kill it where none comes."""
        try:
            async with asyncio.timeout(START_S):
                first = await reader.readline()
            if first:
                self.serving = typed_json.decode(first, Serving)
                self.has_served.set()
                self._next_serves.set()
                self._log.info("process serves", pid=self._process and self._process.pid, **self.serving)
            while first:
                async with asyncio.timeout(SILENT_S):
                    first = await reader.read(64)
        except TimeoutError:
            self._log.error("process killed: it gives no sign of life", after_s=SILENT_S if self.serving else START_S)
            self.signal(signal.SIGKILL)


def next_pause(pause_s: float, lived_s: float) -> float:
    """Return the seconds before the next process; `pause_s` were waited for the last one (0: it was the first)."""
    if pause_s == 0 or lived_s > MOST_PAUSE_S:
        return FIRST_PAUSE_S
    return min(2 * pause_s, MOST_PAUSE_S)


def run_processes(file: Path | None, flags: dict[str, Any], config: Config, given: Sockets) -> None:
    """Serve by `config.processes` processes until SIGTERM or SIGINT; SIGHUP goes to each process.

    Args:
        file: The configuration's file.
        flags: The flags of `sluice serve`.
        config: What they have.
        given: The sockets of the service manager; all processes accept from one of `listen`.

    Raises:
        StartError: If an address cannot be had, or a process does not come up; its own lines say why.
    """
    set_up_operator_log()
    choose_form(config.log)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # its default would end a process that only starts
    with lines_by_thread():
        asyncio.run(_serve(file, flags, config, given))


async def _serve(file: Path | None, flags: dict[str, Any], config: Config, given: Sockets) -> None:
    with contextlib.ExitStack() as held:
        try:
            ports = tuple(
                at.port
                if f"listen {at}" in given.by_name
                else held.enter_context(hold(at, config.listen)).getsockname()[1]
                for at in config.listen
            )
        except OSError as error:
            where = ", ".join(each.address for each in config.listen)
            raise StartError(f"listen: cannot listen on {where}: {error.strerror or error}") from None
        _spread_store(config)
        if config.drain.state is not None:
            with contextlib.suppress(OSError):  # the processes cannot use it either, and say so
                retire_others(config, config.drain.state)
        # Members on other hosts are not counted: with a section `fleet` the number is not known.
        members = config.processes if config.fleet is None else 0
        source = None if file is None else str(file)
        specs = [
            Spec(source, flags, index, ports, members, _of_process(given, config, index))
            for index in range(config.processes)
        ]
        children = [ChildProcess(spec, config.drain.timeout + config.linger) for spec in specs]
        replacing = Replacing(children, config, lambda: load_config(file, flags, dict(os.environ)))
        await _keep(children, replacing)


def _of_process(given: Sockets, config: Config, index: int) -> dict[str, list[int]]:
    """Return the descriptors that one of the processes gets: all of `listen`, and those of its own addresses."""
    own = {
        f"{key} {endpoint}" for key, process, endpoint in addresses_of(config) if key == "listen" or process == index
    }
    return {name: [each.fileno() for each in group] for name, group in given.by_name.items() if name in own}


def _spread_store(config: Config) -> None:
    store = config.policies.store
    if store is None:
        return
    try:
        copies = spread(store, config.processes, is_carried=as_process(config, 0).policy_topic is not None)
    except StoreError as error:
        raise StartError(str(error)) from None
    if copies:
        structlog.get_logger().info(
            "policies: further processes begin with the store of the first one",
            store=str(store),
            copies=", ".join(map(str, copies)),
        )
    for warning in left_over(store, config.processes):
        structlog.get_logger().warning("policies: a store of another process", detail=warning)


class Replacing:
    """Replaces all processes, one after the other, on SIGUSR2; the others serve meanwhile.

    Args:
        children: The processes.
        config: The configuration that the parent has read at its start.
        read: Reads the configuration again. Raises ConfigError.
    """

    def __init__(self, children: Sequence[ChildProcess], config: Config, read: Callable[[], Config]) -> None:
        self._children = children
        self._config = config
        self._serving = [config]
        """The configuration of the last complete replacement, and those of later ones that were not."""
        self._read = read
        self._tasks = Tasks()
        self._is_under_way = False

    def begin(self) -> None:
        """Begin, if it is not under way, and the configuration can be used by this parent."""
        if not self._is_under_way:
            self._is_under_way = True
            self._tasks.start(self._run(), "replace the processes")

    def stop(self) -> None:
        """Do no more."""
        self._tasks.cancel()

    async def _run(self) -> None:
        log = structlog.get_logger()
        try:
            problem = await asyncio.to_thread(self._problem)
            if problem:
                log.error("processes are not replaced", error=problem)
                return
            for child in self._children:
                await child.replace()
            self._serving = self._serving[-1:]
            log.info("all processes are replaced", processes=len(self._children))
        except TimeoutError:
            log.error("processes are not replaced: the last one does not serve; its own lines say why")  # noqa: TRY400
        finally:
            self._is_under_way = False

    def _problem(self) -> str:
        """Return the reason for which no process could start with the configuration of now; empty if there is none."""
        try:
            config = self._read()
        except ConfigError as error:
            return "; ".join(map(str, error.problems))
        own = {key for key in ("listen", "processes") if getattr(config, key) != getattr(self._config, key)}
        if own:
            return f"the parent itself must be restarted for {', '.join(sorted(own))}"
        configured = {f"{key} {endpoint}" for key, _, endpoint in addresses_of(config)}
        left = sorted({name for child in self._children for name in child.spec.given} - configured)
        if left:
            return (
                f"the service manager keeps {', '.join(left)} open, which the configuration lacks: callers would wait "
                "there, and none would be served; change the socket unit as well, and restart it and the service"
            )
        problems = StartCheck.of(config, running=self._serving).problems
        if not problems:
            self._serving = [*self._serving[-_MOST_SERVING:], config]
        return "; ".join(problems)


async def _keep(children: Sequence[ChildProcess], replacing: Replacing) -> None:
    """Keep all running until a signal ends them. The first one serves before the others begin: it reports mistakes."""
    log, ending, loop = structlog.get_logger(), asyncio.Event(), asyncio.get_running_loop()
    end_by = signal.SIGTERM

    def pass_on(number: signal.Signals) -> None:
        for child in children:
            child.signal(number)

    def end(number: signal.Signals) -> None:
        """Have the children end; they drain on the first SIGTERM, and end at once on any further signal."""
        nonlocal end_by
        if ending.is_set():
            pass_on(signal.SIGINT)
        else:
            end_by = number
            ending.set()

    loop.add_signal_handler(signal.SIGHUP, pass_on, signal.SIGHUP)
    loop.add_signal_handler(signal.SIGUSR2, lambda: log.error("processes are not replaced: not all of them serve yet"))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)
    ends = loop.create_task(ending.wait())
    manager, tasks = ServiceManager(os.environ), Tasks()
    keepers: list[asyncio.Task[None]] = []
    try:
        for begun in (children[:1], children[1:]):
            keepers += [loop.create_task(child.keep()) for child in begun]
            serve = loop.create_task(_all_serve(begun))
            await asyncio.wait([ends, serve, *keepers], return_when=asyncio.FIRST_COMPLETED)
            serve.cancel()
            if any(keeper.done() for keeper in keepers):
                raise StartError("a process did not come up; its lines above say why")
        if not ending.is_set():
            log.info("all processes serve", processes=len(children))
            loop.add_signal_handler(signal.SIGUSR2, replacing.begin)
            tasks.start(_report(manager), "report to the service manager")
        await ends
        manager.ending()
        log.info("ending", processes=len(children))
    finally:
        tasks.cancel()
        replacing.stop()
        await asyncio.gather(*(child.stop(end_by) for child in children))
        await asyncio.gather(*keepers)
    log.info("ended")


async def _report(manager: ServiceManager) -> None:
    await lines_written()
    await manager.serving()


async def _all_serve(children: Sequence[ChildProcess]) -> None:
    for child in children:
        await child.has_served.wait()


def hold(endpoint: Endpoint, all_: Sequence[Endpoint]) -> socket.socket:
    """Return a socket that is bound and does not listen: the port stays this proxy's while processes come and go.

    Another program that listens there is refused, one that would share the port (SO_REUSEPORT) as well: each would let
    its own limits through.
    """
    family, _, _, _, address = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)[0]
    takes_both = serves_both(endpoint, all_)
    with _of_family(family, takes_both=takes_both) as alone:
        if address[1]:
            alone.bind(address)  # fails while any other socket listens there
    held = _of_family(family, takes_both=takes_both)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(address)
    except OSError:
        held.close()
        raise
    return held


def _of_family(family: int, *, takes_both: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not takes_both)
    return made


class ParentLink:
    """The end of the socket pair in a process: sends the parent signs of life.

    Args:
        fd: The descriptor of the socket pair's end.
        index: The number of the process, from 0.
    """

    def __init__(self, fd: int, index: int) -> None:
        self.index = index
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)

    def starting(self) -> None:
        """Cancel the calling task if the parent ends before `serving` is called."""
        task = asyncio.current_task()
        assert task is not None, "the loop runs it"
        asyncio.get_running_loop().add_reader(self._socket, self._parent_ended, task.cancel)

    def serving(self, places: Serving, on_parent_end: Callable[[], None]) -> None:
        """Send the parent the addresses and files of this process, and from now on signs of life.

        Args:
            places: The addresses and files.
            on_parent_end: Called when the parent has ended.
        """
        loop = asyncio.get_running_loop()
        self._socket.send(msgspec.json.encode(places) + b"\n")
        loop.add_reader(self._socket, self._parent_ended, on_parent_end)
        self._beat(loop)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(OSError):  # the parent is busy, or gone
            self._socket.send(b".")
        loop.call_later(BEAT_S, self._beat, loop)

    def _parent_ended(self, on_parent_end: Callable[[], object]) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        structlog.get_logger().error("the parent process has ended, so this process ends too")
        on_parent_end()


def main() -> None:
    """Serve as one of several processes: arguments are a `Spec` as JSON, and the descriptor of the socket pair."""
    spec = typed_json.decode(sys.argv[1], Spec)
    link = ParentLink(int(sys.argv[2]), spec.index)
    file = None if spec.file is None else Path(spec.file)

    files = ConfigFiles(file, spec.flags, dict(os.environ))

    def read() -> Config:
        return as_process(files.read(), spec.index, spec.ports)

    def reread() -> Config:
        try:
            return as_process(files.reread(), spec.index, spec.ports)
        except ConfigError as error:
            part = error.usable
            usable = part and replace(part, config=as_process(part.config, spec.index, spec.ports))
            raise ConfigError(error.problems, usable=usable) from None

    by_name = {name: [socket.socket(fileno=each) for each in given] for name, given in spec.given.items()}
    try:
        run(ConfigSource(file, read, spec.members, reread), link, given=Sockets(by_name, {*by_name}))
    except ConfigError as error:
        sys.exit("\n".join(f"sluice: {problem}" for problem in error.problems))
    except StartError as error:
        sys.exit(f"sluice: {error}")
    except asyncio.CancelledError:
        sys.exit("sluice: the parent of this process ended before it served")


if __name__ == "__main__":
    main()
