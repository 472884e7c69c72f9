"""A client's host, Sluice's and a broker's, each a network namespace of this machine; a host may die without a word.

client 10.231.1.2 ──veth── 10.231.1.1 Sluice 10.231.2.1 ──veth── 10.231.2.2 broker
"""

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator

_CLONE_NEWNET = 0x40000000
SLUICE_FOR_CLIENTS, SLUICE_FOR_BROKERS = "10.231.1.1", "10.231.2.1"
CLIENT, BROKER = "10.231.1.2", "10.231.2.2"
_libc = ctypes.CDLL(None, use_errno=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=60)


def missing() -> str | None:
    """What to do to have network namespaces; None if they are there."""
    name = f"sluice-look-{os.getpid()}"
    if shutil.which("ip") is None:
        return "install iproute2 (Debian: apt-get install iproute2)"
    try:
        _ip("netns", "add", name)
        _ip("-n", name, "link", "add", "near", "type", "veth", "peer", "name", "far")
    except (OSError, subprocess.SubprocessError):
        return "run as root, where network namespaces and veth may be made"
    finally:
        _delete(name)
    return None


def _delete(namespace: str) -> None:
    subprocess.run(["ip", "netns", "delete", namespace], check=False, capture_output=True)


class Hosts:
    """The three hosts; `dies` makes one of the outer ones silent."""

    def __init__(self) -> None:
        self._names = {host: f"sluice-{host}-{os.getpid()}" for host in ("client", "sluice", "broker")}

    @classmethod
    @contextlib.contextmanager
    def made(cls) -> Iterator["Hosts"]:
        """The hosts, for as long as the block lasts."""
        hosts = cls()
        try:
            hosts._set_up()
            yield hosts
        finally:
            for name in hosts._names.values():
                _delete(name)

    def _set_up(self) -> None:
        for name in self._names.values():
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        for host, near, far in (("client", CLIENT, SLUICE_FOR_CLIENTS), ("broker", BROKER, SLUICE_FOR_BROKERS)):
            there, here = self._names[host], self._names["sluice"]
            _ip("-n", there, "link", "add", "near", "type", "veth", "peer", "name", host, "netns", here)
            for name, link, address in ((there, "near", near), (here, host, far)):
                _ip("-n", name, "address", "add", f"{address}/30", "dev", link)
                _ip("-n", name, "link", "set", link, "up")

    def command(self, host: str, *command: str) -> list[str]:
        """The command that runs this one on a host."""
        return ["ip", "netns", "exec", self._names[host], *command]

    def dies(self, host: str) -> None:
        """Nothing leaves this host any more: no acknowledgement, no FIN, no RST."""
        far = SLUICE_FOR_CLIENTS if host == "client" else SLUICE_FOR_BROKERS
        _ip("-n", self._names[host], "route", "add", "blackhole", f"{far}/32")

    @contextlib.contextmanager
    def on(self, host: str) -> Iterator[None]:
        """Sockets that are made in this block are this host's."""
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{self._names[host]}", os.O_RDONLY)
        try:
            _enter(there)
            yield
        finally:
            _enter(own)
            os.close(there)
            os.close(own)

    def listening(self) -> socket.socket:
        """A listener of the broker."""
        with self.on("broker"):
            return socket.create_server((BROKER, 0))

    def connected(self, port: int) -> socket.socket:
        """A connection of the client to Sluice."""
        with self.on("client"):
            return socket.create_connection((SLUICE_FOR_CLIENTS, port), timeout=60)


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
