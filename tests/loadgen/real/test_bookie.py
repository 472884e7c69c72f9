from pathlib import Path

from loadgen.real.bookie import bookie


def test_it_finds_its_zookeeper_and_keeps_its_data_in_its_folder(tmp_path: Path) -> None:
    bookie(tmp_path / "bookie", 3181, 2181)
    lines = (tmp_path / "bookie" / "bk.conf").read_text().splitlines()
    wanted = {"bookiePort=3181", "metadataServiceUri=zk+null://127.0.0.1:2181/ledgers", "allowLoopback=true"}
    assert wanted <= set(lines)
    assert f"ledgerDirectories={tmp_path}/bookie/ledgers" in lines
