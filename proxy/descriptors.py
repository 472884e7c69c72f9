"""File descriptors of the process: its limit, and the shares of clients, admin address and the process itself.

A process without free descriptors can answer no probe, write no log file and reach no broker. So clients get only the
descriptors that the others leave. Each client counts twice, for its broker's connection, even before it has one.

    limit (RLIMIT_NOFILE) = the process's own + the admin address's + 2 for each client connection
"""

import contextlib
import resource
from dataclasses import dataclass
from typing import NamedTuple

from proxy.config.model import Config

_OF_CLIENT = 2
"""A client's connection, and that to its broker."""
_OWN = 96
"""Log files, the policy store, watches, connections of a fleet, and the files and look-ups of 16 threads."""
_OF_ADDRESS = 8
"""Sockets that listen at one address of clients (`proxy/server.py`), of both families."""
_OF_ADMIN = 8
"""The admin address keeps one in this number of descriptors, where the limit is low."""
_LINGERING = 8
"""One in this number of client connections is kept for refused and ending ones, which close slowly."""


def raise_limit() -> int:
    """Raise the process's limit of descriptors as far as it may go; return the limit that is in force then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # a system may refuse its own hard limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return limit_in_force()


def limit_in_force() -> int:
    """Return the number of descriptors that this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft


def highest_limit() -> int:
    """Return the limit that `raise_limit` would set."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if hard == resource.RLIM_INFINITY else hard


class Shortage(NamedTuple):
    """The process may open fewer descriptors than its configuration needs."""

    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.text}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class DescriptorShares:
    """The shares of the process's descriptors.

    Args:
        limit: The process's limit.
        needed: The number that the configuration needs.
        clients: Client connections that may be open, those included that are refused or end.
        admitted: Client connections that may be served.
        admin: Connections to each of the admin's addresses.
    """

    limit: int
    needed: int
    clients: int
    admitted: int
    admin: int

    @classmethod
    def of(cls, config: Config, limit: int) -> "DescriptorShares":
        """Share out `limit` descriptors: where they do not suffice, each gets less."""
        wanted, addresses = config.admin_access.max_connections, 1 if config.metrics is None else 2
        own = _OWN + _OF_ADDRESS * len(config.listen) + config.admin_forward.max_in_flight
        needed = own + addresses * wanted + _OF_CLIENT * config.max_connections
        if limit >= needed:
            clients = (limit - own - addresses * wanted) // _OF_CLIENT
            return cls(limit, needed, clients, config.max_connections, wanted)
        admin = max(1, min(wanted, limit // _OF_ADMIN // addresses))
        clients = max(1, (limit - own - addresses * admin) // _OF_CLIENT)
        return cls(limit, needed, clients, max(1, min(config.max_connections, clients - clients // _LINGERING)), admin)

    def within(self, config: Config) -> Config:
        """Return the configuration with as many client connections as may be served."""
        return config.model_copy(update={"max_connections": self.admitted})

    def bound_of_clients(self, config: Config) -> str:
        """Return the name of the bound on client connections for those that it refuses: the key, or the shortage."""
        if self.admitted >= config.max_connections:
            return "max_connections"
        return f"file descriptors: ulimit -n is {self.limit}, too low for max_connections {config.max_connections}"

    def shortage(self) -> Shortage | None:
        """Return the shortage; None if the limit suffices."""
        if self.limit >= self.needed:
            return None
        return Shortage(
            f"the process may open {self.limit} file descriptors and needs {self.needed}, two for each of "
            f"max_connections and a reserve: {self.admitted} client connections are served at once",
            f"raise the limit (ulimit -n {self.needed}, systemd LimitNOFILE={self.needed}, container --ulimit "
            f"nofile={self.needed}), or lower max_connections",
        )
