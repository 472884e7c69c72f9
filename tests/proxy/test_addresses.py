"""Addresses whose sockets are shut, and taken by another program meanwhile."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from loadgen.real.process import free_ports
from proxy.assembly import Proxy
from proxy.runtime import StartError
from tests.proxy.test_serve import given
from tests.waiting import until

NOBODY = "127.0.0.1:1"
AGAIN = "address is served again"
KEYS = pytest.mark.parametrize("key", ["listen", "admin", "metrics"])


def proxy_of_all() -> Proxy:
    """A proxy at ports with numbers, which shut sockets keep."""
    first, second, admin, metrics = (f"127.0.0.1:{port}" for port in free_ports(0, 0, 0, 0))
    more = {"listen": [first, second], "admin": admin, "metrics": metrics}
    return Proxy(given(NOBODY, more=more))


def of_key(key: str, proxy: Proxy) -> tuple[str, socket.socket]:
    """The name and the socket of an address of a key."""
    by_name = proxy.addresses.sockets().by_name
    name = next(name for name in by_name if name.startswith(key))
    return name, by_name[name][0]


def listens(each: socket.socket) -> bool:
    return bool(each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


@contextmanager
def shut_and_taken(each: socket.socket) -> Iterator[None]:
    """Do as a new process without this address, and as another program that begins to listen there."""
    each.shutdown(socket.SHUT_RDWR)
    with socket.create_server(each.getsockname()):
        yield


def waits_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("addresses", "assembly"):
        monkeypatch.setattr(f"proxy.{module}.AGAIN_S", 0)


@KEYS
async def test_address_of_another_program_is_served_when_free(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits_nowhere(monkeypatch)
    proxy = proxy_of_all()
    await proxy.start()
    name, taken = of_key(key, proxy)
    others = [each for group in proxy.addresses.sockets().by_name.values() for each in group if each is not taken]
    with capture_logs() as lines:
        proxy.addresses.pause()
        with shut_and_taken(taken):
            await proxy.serve_again()
            assert [listens(each) for each in (*others, taken)] == [True] * 3 + [False]
            assert len(proxy.server._accepting) == (1 if key == "listen" else 2), "each other one is served"
            assert [line["log_level"] for line in lines if line.get("address") == name] == ["error"]
        await until(lambda: {"event": AGAIN, "address": name, "log_level": "info"} in lines)
    assert listens(taken)
    assert len(proxy.server._accepting) == 2
    await proxy.stop()


@KEYS
async def test_tries_end_with_the_process_and_with_a_pause(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits_nowhere(monkeypatch)
    for ends in ("addresses.pause", "stop"):
        proxy = proxy_of_all()
        await proxy.start()
        _, taken = of_key(key, proxy)
        proxy.addresses.pause()
        with shut_and_taken(taken):
            await proxy.serve_again()
            assert proxy.addresses._tries._running
            if ends == "stop":
                await proxy.stop()
            else:
                proxy.addresses.pause()
            await until(lambda proxy=proxy: not proxy.addresses._tries._running)  # type: ignore[misc]
        await proxy.stop()


async def test_without_descriptors_tries_end_with_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_descriptor: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    waits_nowhere(monkeypatch)
    proxy = proxy_of_all()
    await proxy.start()
    proxy.addresses.pause()
    monkeypatch.setattr("proxy.server.os.dup", none)
    with capture_logs() as lines:
        proxy._tasks.start(proxy.serve_again(), "serve again")
        await until(lambda: [line.get("error") for line in lines].count("too many open files") > 1)
        proxy.readiness.is_accepting = False
        await until(lambda: not proxy._tasks._running)
    await proxy.stop()


@KEYS
async def test_inherited_address_of_another_program_ends_the_start(key: str) -> None:
    """The process before serves the others by now, and has not got this one back either."""
    proxy = proxy_of_all()
    configured = proxy.config.listen[0] if key == "listen" else getattr(proxy.config, key)
    inherited = socket.create_server(("127.0.0.1", configured.port))
    proxy.addresses._inherited.by_name[f"{key} {configured}"] = [inherited]
    with shut_and_taken(inherited):
        with pytest.raises(StartError, match=rf"{key}: cannot listen on .*: Address already in use"):
            await proxy.start()
        await proxy.stop()
