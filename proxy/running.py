"""Run a proxy until SIGTERM; SIGHUP and changed files reload its configuration."""

import asyncio
import signal

import structlog
import uvloop

from proxy.config.watching import changes_of
from proxy.observe.operator_log import set_up_operator_log
from proxy.runtime import Searches, Tasks, be_scheduled, keep_for_ever, paused_collector, set_up_runtime
from proxy.serve import ConfigSource, Proxy


def run(source: ConfigSource) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP and changed files reload.

    Raises:
        ConfigError: If the configuration cannot be used.
        StartError: If the proxy cannot start.
    """
    set_up_operator_log()
    set_up_runtime()
    uvloop.run(_serve(source))


async def _serve(source: ConfigSource) -> None:
    with Searches(asyncio.get_running_loop().call_soon_threadsafe).at_work():
        await _serve_until_told(source)


async def _serve_until_told(source: ConfigSource) -> None:
    log = structlog.get_logger()
    with paused_collector():
        proxy = Proxy(source)
        keep_for_ever()
    config, ending, tasks = proxy.config, asyncio.Event(), Tasks()
    problem = be_scheduled(config.scheduling)
    if problem is not None:
        log.warning("not scheduled as configured", scheduling=config.scheduling, error=problem)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: tasks.start(_reload(proxy, "SIGHUP"), "reload"))
    try:
        listen, admin = await proxy.start()
        addresses = {"listen": listen, "admin": admin, "metrics": proxy.metrics_address}
        files = {"access_log": str(config.access_log.dir), "policies": str(config.policies.store)}
        log.info("serving", **addresses, broker=str(config.broker), **files)
        tasks.start(_watch(proxy), "watch the configuration")
        await ending.wait()
        log.info("ending", connections=sum(proxy.engine.counters.connections_open.values()))
    finally:
        tasks.cancel()
        await proxy.stop()
    log.info("ended")


async def _reload(proxy: Proxy, cause: str) -> None:
    try:
        await proxy.reloader.reload(cause)
    except Exception:  # noqa: BLE001 - the next one must find somebody who notices it
        structlog.get_logger().exception("reload failed", cause=cause)


async def _watch(proxy: Proxy) -> None:
    if not proxy.read_files:
        return
    try:
        async for _ in changes_of(proxy.read_files):
            await _reload(proxy, "file changed")
    except (OSError, RuntimeError) as error:
        structlog.get_logger().error(
            "changes of the configuration's files are not noticed; send SIGHUP", error=str(error)
        )
