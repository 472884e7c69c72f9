"""The parts put together and taken apart."""

import asyncio
import json
import re
import shutil
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import msgspec
import pytest
import structlog
import trustme
import yaml
from structlog.testing import capture_logs

from accesslog.record import AnyLine, ChangeLine, ConnectionLine, HeartbeatLine, IntervalLine, LimitLine
from limiter.levels import Setting
from limiter.limiter import Stream
from limiter.policies import Value
from limiter.restart import FirstBalances
from limiter.token_bucket import Limit, rate
from protocol.pulsar_pb2 import NotAllowedError
from proxy.assembly import ConfigSource, Proxy
from proxy.config.model import Config, load_config
from proxy.config.rereading import ConfigFiles
from proxy.identity.authenticator import ClientAuthenticator
from proxy.identity.evidence import Identity
from proxy.limit_state import LimitState
from proxy.observe.operator_log import set_up_operator_log
from proxy.policies.keys import Principal, rate_key
from proxy.runtime import StartError
from proxy.start_check import StartCheck
from tests.access_log_files import content_of
from tests.proxy.certificates import Authority
from tests.proxy.endpoints import broker_at
from tests.proxy.identity.keys import RSA, signed
from tests.proxy.tcp import broker_on_loopback, connect_to
from tests.proxy.wire import TOPIC, connect, connected, error, producer, producer_success, send, sends
from tests.waiting import PATIENCE_S, until

POST = b"POST /sluice/blocks HTTP/1.1\r\nHost: localhost\r\n"


def given(broker: str, folder: Path | None = None, *, more: dict[str, Any] | None = None) -> ConfigSource:
    values: dict[str, Any] = {
        "listen": "127.0.0.1:0",
        "admin": "127.0.0.1:0",
        "broker": f"pulsar://{broker}",
        **(more or {}),
    }
    config = Config.model_validate(values | ({"access_log": {"dir": folder}} if folder else {}))
    return ConfigSource(None, lambda: config)


async def test_a_proxy_serves_clients_admin_and_log_and_ends_in_order(tmp_path: Path) -> None:
    limits = {"topics": {TOPIC: {"publish": {"messages": "1/h"}}}}
    async with broker_on_loopback() as broker:
        proxy = Proxy(given(broker, tmp_path / "log", more={"limits": limits}))
        listen, admin = await proxy.start()
        client = await connect_to(listen)
        client.send(connect(), producer())
        assert [await client.hear() for _ in range(2)] == [connected(), producer_success()]
        client.send(*sends(3))
        assert await client.hear() == send(0)
        async with aiohttp.ClientSession(f"http://{admin}") as session:
            async with session.get("/readyz") as answer:
                assert (answer.status, await answer.text()) == (200, "ready\n")
            async with session.get("/sluice/streams") as answer:
                (stream,) = (await answer.json())["streams"]
        assert (stream["offered_messages"], stream["held_messages"]) == (3, 2)
        await proxy.stop()
        assert await client.hear() is None
        client.writer.close()
    (log,) = (tmp_path / "log").iterdir()
    lines: list[AnyLine] = [msgspec.json.decode(line, type=AnyLine) for line in content_of(log).splitlines()]
    assert [line.seq for line in lines] == list(range(len(lines)))
    assert sum(line.dropped_messages for line in lines if isinstance(line, IntervalLine)) == 2
    assert [line.end_cause for line in lines if isinstance(line, ConnectionLine)] == ["shutdown"]
    assert isinstance(lines[-1], HeartbeatLine)
    assert lines[-1].last


@pytest.mark.parametrize(("chosen", "status"), [((), 200), (("broker_unreachable",), 503)])
async def test_outage_of_the_brokers_is_said_and_chosen(chosen: tuple[str, ...], status: int) -> None:
    async with broker_on_loopback() as broker:
        proxy = Proxy(given(broker, more={"admin_access": {"not_ready_when": chosen}}))
        _, admin = await proxy.start()
        await proxy.brokers.asked()
    proxy.brokers.brokers_changed()
    await until(lambda: "broker_unreachable" in proxy.states.causes)
    async with aiohttp.ClientSession(f"http://{admin}") as session:
        async with session.get("/readyz?verbose") as answer:
            shown = await answer.json()
        async with session.get("/metrics") as scraped:
            text = await scraped.text()
        async with session.get("/sluice/doctor") as examined:
            findings = (await examined.json())["findings"]
    await proxy.stop()
    assert (answer.status, shown["ready"]) == (status, status == 200)
    assert [each["cause"] for each in shown["degraded"]] == ["broker_unreachable"]
    assert f"\nsluice_ready {1.0 if status == 200 else 0.0}\n" in text
    assert 'sluice_degraded{cause="broker_unreachable"} 1.0' in text
    assert {"degraded", "brokers"} <= {each["check"] for each in findings if each["severity"] == "problem"}


