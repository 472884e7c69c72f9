"""Connections of Sluice's own to brokers: to follow redirected lookups, and to ask whether a broker is there."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from protocol.endpoint import Endpoint
from protocol.proxy_protocol import write_header
from proxy.brokers.targets import TLS, Targets
from proxy.observe.counters import Counters
from proxy.tls.certificates import Certificates
from proxy.tls.transport import TlsFailure, why_it_failed

_PLAIN_PORT = "name its TLS port (brokerServicePortTls), or write broker as pulsar:// for its plain one"
_REMEDIES = {
    TlsFailure.CERTIFICATE_UNTRUSTED: "broker_tls.ca names who has signed it",
    TlsFailure.CERTIFICATE_WRONG_NAME: "reach the broker by a name in it, or set broker_tls.server_name to one",
    TlsFailure.CERTIFICATE_EXPIRED: "give the broker a new one",
    TlsFailure.OWN_CERTIFICATE_REFUSED: "broker_tls.certificate must be one that the broker's "
    "tlsTrustCertsFilePath has signed",
    TlsFailure.NO_SHARED_CIPHER: "or else it wants a certificate: set broker_tls.certificate",
    TlsFailure.PLAIN_BYTES: _PLAIN_PORT,
    TlsFailure.LEFT: _PLAIN_PORT,
}

LEFT = "ends the connection when it is greeted by TLS"
"""What a broker does on a port without TLS, where a greeting is the beginning of a frame that is too large."""


class BrokerTlsError(OSError):
    """TLS with a broker failed; the text says what the broker does, and the remedy.

    Each failure of TLS with a broker becomes one of these, wherever it is met, and is counted by that.

    Args:
        failure: The kind of failure.
        detail: What the broker does.
        counters: Count it.
    """

    def __init__(self, failure: TlsFailure, detail: str, counters: Counters) -> None:
        what = "speaks no TLS" if failure is TlsFailure.PLAIN_BYTES else detail
        remedy = _REMEDIES.get(failure)
        super().__init__(f"{what}; {remedy}" if remedy else what)
        counters.tls_failures[f"broker {failure}"] += 1


class NoneAnswersError(OSError):
    """No configured broker answers; the text says of each why."""


class BrokerDialer:
    """Opens streams to brokers that are allowed, as all brokers are reached: with TLS or without.

    Args:
        targets: The allow-list.
        tls: The contexts in force.
        counters: Count TLS that failed.
        names_clients: Each connection begins with a PROXY protocol header.
    """

    def __init__(self, targets: Targets, tls: Certificates, counters: Counters, *, names_clients: bool) -> None:
        self.targets = targets
        self._tls = tls
        self._counters = counters
        self._own_header = write_header(None) if names_clients else b""

    @asynccontextmanager
    async def connection(
        self, broker: Endpoint, patience: float, header: bytes = b""
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Connect to a broker within `patience` seconds; the connection is closed at the end of the block.

        By TLS 1.3 a broker refuses Sluice's certificate behind the handshake. So errors of TLS that the block meets are
        those of the broker, too.

        Args:
            broker: It.
            patience: Seconds, for all its addresses together.
            header: The PROXY protocol header that names the client for whom it is; empty: it is for Sluice itself.

        Raises:
            TargetRefusedError: If the broker is not allowed, or its name leads nowhere.
            OSError: If it does not answer, or TLS fails.
        """
        try:
            reader, writer = await self._open(broker, patience)
            try:
                writer.write(header or self._own_header)
                yield reader, writer
            finally:
                writer.close()
        except ssl.SSLError as error:
            raise BrokerTlsError(*why_it_failed(error), self._counters) from None

    async def open(self, broker: Endpoint, patience: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect as `connection` does, for a connection of Sluice itself that the caller closes."""
        try:
            reader, writer = await self._open(broker, patience)
        except ssl.SSLError as error:
            raise BrokerTlsError(*why_it_failed(error), self._counters) from None
        writer.write(self._own_header)
        return reader, writer

    async def _open(self, broker: Endpoint, patience: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connect = asyncio.open_connection
        if broker.scheme != TLS:
            return await self.targets.connect(broker, connect, patience)
        connect = partial(connect, ssl=self._tls.broker(), server_hostname=self._tls.server_name(broker))
        try:
            return await self.targets.connect(broker, connect, patience)
        except ConnectionResetError:
            raise BrokerTlsError(TlsFailure.LEFT, LEFT, self._counters) from None
