"""The first scrape of a proxy: nothing has happened yet, and all series are there."""

import ast
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

import fleet
import protocol
import proxy as product
from limiter.levels import SHAREABLE, SHARED_BY_PROCESSES, Setting
from limiter.limiter import Limiter, Scope
from limiter.policies import Policies
from proxy.admin import limit_metrics, metrics
from proxy.admin.limit_metrics import LimitMetrics
from proxy.assembly import ConfigSource, Proxy
from proxy.config.model import Config
from proxy.observe.totals import NamespaceTotals, owner_of
from proxy.processes import as_process
from tests.limiter.world import limiter
from tests.proxy.file_limits import policies_of
from tests.proxy.identity.keys import token_files
from tests.proxy.tcp import broker_on_loopback

Samples = dict[str, dict[frozenset[tuple[str, str]], float]]
LIMITS = {
    "tenants": {"acme": {"publish": {"messages": 10, "bytes": "1MB"}}, "free-*": {"publish": {"messages": 1}}},
    "namespaces": {"other/shop": {"publish_total": {"messages": 5}, "dispatch": {"messages": 5}}},
    "topics": {"persistent://third/x/orders": {"dispatch": {"bytes": "1MB"}}},
}
NOT_SWITCHED_ON = {"sluice_certificate_expiry_timestamp_seconds"}
"""The family of certificates: the configuration names none."""


async def scraped(**settings: Any) -> Samples:
    """The first scrape of a new process, by family."""
    values = {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", **settings}
    config = Config.model_validate(values)
    proxy = Proxy(ConfigSource(None, lambda: config))
    _, admin = await proxy.start()
    try:
        async with aiohttp.ClientSession(f"http://{admin}") as session, session.get("/metrics") as answer:
            text = await answer.text()
    finally:
        await proxy.stop()
    return {
        family.name: {frozenset({"": each.name, **each.labels}.items()): each.value for each in family.samples}
        for family in text_string_to_metric_families(text)
    }


def of(name: str, /, **labels: str) -> frozenset[tuple[str, str]]:
    return frozenset({"": name, **labels}.items())


async def test_first_scrape_has_a_sample_of_each_family(tmp_path: Path) -> None:
    async with broker_on_loopback() as broker:
        families = await scraped(broker=f"pulsar://{broker}", limits=LIMITS, authentication=token_files(tmp_path))
    assert {name for name, samples in families.items() if not samples} == NOT_SWITCHED_ON
    assert families["sluice_ready"] == {of("sluice_ready"): 1}
    assert families["sluice_broker_up"] == {of("sluice_broker_up", broker=f"pulsar://{broker}"): 1}
    passed = families["sluice_messages_passed"]
    for tenant, namespace in (("other", "shop"), ("third", "x")):
        for direction in ("publish", "dispatch"):
            labels = {"tenant": tenant, "namespace": namespace, "direction": direction}
            assert passed[of("sluice_messages_passed_total", **labels)] == 0
    held = {"tenant": "acme", "direction": "publish"}
    assert families["sluice_held_seconds"][of("sluice_held_seconds_bucket", **held, le="+Inf")] == 0
    limit = {"direction": "publish", "level": "tenant", "name": "acme", "mode": "enforce", "unit": "bytes"}
    assert families["sluice_limit_per_second"][of("sluice_limit_per_second", **limit)] == 1_000_000
    assert families["sluice_limit_used"][of("sluice_limit_used_total", **limit)] == 0
    names = {dict(labels)["name"] for labels in families["sluice_limit_waiting_streams"]}
    assert names == {"acme", "other/shop", "persistent://third/x/orders"}
    assert len(families["sluice_authentications"]) == len(metrics.AUTHENTICATIONS)


async def test_first_scrape_in_an_outage_says_not_ready_and_why() -> None:
    families = await scraped(broker="pulsar://127.0.0.1:1")
    assert families["sluice_ready"] == {of("sluice_ready"): 0}
    assert families["sluice_broker_up"] == {of("sluice_broker_up", broker="pulsar://127.0.0.1:1"): 0}
    assert families["sluice_degraded"][of("sluice_degraded", cause="broker_unreachable")] == 1
    passed_over = of("sluice_brokers_passed_over_total", broker="pulsar://127.0.0.1:1")
    assert families["sluice_brokers_passed_over"][passed_over] == 0


def literals(*modules: Any) -> Iterator[ast.AST]:
    for module in modules:
        for path in Path(module.__path__[0]).rglob("*.py"):
            yield from ast.walk(ast.parse(path.read_text()))


def words_of(node: ast.expr) -> set[str]:
    return {each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)}


