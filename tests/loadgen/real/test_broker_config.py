import socket
from pathlib import Path

from loadgen.real.broker_config import BrokerPorts, BrokerSettings, choose_ports, write_config


def properties(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def test_the_three_ports_are_different_and_free() -> None:
    ports = choose_ports(0)
    assert len({ports.service, ports.web, ports.bookie}) == 3
    with socket.create_server(("127.0.0.1", ports.service)):
        pass
    assert choose_ports(ports.service).service == ports.service


def test_writes_are_synced_only_where_durability_is_wanted(tmp_path: Path) -> None:
    ports = BrokerPorts(1, 2, 3)
    assert properties(write_config(tmp_path, ports, BrokerSettings()))["journalSyncData"] == "false"
    assert properties(write_config(tmp_path, ports, BrokerSettings(durable=True)))["journalSyncData"] == "true"


def test_the_caller_s_properties_come_last(tmp_path: Path) -> None:
    settings = BrokerSettings(properties={"allowLoopback": "no", "brokerDeduplicationEnabled": "true"})
    written = properties(write_config(tmp_path, BrokerPorts(1, 2, 3), settings))
    assert written["allowLoopback"] == "no"
    assert written["brokerDeduplicationEnabled"] == "true"
    assert (written["brokerServicePort"], written["webServicePort"]) == ("1", "2")
