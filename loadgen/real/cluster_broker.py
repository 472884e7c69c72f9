"""One broker of a cluster."""

from collections.abc import Mapping
from pathlib import Path

from loadgen.real.broker_config import PROPERTIES, write_properties
from loadgen.real.health import is_healthy
from loadgen.real.part import Part, Program
from loadgen.real.zookeeper import CLUSTER, metadata_url

_PROPERTIES = {
    "clusterName": CLUSTER,
    "defaultNumberOfNamespaceBundles": "4",
    "functionsWorkerEnabled": "false",
    "loadBalancerEnabled": "true",
    # Topics move when the test says so, and never else.
    "loadBalancerSheddingEnabled": "false",
    "managedLedgerCacheSizeMB": "32",
    # How long a killed broker keeps its topics: 50 s by default.
    "metadataStoreSessionTimeoutMillis": "6000",
}
# The young generation holds minutes of garbage, as the standalone broker's does.
_MEMORY = ("-Xms512m", "-Xmx512m", "-Xmn320m", "-XX:MetaspaceSize=192m", "-XX:MaxDirectMemorySize=256m")


class ClusterBroker(Part):
    """A broker, and where it listens.

    Args:
        folder: For its configuration and its log.
        ports: Of the binary protocol and of the admin REST.
        zookeeper_port: Where it finds the others.
        properties: Added to its configuration file.
    """

    def __init__(
        self, folder: Path, ports: tuple[int, int], zookeeper_port: int, properties: Mapping[str, str]
    ) -> None:
        self._service_port, self._web_port = ports
        written = {
            **PROPERTIES,
            **_PROPERTIES,
            "metadataStoreUrl": metadata_url(zookeeper_port),
            "configurationMetadataStoreUrl": metadata_url(zookeeper_port),
            "brokerServicePort": str(self._service_port),
            "webServicePort": str(self._web_port),
            **properties,
        }
        folder.mkdir(parents=True, exist_ok=True)
        config = write_properties(folder / "broker.conf", written)
        options = (*_MEMORY, f"-Dpulsar.config.file={config}")
        program = Program("org.apache.pulsar.PulsarBrokerStarter", ("-c", str(config)), options)
        super().__init__(folder, program, lambda: is_healthy(self._web_port))

    @property
    def address(self) -> str:
        """host:port of the binary protocol."""
        return f"127.0.0.1:{self._service_port}"

    @property
    def service_url(self) -> str:
        """Where clients connect."""
        return f"pulsar://{self.address}"

    @property
    def web_address(self) -> str:
        """host:port of its admin REST; the name that brokers call each other by."""
        return f"127.0.0.1:{self._web_port}"

    @property
    def admin_url(self) -> str:
        """Where its admin REST listens."""
        return f"http://{self.web_address}"
