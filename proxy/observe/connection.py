"""Whom a session serves."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Connection:
    """One client connection, as logs name it.

    `role` is `handshake` until CONNECT says `lookup` or `data`; `broker` is the address that it goes to. `client_role`
    is what the client authenticated as (see `sessions/client_role.py`), empty if that is not known.
    """

    connection_id: int
    client_address: str = ""
    client_version: str = ""
    client_role: str = ""
    role: str = "handshake"
    broker: str = ""

    @property
    def client_host(self) -> str:
        """The client's address without the port."""
        return self.client_address.rpartition(":")[0].strip("[]")
