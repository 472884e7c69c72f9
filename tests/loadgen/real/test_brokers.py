"""Only what needs no Java; `tests/real` runs the brokers themselves."""

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from loadgen.real.jars import ProcessFailed, RealPulsarError
from loadgen.real.standalone import BrokerSettings, StandaloneBroker
from tests.loadgen.real.conftest import MAVEN_THAT_WORKS, Tool, java_that_says
from tests.real.pulsar_cluster import PulsarCluster


def test_a_broker_that_ends_at_once_is_told_with_its_last_lines(tool: Tool, tmp_path: Path) -> None:
    tool("mvn", MAVEN_THAT_WORKS)
    tool("java", f"{java_that_says('17')}\necho 'the disk is full'; exit 4")
    with pytest.raises(ProcessFailed, match=r"the broker ended with code 4(.|\n)*the disk is full"):
        StandaloneBroker(tmp_path / "broker").start()


def test_a_broker_that_never_gets_healthy_is_killed_in_time(tool: Tool, tools: Path, tmp_path: Path) -> None:
    (tools / "sleep").symlink_to("/bin/sleep")
    tool("mvn", MAVEN_THAT_WORKS)
    tool("java", f"{java_that_says('17')}\ncase $1 in -version) exit;; esac\necho $$; exec sleep 60")
    with pytest.raises(ProcessFailed, match="not healthy within 0 s"):
        StandaloneBroker(tmp_path / "broker").start(timeout_s=0)


def test_its_addresses_are_known_before_it_starts(tmp_path: Path) -> None:
    broker = StandaloneBroker(tmp_path, BrokerSettings())
    assert broker.service_url.startswith("pulsar://127.0.0.1:")
    assert broker.admin_url.startswith("http://127.0.0.1:")
    broker.stop()
    broker.kill()


TOPIC = "persistent://public/default/t"
ZOOKEEPER = """
import re, socket, sys, time
port = re.search("clientPort=([0-9]+)", open(sys.argv[1]).read())[1]
server = socket.create_server(("127.0.0.1", int(port)))
time.sleep(60)
"""


class FakeBroker(BaseHTTPRequestHandler):
    """Owns what it is told to own, and moves it when asked."""

    calls: list[str]
    owner: str

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        is_bundle = self.path.endswith("/bundle")
        self.wfile.write(b"0x00_0x40" if is_bundle else f'{{"brokerUrl": "{FakeBroker.owner}"}}'.encode())

    def do_PUT(self) -> None:
        FakeBroker.calls.append(self.path)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PulsarCluster]:
    """One whose first broker does not run and whose second one is an HTTP server."""
    FakeBroker.calls = []
    cluster = PulsarCluster(tmp_path)
    with HTTPServer(("127.0.0.1", 0), FakeBroker) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        address = f"127.0.0.1:{server.server_port}"
        running = SimpleNamespace(
            is_running=True, service_url="pulsar://b:1", web_address=address, admin_url=f"http://{address}"
        )
        monkeypatch.setattr(cluster, "brokers", (cluster.brokers[0], running))
        yield cluster
        server.shutdown()
        thread.join()


def test_its_ports_are_all_different_and_known_before_it_starts(tmp_path: Path) -> None:
    cluster = PulsarCluster(tmp_path)
    addresses = {address for broker in cluster.brokers for address in (broker.address, broker.web_address)}
    assert len(addresses) == 4
    assert cluster.service_url == f"pulsar://{cluster.brokers[0].address},{cluster.brokers[1].address}"
    cluster.kill()


def test_a_start_that_fails_half_way_names_the_part_and_leaves_nothing_running(tool: Tool, tmp_path: Path) -> None:
    tool("mvn", MAVEN_THAT_WORKS)
    (tmp_path / "zookeeper.py").write_text(ZOOKEEPER)
    config = tmp_path / "cluster" / "zookeeper" / "zoo.cfg"
    script = f"""
        case "$*" in
            -version) {java_that_says("17")}; exit;;
            *ZooKeeperServerMain*) exec {sys.executable} {tmp_path}/zookeeper.py {config};;
        esac
        echo cannot write; exit 5"""
    tool("java", script)
    cluster = PulsarCluster(tmp_path / "cluster")
    with pytest.raises(ProcessFailed, match="metadata-setup ended with code 5\ncannot write"):
        cluster.start()
    assert not any(part.is_running for part in cluster._parts())


def test_the_owner_is_asked_of_a_broker_that_runs(cluster: PulsarCluster) -> None:
    FakeBroker.owner = "pulsar://b:1"
    assert cluster.owner_of(TOPIC) == 1
    FakeBroker.owner = "pulsar://elsewhere:1"
    with pytest.raises(RealPulsarError, match=f"{TOPIC} is said to be owned by pulsar://elsewhere:1"):
        cluster.owner_of(TOPIC)


def test_a_topic_is_moved_by_its_bundle(cluster: PulsarCluster) -> None:
    FakeBroker.owner = "pulsar://b:1"
    cluster.unload(TOPIC, to=1)
    (asked,) = FakeBroker.calls
    path = "/admin/v2/namespaces/public/default/0x00_0x40/unload"
    assert asked == f"{path}?destinationBroker={cluster.brokers[1].web_address}"


def test_a_topic_that_somebody_else_took_meanwhile_is_moved_again(
    cluster: PulsarCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeBroker.owner = cluster.brokers[0].service_url
    monkeypatch.setattr("time.sleep", lambda _: setattr(FakeBroker, "owner", "pulsar://b:1"))
    cluster.unload(TOPIC, to=1)
    assert len(FakeBroker.calls) == 2


def test_a_topic_that_does_not_move_is_told(cluster: PulsarCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.real.pulsar_cluster._MOVE_TIMEOUT_S", 0)
    FakeBroker.owner = "pulsar://b:1"
    with pytest.raises(RealPulsarError, match=f"{TOPIC} did not move to broker 0 within 0 s: it went to broker 1"):
        cluster.unload(TOPIC, to=0)


def test_a_cluster_without_a_running_broker_says_so(tmp_path: Path) -> None:
    with pytest.raises(RealPulsarError, match="no broker of this cluster runs"):
        PulsarCluster(tmp_path).owner_of(TOPIC)
