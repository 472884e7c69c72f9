"""The files that a standalone broker is started with."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_LOG4J = """\
<Configuration status="WARN"><Appenders><Console name="c">
  <PatternLayout pattern="%d{HH:mm:ss.SSS} %-5level %c{1} - %msg%n%throwable"/>
</Console></Appenders><Loggers><Root level="info"><AppenderRef ref="c"/></Root></Loggers></Configuration>
"""

_PROPERTIES = {
    "clusterName": "standalone",
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "defaultNumberOfNamespaceBundles": "1",
    "loadBalancerEnabled": "false",
    "transactionCoordinatorEnabled": "false",
    "webSocketServiceEnabled": "false",
    # Without it the bookie refuses to start on 127.0.0.1.
    "allowLoopback": "true",
    "advertisedAddress": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    # Without these a disk that is nearly full makes the broker read-only.
    "diskUsageThreshold": "0.999",
    "diskUsageWarnThreshold": "0.998",
    # Without it the bookie refuses the entries of chunked messages and the broker retries for ever.
    "nettyMaxFrameSizeBytes": "5253120",
}


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What a caller may choose about a standalone broker.

    Attributes:
        port: Of the binary protocol; 0 picks a free one.
        durable: Sync each write to disk before the receipt, as in production; slower.
        properties: Added to its configuration file, Pulsar's own names.
    """

    port: int = 0
    durable: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """The three ports that a standalone broker listens on."""

    service: int
    web: int
    bookie: int


def choose_ports(service: int) -> BrokerPorts:
    """Three free ports of the loopback interface, or the given one and two."""
    sockets = [socket.create_server(("127.0.0.1", port)) for port in (service, 0, 0)]
    chosen = [int(listener.getsockname()[1]) for listener in sockets]
    for listener in sockets:
        listener.close()
    return BrokerPorts(*chosen)


def write_config(folder: Path, ports: BrokerPorts, settings: BrokerSettings) -> Path:
    """Write `standalone.conf` and `log4j2.xml` into the folder; returns the path of the first."""
    properties = dict(_PROPERTIES)
    properties["brokerServicePort"] = str(ports.service)
    properties["webServicePort"] = str(ports.web)
    properties["journalSyncData"] = "true" if settings.durable else "false"
    properties.update(settings.properties)
    (folder / "log4j2.xml").write_text(_LOG4J)
    path = folder / "standalone.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path
