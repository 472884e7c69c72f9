"""The process of `sluice serve`: it goes on until SIGTERM, reloads on SIGHUP, and may start its successor."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import structlog
import uvloop

from proxy.assembly import ConfigSource, Proxy, may_be_taken_over
from proxy.config.model import NO_LIMITS, Config
from proxy.descriptors import raise_limit
from proxy.drain import DrainCause
from proxy.observe.operator_log import lines_by_thread, lines_written, set_up_operator_log
from proxy.reload import changes_of
from proxy.runtime import Searches, StartError, Tasks, be_scheduled, keep_for_ever, paused_collector, set_up_runtime
from proxy.server import Sockets
from proxy.service_manager import ServiceManager
from proxy.slices import Work
from proxy.takeover import START_S, Door, Successor, TakeoverError

_LOOK_S = 0.2
"""Seconds between two looks at a process that was started to take over."""
_OF_BEFORE = "TAKEOVER_SOCKET"
"""A variable for the next process: the socket at which this one is found, though the next one has another `proxy_id` or
`drain.state`."""
_AWAITED = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals that wait until a process which starts can do as they say. Their defaults would kill it when it has taken the
balances that the run before has left, and they would be lost."""


class Parent(Protocol):
    """The parent of one of several processes.

    Attributes:
        index: The number of this process.
    """

    index: int

    def starting(self) -> None:
        """Cancel the calling task if the parent ends before `serving` is called."""
        ...

    def serving(self, places: dict[str, str | None], on_parent_end: Callable[[], None]) -> None:
        """Send the parent this process's addresses and files, and signs of life; call `on_parent_end` at its end."""
        ...


def successor_of(config: Config) -> Successor | None:
    """Ask the running process for its sockets; None if no process runs that could be taken over.

    Raises:
        StartError: If this configuration allows no takeover, or the running process does not answer in time.
    """
    if not may_be_taken_over(config):
        raise StartError(
            "takeover: not possible for the members of a fleet, nor with `processes`: restart them in turn"
        )
    if config.drain.state is None:
        raise StartError("takeover: needs drain.state, the folder by which the running process is found")
    try:
        door = Door(config.drain.state, config.proxy_id)
        if _OF_BEFORE in os.environ:
            path = Path(os.environ.pop(_OF_BEFORE))
            door = Door(path.parent, path.stem)
        return Successor.ask(door, config.drain.timeout + config.linger + START_S)
    except TakeoverError as error:
        raise StartError(f"takeover: {error}") from None


def run(
    source: ConfigSource,
    parent: Parent | None = None,
    successor: Successor | None = None,
    given: Sockets | None = None,
) -> None:
    """Serve until SIGTERM, which drains first, or SIGINT; SIGHUP and changed files reload.

    Args:
        source: Where the configuration comes from.
        parent: The parent of this process, if it is one of several.
        successor: The takeover of the process before.
        given: The sockets of the service manager, or of the parent.

    Raises:
        ConfigError: If the configuration cannot be used.
        StartError: If the proxy cannot start.
    """
    set_up_operator_log(None if parent is None else parent.index)
    set_up_runtime()
    raise_limit()
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # its default would end a process that only starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    try:
        with lines_by_thread():  # the thread must get none of these signals
            uvloop.run(_serve(source, parent, successor, given))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


async def _serve(
    source: ConfigSource,
    parent: Parent | None = None,
    successor: Successor | None = None,
    given: Sockets | None = None,
) -> None:
    with paused_collector():
        proxy = Proxy(source, successor, given)
        keep_for_ever()
    if parent is not None:
        parent.starting()
    slices = proxy.engine.slices
    searches = Searches(asyncio.get_running_loop().call_soon_threadsafe, partial(slices.measure, Work.MEMORY))
    slices.after_work(searches.search_youngest)
    with searches.at_work():
        await _serve_until_signal(proxy, parent)


