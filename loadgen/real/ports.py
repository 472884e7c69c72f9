"""Free ports of the loopback interface."""

import socket
from random import SystemRandom

_LISTENING = range(10_240, 32_768)
"""Where a port for a listener is looked for: below what Linux gives to connections that are made (32768 and above).

A port that only was free a moment ago may be the near end of somebody's connection when its listener comes.
"""
_TRIES = 1_000
_random = SystemRandom()


def free_port() -> int:
    """One port that nobody holds."""
    return free_ports(0)[0]


def free_ports(*wanted: int) -> list[int]:
    """As many different ports as are asked for, each the wanted one or, for 0, a free one; nobody holds them yet.

    Raises:
        OSError: If a wanted port is taken, or no free one is found.
    """
    sockets: list[socket.socket] = []
    try:
        for port in wanted:
            sockets.append(_listener(port) if port else _free_listener())  # noqa: PERF401 -- each is to be closed if the next fails
        return [int(listener.getsockname()[1]) for listener in sockets]
    finally:
        for listener in sockets:
            listener.close()


def _free_listener() -> socket.socket:
    for _ in range(_TRIES):
        try:
            return _listener(_random.choice(_LISTENING))
        except OSError:
            continue
    raise OSError(f"no free port in {_TRIES} tries between {_LISTENING.start} and {_LISTENING.stop - 1}")


def _listener(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))