def test_frame_errors_list_each_cause_of_the_code() -> None:
    causes = set[str]()
    for node in literals(protocol, product):
        if isinstance(node, ast.ClassDef) and any("ProtocolError" in ast.unparse(base) for base in node.bases):
            for line in node.body:
                if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "cause":
                    causes |= words_of(line.value)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"ForeignProtocol", "ProxyHeaderError"}:
            causes |= words_of(node.args[0])
    assert len(causes) > 15
    assert causes <= {word.partition(" ")[2] for word in metrics.FRAME_ERRORS}


def test_messages_of_a_fleet_list_each_cause_of_the_code() -> None:
    causes = set[str]()
    for node in literals(fleet):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"BadMessage", "_check", "self._drop"}:
            causes |= words_of(node.args[0])
        elif isinstance(node, ast.AugAssign) and "dropped[" in ast.unparse(node.target):
            causes |= words_of(node.target)
    assert causes == set(metrics.REFUSED_BY_FLEET)


def test_messages_of_topics_list_each_cause_of_the_code() -> None:
    of_link, of_topic = set[str](), set[str]()
    for node in literals(product):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "BadChangeError":
            of_topic |= words_of(node.args[0])
        elif isinstance(node, ast.AugAssign) and "dropped[" in ast.unparse(node.target):
            (of_topic if ast.unparse(node.target).startswith("self.dropped") else of_link).update(words_of(node.target))
    assert of_link == set(metrics.DROPPED)
    assert of_link | of_topic == set(metrics.REFUSED_BY_POLICY_TOPIC)


def test_results_of_authentication_list_each_of_the_code() -> None:
    results = set[str]()
    for node in literals(product):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "self._count" and node.args:
            results |= words_of(node.args[0])
    assert {"accepted", "refused"} < results
    assert {word.partition(" ")[2] for word in metrics.AUTHENTICATIONS} <= results


@pytest.mark.parametrize(
    ("setting", "name", "owner"),
    [
        (Setting.TENANT, "acme", ("acme", "")),
        (Setting.TENANT, "*", None),
        (Setting.TENANT, "free-*", None),
        (Setting.NAMESPACE, "acme/shop", ("acme", "shop")),
        (Setting.TOPIC_OF_NAMESPACE, "acme/shop", ("acme", "shop")),
        (Setting.TOPIC_OF_NAMESPACE, "acme/*", None),
        (Setting.TOPIC, "persistent://acme/shop/a/b", ("acme", "shop")),
        (Setting.SUBSCRIPTION, "audit@persistent://acme/shop/orders", ("acme", "shop")),
        (Setting.ROLE, "billing", None),
        (Setting.PROXY, "", None),
    ],
)
def test_owner_is_the_tenant_and_namespace_of_a_name(setting: Setting, name: str, owner: Any) -> None:
    assert owner_of(setting, name) == owner


def test_expected_names_leave_room_for_names_with_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.observe.totals.MOST_UNHEARD_OF", 3)
    monkeypatch.setattr("proxy.observe.totals.MOST_TENANTS", 4)
    limits = {"namespaces": {f"t{number}/n": {"publish": {"messages": 1}} for number in range(9)}}
    totals = NamespaceTotals()
    for _ in totals.expecting(
        policies_of(Config.model_validate({"broker": "pulsar://b:6650", "limits": limits}).limits)
    ):
        pass
    assert {tenant for tenant, _, _ in totals.by_name} == {tenant for tenant, _ in totals.delays} == {"t0", "t1"}
    totals.delays_of("t8", "publish")
    assert ("t8", "publish") in totals.delays, "half of the places are for tenants with messages"


