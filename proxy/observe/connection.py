"""The client connection of a session, as logs name it, and the refusals of each."""

from dataclasses import dataclass

from mypy_extensions import mypyc_attr

from limiter.levels import Client
from limiter.limiter import StreamName
from limiter.names import counted_as
from protocol.endpoint import host_in


@mypyc_attr(acyclic=True)
class Connection:
    """The record of one client connection for logs and limits.

    `role` is `handshake` until CONNECT says `lookup` or `data`; `broker` is the address of its broker. `client_role` is
    the role that the client authenticated as (see `session/handshake.py`), empty if that is not known; `role_is_proved`
    says that Sluice verified it. `is_tls` says whether the client is connected by TLS, and `certificate_name` is the
    common name of its certificate, if it has one that was verified.
    """

    __slots__ = (
        "broker",
        "certificate_name",
        "client_address",
        "client_role",
        "client_version",
        "connection_id",
        "is_tls",
        "role",
        "role_is_proved",
    )

    def __init__(
        self,
        connection_id: int,
        client_address: str = "",
        client_version: str = "",
        client_role: str = "",
        role: str = "handshake",
        broker: str = "",
        *,
        is_tls: bool = False,
        role_is_proved: bool = False,
    ) -> None:
        self.connection_id = connection_id
        self.client_address = client_address
        self.client_version = client_version
        self.client_role = client_role
        self.role = role
        self.broker = broker
        self.is_tls = is_tls
        self.role_is_proved = role_is_proved
        self.certificate_name: str | None = None

    @property
    def client_host(self) -> str:
        """The client's address without the port."""
        return host_in(self.client_address)

    @property
    def client_network(self) -> str:
        """The address by which limits count the client: an IPv4 address itself, the /64 of an IPv6 address."""
        return counted_as(self.client_host)


def client_of(name: StreamName, connection: Connection) -> Client:
    """Return what limits look at of the client of a stream."""
    return Client(
        producer_name=name.producer_name,
        role=connection.client_role,
        address=connection.client_host,
        subscription=name.subscription,
    )


MOST_LINES = 1000
"""Most lines of one heartbeat; refusals beyond them are summed up by reason alone."""

MOST_TEXT = 1000
"""Most characters of a topic and a detail in their line; one more is kept, to show that the text was longer."""

_NOBODY = Connection(0)


@dataclass(slots=True)
class ConnectionRefusals:
    """Refusals of one connection for one reason; `topic` and `detail` are those of the last one."""

    connection: Connection
    reason: str
    topic: str = ""
    detail: str = ""
    refused: int = 0


class Refusals:
    """The refusals of one process, summed up by connection and reason."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[int, str], ConnectionRefusals] = {}

    def note(self, connection: Connection, reason: str, topic: str, detail: str) -> None:
        """Count a refusal of a lookup, producer or consumer; `reason` is one of a few words."""
        refusals = self._by_key.get((connection.connection_id, reason))
        if refusals is None:
            owner = connection if len(self._by_key) < MOST_LINES else _NOBODY
            refusals = self._by_key.setdefault((owner.connection_id, reason), ConnectionRefusals(owner, reason))
        refusals.refused += 1
        refusals.topic, refusals.detail = topic[: MOST_TEXT + 1], detail[: MOST_TEXT + 1]

    def take(self) -> list[ConnectionRefusals]:
        """Return the refusals since the last call."""
        taken, self._by_key = self._by_key, {}
        return list(taken.values())
