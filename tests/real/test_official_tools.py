"""Pulsar's own command-line tools through Sluice, on request (`pytest -m on_request tests/real`): five minutes.

pulsar-admin has tests of its own (`test_pulsar_admin.py`). Not here: tools that never speak to a service URL
(documentation, offloads), and those of Pulsar's WebSocket and HTTP services, which Sluice does not serve.
"""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from loadgen.real.jars import jars, java_command, require_java
from loadgen.real.standalone import BrokerSettings, StandaloneBroker
from tests.real.pulsar_rest import PulsarRest
from tests.real.sluice_process import SluiceProcess, start_sluice
from tests.real.traffic import open_sender, payload, quiet_client

pytestmark = [pytest.mark.real, pytest.mark.on_request]

CLIENT, PERF = "org.apache.pulsar.client.cli.PulsarClientTool", "org.apache.pulsar.testclient.PulsarPerfTestTool"
COUNT = 20
PATIENCE_S = 120
LIMIT = {"limits": {"each_topic": {"publish": {"messages": 1000}, "dispatch": {"messages": 1000}}}}


@dataclass(frozen=True)
class Tool:
    """A run of a tool.

    Attributes:
        name: For people, and of its topic.
        main: The tool's class.
        arguments: `{topic}` and `{url}` are replaced.
        says: In its output; it ends with code 0, too.
        sends: How many messages it adds to the topic at least; pulsar-perf sends some more. 0: the topic has COUNT.
        partitions: Of the topic; 0: none.
    """

    name: str
    main: str
    arguments: str
    says: str
    sends: int = 0
    partitions: int = 0


def client(name: str, arguments: str, done: str, messages: int) -> Tool:
    says, sends = f"{messages} messages successfully {done}", messages if done == "produced" else 0
    return Tool(f"client-{name}", CLIENT, f"--url {{url}} {arguments} {{topic}}", says, sends)


def perf(name: str, arguments: str, sends: int = 0, partitions: int = 0) -> Tool:
    topic = "" if "{topic}" in arguments else "{topic}"
    return Tool(
        f"perf-{name}", PERF, f"{arguments} -u {{url}} {topic}", "Aggregated throughput stats", sends, partitions
    )


TOOLS = [
    client("produce", "produce -m one,two", "produced", 2),
    client("produce-many", "produce -m one -n 5 -r 50", "produced", 5),
    client("produce-key", "produce -m one -k key -p a=b", "produced", 1),
    client("produce-unbatched", "produce -m one --disable-batching", "produced", 1),
    client("produce-chunked", "produce -m one -c", "produced", 1),
    client("produce-schema", "produce -m one -vs string", "produced", 1),
    client("consume", "consume -n 5 -s s -p Earliest", "consumed", 5),
    client("consume-shared", "consume -n 20 -s s -p Earliest -t Shared -q 5", "consumed", 20),
    client("consume-failover", "consume -n 5 -s s -p Earliest -t Failover --hide-content", "consumed", 5),
    client("consume-key-shared", "consume -n 5 -s s -p Earliest -t Key_Shared", "consumed", 5),
    client("consume-non-durable", "consume -n 5 -s s -p Earliest -m NonDurable", "consumed", 5),
    client("consume-regex", "consume -n 5 -s s -p Earliest --regex", "consumed", 5),
    client("consume-slowly", "consume -n 5 -s s -p Earliest -r 10", "consumed", 5),
    client("read", "read -n 5 -m earliest", "read", 5),
    client("read-few", "read -n 20 -m earliest -q 2 --hide-content", "read", 20),
    perf("produce", "produce -m 1000 -r 500", 1000),
    perf("produce-unbatched", "produce -m 500 -r 500 --disable-batching -s 100", 500),
    perf("produce-lz4", "produce -m 1000 -r 500 -z LZ4", 1000),
    perf("produce-producers", "produce -m 1000 -r 500 -n 4 -c 2 -threads 2", 1000),
    perf("produce-partitioned", "produce -m 1000 -r 500", 1000, partitions=3),
    perf("produce-chunked", "produce -m 10 -r 10 -s 200000 -ch -b 1 -db", 10),
    perf("produce-transactions", "produce -m 200 -r 200 -txn -nmt 50", 200),
    perf("consume", "consume -m 20 -sp Earliest -ss s"),
    perf("consume-shared", "consume -m 20 -sp Earliest -ss s -st Shared -n 2 -q 10"),
    perf("consume-transactions", "consume -m 20 -sp Earliest -ss s -txn -nmt 10"),
    perf("read", "read -n 20"),
    perf("transaction", "transaction --topics-c {topic} --topics-p {topic}-to -ntxn 10 -nmp 2 -nmc 1 -sp Earliest"),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, short_lived_java: None) -> Iterator[StandaloneBroker]:
    """With transactions."""
    settings = BrokerSettings(properties={"transactionCoordinatorEnabled": "true"})
    with StandaloneBroker(tmp_path_factory.mktemp("broker"), settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def sluice(broker: StandaloneBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SluiceProcess]:
    sluice = start_sluice(tmp_path_factory.mktemp("sluice"), broker.service_url, LIMIT)
    try:
        yield sluice
    finally:
        sluice.stop()


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_tool_does_through_sluice_what_it_is_for(
    broker: StandaloneBroker, sluice: SluiceProcess, tmp_path: Path, tool: Tool
) -> None:
    topic, rest = f"persistent://public/default/{tool.name}", PulsarRest(broker.admin_url)
    if tool.partitions:
        rest.create_partitioned_topic(topic, tool.partitions)
    at_broker = quiet_client(broker.service_url)
    at_broker.subscribe(topic, "keep").close()
    if not tool.sends:
        open_sender(at_broker, topic, "p").send_all([payload("p", index) for index in range(COUNT)])
    at_broker.close()
    before = counted(rest, topic, tool.partitions)
    config = tmp_path / "client.conf"
    config.write_text(f"brokerServiceUrl={sluice.service_url}\nwebServiceUrl={broker.admin_url}/\n")
    options = ["-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = java_command(require_java(), jars(), options, tool.main)
    arguments = tool.arguments.format(url=sluice.service_url, topic=topic).split()
    done = subprocess.run(
        [*command, str(config), *arguments],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    output = done.stdout + done.stderr
    assert (done.returncode, tool.says in output) == (0, True), output[-4000:]
    assert counted(rest, topic, tool.partitions) - before >= tool.sends


def counted(rest: PulsarRest, topic: str, partitions: int) -> int:
    """How many messages came into the topic."""
    names = [f"{topic}-partition-{number}" for number in range(partitions)] or [topic]
    return sum(int(rest.stats(name)["msgInCounter"]) for name in names)