def unused_names(
    limits: dict[str, Any], *chosen: str, shared: Collection[str] = (), all_limits: bool = False
) -> dict[str, set[str]]:
    """The names of limits without a stream that each metric of single limits has."""
    config = Config.model_validate({"broker": "pulsar://b:6650", "limits": limits})
    shown = LimitMetrics(policies_of(config.limits), shared)
    shown.choose(chosen)
    names: dict[str, set[str]] = {}
    for part in (shown.parts_of_all if all_limits else shown.parts)({}, 0):
        if part is not None and part.name != "sluice_limits_left_out":
            names.setdefault(part.name, set()).update(each.labels["name"] for each in part.samples)
    return names


def test_unused_limits_fill_places_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_metrics, "MOST_LIMITS", 2)
    topics = {f"persistent://t/n/{number}": {"publish": {"messages": 1}} for number in range(9)}
    tenants = {f"t{number}": {"publish": {"messages": 1}} for number in range(9)}
    series = unused_names({"topics": topics, "tenants": tenants})
    assert {len(names) for names in series.values()} == {4}


MANY_TENANTS = {"tenants": {f"t{number}": {"publish": {"messages": 1}} for number in range(9)}}


def test_unused_limits_that_are_named_have_places_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_metrics, "MOST_LIMITS", 1)
    series = unused_names(MANY_TENANTS, "tenant t8", "tenant nobody")
    assert {frozenset(names) for names in series.values()} == {frozenset({"t0", "t8"})}
    assert len(unused_names(MANY_TENANTS, "tenant t*")["sluice_limit_used"]) == 9, "however many names come before"


def used_names(config: dict[str, Any], *limiters: Limiter, chosen: str = "") -> list[str]:
    """The names of all series of the use of single limits."""
    given = Config.model_validate({"broker": "pulsar://b:6650", "limits": config})
    shown = LimitMetrics(policies_of(given.limits))
    shown.choose([chosen] if chosen else [])
    parts = shown.parts({each.scope: each for each in limiters}, 0)
    of_use = [part for part in parts if part is not None and part.name == "sluice_limit_used"]
    return sorted(sample.labels["name"] for part in of_use for sample in part.samples)


def test_partitions_of_a_topic_that_is_named_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_metrics, "MOST_LIMITS", 0)
    topic = "persistent://acme/shop/orders"
    partition = limiter(10, name=f"{topic}-partition-0")
    assert used_names({}, partition, chosen=f"topic {topic}") == [f"{topic}-partition-0"]


def test_named_partition_of_a_topic_that_is_not_named_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_metrics, "MOST_CHOSEN", 0)
    topic = "persistent://acme/shop/orders"
    given = Config.model_validate(
        {"broker": "pulsar://b:6650", "limits": {"topics": {topic: {"publish": {"messages": 1}}}}}
    )
    shown = LimitMetrics(policies_of(given.limits))
    shown.choose([f"topic {topic}-partition-0"])
    assert left_out(shown, limiter(10, name=f"{topic}-partition-0")) == 1


def test_tenant_that_is_named_like_a_partition_has_one_series() -> None:
    named = {name: {"publish": {"messages": 1}} for name in ("acme", "acme-partition-1")}
    made = Limiter(Scope("publish", "tenant", "acme-partition-1", "acme-partition-1", ""), limiter(1).limit, "test", 0)
    assert used_names({"tenants": named}, made) == ["acme", "acme-partition-1"]


def many_tenants(*chosen: str) -> tuple[Policies, LimitMetrics]:
    policies = policies_of(Config.model_validate({"broker": "pulsar://b:6650", "limits": MANY_TENANTS}).limits)
    shown = LimitMetrics(policies)
    shown.choose(chosen)
    return policies, shown


def left_out(shown: LimitMetrics, *in_use: Limiter) -> float:
    parts = shown.parts({each.scope: each for each in in_use}, 0)
    (family,) = [part for part in parts if part and part.name == "sluice_limits_left_out"]
    return family.samples[0].value