async def test_drain_by_rest_leaves_a_proxy_that_runs_without_clients() -> None:
    async with broker_on_loopback() as broker:
        proxy = Proxy(given(broker, more={"drain": {"delay": 0, "period": 0, "timeout": "20s"}}))
        listen, admin = await proxy.start()
        client = await connect_to(listen)
        client.send(connect())
        assert await client.hear() == connected()
        async with aiohttp.ClientSession(f"http://{admin}") as session:
            async with session.get("/sluice/drain") as answer:
                assert (await answer.json())["phase"] == "serving"
            async with session.post("/sluice/drain") as answer:
                assert (answer.status, (await answer.json())["cause"]) == (202, "rest")
            assert await client.hear() is None
            client.writer.close()
            await asyncio.wait_for(proxy.drain.over(), PATIENCE_S)
            async with session.get("/sluice/drain") as answer:
                shown = await answer.json()
            assert (shown["phase"], shown["outcome"], shown["moved_connections"]) == ("drained", "moved", 1)
            async with session.get("/readyz") as answer:
                assert (answer.status, (await answer.text())[:15]) == (503, "draining (rest)")
            async with session.get("/sluice/streams") as answer:
                assert (await answer.json())["draining"].startswith("draining (rest), drained: 1 connections moved")
            async with session.get("/sluice/audit") as answer:  # a thread wrote it in a fraction of the drain's time
                (action,) = (await answer.json())["changes"]
            assert (action["kind"], action["who"], action["address"]) == ("drain", "anonymous", "127.0.0.1")
        late = await connect_to(listen)
        late.send(connect())
        assert await late.hear() is None
        late.writer.close()
        await proxy.stop()


def _has_offered(stream: Stream, messages: int) -> bool:
    return stream.usage.offered_messages == messages


@pytest.mark.parametrize("is_kept", [True, False])
async def test_balances_go_on_in_the_next_run_if_kept(tmp_path: Path, is_kept: bool) -> None:  # noqa: FBT001
    folder = tmp_path / "state"
    before = LimitState(folder, "sluice", "before", (), time.monotonic_ns)
    before.first = FirstBalances()  # all limits were full
    before.serve()
    before.end([])
    limits = {"topics": {TOPIC: {"publish": {"messages": "3/h", "burst_messages": 3}}}}
    more = {"limits": limits, "drain": {"state": folder}} if is_kept else {"limits": limits}
    passed = []
    async with broker_on_loopback() as broker:
        for _ in range(2):
            proxy = Proxy(given(broker, tmp_path / "log", more=more))
            listen, _ = await proxy.start()
            client = await connect_to(listen)
            client.send(connect(), producer())
            assert [await client.hear() for _ in range(2)] == [connected(), producer_success()]
            client.send(*sends(5))
            (stream,) = proxy.engine.registry.live()
            await until(partial(_has_offered, stream, 5))
            passed.append(stream.usage.passed_messages)
            await proxy.stop()
            client.writer.close()
    assert passed == [3, 0 if is_kept else 3]
    written = b"".join(content_of(file) for file in sorted((tmp_path / "log").glob("*.jsonl*")))
    lines: list[AnyLine] = [msgspec.json.decode(line, type=AnyLine) for line in written.splitlines()]
    limit_lines = sorted((line for line in lines if isinstance(line, LimitLine)), key=lambda line: line.start)
    began = [line.began_messages for line in limit_lines]
    assert began == [None, pytest.approx(0, abs=0.1) if is_kept else None]


async def test_start_that_knows_no_run_before_is_shown_in_metrics(tmp_path: Path) -> None:
    proxy = Proxy(given("127.0.0.1:1", more={"drain": {"state": tmp_path}}))
    _, admin = await proxy.start()
    async with aiohttp.ClientSession(f"http://{admin}") as session, session.get("/metrics") as answer:
        shown = await answer.text()
    await proxy.stop()
    states = {"loaded": 0.0, "missing": 1.0, "killed": 0.0, "refused": 0.0}
    for word, value in states.items():
        assert f'sluice_limit_state{{found="{word}"}} {value}\n' in shown


