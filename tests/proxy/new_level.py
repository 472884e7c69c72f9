"""Run by `test_new_level.py` where the limiter has one level more: what a proxy says of it everywhere, in `said.json`.

python -m tests.proxy.new_level FOLDER
"""

import io
import sys
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import uvloop
from rich.console import Console

from proxy.assembly import ConfigSource, Proxy
from proxy.cli.policy_tables import explanation
from proxy.config.model import ConfigError, load_config
from proxy.config.reference import reference
from tests.proxy.tcp import broker_on_loopback, connect_to
from tests.proxy.wire import TOPIC, connect, name_of, producer, sends

FILE = """
listen: 127.0.0.1:0
admin: 127.0.0.1:0
broker: pulsar://{broker}
access_log: {{dir: {folder}/log, compression: none}}
limits:
  client_versions:
    test-*: {{publish: {{messages: 1/h, burst_messages: 2}}}}
"""
PLACE = "/sluice/limits?direction=publish&setting=client_version&name=test-client*"
EXPLAIN = f"/sluice/explain?topic={TOPIC}&version=test-client"


async def said(folder: Path) -> dict[str, Any]:
    """What each of the places says, by its name."""
    answers: dict[str, Any] = {"reference": reference()}
    async with broker_on_loopback() as broker:
        path = folder / "sluice.yaml"
        path.write_text(FILE.format(broker=broker, folder=folder))
        proxy = Proxy(ConfigSource(path, lambda: load_config(path, {})))
        listen, admin = await proxy.start()
        client = await connect_to(listen)
        client.send(connect(), producer())
        assert [name_of(await client.hear() or b"") for _ in range(2)] == ["CONNECTED", "PRODUCER_SUCCESS"]
        client.send(*sends(6))
        assert [name_of(await client.hear() or b"") for _ in range(2)] == ["SEND"] * 2  # the burst
        other = await connect_to(listen)
        other.send(connect(client_version="test-other"), producer())
        assert [name_of(await other.hear() or b"") for _ in range(2)] == ["CONNECTED", "PRODUCER_SUCCESS"]
        other.send(*sends(1))  # held: both versions share the limit
        async with aiohttp.ClientSession(f"http://{admin}") as session:

            async def ask(method: str, path: str, **more: Any) -> Any:
                async with session.request(method, path, **more) as answer:
                    return await (answer.json() if answer.content_type == "application/json" else answer.text())

            answers["get"] = await ask("GET", PLACE.replace("test-client*", "test-*"))
            answers["put"] = await ask("PUT", PLACE, json={"messages": "2/h", "burst_messages": 3})
            assert [name_of(await client.hear() or b"") for _ in range(3)] == ["SEND"] * 3  # the burst of the new limit
            answers["explain"] = await ask("GET", EXPLAIN)
            answers["policies"] = await ask("GET", "/sluice/policies")
            answers["delete"] = await ask("DELETE", PLACE)
            answers["nameless"] = await ask("GET", f"/sluice/explain?topic={TOPIC}")
            answers["metrics"] = await ask("GET", "/metrics")
            answers["openapi"] = await ask("GET", "/sluice/openapi.json")
        client.writer.close()
        other.writer.close()
        await proxy.stop()
    path.write_text(
        path.read_text() + "".join(f"    {'x' * size}*: {{publish: {{messages: 1}}}}\n" for size in range(9, 29))
    )
    try:
        load_config(path, {})
    except ConfigError as error:
        answers["forms"] = str(error)
    console = Console(file=io.StringIO(), record=True, width=200)
    for part in explanation(answers["nameless"]):
        console.print(part)
    answers["table"] = console.export_text()
    answers["log"] = [msgspec.json.decode(line) for file in (folder / "log").iterdir() for line in file.open()]
    return answers


if __name__ == "__main__":
    where = Path(sys.argv[1])
    (where / "said.json").write_bytes(msgspec.json.encode(uvloop.run(said(where))))
