"""Whom a session serves."""

from dataclasses import dataclass


@dataclass(slots=True)
class Connection:
    """One client connection, as logs name it.

    `role` is `handshake` until CONNECT says `lookup` or `data`; `broker` is the address that it goes to.
    """

    connection_id: int
    client_address: str = ""
    client_version: str = ""
    role: str = "handshake"
    broker: str = ""