async def test_state_that_cannot_be_left_is_an_error_of_the_log(tmp_path: Path) -> None:
    proxy = Proxy(given("127.0.0.1:1", more={"drain": {"state": tmp_path / "state"}}))
    await proxy.start()
    shutil.rmtree(tmp_path / "state")
    with capture_logs() as lines:
        await proxy.stop()
    (line,) = [line for line in lines if line["log_level"] == "error"]
    assert line["event"] == "balances of limits are not kept: the next run begins with empty buckets"
    assert line["error"] == "No such file or directory"


def test_start_names_what_its_end_loses(tmp_path: Path) -> None:
    lost = [
        "balances of limits: the next start fills all buckets (drain.state)",
        "limits and blocks set at run time (policies.store)",
    ]
    kept = {"drain": {"state": tmp_path}, "policies": {"store": tmp_path / "p.db"}}
    for more, expected in (({}, lost), (kept, []), ({"fleet": {"name": "front"}}, lost[:1])):
        proxy = Proxy(given("127.0.0.1:1", more=more))
        assert proxy.kept.lost_at_end() == expected


async def test_without_a_folder_lines_are_counted_and_kept_nowhere() -> None:
    proxy = Proxy(given("127.0.0.1:1"))
    await proxy.start()
    await proxy.stop()
    assert proxy.access.lines > 0
    assert proxy.access.dropped_lines == 0


@pytest.mark.parametrize("which", ["listen", "admin"])
async def test_an_address_that_somebody_has_is_told_with_its_key(which: str) -> None:
    first = Proxy(given("127.0.0.1:1"))
    taken = (await first.start())[0 if which == "listen" else 1]
    second = Proxy(given("127.0.0.1:1", more={which: taken}))
    with pytest.raises(StartError, match=f"^{which}: cannot listen on {taken}: .*in use"):
        await second.start()
    await second.stop()
    await first.stop()


