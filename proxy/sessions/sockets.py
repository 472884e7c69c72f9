"""What a transport's socket tells of its connection."""

import asyncio
import socket

_LEFT = frozenset({7, 8})
"""TCP_CLOSE and TCP_CLOSE_WAIT, as Linux numbers a connection's states."""


def address_of(peername: object) -> str:
    """`host:port` of a socket's peer, or empty."""
    if isinstance(peername, tuple) and len(peername) >= 2:
        host, port = peername[0], peername[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return ""


def descriptor_of(transport: asyncio.BaseTransport) -> int:
    """Where bytes can be written as they are to go; -1 where they cannot, as with a transport that is no socket."""
    connection = transport.get_extra_info("socket")
    if connection is None or transport.get_extra_info("sslcontext") is not None:
        return -1
    descriptor: int = connection.fileno()
    return descriptor


def has_left(transport: asyncio.BaseTransport) -> bool:
    """Whether the peer has closed or reset the connection. Known on Linux only; elsewhere always False."""
    connection = transport.get_extra_info("socket")
    if connection is None or not hasattr(socket, "TCP_INFO"):
        return False
    if connection.family not in {socket.AF_INET, socket.AF_INET6}:
        return False
    state: int = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state in _LEFT
