"""A member whose fleet does not form, as its namespace is missing: each place that shows limits says so."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
import yaml

from tests.loadgen.standin.conftest import running_broker
from tests.real.sluice_process import SluiceProcess, launch_sluice
from tests.waiting import wait_for

TOPIC = "persistent://acme/shop/orders"
PLACE = "/sluice/limits?direction=publish&setting=tenant&name=acme"
LIMITS = {"tenants": {"acme": {"publish": {"messages": "1000/s"}}}}
CREATE = "pulsar-admin namespaces create public/sluice"


class Member:
    """The member, with a producer that wants more than its part."""

    def __init__(self, folder: Path, broker: str) -> None:
        fleet = {"name": "front", "cycle": 0.05, "lease": 0.4}
        self.config: dict[str, Any] = {"proxy_id": "sluice-1", "limits": LIMITS, "fleet": fleet}
        self.config["policies"] = {"topic": "none"}  # else a change by REST is a 503, which names the same remedy
        self._folder = folder
        self.sluice = launch_sluice(folder, f"pulsar://{broker}", self.config)
        self.sluice.wait_ready()
        # Its farewell stands after what is held; what it says of that is of no use.
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
        self._client = pulsar.Client(self.sluice.service_url, logger=logger)
        producer = self._client.create_producer(TOPIC, send_timeout_millis=0, max_pending_messages=0)
        for _ in range(20_000):
            producer.send_async(b"x", lambda *_: None)
        wait_for(lambda: self.get("/sluice/streams")["shares"]["state"] == "isolated")
        wait_for(lambda: self.stream()["waits_on"])

    def get(self, path: str) -> Any:
        return self.sluice.get(path)

    def stream(self) -> dict[str, Any]:
        (stream,) = self.sluice.streams(TOPIC)
        return dict(stream)

    def per_s(self) -> float:
        """Return the messages per second that hold the stream."""
        waits_on = self.stream()["waits_on"]
        return 0 if waits_on is None else float(waits_on["in_force"]["messages_per_s"])

    def text(self, path: str) -> tuple[int, str]:
        with urllib.request.urlopen(self.sluice.admin_url + path) as answer:
            return answer.status, answer.read().decode()

    def run(self, *words: str) -> str:
        """Return the output of a command, in one line and without the drawing of tables."""
        command = [sys.executable, "-m", "sluice", *words, "--admin", self.sluice.admin_url.removeprefix("http://")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={"COLUMNS": "500"})
        return done.stdout

    def reload(self, per_s: int) -> None:
        limits = {"tenants": {"acme": {"publish": {"messages": f"{per_s}/s"}}}}
        (self._folder / "sluice.yaml").write_text(yaml.safe_dump({**self.config, "limits": limits}))
        self.sluice.send("POST", "/sluice/reload")

    def log(self) -> list[dict[str, Any]]:
        process = self.sluice.process
        assert process is not None
        return [json.loads(line) for line in process.log_path.read_text().splitlines() if line.startswith("{")]

    def close(self) -> None:
        self.sluice.stop()
        self._client.close()


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    with running_broker("--missing-namespace", "public/sluice") as (_, broker):
        member = Member(tmp_path_factory.mktemp("member"), broker)
        yield member
        member.close()


def test_readiness_tells_the_state_and_stays_200(member: Member) -> None:
    assert member.text("/readyz") == (200, "ready\n")
    for path in ("/readyz?verbose", "/readyz?verbose=1"):
        status, text = member.text(path)
        answer = json.loads(text)
        assert (status, answer["ready"], answer["problem"]) == (200, True, None)
        (state,) = answer["degraded"]
        assert state["cause"] == "fleet_not_formed"
        assert "at most 5 % of each shared limit (fleet.isolated: floor)" in state["reason"]
        assert "Namespace not found" in state["reason"]
        assert CREATE in state["remedy"]
        assert "acme" not in text


def test_streams_and_limits_show_the_part_in_force(member: Member) -> None:
    part = {"messages_per_s": 50, "bytes_per_s": None, "share_messages": 0.05, "share_bytes": None}
    stream = member.stream()
    for shown in (stream["waits_on"], *stream["limits"], member.get(PLACE)):
        assert part.items() <= shown["in_force"].items()
    (listed,) = member.get("/sluice/limits")["limits"]
    assert part.items() <= listed["in_force"].items()
    for path in ("/sluice/streams?tenant=acme", PLACE, "/sluice/limits", f"/sluice/explain?topic={TOPIC}"):
        shares = member.get(path)["shares"]
        assert (shares["fleet"], shares["state"], shares["part"]) == ("front", "isolated", "floor")
        assert shares["since"]


def test_explain_and_top_show_the_part_and_the_reason(member: Member) -> None:
    levels = {level["level"]: level for level in member.get(f"/sluice/explain?topic={TOPIC}")["publish"]}
    assert levels["tenant"]["in_force"]["share_messages"] == 0.05
    assert levels["namespace"]["in_force"] is None
    explained, top = member.run("explain", TOPIC), member.run("top", "--once", "--interval", "100ms")
    for text in (explained, top):
        assert "degraded (fleet_not_formed)" in text
        assert CREATE in text
        assert (
            "shares of fleet front: cut off: at most 5 % of each shared limit (fleet.isolated: floor), since " in text
        )
    assert "50/s (5.0%)" in explained
    assert "tenant acme 50/s (5.0% of 1,000/s)" in top


def test_the_metric_and_the_log_tell_it(member: Member) -> None:
    wait_for(lambda: 'sluice_degraded{cause="fleet_not_formed"} 1.0' in member.text("/metrics")[1])
    assert 'sluice_degraded{cause="fleet_cut_off"} 0.0' in member.text("/metrics")[1]
    wait_for(lambda: any(line.get("state") == "fleet_not_formed" for line in member.log()))
    (line,) = [line for line in member.log() if line.get("state") == "fleet_not_formed"]
    assert line["level"] == "warning"
    assert CREATE in line["remedy"]


def test_a_changed_limit_changes_the_part_by_file_and_by_rest(member: Member) -> None:
    assert member.per_s() == 50
    for per_s in (4000, 400):
        member.reload(per_s)
        wait_for(lambda per_s=per_s: member.per_s() == per_s / 20)  # type: ignore[misc]
    member.sluice.send("PUT", PLACE, {"messages": "2000/s"})
    wait_for(lambda: member.per_s() == 100)
    member.sluice.send("DELETE", PLACE)
    wait_for(lambda: member.per_s() == 20)
    member.reload(1000)
    wait_for(lambda: member.per_s() == 50, evidence=member.stream)


def test_readiness_is_503_where_the_configuration_says_so(tmp_path: Path) -> None:
    fleet = {"name": "front", "cycle": 0.05, "lease": 0.4}
    config = {"fleet": fleet, "admin_access": {"not_ready_when": ["fleet_not_formed"]}}
    with running_broker("--missing-namespace", "public/sluice") as (_, broker):
        sluice: SluiceProcess = launch_sluice(tmp_path, f"pulsar://{broker}", config)
        sluice.wait_ready("/healthz")
        with pytest.raises(urllib.error.HTTPError, match="503") as refused:
            wait_for(lambda: urllib.request.urlopen(sluice.admin_url + "/readyz").status != 200)
        assert refused.value.read().decode().startswith("fleet_not_formed: ")
        sluice.stop()
