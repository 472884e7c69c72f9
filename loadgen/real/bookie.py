"""The one bookie of a cluster."""

from pathlib import Path

from loadgen.real.broker_config import write_properties
from loadgen.real.health import is_listening
from loadgen.real.part import Part, Program

_MEMORY = ("-Xmx96m", "-XX:MaxDirectMemorySize=128m", "-XX:TieredStopAtLevel=1")


def bookie(folder: Path, port: int, zookeeper_port: int) -> Part:
    """It syncs nothing to disk: a killed bookie may lose what a killed broker does not."""
    folder.mkdir(parents=True, exist_ok=True)
    properties = {
        "bookiePort": str(port),
        "advertisedAddress": "127.0.0.1",
        "allowLoopback": "true",
        "listeningInterface": "lo",
        "journalDirectories": str(folder / "journal"),
        "ledgerDirectories": str(folder / "ledgers"),
        "metadataServiceUri": f"zk+null://127.0.0.1:{zookeeper_port}/ledgers",
        "journalSyncData": "false",
        "journalWriteData": "false",
        "httpServerEnabled": "false",
        "autoRecoveryDaemonEnabled": "false",
        "enableStatistics": "false",
        # Without these a disk that is nearly full makes it read-only.
        "diskUsageThreshold": "0.999",
        "diskUsageWarnThreshold": "0.998",
        # Without it it refuses the entries of chunked messages.
        "nettyMaxFrameSizeBytes": "5253120",
    }
    config = write_properties(folder / "bk.conf", properties)
    program = Program("org.apache.bookkeeper.server.Main", ("-c", str(config)), _MEMORY)
    return Part(folder, program, lambda: is_listening(port))
