"""One change holds everywhere: two members with their own stores, and a real broker's compacted topic between them."""

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from operator import gt
from pathlib import Path
from typing import Any

import pytest

from adminrest.client import topic_path
from loadgen.real.standalone import StandaloneBroker
from protocol.endpoint import BROKERS
from tests.proxy.fleet import test_policy_topic
from tests.proxy.fleet.test_policy_topic import KEY, Member, rate
from tests.real.pulsar_rest import PulsarRest, topic_name
from tests.real.sluice_process import SluiceProcess, start_sluice
from tests.waiting import PATIENCE_S, until, wait_for

pytestmark = pytest.mark.real

NAMESPACE = "policies"
TOPIC = topic_name(NAMESPACE, "front-policies")
RATE = "/admin/v2/namespaces/acme/shop/publishRate"


def _config(folder: Path, name: str, **more: Any) -> dict[str, Any]:
    namespace = TOPIC.partition("://")[2].rpartition("/")[0]
    fleet = {"name": "front", "namespace": namespace}
    return {"proxy_id": name, "policies": {"store": str(folder / f"{name}.db")}, "fleet": fleet, **more}


def _state(sluice: SluiceProcess) -> str:
    return str(sluice.get("/sluice/fleet")["policies"]["state"])


def _in_step(*members: SluiceProcess) -> None:
    wait_for(
        lambda: all(_state(each) == "in_step" for each in members), evidence=lambda: "one does not follow the topic"
    )


