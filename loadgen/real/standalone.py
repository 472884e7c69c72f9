"""A real Pulsar broker on loopback, and the standalone one: bookie and metadata store in the same process."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loadgen.real.jars import cache_lock, class_archive, jars, require_java
from loadgen.real.process import Program, PulsarServer, free_ports, is_healthy, write_properties

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
    """The settings of a standalone broker.

    Attributes:
        port: Of the binary protocol; 0 picks a free one.
        durable: Sync each write to disk before the receipt, as in production; slower.
        tls: It also listens for TLS, with the certificate that `properties` name (`tlsCertificateFilePath`, …).
        properties: Added to its configuration file, Pulsar's own names.
        token: Of a superuser, where it authenticates; to be asked whether it is healthy.
        java_options: Added to the JVM's.
    """

    port: int = 0
    tls: bool = False
    durable: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    token: str = ""
    java_options: tuple[str, ...] = ()


class Broker(PulsarServer):
    """A broker, and where it listens on loopback.

    Args:
        folder: For its configuration, its data and its log.
        service_port: Of the binary protocol.
        web_port: Of the admin REST.
        program: What is run.
        name: For messages; empty: the folder's name.
        token: Of a superuser, where it authenticates.
    """

    def __init__(
        self, folder: Path, service_port: int, web_port: int, program: Program, name: str = "", token: str = ""
    ) -> None:
        self.service_port = service_port
        """Of the binary protocol."""
        self.address = f"127.0.0.1:{service_port}"
        """host:port of the binary protocol."""
        self.service_url = f"pulsar://{self.address}"
        """Where clients connect."""
        self.web_address = f"127.0.0.1:{web_port}"
        """host:port of its admin REST; the name that brokers call each other by."""
        self.admin_url = f"http://{self.web_address}"
        """Where its admin REST listens."""
        super().__init__(folder, program, lambda: is_healthy(web_port, token), name)


_MAIN_CLASS = "org.apache.pulsar.PulsarStandaloneStarter"
# The young generation holds minutes of garbage: with a small one the broker pauses for 0.1 s every few
# seconds (measured), and the burst after such a pause looks like a limit exceeded.
_MEMORY = ("-Xms1g", "-Xmx1g", "-Xmn640m", "-XX:MetaspaceSize=256m", "-XX:MaxDirectMemorySize=1g")


class StandaloneBroker(Broker):
    """A broker with its bookie and metadata store in one process.

    Args:
        folder: For its data, configuration and `log`; made if missing, never removed.
        settings: Settings that differ from the default.
    """

    def __init__(self, folder: Path, settings: BrokerSettings | None = None) -> None:
        settings = settings or BrokerSettings()
        service, web, bookie, tls = free_ports(settings.port, 0, 0, 0)
        properties = {
            **PROPERTIES,
            **({"brokerServicePortTls": str(tls)} if settings.tls else {}),
            "brokerServicePort": str(service),
            "webServicePort": str(web),
            "journalSyncData": "true" if settings.durable else "false",
            **settings.properties,
        }
        folder.mkdir(parents=True, exist_ok=True)
        config = write_properties(folder / "standalone.conf", properties)
        places = ("--metadata-dir", str(folder / "metadata"), "--bookkeeper-dir", str(folder / "bookkeeper"))
        arguments = ("--config", str(config), "-nfw", "-nss", *places, "--bookkeeper-port", str(bookie))
        options = (*_MEMORY, *settings.java_options, f"-Dpulsar.config.file={config}")
        self.tls_url = f"pulsar+ssl://127.0.0.1:{tls}" if settings.tls else ""
        """Where clients connect by TLS; empty without it."""
        program = Program(_MAIN_CLASS, arguments, options)
        super().__init__(folder, service, web, program, "the broker", settings.token)


_ARCHIVING_S = 180


def archive_classes() -> None:
    """Archive the classes of a broker (88 MB), once for each Java: all of Pulsar's programs start faster with it.

    A standalone broker starts in 4.4 instead of 6.5 s of CPU time, pulsar-admin in 1.8 instead of 2.5. To make the
    archive takes 15 s.

    Raises:
        RealPulsarError: If Java or the jars are missing, or the broker does not start.
    """
    archive = class_archive(require_java(), jars())
    with cache_lock(), tempfile.TemporaryDirectory(prefix="sluice-classes-") as folder:
        if archive.exists():
            return
        unfinished = archive.with_suffix(".unfinished")
        dump = f"-XX:ArchiveClassesAtExit={unfinished}"
        with StandaloneBroker(Path(folder), BrokerSettings(java_options=(dump,))) as broker:
            broker.stop(_ARCHIVING_S)
        unfinished.touch()  # a Java without an archive of its own classes makes none of these either
        unfinished.replace(archive)
