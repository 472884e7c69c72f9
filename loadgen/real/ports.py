"""Free ports of the loopback interface."""

import socket


def free_ports(*wanted: int) -> list[int]:
    """As many different ports as are asked for, each the wanted one or, for 0, a free one; nobody holds them yet.

    Raises:
        OSError: If a wanted port is taken.
    """
    sockets: list[socket.socket] = []
    try:
        for port in wanted:
            sockets.append(socket.create_server(("127.0.0.1", port)))  # noqa: PERF401 -- each is to be closed if the next fails
        return [int(listener.getsockname()[1]) for listener in sockets]
    finally:
        for listener in sockets:
            listener.close()