@pytest.mark.parametrize(
    "message",
    [
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: many\r\n\r\n",
        b"\x16\x03\x01\x02\x00\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["url too long", "header too long", "no length", "TLS", "no chunk"],
)
async def test_what_is_no_request_is_answered_and_does_not_fill_the_log(
    message: bytes, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    set_up_operator_log()
    async with broker_on_loopback() as broker:
        proxy = Proxy(given(broker))
        _, admin = await proxy.start()
        reader, writer = await asyncio.open_connection(*admin.rsplit(":", 1))
        writer.write(message)
        assert b" 400 " in await reader.readline()
        writer.close()
        await proxy.stop()
    structlog.reset_defaults()
    assert capfd.readouterr().err == ""
    assert caplog.records == []


async def test_a_client_that_leaves_within_its_request_does_not_fill_the_log(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    set_up_operator_log()
    async with broker_on_loopback() as broker:
        proxy = Proxy(given(broker))
        _, admin = await proxy.start()
        reader, writer = await asyncio.open_connection(*admin.rsplit(":", 1))
        writer.write(POST + b"Content-Length: 50\r\n\r\n{")
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await proxy.stop()
    structlog.reset_defaults()
    assert capfd.readouterr().err == ""
    assert caplog.records == []


async def test_a_log_folder_that_cannot_be_made_is_told_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match=r"^access_log.dir: .*/file/log: Not a directory$"):
        Proxy(given("127.0.0.1:1", tmp_path / "file" / "log"))


async def test_an_address_key_that_cannot_be_used_keeps_the_proxy_from_starting(tmp_path: Path) -> None:
    config = Config.model_validate({"access_log": {"dir": tmp_path / "log", "address_key": tmp_path / "none"}})
    with pytest.raises(StartError, match=r"^access_log\.address_key: .*/none: cannot be read: No such file"):
        Proxy(ConfigSource(None, lambda: config))
    assert not (tmp_path / "log").exists()


async def test_a_policy_store_of_another_kind_is_told_with_its_key(tmp_path: Path) -> None:
    store = tmp_path / "policies.db"
    store.write_text("something else " * 100)
    with pytest.raises(StartError, match=r"^policies\.store: .*policies\.db: is not a policy store"):
        Proxy(given("127.0.0.1:1", more={"policies": {"store": store}}))


async def test_what_was_set_by_rest_is_in_force_after_a_restart(tmp_path: Path) -> None:
    source = given("127.0.0.1:1", more={"policies": {"store": tmp_path / "policies.db"}})
    path, body = "/admin/v2/namespaces/acme/shop/publishRate", {"publishThrottlingRateInMsg": 7}
    for _ in range(2):
        proxy = Proxy(source)
        _, admin = await proxy.start()
        async with aiohttp.ClientSession(f"http://{admin}") as session:
            if proxy.service.read(rate_key("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop")) is None:
                async with session.post(path, json=body) as answer:
                    assert answer.status == 204
            else:
                async with session.get(path) as answer:
                    assert (await answer.json())["publishThrottlingRateInMsg"] == 7
        await proxy.stop()
    value = proxy.engine.registry.policies.get("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop")
    assert value == Value(Limit(rate(7)), "rest")


async def test_who_was_blocked_by_rest_is_refused_from_the_next_start_on(tmp_path: Path) -> None:
    async with broker_on_loopback() as broker:
        source = given(broker, more={"policies": {"store": tmp_path / "policies.db"}})
        proxy = Proxy(source)
        _, admin = await proxy.start()
        async with aiohttp.ClientSession(f"http://{admin}") as session:
            body = {"kind": "topic", "name": TOPIC, "reason": "too loud"}
            async with session.post("/sluice/blocks", json=body) as answer:
                assert answer.status == 200
        await proxy.stop()

        proxy = Proxy(source)
        listen, _ = await proxy.start()
        client = await connect_to(listen)
        client.send(connect())
        assert await client.hear() == connected()
        client.send(producer())
        assert await client.hear() == error(101, NotAllowedError, f"topic '{TOPIC}' is blocked by Sluice: too loud")
        client.writer.close()
        await proxy.stop()


async def test_a_block_lifted_by_rest_blocks_again_once_it_left_the_file_and_came_back(tmp_path: Path) -> None:
    file, store = tmp_path / "sluice.yaml", tmp_path / "policies.db"
    addresses = f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\npolicies: {{store: {store}}}\n"
    file.write_text(addresses + "blocks: [{role: billing}]\n")
    proxy = Proxy(ConfigSource(file, lambda: load_config(file, {})))
    _, admin = await proxy.start()
    async with aiohttp.ClientSession(f"http://{admin}") as session:
        async with session.delete("/sluice/blocks", params={"kind": "role", "name": "billing"}) as answer:
            assert "lifted until it is blocked again" in (await answer.json())["note"]
        counts = []
        for blocks in ("[{role: billing}]", "[]", "[{role: billing}]"):
            file.write_text(addresses + f"blocks: {blocks}\n")
            assert not (await proxy.reloader.reload("test")).problems
            async with session.get("/sluice/blocks") as answer:
                shown = await answer.json()
                counts.append((len(shown["blocks"]), len(shown["lifted"])))
            await proxy.service.change({}, Principal("", ""))  # has its turn after what the reload wants to change
    await proxy.stop()
    assert counts == [(0, 1), (0, 0), (1, 0)]


@pytest.mark.parametrize("content", ["", "# limits:\n", "{}", "---\n"])
async def test_an_emptied_file_is_refused_at_reload(tmp_path: Path, content: str) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text("limits: {tenants: {acme: {publish: {messages: 5}}}}\n")
    flags = {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0"}
    files = ConfigFiles(file, flags)
    proxy = Proxy(ConfigSource(file, files.read, reread=files.reread))
    await proxy.start()
    file.write_text(content)
    outcome = await proxy.reloader.reload("file changed")
    states = [state.cause for state in proxy.reloader.degraded()]
    held = [value.limit.messages for value in proxy.service.file.values.values()]
    file.write_text("limits: {}\n")
    wanted = await proxy.reloader.reload("file changed")
    await proxy.stop()
    assert [problem.startswith(f"{file}: has no keys") for problem in outcome.problems] == [True]
    assert (states, [rate.tokens for rate in held if rate]) == (["reload_refused"], [5])
    assert (wanted.problems, dict(proxy.service.file.values)) == ((), {})


async def test_removed_limits_of_the_file_are_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    addresses = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n"
    tenants = "".join(f"    t{number}: {{publish: {{messages: 5}}}}\n" for number in range(12))
    file.write_text(f"{addresses}limits:\n  tenants:\n{tenants}blocks: [{{role: r}}]\n")
    proxy = Proxy(ConfigSource(file, lambda: load_config(file, {})))
    await proxy.start()
    with capture_logs() as lines:
        file.write_text(
            f"{addresses}limits:\n  tenants:\n    t0: {{publish: {{messages: 6}}}}\nblocks: [{{role: r}}]\n"
        )
        await proxy.reloader.reload("file changed")
        file.write_text(addresses)
        await proxy.reloader.reload("file changed")
        await proxy.reloader.reload("file changed")
    await proxy.stop()
    first, last = [line for line in lines if "removed" in line["event"]]
    assert (first["log_level"], first["file"]) == ("warning", str(file))
    named = ", ".join(f"publish tenant t{number}" for number in range(1, 6))
    assert (first["removed"], first["names"]) == (11, f"{named}, …")
    assert (last["removed"], last["names"]) == (2, "publish tenant t0, block role 'r'")


async def test_each_change_is_a_line_of_the_access_log(tmp_path: Path) -> None:
    file, log = tmp_path / "sluice.yaml", tmp_path / "log"
    addresses = f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\naccess_log: {{dir: {log}}}\n"
    file.write_text(addresses)
    proxy = Proxy(ConfigSource(file, lambda: load_config(file, {})))
    _, admin = await proxy.start()
    path, body = "/admin/v2/namespaces/acme/shop/publishRate", {"publishThrottlingRateInMsg": 7}
    async with aiohttp.ClientSession(f"http://{admin}") as session:
        assert (await session.post(path, json=body)).status == 204
        assert (await session.post("/sluice/blocks", json={"kind": "role", "name": "r"})).status == 200
    for _ in range(2):
        file.write_text(addresses + "blocks: [{role: billing}]\n")
        await proxy.reloader.reload("SIGHUP")
    file.write_text(addresses)
    async with aiohttp.ClientSession(f"http://{admin}") as session:
        assert (await session.post("/sluice/reload")).status == 200
    await proxy.stop()
    (written,) = log.iterdir()
    lines = [msgspec.json.decode(line, type=AnyLine) for line in content_of(written).splitlines()]
    changes = [line for line in lines if isinstance(line, ChangeLine)]
    assert [(line.who, line.address, line.what, line.name) for line in changes] == [
        ("anonymous", "127.0.0.1", "publish", "acme/shop"),
        ("anonymous", "127.0.0.1", "block", "role 'r'"),
        ("SIGHUP", "", "file", ""),
        ("anonymous", "127.0.0.1", "file", ""),
    ]
    assert "publishThrottlingRateInMsg" in (changes[0].after or "")
    assert (changes[2].before, changes[2].after) == (None, "block role 'billing': blocked")


async def test_a_disk_that_takes_no_lines_is_a_degraded_state(tmp_path: Path) -> None:
    log = tmp_path / "log"
    flags = {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "access_log": str(log)}
    proxy = Proxy(ConfigSource(None, lambda: load_config(None, flags)))
    _, admin = await proxy.start()
    with capture_logs() as logs:
        async with aiohttp.ClientSession(f"http://{admin}") as session:
            for name in ("lost", "kept"):
                if name == "lost":
                    shutil.rmtree(log)
                    log.touch()
                else:
                    log.unlink()
                assert (await session.post("/sluice/blocks", json={"kind": "role", "name": name})).status == 200
                is_lost = name == "lost"
                await until(lambda: ("access_log_losing" in proxy.states.causes) == is_lost)  # noqa: B023 - called here
                async with session.get("/metrics") as answer:
                    shown = 'sluice_degraded{cause="access_log_losing"} 1.0' in await answer.text()
                assert shown == is_lost
    await proxy.stop()
    first, last = [line for line in logs if line.get("state") == "access_log_losing"]
    assert (first["log_level"], first["event"]) == ("warning", "degraded")
    assert first["reason"].startswith("lines of the access log are lost")
    assert (last["log_level"], last["event"]) == ("info", "degraded no more")


async def test_a_reload_takes_other_brokers_of_the_same_scheme(tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    rest = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nlimits: {}\n"

    def write(*brokers: str, **more: object) -> None:
        file.write_text(rest + yaml.safe_dump({"broker": list(brokers), **more}))

    write("pulsar://127.0.0.1:1", "pulsar://127.0.0.1:2")
    proxy = Proxy(ConfigSource(file, lambda: load_config(file, {})))
    await proxy.start()
    await proxy.brokers.asked()
    assert set(proxy.engine.counters.broker_up) == {"pulsar://127.0.0.1:1", "pulsar://127.0.0.1:2"}
    write("pulsar://127.0.0.1:3", "pulsar://127.0.0.1:2")
    with capture_logs() as lines:
        outcome = await proxy.reloader.reload("SIGHUP")
    targets = proxy.engine.targets
    assert (outcome.problems, outcome.needs_restart) == ((), ())
    assert [line["broker"] for line in lines if line["event"] == "brokers changed"] == [
        "pulsar://127.0.0.1:3, pulsar://127.0.0.1:2"
    ]
    assert [each.port for each in targets.brokers] == [3, 2]
    assert not targets.allows(broker_at("127.0.0.1:1"))
    assert set(proxy.engine.counters.broker_up) == {"pulsar://127.0.0.1:2"}
    write("pulsar+ssl://127.0.0.1:4")
    outcome = await proxy.reloader.reload("SIGHUP")
    assert (outcome.needs_restart, [each.port for each in targets.brokers]) == (("broker",), [3, 2])
    write("pulsar://127.0.0.1:5", allowed_brokers=["b*.example:6650"])
    outcome = await proxy.reloader.reload("SIGHUP")
    await proxy.stop()
    assert (outcome.needs_restart, [each.port for each in targets.brokers]) == ((), [5])
    assert targets.allows(broker_at("b7.example:6650"))


async def test_a_reload_chooses_the_limits_with_metrics(tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    rest = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nlimits: {}\n"
    file.write_text(f"{rest}metrics_limits: [tenant acme]\n")
    proxy = Proxy(ConfigSource(file, lambda: load_config(file, {})))
    await proxy.start()
    at_start = proxy._collector._limits._chosen
    file.write_text(f"{rest}metrics_limits: [tenant other]\n")
    with capture_logs() as lines:
        outcome = await proxy.reloader.reload("SIGHUP")
    reloaded = proxy._collector._limits._chosen
    await proxy.stop()
    assert outcome.needs_restart == ()
    assert [line["changed"] for line in lines if line["event"] == "configuration reloaded"] == [True]
    names = ("acme", "other")
    assert [at_start.has("tenant", name) for name in names] == [True, False]
    assert [reloaded.has("tenant", name) for name in names] == [False, True]


async def test_a_reload_chooses_the_lines_of_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sluice.yaml"
    addresses = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nlimits: {}\n"
    file.write_text(addresses + "log: {level: error}\n")
    before = structlog.get_config()
    set_up_operator_log()
    try:
        proxy = Proxy(ConfigSource(file, lambda: load_config(file, {})))
        await proxy.start()
        await proxy.reloader.reload("SIGHUP")
        assert capsys.readouterr().err == ""
        file.write_text(addresses + "log: {format: console}\n")
        outcome = await proxy.reloader.reload("SIGHUP")
        await proxy.stop()
    finally:
        structlog.configure(**before)
    assert outcome.needs_restart == ()
    assert re.search(r"\[info +\] configuration reloaded", capsys.readouterr().err)


async def test_another_file_holds_for_who_is_connected(tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    flags = {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0"}
    async with broker_on_loopback() as broker:
        file.write_text(file_with(broker, "1/h"))
        proxy = Proxy(ConfigSource(file, lambda: load_config(file, flags)))
        listen, admin = await proxy.start()
        client = await connect_to(listen)
        client.send(connect(), producer())
        assert [await client.hear() for _ in range(2)] == [connected(), producer_success()]
        client.send(*sends(3))
        assert await client.hear() == send(0)

        file.write_text(file_with(broker, "1000/s"))
        async with aiohttp.ClientSession(f"http://{admin}") as session, session.post("/sluice/reload") as answer:
            assert (answer.status, (await answer.json())["in_force"]) == (200, True)

        assert [await client.hear() for _ in range(2)] == [send(1), send(2)]
        client.writer.close()
        await proxy.stop()


def file_with(broker: str, messages: str) -> str:
    return f"broker: pulsar://{broker}\nlimits: {{topics: {{'{TOPIC}': {{publish: {{messages: {messages}}}}}}}}}\n"


def _written(folder: Path, keys: list[dict[str, Any]], messages: int) -> Path:
    """A configuration with a set of keys, certificates of its own and a limit."""
    file, key_set, server = folder / "sluice.yaml", folder / "keys.json", Authority(folder).server()
    key_set.write_text(json.dumps({"keys": keys}))
    values = {
        "listen": "pulsar+ssl://127.0.0.1:0",
        "admin": "127.0.0.1:0",
        "tls": server,
        "authentication": {"mode": "terminate", "token": {"jwks": str(key_set)}},
        "limits": {"each_topic": {"publish": {"messages": messages}}},
    }
    file.write_text(json.dumps(values))
    return file


_GOOD_KEY = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA.public_key()))


def test_proxy_starts_with_a_key_that_it_cannot_use(tmp_path: Path) -> None:
    file = _written(tmp_path, [_GOOD_KEY | {"alg": "PS256", "kid": "idp-2"}, _GOOD_KEY], 5)
    with capture_logs() as lines:
        Proxy(ConfigSource(file, lambda: load_config(file, {})))
    passed_over = [line for line in lines if "is passed over" in line["event"]]
    assert [(line["key"], "(kid 'idp-2'): alg 'PS256'" in line["reason"]) for line in passed_over] == [
        ("authentication.token.jwks", True)
    ]


async def test_renamed_file_of_a_folder_is_warned_of(tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    for name in ("a.yaml", "b.yaml", "c.JSON"):
        (folder / name).write_text(f"limits: {{tenants: {{{name[0]}: {{publish: {{messages: 5}}}}}}}}\n")
    files = ConfigFiles(folder, {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0"})
    with capture_logs() as lines:
        proxy = Proxy(ConfigSource(folder, files.read, reread=files.reread))
        await proxy.start()
        (folder / "b.yaml").rename(folder / "b.YAML")
        await proxy.reloader.reload("file changed")
    await proxy.stop()
    passed_over = [line["reason"] for line in lines if "folder is passed over" in line["event"]]
    names = ["c.JSON", "b.YAML", "c.JSON"]
    assert [reason.partition(": ")[0] for reason in passed_over] == [f"{folder}/{name}" for name in names]


async def test_reload_says_in_words_which_files_are_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    for name in ("a.yaml", "README.txt"):
        (folder / name).write_text("limits: {}\n")
    files = ConfigFiles(folder, {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0"})
    before = structlog.get_config()
    set_up_operator_log()
    try:
        proxy = Proxy(ConfigSource(folder, files.read, reread=files.reread))
        await proxy.start()
        outcome = await proxy.reloader.reload("file changed")
        await proxy.stop()
    finally:
        structlog.configure(**before)
    remedy = "is passed over: only files NAME.yaml and NAME.yml are read; rename it, or take it away"
    assert f"{folder}/README.txt: {remedy}" in outcome.warnings


_KEPT = "file of the configuration not reloaded"


async def test_bad_file_of_a_folder_keeps_no_other_back(tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    (folder / "a.yaml").write_text("limits: {tenants: {acme: {publish: {messages: 5}}}}\n")
    (folder / "b.yaml").write_text("limits: {tenants: {other: {publish: {messages: 5}}}}\n")
    files = ConfigFiles(folder, {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0"})
    proxy = Proxy(ConfigSource(folder, files.read, reread=files.reread))
    await proxy.start()

    def tokens() -> dict[str, int]:
        values = proxy.service.file.values.items()
        return {name: value.limit.messages.tokens for (_, _, name), value in values if value.limit.messages}

    (folder / "a.yaml").write_text("limits: {tenants: {acme: {publish: {messages: 6, colour: red}}}}\n")
    (folder / "b.yaml").write_text("limits: {tenants: {other: {publish: {messages: 7}}}}\n")
    with capture_logs() as lines:
        outcome = await proxy.reloader.reload("file changed")
    partly, [state] = tokens(), list(proxy.reloader.degraded())
    (folder / "a.yaml").write_text("limits: {tenants: {acme: {publish: {messages: 6}}}}\n")
    whole = await proxy.reloader.reload("file changed")
    await proxy.stop()
    assert [problem.split(": ")[:2] for problem in outcome.problems] == [
        [f"{folder}/a.yaml:1", "limits.tenants.acme.publish.colour"],
        [f"{folder}/a.yaml", "the content of before holds"],
    ]
    assert (outcome.files_taken, list(outcome.files_kept)) == ((f"{folder}/b.yaml",), [f"{folder}/a.yaml"])
    assert (partly, state.cause) == ({"acme": 5, "other": 7}, "reload_refused")
    assert state.reason.endswith(" as before; 1 of the configuration's files is not taken")
    assert [(line["file"], line["why"]) for line in lines if line["event"] == _KEPT] == [
        (f"{folder}/a.yaml", "it has a mistake")
    ]
    assert (whole.problems, tokens()) == ((), {"acme": 6, "other": 7})


async def test_broken_key_set_keeps_no_certificate_and_no_limit_back(tmp_path: Path) -> None:
    file = _written(tmp_path, [_GOOD_KEY], 5)
    proxy = Proxy(ConfigSource(file, lambda: load_config(file, {})))
    _, admin = await proxy.start()
    (before, *_) = proxy.engine.tls.expiries()
    for name in ("server.pem", "ca.pem"):
        (tmp_path / name).unlink()  # they are made anew
    _written(tmp_path, [{"kty": "OKP"}], 7)
    async with aiohttp.ClientSession(f"http://{admin}") as session:
        async with session.post("/sluice/reload") as answer:
            assert answer.status == 409
            (problem,) = (await answer.json())["problems"]
        async with session.get("/metrics") as answer:
            metrics = await answer.text()
    assert problem.startswith(
        f"authentication.token.jwks: {tmp_path}/keys.json: has no key that can be used; key 1: kty"
    )
    assert proxy.engine.tls.expiries()[0].serial != before.serial
    value = proxy.engine.registry.policies.get("publish", Setting.TOPIC_OF_BROKER, "")
    assert value is not None
    assert value.limit == Limit(messages=rate(7))
    for key, is_good in (("authentication.token.jwks", 0), ("tls", 1), ("config", 1)):
        assert f'sluice_reload_successful{{key="{key}"}} {is_good}.0' in metrics
        assert f'sluice_reload_failures_total{{key="{key}"}} {1 - is_good}.0' in metrics
    assert isinstance(proxy.engine.identity, ClientAuthenticator)
    assert proxy.engine.identity.by_token(signed({"sub": "billing"}, RSA, "RS256")) == Identity("billing", "token")
    await proxy.stop()


async def test_broker_admin_authority_is_read_again_and_its_end_logged(
    tmp_path: Path,
) -> None:
    file = tmp_path / "admin-ca.pem"
    soon = datetime.now(UTC) + timedelta(days=10)
    file.write_bytes(trustme.CA().issue_cert("soon.example", not_after=soon).cert_chain_pems[0].bytes())
    source = given("127.0.0.1:1", more={"admin_forward": {"url": "https://127.0.0.1:1", "ca": file}})
    proxy = Proxy(source)
    assert file in proxy.read_files
    with capture_logs() as lines:
        _, admin = await proxy.start()
    assert [line["key"] for line in lines if line["event"].startswith("certificate expires soon")] == [
        "admin_forward.ca"
    ]
    file.write_bytes(trustme.CA().cert_pem.bytes())
    with capture_logs() as lines:
        outcome = await proxy.reloader.reload("file changed")
    assert outcome.problems == ()
    assert [line["event"] for line in lines if "certificate" in line] == ["certificate taken for new connections"]
    async with aiohttp.ClientSession(f"http://{admin}") as session, session.get("/metrics") as answer:
        text = await answer.text()
    assert 'sluice_certificate_expiry_timestamp_seconds{key="admin_forward.ca"}' in text
    file.write_text("broken")
    outcome = await proxy.reloader.reload("file changed")
    assert [each.startswith(f"admin_forward.ca: {file}: holds no certificate") for each in outcome.problems] == [True]
    await proxy.stop()


@pytest.mark.parametrize(
    ("key", "section"),
    [
        ("admin_forward.ca", {"admin_forward": {"url": "https://127.0.0.1:1", "ca": "none"}}),
        ("fleet.token_file", {"fleet": {"name": "f", "token_file": "none"}}),
    ],
)
def test_a_check_reads_what_has_nothing_to_do_with_clients(key: str, section: dict[str, Any]) -> None:
    start_check = StartCheck.of(given("127.0.0.1:1", more=section).read())
    assert (
        f"{key}: none: cannot be read: No such file or directory; make this file, or name another"
        in start_check.problems
    )


async def test_a_start_without_limits_is_one_unless_that_is_meant(tmp_path: Path) -> None:
    stored = {"policies": {"store": tmp_path / "policies.db"}}
    proxy = Proxy(given("127.0.0.1:1", more=stored))
    assert proxy.is_unlimited
    key = rate_key("publish", Setting.TENANT, "acme")
    await proxy.service.change({key: '{"form":"sluice","body":{"messages":5}}'}, Principal("ann", ""))
    await proxy.stop()
    unlimited, limits = [], {"tenants": {"acme": {"publish": {"messages": 5}}}}
    sections: list[dict[str, Any]] = [stored, {"limits": {}}, {"limits": limits}, {}]
    for more in sections:
        proxy = Proxy(given("127.0.0.1:1", more=more))
        unlimited.append(proxy.is_unlimited)
        await proxy.stop()
    assert unlimited == [False, False, False, True]
