"""The ZooKeeper of a cluster, and what is written into it before the first broker starts."""

from collections.abc import Sequence
from pathlib import Path

from loadgen.real.broker_config import write_properties
from loadgen.real.health import is_listening
from loadgen.real.part import Part, Program

CLUSTER = "cluster"
_SMALL = ("-Xmx64m", "-XX:TieredStopAtLevel=1")


def metadata_url(port: int) -> str:
    """How Pulsar's parts name the ZooKeeper behind this port."""
    return f"zk:127.0.0.1:{port}"


def zookeeper(folder: Path, port: int) -> Part:
    """A ZooKeeper of one."""
    folder.mkdir(parents=True, exist_ok=True)
    properties = {
        "tickTime": "2000",
        "dataDir": str(folder / "data"),
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "admin.enableServer": "false",
        "maxClientCnxns": "0",
        "forceSync": "no",
    }
    config = write_properties(folder / "zoo.cfg", properties)
    program = Program("org.apache.zookeeper.server.ZooKeeperServerMain", (str(config),), _SMALL)
    return Part(folder, program, lambda: is_listening(port))


def metadata_setup(port: int, web_ports: Sequence[int], service_ports: Sequence[int]) -> Program:
    """Writes the cluster, its brokers' addresses and the namespace public/default into the ZooKeeper; run it once."""
    arguments = (
        *("--cluster", CLUSTER),
        *("--metadata-store", metadata_url(port)),
        *("--configuration-metadata-store", metadata_url(port)),
        *("--web-service-url", f"http://{_joined(web_ports)}"),
        *("--broker-service-url", f"pulsar://{_joined(service_ports)}"),
    )
    return Program("org.apache.pulsar.PulsarClusterMetadataSetup", arguments, _SMALL)


def _joined(ports: Sequence[int]) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in ports)
