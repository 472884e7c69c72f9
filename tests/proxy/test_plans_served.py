"""A plan that one pattern gives to forty tenants, at a real process: the broker counts what it receives of each."""

import json
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pulsar
import yaml

from tests.access_log_files import closed_files, content_of
from tests.loadgen.standin.conftest import new_client, running_broker
from tests.real.sluice_process import SluiceProcess, start_sluice
from tests.waiting import wait_for

TENANTS = [f"free-{number:02}" for number in range(40)]
OWN = "free-07"
BURST, OWN_BURST, OFFERED = 5, 9, 20


def _topic(tenant: str) -> str:
    return f"persistent://{tenant}/shop/orders"


def _config(**plan: Any) -> dict[str, Any]:
    own = {"publish": {"messages": "1/h", "burst_messages": OWN_BURST}}
    return {"limits": {"plans": {"free": {"publish": plan}}, "tenants": {"free-*": "free", OWN: own}}}


def _replace(folder: Path, config: dict[str, Any]) -> None:
    (folder / "new.yaml").write_text(yaml.safe_dump(config))
    (folder / "new.yaml").replace(folder / "sluice.yaml")


def _explained(sluice: SluiceProcess, tenant: str) -> list[tuple[str, str, str, str]]:
    levels = sluice.get(f"/sluice/explain?topic={_topic(tenant)}")["publish"]
    values = next(level["values"] for level in levels if level["level"] == "tenant")
    return [(value["name"], value["state"], value["plan"], value["by"]) for value in values]


def _counted(receipts: Counter[str], tenant: str) -> Callable[[pulsar.Result, object], None]:
    def count(result: pulsar.Result, _id: object) -> None:
        receipts[tenant] += result == pulsar.Result.Ok

    return count


def test_one_pattern_gives_forty_tenants_a_plan_each(tmp_path: Path) -> None:
    receipts, counts = Counter[str](), tmp_path / "counts.json"
    with running_broker("--counts", str(counts)) as (broker, address):
        sluice = start_sluice(tmp_path, f"pulsar://{address}", _config(messages="1/h", burst_messages=BURST))
        with closing(new_client(sluice.service_url.partition("//")[2])) as client:
            for tenant in TENANTS:
                producer = client.create_producer(_topic(tenant), batching_enabled=False)
                for number in range(OFFERED):
                    producer.send_async(b"%d" % number, _counted(receipts, tenant))
            first = {tenant: OWN_BURST if tenant == OWN else BURST for tenant in TENANTS}
            wait_for(lambda: receipts == first)
            assert _explained(sluice, "free-00") == [("free-*", "holds", "free", "")]
            assert _explained(sluice, OWN) == [
                (OWN, "holds", "", ""),
                ("free-*", "hidden", "free", f"tenant {OWN} (file)"),
            ]

            _replace(tmp_path, _config(messages="1000000/s", burst_messages=BURST))
            second = {tenant: OWN_BURST if tenant == OWN else OFFERED for tenant in TENANTS}
            wait_for(lambda: receipts == second)
            assert not sluice.get("/sluice/status")["reload"]["problems"]
            sluice.stop()
        broker.terminate()
        broker.wait(30)
    received = json.loads(counts.read_text())["topics"]
    assert {tenant: received[_topic(tenant)]["received_messages"] for tenant in TENANTS} == second
    files = closed_files(sluice.access_log)
    lines = [json.loads(line) for file in files for line in content_of(file).splitlines()]
    changes = [(line["what"], line["before"], line["after"]) for line in lines if line.get("what") == "file"]
    assert changes == [
        (
            "file",
            "publish tenant free-*: messages 1/h, burst_messages 5 (plan free)",
            "publish tenant free-*: messages 1000000, burst_messages 5 (plan free)",
        )
    ]