async def _serve_until_signal(proxy: Proxy, parent: Parent | None = None) -> None:
    log = structlog.get_logger()
    config, ending, tasks = proxy.config, proxy.ended, Tasks()
    try:
        shortage = proxy.descriptors.shortage()
        if shortage is not None:
            log.warning("too few file descriptors", detail=str(shortage), max_connections=config.max_connections)
        if proxy.is_unlimited and (parent is None or parent.index == 0):
            log.warning("no limits are set", detail=NO_LIMITS)
        problem = be_scheduled(config.scheduling)
        if problem is not None:
            log.warning("the system refuses the configured scheduling", scheduling=config.scheduling, error=problem)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, _end_at_once, proxy)
        loop.add_signal_handler(signal.SIGTERM, partial(_terminate, proxy, has_parent=parent is not None))
        loop.add_signal_handler(
            signal.SIGHUP, lambda: tasks.start(_reload(proxy.reloader.reload("SIGHUP"), "SIGHUP"), "reload")
        )
        loop.add_signal_handler(
            signal.SIGUSR2,
            (lambda: tasks.start(_start_next(proxy), "start the next process"))
            if parent is None
            else partial(proxy.terminate, DrainCause.REPLACED),
        )
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
        listen, admin = await proxy.start()
        addresses = {"listen": listen, "admin": admin, "metrics": proxy.metrics_address}
        files = {"access_log": config.access_log.dir, "policies": config.policies.store}
        named = addresses | {key: None if file is None else str(file) for key, file in files.items()}
        log.info("serving", **named, broker=", ".join(map(str, config.broker)))
        manager = ServiceManager(os.environ if parent is None else {})
        lost = proxy.kept.lost_at_end()
        if lost:
            log.info("limits, blocks or balances will be lost when this process ends", lost="; ".join(lost))
        await lines_written()
        if parent is not None:
            parent.serving(named, ending.set)
        tasks.start(manager.serving(), "report to the service manager")
        tasks.start(_watch(proxy), "watch the configuration")
        await ending.wait()
        if proxy.handovers is None or not proxy.handovers.is_under_way:
            manager.ending()
        log.info("ending", connections=sum(proxy.engine.counters.connections_open.values()))
    finally:
        tasks.cancel()
        await proxy.stop()
    log.info("ended")


def _terminate(proxy: Proxy, *, has_parent: bool) -> None:
    """Drain and end; a second SIGTERM ends at once, but for one of several processes.

    Its parent asks for a drain, and so may a service manager that signals each process of a group. The parent has a
    word of its own for an end at once: SIGINT.
    """
    if not proxy.readiness.is_accepting:
        structlog.get_logger().info("stopped before it served")
    if not proxy.terminate() and not has_parent:
        proxy.drain.end()


def _end_at_once(proxy: Proxy) -> None:
    if not proxy.ended.is_set():
        proxy.drain.end("SIGINT")
        proxy.ended.set()


async def _start_next(proxy: Proxy) -> None:
    """Start a process with the command of this one, which takes over from it; report its failure."""
    log = structlog.get_logger()
    if not proxy.readiness.is_accepting:
        log.error("no takeover: this process does not serve yet")
        return
    if proxy.handovers is None:
        log.error("no takeover: set drain.state, or, in a fleet, set `processes` and send SIGUSR2 to the parent")
        return
    command = [*sys.orig_argv, *(["--takeover"] if "--takeover" not in sys.orig_argv else [])]
    config = proxy.config
    assert config.drain.state is not None, "else no process can take over"
    environment = {name: value for name, value in os.environ.items() if name != "WATCHDOG_PID"}
    environment[_OF_BEFORE] = str(Door(config.drain.state, config.proxy_id).path)
    start = partial(subprocess.Popen[bytes], command, env=environment, stdin=subprocess.DEVNULL)
    try:
        process = await asyncio.to_thread(start)
        while process.poll() is None:  # noqa: ASYNC110 - a child of another loop's making
            await asyncio.sleep(_LOOK_S)
    except OSError as error:
        log.error("takeover: no process can be started", command=command[0], error=error.strerror)  # noqa: TRY400
        return
    log.error("takeover: the new process has ended; its own lines say why", code=process.returncode)


async def _reload(reload: Awaitable[object], cause: str) -> None:
    try:
        await reload
    except Exception:  # noqa: BLE001 - the watch must go on for the next reload
        structlog.get_logger().exception("reload failed", cause=cause)


async def _watch(proxy: Proxy) -> None:
    if not proxy.read_files:
        return
    async for _ in changes_of(proxy.read_files):
        await _reload(proxy.reloader.file_changed(), "file changed")
