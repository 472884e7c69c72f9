"""PROXY protocol headers: the networks that a listener believes, and the connections that have not sent theirs yet."""

from collections import OrderedDict
from enum import StrEnum
from typing import Protocol

from limiter.names import Networks
from protocol.frames import ProxyHeaderError
from protocol.proxy_protocol import Header, read_header
from proxy.config.sections import ProxyProtocol
from proxy.counters import Counters
from proxy.session.events import CloseReason, SessionEnd

LEAST_AWAITED = 100
"""Connections that may be without their header at once, however few `max_connections` are."""


class HeaderResult(StrEnum):
    """The result of a connection's beginning: a label of `sluice_proxy_headers_total`."""

    V1 = "v1"
    V2 = "v2"
    LOCAL = "local"
    """A header that names no client: LOCAL, UNKNOWN, or a family that is not TCP's. The connection's address holds."""
    NONE = "none"
    """No header, which mode optional allows."""
    MISSING = "missing"
    """No header, which mode required does not allow."""
    NOT_BELIEVED = "not_believed"
    """From an address that `proxy_protocol.from` does not name."""
    MALFORMED = "malformed"
    UNSUPPORTED = "unsupported"
    TOO_LONG = "too_long"
    DISPLACED = "displaced"
    """Closed before a header came, as too many others waited for theirs."""


class Announced(Protocol):
    """A session whose client is not known before a header has come."""

    def finish(self, end: SessionEnd) -> None:
        """End, for this reason."""


class ProxyHeaders:
    """Decides on headers, and bounds how many connections are awaited without one.

    A connection from a balancer counts for no client before its header has come: it has no place in `max_connections`,
    nor in a bound of an address. So the number of such connections has its own bound. A new one displaces the oldest,
    as operating systems do with half-open connections. So silent connections, through a balancer that sends its header
    late, keep out no client whose header comes with the connection.

    Source: RFC 4987, section 3.4 (recycling the oldest half-open connection)

    Args:
        settings: The networks whose headers are believed, and whether there must be a header.
        most: Connections that may be without one at once.
        counters: Count the results.
    """

    def __init__(self, settings: ProxyProtocol, most: int, counters: Counters) -> None:
        self.is_required = settings.mode == "required"
        self._most = max(LEAST_AWAITED, most)
        self._counters = counters
        self._balancers = Networks[bool]()
        for network in settings.networks:
            self._balancers.put(str(network), value=True)
        self._awaited: OrderedDict[Announced, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._awaited)

    def believes(self, host: str) -> bool:
        """Return whether headers from this address are believed."""
        return self._balancers.find(host) is not None

    def begin(self, session: Announced) -> None:
        """Await a header, and displace the session that has been awaited longest if there are too many."""
        self._awaited[session] = None
        if len(self._awaited) > self._most:
            oldest, _ = self._awaited.popitem(last=False)
            self._count(HeaderResult.DISPLACED)
            problem = f"no PROXY protocol header came, and {self._most} later connections wait for theirs"
            oldest.finish(SessionEnd(CloseReason.PROXY_HEADER, problem))

    def is_awaited(self, session: Announced) -> bool:
        """Return whether the session is one whose header counts, and has not come."""
        return session in self._awaited

    def end(self, session: Announced) -> None:
        """Await a session's header no more: it has come, or the session ends."""
        self._awaited.pop(session, None)

    def read(self, data: bytes | bytearray, *, is_believed: bool) -> Header | None:
        """Read the first bytes of a connection; None while the next ones decide.

        Raises:
            ProxyHeaderError: If they are refused.
        """
        try:
            header = read_header(data)
        except ProxyHeaderError as error:
            self._count(error.cause)
            raise
        if header is None:
            return None
        if header.size and not is_believed:
            raise self.refuse_stranger()
        if not header.size and self.is_required:
            self._count(HeaderResult.MISSING)
            raise ProxyHeaderError(
                HeaderResult.MISSING,
                "no PROXY protocol header, which proxy_protocol.mode required asks for: have the balancer send one",
            )
        self._count(_result(header))
        return header

    def refuse_stranger(self) -> ProxyHeaderError:
        """Count a connection from an address that is not believed, and return its error."""
        self._count(HeaderResult.NOT_BELIEVED)
        return ProxyHeaderError(
            HeaderResult.NOT_BELIEVED,
            "proxy_protocol.from names no network with this address: add it there if it is a balancer's, else connect "
            "through one",
        )

    def _count(self, result: str) -> None:
        self._counters.proxy_headers[result] += 1


def _result(header: Header) -> HeaderResult:
    if not header.size:
        return HeaderResult.NONE
    if header.source is None:
        return HeaderResult.LOCAL
    return HeaderResult.V1 if header.version == 1 else HeaderResult.V2
