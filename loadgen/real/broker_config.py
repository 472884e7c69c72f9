"""The files that a standalone broker is started with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loadgen.real.ports import free_ports

_LOG4J = """\
<Configuration status="WARN"><Appenders><Console name="c">
  <PatternLayout pattern="%d{HH:mm:ss.SSS} %-5level %c{1} - %msg%n%throwable"/>
</Console></Appenders><Loggers><Root level="info"><AppenderRef ref="c"/></Root></Loggers></Configuration>
"""

PROPERTIES = {
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
"""Of a broker with a bookie in it, all on loopback: Pulsar's own names."""


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
    return BrokerPorts(*free_ports(service, 0, 0))


def write_config(folder: Path, ports: BrokerPorts, settings: BrokerSettings) -> Path:
    """Write `standalone.conf` and `log4j2.xml` into the folder; returns the path of the first."""
    properties = dict(PROPERTIES)
    properties["brokerServicePort"] = str(ports.service)
    properties["webServicePort"] = str(ports.web)
    properties["journalSyncData"] = "true" if settings.durable else "false"
    properties.update(settings.properties)
    write_log4j(folder)
    return write_properties(folder / "standalone.conf", properties)


def write_log4j(folder: Path) -> Path:
    """Write `log4j2.xml` into the folder, which makes Pulsar log to stdout; without one it logs nothing."""
    path = folder / "log4j2.xml"
    path.write_text(_LOG4J)
    return path


def write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    """Write a file of `key=value` lines; returns its path."""
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path
