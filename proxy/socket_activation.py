"""Listening sockets that the service manager gives a process at its start, as systemd does for a socket unit.

The manager keeps them open: while no process accepts, connections wait in their queues for the next one.

Source: sd_listen_fds(3): LISTEN_FDS descriptors from 3 on, for the process LISTEN_PID; LISTEN_FDNAMES has their names.
"""

import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Final, NamedTuple

from protocol.endpoint import Endpoint, host_port
from proxy.config.model import Config
from proxy.runtime import StartError
from proxy.server import Sockets
from proxy.start_check import addresses_of

FIRST: Final = 3
"""The first descriptor, SD_LISTEN_FDS_START."""
_VARIABLES: Final = ("LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDS", "LISTEN_FDNAMES")
_KEYS: Final = ("listen", "admin", "metrics")
_MOST: Final = 1_000_000
"""Descriptors of one process at most: more is a mistake."""


class GivenSocket(NamedTuple):
    """A listening TCP socket of the service manager.

    Attributes:
        label: The words for it in errors: its descriptor, and its name there.
        key: The key of the configuration that is its name; None: its address alone says which it is.
        socket: The socket.
    """

    label: str
    key: str | None
    socket: socket.socket


def given_sockets(environment: MutableMapping[str, str], first: int = FIRST) -> list[GivenSocket]:
    """Take the sockets that are meant for this process, and their variables out of the environment.

    Args:
        environment: That of this process; its children are to take no descriptor for theirs.
        first: The first descriptor.

    Raises:
        StartError: If the variables contradict each other, or a descriptor is no listening TCP socket.
    """
    pid, _, count, listed = (environment.pop(name, "") for name in _VARIABLES)
    if pid != str(os.getpid()):
        return []
    if not count.isdecimal() or int(count) > _MOST:
        raise StartError(f"LISTEN_FDS: {count[:20]!r}: not a number of descriptors, see sd_listen_fds(3)")
    names = listed.split(":") if listed else [""] * int(count)
    if len(names) != int(count):
        raise StartError(f"LISTEN_FDNAMES: {len(names)} names for {count} descriptors, see sd_listen_fds(3)")
    return [_given(descriptor, name) for descriptor, name in enumerate(names, first)]


def _given(descriptor: int, name: str) -> GivenSocket:
    label = f"descriptor {descriptor}" + (f" ({name})" if name else "")
    try:
        given = socket.socket(fileno=descriptor)
    except OSError as error:
        raise StartError(f"LISTEN_FDS: {label} of the service manager: {error.strerror}: it must be a socket") from None
    is_tcp = given.family in {socket.AF_INET, socket.AF_INET6} and given.type == socket.SOCK_STREAM
    if not is_tcp or not given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        given.close()
        raise StartError(
            f"LISTEN_FDS: {label} of the service manager is no listening TCP socket: write ListenStream=HOST:PORT in "
            "the socket unit, and no Accept=yes"
        )
    given.set_inheritable(False)
    return GivenSocket(label, name if name in _KEYS else None, given)


def by_address(given: list[GivenSocket], config: Config) -> Sockets:
    """Return the sockets by the addresses of a configuration; those of further processes are among them.

    Raises:
        StartError: If a socket listens on none of the addresses, or not on the one of its name.
    """
    sockets = Sockets()
    addresses = [(key, endpoint, _bound_to(endpoint)) for key, _, endpoint in addresses_of(config)] if given else []
    for each in given:
        own = each.socket.getsockname()[:2]
        fitting = [address for address in addresses if each.key in {None, address[0]}]
        name = next((f"{key} {endpoint}" for key, endpoint, bound in fitting if own in bound), None)
        if name is None:
            of_config = (
                ", ".join(f"{key} {endpoint.address}" for key, endpoint, _ in fitting) or f"{each.key} is not set"
            )
            raise StartError(
                f"LISTEN_FDS: {each.label} of the service manager listens on {host_port(*own)}, which the "
                f"configuration has not ({of_config}): write one address in both, ListenStream= and the configuration"
            )
        sockets.by_name.setdefault(name, []).append(each.socket)
        sockets.kept.add(name)
    return sockets


def _bound_to(endpoint: Endpoint) -> set[tuple[str, int]]:
    """Return the addresses of the sockets that listen on an endpoint; none if its name cannot be resolved."""
    with suppress(OSError, UnicodeError):
        infos = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return {(str(address[0]), int(address[1])) for *_, address in infos}
    return set()
