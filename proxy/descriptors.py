"""File descriptors of the process: its limit, and who may have how many of them.

A process that has none left can answer no probe, write no log file and reach no broker. So clients may have only what
the others leave, and each client counts with its broker's connection, whether it has one yet or not.

    limit (RLIMIT_NOFILE) = the process's own + the admin address's + 2 for each client connection
"""

import contextlib
import resource
from dataclasses import dataclass

from proxy.config.model import Config

_OF_CLIENT = 2
"""A client's connection, and that to its broker."""
_OWN = 96
"""Log files, the policy store, watches, connections of a fleet, and the files and look-ups of 16 threads."""
_OF_ADDRESS = 8
"""Sockets that listen at one address of clients (`proxy/server.py`), of both families."""
_OF_ADMIN = 8
"""The part of a low limit, one in so many, that the admin address keeps."""
_LINGERING = 8
"""The part of client connections, one in so many, that refused and ending ones may have: those are closed slowly."""


def raise_limit() -> int:
    """Raise the process's limit of descriptors as far as it may go; return the limit that is in force then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # a system may forbid what it has announced
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return limit_in_force()


def limit_in_force() -> int:
    """Return the number of descriptors that this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft


def highest_limit() -> int:
    """Return what `raise_limit` would raise the limit to."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if hard == resource.RLIM_INFINITY else hard


@dataclass(frozen=True, slots=True)
class DescriptorShares:
    """The shares of the process's descriptors.

    Args:
        limit: All of them.
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

    def shortage(self) -> str | None:
        """Say what cannot be had with this limit, and the remedy; None if it suffices."""
        if self.limit >= self.needed:
            return None
        return (
            f"the process may open {self.limit} file descriptors and needs {self.needed}, two for each of "
            f"max_connections and a reserve: {self.admitted} client connections are served at once; raise the limit "
            f"(ulimit -n {self.needed}, systemd LimitNOFILE={self.needed}, container --ulimit nofile={self.needed}), "
            "or lower max_connections"
        )
