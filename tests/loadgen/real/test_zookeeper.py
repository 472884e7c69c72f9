from pathlib import Path

from loadgen.real.zookeeper import metadata_setup, metadata_url, zookeeper


def test_it_listens_on_loopback_at_its_port_and_keeps_its_data_in_its_folder(tmp_path: Path) -> None:
    zookeeper(tmp_path / "zookeeper", 2181)
    lines = (tmp_path / "zookeeper" / "zoo.cfg").read_text().splitlines()
    assert {"clientPort=2181", "clientPortAddress=127.0.0.1", f"dataDir={tmp_path}/zookeeper/data"} <= set(lines)


def test_the_setup_names_both_brokers() -> None:
    said = " ".join(metadata_setup(2181, [1, 2], [3, 4]).arguments)
    assert "--web-service-url http://127.0.0.1:1,127.0.0.1:2" in said
    assert "--broker-service-url pulsar://127.0.0.1:3,127.0.0.1:4" in said
    assert f"--metadata-store {metadata_url(2181)}" in said