@pytest.mark.parametrize("chosen", [["tenant *"], ["tenant t*"], [f"tenant t{number}" for number in range(9)]])
def test_named_limits_without_room_are_counted_once(chosen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In use or not; names beyond those that are looked at for unused limits in general are counted as well."""
    monkeypatch.setattr(limit_metrics, "MOST_CHOSEN", 5)
    monkeypatch.setattr(limit_metrics, "MOST_LIMITS", 1)
    _, shown = many_tenants(*chosen)
    used = [
        Limiter(Scope("publish", "tenant", f"t{each}", f"t{each}", ""), limiter(1).limit, "t", 0) for each in (0, 8)
    ]
    assert (left_out(shown), left_out(shown, *used)) == (4, 4)


def test_named_limits_are_counted_again_after_a_change_alone() -> None:
    policies, shown = many_tenants("tenant *")
    first, second = (sum(part is None for part in shown.parts({}, 0)) for _ in range(2))
    assert second < first, "names are not looked at by each scrape"
    policies.put("publish", Setting.TENANT, "t9", policies.get("publish", Setting.TENANT, "t0"))
    shown.policies_changed()
    assert any(
        each.labels["name"] == "t9" for part in shown.parts({}, 0) if part for each in part.samples if each.labels
    )


def test_change_while_named_limits_are_counted_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_metrics, "MOST_CHOSEN", 5)
    policies, shown = many_tenants("tenant *")
    looking = shown.parts({}, 0)
    next(looking)
    policies.put("publish", Setting.TENANT, "t9", policies.get("publish", Setting.TENANT, "t0"))
    shown.policies_changed()
    for _ in looking:
        pass
    assert left_out(shown) == 5


def test_limits_of_pulsars_own_topics_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_metrics, "MOST_LIMITS", 0)
    topic = "persistent://acme/shop/__change_events"
    made = Limiter(Scope("publish", "exempt", topic, "acme", "shop"), limiter(1).limit, "test", 0)
    assert used_names({}, made, chosen=f"exempt {topic}") == used_names({}, made, chosen="exempt *") == [topic]


def test_all_limits_on_request_are_also_those_not_yet_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_metrics, "MOST_LIMITS", 1)
    assert len(unused_names(MANY_TENANTS, all_limits=True)["sluice_limit_used"]) == 9
    monkeypatch.setattr(limit_metrics, "MOST_ALL", 5)
    assert len(unused_names(MANY_TENANTS, all_limits=True)["sluice_limit_used"]) == 5


@pytest.mark.parametrize(
    ("shared", "known"),
    [(SHAREABLE, {""}), (SHARED_BY_PROCESSES, set()), (("topic",), {"", "acme"}), (("tenant", "proxy"), set())],
)
def test_unused_limit_that_is_shared_has_no_rate_yet(shared: Collection[str], known: set[str]) -> None:
    limits = {"tenants": {"acme": {"publish": {"messages": 1}}}, "proxy": {"publish": {"messages": 1}}}
    series = unused_names(limits, shared=shared)
    assert series.get("sluice_limit_per_second", set()) == series.get("sluice_limit_burst", set()) == known
    assert series["sluice_limit_used"] == series["sluice_limit_waiting_streams"] == {"", "acme"}


async def test_first_scrape_of_several_processes_has_no_whole_rate() -> None:
    limits = {"tenants": {"acme": {"publish": {"messages": 10}}}, "proxy": {"publish": {"messages": 20}}}
    config = Config.model_validate({"broker": "pulsar://127.0.0.1:1", "limits": limits, "processes": 2})
    proxy = Proxy(ConfigSource(None, lambda: as_process(config, 0)))
    try:
        parts = [part for part in proxy._collector.parts() if part is not None]
    finally:
        await proxy.stop()
    assert [each for part in parts if part.name == "sluice_limit_per_second" for each in part.samples] == []


async def test_policy_gives_its_namespace_series_before_any_stream() -> None:
    config = Config.model_validate({"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "broker": "pulsar://127.0.0.1:1"})
    proxy = Proxy(ConfigSource(None, lambda: config))
    _, admin = await proxy.start()
    path, body = "/admin/v2/namespaces/acme/shop/publishRate", {"publishThrottlingRateInMsg": 7}
    try:
        async with aiohttp.ClientSession(f"http://{admin}") as session:
            async with session.post(path, json=body) as answer:
                assert answer.status == 204
            async with session.get("/metrics") as answer:
                text = await answer.text()
    finally:
        await proxy.stop()
    assert 'sluice_messages_passed_total{direction="publish",namespace="shop",tenant="acme"} 0.0' in text
