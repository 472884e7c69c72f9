"""The two brokers that the demo can run against: the stand-in, or a real Pulsar standalone."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from demo.processes import DemoError, Processes, sluice
from loadgen.admin_rest import AdminRest, AdminRestError
from loadgen.real.process import free_port, is_listening
from protocol.topic_name import parse_topic

STANDIN_START_S = 20.0
REAL_START_S = 600.0
"""The first start fetches the jars."""
WARM_UP = Path(__file__).with_name("warm-up.yaml")
WARM_UP_S = 10
WARM_UP_LONGEST_S = 90.0
NAME = "broker"


def start_standin(processes: Processes) -> str:
    """Start `sluice broker`; returns its service URL once it accepts connections."""
    port = free_port()
    processes.start(NAME, sluice("broker", "--listen", f"127.0.0.1:{port}"))
    processes.wait_until(NAME, lambda: is_listening(port), STANDIN_START_S)
    return f"pulsar://127.0.0.1:{port}"


def start_real(processes: Processes, folder: Path, topics: Iterable[str]) -> str:
    """Start a real broker with the topics' tenants and namespaces; returns its service URL once it is healthy."""
    listen_file = folder / "broker.json"
    processes.start(NAME, [sys.executable, "-m", "loadgen.real", "--listen-file", str(listen_file)])
    processes.wait_until(NAME, listen_file.exists, REAL_START_S)
    urls = json.loads(listen_file.read_text(encoding="utf-8"))
    names = [parse_topic(topic) for topic in topics]
    rest = AdminRest(urls["admin_url"])
    try:
        for tenant in sorted({name.tenant for name in names}):
            rest.make_tenant(tenant)
        for namespace in sorted({name.namespace_name for name in names}):
            rest.make_namespace(namespace)
    except AdminRestError as error:
        raise DemoError(f"{NAME}: {error}") from error
    return str(urls["service_url"])


def warm_up(processes: Processes, folder: Path, service_url: str) -> None:
    """Publish to a fresh real broker and receive from it until its JVM has warmed up."""
    options = ["--service-url", service_url, "--verify-url", service_url, "--scenario", str(WARM_UP)]
    options += ["--seconds", str(WARM_UP_S), "--out", str(folder / "warm-up.json")]
    processes.start("warm-up", sluice("load", *options))
    processes.wait_for_end("warm-up", WARM_UP_LONGEST_S, lambda: None)
