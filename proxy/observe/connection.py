"""The client connection of a session, as logs name it."""

from mypy_extensions import mypyc_attr

from limiter.levels import Client, counted_as
from limiter.limiter import StreamName
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

    def __init__(  # noqa: PLR0913, PLR0917 - a record, and no dataclass: compiled, these have no slots
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
    """Return what limits look at of the client of a stream, in this process and for a worker's streams alike."""
    return Client(
        producer_name=name.producer_name,
        role=connection.client_role,
        address=connection.client_host,
        subscription=name.subscription,
    )
