from pathlib import Path

from loadgen.real.cluster_broker import ClusterBroker


def test_a_broker_s_addresses_and_its_file_agree(tmp_path: Path) -> None:
    broker = ClusterBroker(tmp_path / "broker-0", (6650, 8080), 2181, {"managedLedgerCacheSizeMB": "8"})
    assert (broker.service_url, broker.admin_url) == ("pulsar://127.0.0.1:6650", "http://127.0.0.1:8080")
    written = dict(line.split("=", 1) for line in (tmp_path / "broker-0" / "broker.conf").read_text().splitlines())
    assert (written["brokerServicePort"], written["webServicePort"]) == ("6650", "8080")
    assert written["metadataStoreUrl"] == "zk:127.0.0.1:2181"
    assert written["loadBalancerEnabled"] == "true"
    assert written["managedLedgerCacheSizeMB"] == "8", "the caller's come last"