def _ask(sluice: SluiceProcess, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str, bytes]:
    """Status, ETag and body."""
    connection = http.client.HTTPConnection(sluice.admin_url.removeprefix("http://"), timeout=PATIENCE_S)
    try:
        text = None if body is None else json.dumps(body)
        fields = {"Content-Type": "application/json"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        connection.request(method, path, text, fields)
        answer = connection.getresponse()
        return answer.status, answer.getheader("ETag", ""), answer.read()
    finally:
        connection.close()


def _rate(sluice: SluiceProcess) -> Any:
    return json.loads(_ask(sluice, "GET", RATE)[2] or b"{}").get("publishThrottlingRateInMsg")


@pytest.fixture(scope="module")
def members(
    tmp_path_factory: pytest.TempPathFactory, real_broker: StandaloneBroker, rest: PulsarRest
) -> Iterator[list[SluiceProcess]]:
    rest.ensure_namespace(NAMESPACE)
    folder = tmp_path_factory.mktemp("members")
    configs = _config(folder, "a"), _config(folder, "b")
    members = [start_sluice(folder / config["proxy_id"], real_broker.service_url, config) for config in configs]
    yield members
    for each in members:
        each.stop()


def test_a_change_in_one_holds_in_the_other_when_it_is_answered(members: list[SluiceProcess]) -> None:
    first, second = members
    _in_step(first, second)
    for number in range(30):
        setter, other = (first, second) if number % 2 else (second, first)
        body = {"publishThrottlingRateInMsg": 100 + number, "publishThrottlingRateInByte": -1}
        assert _ask(setter, "POST", RATE, body)[0] == 204
        wait_for(lambda other=other, rate=100 + number: _rate(other) == rate)  # type: ignore[misc]
    audited = second.get("/sluice/audit?limit=1")["changes"][0]
    assert "by a" in audited["address"]


def test_of_two_who_replace_the_same_one_wins(members: list[SluiceProcess]) -> None:
    _in_step(*members)
    for round_ in range(10):
        tag = _ask(members[0], "GET", RATE)[1]
        statuses = list[int]()

        def race(sluice: SluiceProcess, rate: int, tag: str = tag, statuses: list[int] = statuses) -> None:
            body = {"publishThrottlingRateInMsg": rate, "publishThrottlingRateInByte": -1}
            statuses.append(_ask(sluice, "POST", RATE, body, If_Match=tag)[0])

        threads = [
            threading.Thread(target=race, args=(members[place % 2], 1000 + 10 * round_ + place)) for place in range(4)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert sorted(statuses) == [204, 412, 412, 412]
        wait_for(lambda: _rate(members[0]) == _rate(members[1]), evidence=lambda: "they differ")


def test_one_that_starts_anew_reads_the_compacted_topic(
    members: list[SluiceProcess], rest: PulsarRest, real_broker: StandaloneBroker, tmp_path: Path
) -> None:
    first, second = members
    _in_step(first, second)
    for number in range(20):
        path = f"/sluice/limits?direction=publish&setting=tenant&name=t{number}"
        assert _ask(first, "PUT", path, {"messages": number + 1})[0] == 200
        if number % 2:
            assert _ask(second, "DELETE", path)[0] == 200
    wanted = _ask(second, "GET", "/sluice/policies")[2]
    rest.call("PUT", f"/admin/v2/{topic_path(TOPIC)}/compaction")
    status = f"/admin/v2/{topic_path(TOPIC)}/compaction"
    wait_for(lambda: rest.get_json(status)["status"] == "SUCCESS", evidence=lambda: "it is not compacted")
    third = start_sluice(tmp_path, real_broker.service_url, _config(tmp_path, "c"))
    try:
        _in_step(third)
        wait_for(lambda: _ask(third, "GET", "/sluice/policies")[2] == wanted, evidence=lambda: "it has other policies")
        state = third.get("/sluice/fleet")["policies"]
        assert state["messages_received"] <= state["policies"] + 2  # who founded it, and its own mark
    finally:
        third.stop()


def test_a_member_starts_from_its_store_while_brokers_are_away(
    real_broker: StandaloneBroker, members: list[SluiceProcess], tmp_path: Path
) -> None:
    _in_step(*members)
    rate = _rate(members[0])
    config = _config(tmp_path, "d")
    once = start_sluice(tmp_path, real_broker.service_url, config)
    _in_step(once)
    wait_for(lambda: _rate(once) == rate, evidence=lambda: "it has another rate")
    once.stop()
    away = start_sluice(tmp_path, "pulsar://127.0.0.1:1", config, ready_at="/healthz")
    try:
        assert _rate(away) == rate
        assert _state(away) == "away"
        status, _, body = _ask(away, "DELETE", RATE)
        assert (status, _rate(away)) == (503, rate)
        assert TOPIC in body.decode()
    finally:
        away.stop()
    assert _ask(members[0], "DELETE", RATE)[0] == 204
    again = start_sluice(tmp_path, real_broker.service_url, config)
    try:
        wait_for(lambda: _rate(again) is None, evidence=lambda: "it does not catch up")
    finally:
        again.stop()


async def test_missing_topic_is_named_and_deleted_one_made_again(
    real_broker: StandaloneBroker, rest: PulsarRest, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topic_name("deleted", "front-policies")
    monkeypatch.setattr(test_policy_topic, "TOPIC", topic)
    broker = test_policy_topic.Broker()
    broker.at = BROKERS.parse(real_broker.service_url)
    first = Member(broker, "a", acme=rate(5))
    second = Member(broker, "b")
    await first.topic.start()
    try:
        await until(lambda: "namespaces create sluice-test/deleted" in first.topic.problem)
        await asyncio.to_thread(rest.ensure_namespace, "deleted")
        await second.topic.start()
        members = first, second
        for _ in range(2):
            await until(lambda: second.topic.state == first.topic.state == "in_step" and second.kept == first.kept)
            before = [member.topic.counts.reconnects for member in members]
            await asyncio.to_thread(rest.call, "DELETE", f"/admin/v2/{topic_path(topic)}?force=true")
            await until(lambda: all(map(gt, [member.topic.counts.reconnects for member in members], before)))  # noqa: B023
        await until(lambda: second.topic.state == first.topic.state == "in_step" and second.kept == first.kept)
        assert await second.set(KEY, rate(6)) == 1
        await until(lambda: first.kept == {"acme": rate(6)})
    finally:
        for each in (first, second):
            await each.topic.stop()
            await each.service.close()
