"""Limits that a tenant's token sets: never more than the operator gives, whatever is written, and in whatever order."""

import asyncio
from contextlib import closing
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.levels import ABOUTS, LEVEL_OF_WORD, Setting
from limiter.policies import InForce, Policies, PolicyTarget, stricter
from limiter.token_bucket import DIRECTIONS, NOTHING_PUBLISHED, Limit, Mode, Rate, rate
from protocol.topic_name import parse_topic
from proxy.config.model import Config
from proxy.policies.bodies import BodyError, DispatchRate, PublishRate, SubscribeRate, kept_as_own, kept_as_pulsar_s
from proxy.policies.explain import explain, holders_at
from proxy.policies.keys import Layer, PolicyKey, PolicyKind, Principal, rate_key
from proxy.policies.layers import FilePolicies, file_policies
from proxy.policies.room import TenantShare
from proxy.policies.service import Around, PolicyService
from proxy.policies.state import BeyondError
from proxy.policies.store import Store
from tests.examples import examples
from tests.proxy.policies.layered import ANN, CLIENTS, LOGS, ORDERS, TOPICS, a_service, changes, files

ACME = Principal("acme-ops", "10.0.0.9", frozenset({"acme"}))
_OWN: tuple[PolicyTarget, ...] = (
    *((about, Setting.TENANT, "acme") for about in DIRECTIONS),
    *((about, Setting.NAMESPACE, "acme/shop") for about in DIRECTIONS),
    *((about, Setting.PARTITIONED_TOPIC, ORDERS) for about in DIRECTIONS),
    *((about, Setting.TOPIC, topic) for about in ABOUTS for topic in (ORDERS, LOGS)),
    *((about, Setting.TOPIC_OF_NAMESPACE, "acme/shop") for about in ABOUTS),
    ("dispatch", Setting.SUBSCRIPTION, f"audit@{ORDERS}"),
    ("dispatch", Setting.SUBSCRIPTION_OF_TOPIC, ORDERS),
    ("dispatch", Setting.SUBSCRIPTION_OF_NAMESPACE, "acme/shop"),
)
_NOT_OWN: tuple[PolicyTarget, ...] = (
    ("publish", Setting.TENANT, "*"),
    ("publish", Setting.TENANT, "other"),
    ("publish", Setting.PROXY, ""),
    ("publish", Setting.TOPIC_OF_BROKER, ""),
    ("publish", Setting.TOPIC_OF_NAMESPACE, "other/ns"),
    ("publish", Setting.TOPIC_OF_NAMESPACE, "acme/*"),
    ("publish", Setting.TENANT, "acme*"),
    ("dispatch", Setting.SUBSCRIPTION, "a@persistent://other/ns/y"),
    ("publish", Setting.ROLE, "billing"),
    ("publish", Setting.PRODUCER, "meter"),
    ("publish", Setting.ADDRESS, "10.0.0.0/8"),
    ("publish", Setting.EXEMPT, ""),
)
_MESSAGES = st.sampled_from([1, 4, 5, "50/10s", "300/min", "1/h", 50, 1_000_000])
_NUMBERS = st.sampled_from([-5, -1, 0, 1, 4, 170, 100_000])


_SIZES = st.sampled_from(["1KiB/h", "1kB", "10MB", "1GB/min"])
_UNITS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({}, optional={"messages": _MESSAGES, "bytes": _SIZES})


@st.composite
def _section(draw: st.DrawFn, place: PolicyTarget) -> dict[str, Any] | None:
    if place[0] == "subscribe":
        return {"messages": draw(_MESSAGES)}
    section = draw(_UNITS)
    for key in ("messages", "bytes"):
        if draw(st.booleans()) and key in section:
            section[f"burst_{key}"] = draw(st.sampled_from([1, 9, 1_000_000]))
            if draw(st.booleans()):
                section[f"peak_{key}"] = draw(st.sampled_from([60, 900, 10**9]))
    if draw(st.booleans()) and section:
        section["mode"] = draw(st.sampled_from(["observe", "enforce", "reject"]))
    if draw(st.booleans()) and section and place[0] == "dispatch":
        section["relativeToPublishRate"] = True
    return section or None


@st.composite
def _of_tenant(draw: st.DrawFn) -> tuple[PolicyKey, str | None]:
    """A write as a tenant's token could try it, past every check of the REST."""
    if draw(st.integers(0, 9)) == 0:
        return draw(
            st.sampled_from(
                [
                    (PolicyKey(PolicyKind.GROUP, "", "gold"), "{}"),
                    (PolicyKey(PolicyKind.ATTACHMENT, "tenant", "acme"), ""),
                    (PolicyKey(PolicyKind.ATTACHMENT, "namespace", "acme/shop"), "on"),
                    (PolicyKey(PolicyKind.DYNAMIC, "", "maxPublishRatePerTopicInMessages"), "0"),
                    (PolicyKey(PolicyKind.BLOCK, "", "role 'billing'"), None),
                ]
            )
        )
    place = draw(st.sampled_from(_OWN * 3 + _NOT_OWN))
    key = rate_key(*place, draw(st.sampled_from([Layer.TENANT] * 5 + [Layer.REST, Layer.GLOBAL])))
    if draw(st.integers(0, 4)) == 0:
        return key, None
    pulsar_s = {
        "publish": st.builds(PublishRate, _NUMBERS, _NUMBERS),
        "dispatch": st.builds(DispatchRate, _NUMBERS, _NUMBERS, st.booleans(), st.sampled_from([0, 1, 60])),
        "subscribe": st.builds(SubscribeRate, _NUMBERS, st.sampled_from([1, 3600])),
    }
    section = draw(_section(place))
    if section is None or draw(st.booleans()):
        return key, kept_as_pulsar_s(draw(pulsar_s[place[0]]))
    return key, kept_as_own(section)


def no_more(rate: Rate | None, than: Rate | None) -> bool:
    """Whether no time is so short or long that more passes."""
    if than is None:
        return True
    if rate is None:
        return False
    return rate.burst <= than.burst and rate.tokens * than.period_ns <= than.tokens * rate.period_ns


def lets_no_more(limit: Limit, than: Limit) -> bool:
    if than.mode == "observe":
        return True
    figures = ("messages", "size", "peak_messages", "peak_size")
    is_within = all(no_more(getattr(limit, figure), getattr(than, figure)) for figure in figures)
    return is_within and limit.mode == than.mode and (limit.published is None or than.published is not None)


def in_force(service: PolicyService) -> dict[tuple[Any, ...], Limit]:
    policies = service.layers.policies
    limits: dict[tuple[Any, ...], Limit] = {}
    for direction in DIRECTIONS:
        for topic in TOPICS:
            for number, client in enumerate(CLIENTS):
                for entry in policies.in_force(direction, parse_topic(topic), client):
                    assert isinstance(entry, InForce)
                    limits[topic, number, entry.scope] = entry.limit
    for topic in TOPICS:
        if subscribes := policies.subscribe_rate(parse_topic(topic)):
            limits[topic, "subscribe"] = Limit(subscribes[0])
    return limits


def attempt(service: PolicyService, key: PolicyKey, kept: str | None) -> bool:
    try:
        asyncio.run(service.change({key: kept}, ACME))
    except (BeyondError, BodyError):
        return False
    return True


@given(files(), changes(), st.lists(_of_tenant(), max_size=12), changes(), files())
def test_no_writes_of_a_tenant_let_more_pass(
    file: FilePolicies,
    before: list[tuple[PolicyKey, str]],
    writes: list[tuple[PolicyKey, str | None]],
    after: list[tuple[PolicyKey, str]],
    reloaded: FilePolicies,
) -> None:
    with_tenant, alone = a_service(file, before), a_service(file, before)
    with closing(with_tenant.store), closing(alone.store):
        for key, kept in writes:
            attempt(with_tenant, key, kept)
        for service in (with_tenant, alone):
            asyncio.run(service.change(dict(after), ANN))
            asyncio.run(service.take_file(reloaded, lambda _: None, lambda _seen, _at_ns: None))
        limits, held = in_force(with_tenant), in_force(alone)
        for where, limit in held.items():
            assert lets_no_more(limits[where], limit), where
            if not where[0].split("://")[1].startswith("acme/"):
                assert limits[where] == limit, "nothing of another tenant changes"
        for where in limits.keys() - held.keys():
            assert "://acme/" in where[0], "nothing of another tenant is limited"


@given(files(), changes(), st.lists(_of_tenant(), max_size=12))
def test_holders_are_the_lines_that_hold(
    file: FilePolicies, before: list[tuple[PolicyKey, str]], writes: list[tuple[PolicyKey, str | None]]
) -> None:
    service = a_service(file, before)
    with closing(service.store):
        for key, kept in writes:
            attempt(service, key, kept)
        for direction, topic, client in product(DIRECTIONS, map(parse_topic, TOPICS), CLIENTS):
            for explained in explain(service, direction, topic, client).levels:
                level = LEVEL_OF_WORD[explained.level]
                holders = holders_at(service, direction, level, topic, client)
                assert [(*target[1:], value.origin, value.plan) for target, value in holders] == [
                    (line.setting, line.name, line.origin, line.plan)
                    for line in explained.lines
                    if line.state == "holds"
                ]


@given(files(), changes(), st.lists(_of_tenant(), max_size=12))
def test_what_a_tenant_took_back_leaves_the_operators_limits(
    file: FilePolicies, before: list[tuple[PolicyKey, str]], writes: list[tuple[PolicyKey, str | None]]
) -> None:
    with_tenant, alone = a_service(file, before), a_service(file, before)
    with closing(with_tenant.store), closing(alone.store):
        for key, kept in writes:
            if attempt(with_tenant, key, kept):
                assert attempt(with_tenant, key, None)
        assert in_force(with_tenant) == in_force(alone)
        assert with_tenant.layers.policies.tenants is None


_RATES = st.builds(
    Rate, st.sampled_from([1, 5, 50, 300]), st.sampled_from([10**9, 60 * 10**9]), st.sampled_from([1, 5, 1000])
)


@st.composite
def _limits(draw: st.DrawFn) -> Limit:
    messages, size = draw(_RATES), draw(st.none() | _RATES)
    peak, peak_size = (draw(st.none() | _RATES) if each else None for each in (messages, size))
    published = draw(st.sampled_from([None, NOTHING_PUBLISHED]))
    mode: Mode = draw(st.sampled_from(get_args(Mode)))
    return Limit(messages, size, peak, peak_size, mode, published)


@settings(max_examples=examples(100))
@given(_limits() | st.just(Limit()), _limits() | st.just(Limit()))
def test_the_stricter_of_two_lets_no_more_pass_than_either(limit: Limit, own: Limit) -> None:
    both = stricter(limit, own)
    if limit:
        assert lets_no_more(both, limit)
    if own and own.mode != "observe":
        assert lets_no_more(replace(both, mode=own.mode), own)
        assert both.mode != "observe"
    assert stricter(both, own) == both, "once is enough"


_LIMITS: dict[str, Any] = {
    "messages": rate(5),
    "size": rate(1000),
    "mode": "reject",
    "peak_messages": Rate(9, 10**9, 1),
}


@pytest.mark.parametrize(
    ("own", "both"),
    [
        ({"messages": rate(3)}, {"messages": rate(3)}),
        ({"messages": rate(30)}, {}),
        ({"messages": Rate(300, 60 * 10**9, 30)}, {}),
        ({"messages": Rate(3, 10**9, 100)}, {"messages": rate(3)}),
        ({"size": rate(10)}, {"size": rate(10)}),
        ({"messages": rate(3), "mode": "observe"}, {}),
        ({"messages": rate(3), "mode": "enforce"}, {"messages": rate(3)}),
        ({"messages": rate(3), "published": NOTHING_PUBLISHED}, {"messages": rate(3)}),
        (
            {"messages": rate(3), "peak_messages": Rate(7, 10**9, 1)},
            {"messages": rate(3), "peak_messages": Rate(7, 10**9, 1)},
        ),
        ({}, {}),
    ],
)
def test_of_two_limits_the_stricter_figures_hold(own: dict[str, Any], both: dict[str, Any]) -> None:
    assert stricter(Limit(**_LIMITS), Limit(**own)) == Limit(**(_LIMITS | both))


def test_a_limit_that_holds_is_stricter_than_one_that_observes() -> None:
    observing, holding = Limit(rate(5), mode="observe"), Limit(rate(50))
    assert stricter(observing, holding) == holding
    assert stricter(holding, observing) == holding
    assert stricter(observing, Limit(rate(3), mode="observe")) == observing


def with_file(limits: dict[str, Any]) -> PolicyService:
    return a_service(file_policies(Config.model_validate({"limits": limits}).limits, None), {})


def own(setting: Setting, name: str, about: Any = "publish") -> PolicyKey:
    return rate_key(about, setting, name, Layer.TENANT)


_CAP = {"tenants": {"acme": {"publish": {"messages": 5}}}}


@pytest.mark.parametrize(
    ("key", "kept", "problem"),
    [
        (own(Setting.TENANT, "acme"), kept_as_own({"messages": 6}), "messages: the rate is higher"),
        (own(Setting.TENANT, "acme"), kept_as_own({"messages": "301/min"}), "messages: the rate is higher"),
        (
            own(Setting.TENANT, "acme"),
            kept_as_own({"messages": 4, "burst_messages": 2}),
            "burst_messages: 2 is more than 1",
        ),
        (
            own(Setting.TENANT, "acme"),
            kept_as_own({"messages": "300/min"}),
            "burst_messages: 30 by default is more than 1",
        ),
        (own(Setting.TENANT, "acme"), kept_as_own({"messages": 4, "mode": "observe"}), "observe would hold nothing"),
        (own(Setting.TENANT, "acme"), kept_as_pulsar_s(PublishRate()), "no limit is more than the limit"),
        (rate_key("publish", Setting.TENANT, "acme"), kept_as_own({"messages": 1}), "not the operator's"),
        (rate_key("publish", Setting.TENANT, "acme"), None, "not the operator's"),
        (own(Setting.TENANT, "other"), kept_as_own({"messages": 1}), "no tenant of this token"),
        (own(Setting.TENANT, "*"), kept_as_own({"messages": 1}), "no tenant of this token"),
        (own(Setting.ROLE, "billing"), kept_as_own({"messages": 1}), "no tenant of this token"),
        (PolicyKey(PolicyKind.GROUP, "", "gold"), "{}", "not the operator's"),
        (PolicyKey(PolicyKind.ATTACHMENT, "tenant", "acme"), "", "not the operator's"),
    ],
)
def test_a_write_beyond_the_operators_limit_is_refused(key: PolicyKey, kept: str | None, problem: str) -> None:
    service = with_file(_CAP)
    with closing(service.store), pytest.raises(BeyondError, match=problem):
        asyncio.run(service.change({key: kept}, ACME))


def test_a_subscribe_limit_is_refused_by_what_may_come_at_once() -> None:
    service = with_file({})
    with closing(service.store):
        asyncio.run(
            service.change({rate_key("subscribe", Setting.TOPIC, ORDERS): kept_as_own({"messages": "5/30s"})}, ANN)
        )
        with pytest.raises(BeyondError, match="messages: 10 at once are more than 5; the operator gives"):
            asyncio.run(
                service.change({own(Setting.TOPIC, ORDERS, "subscribe"): kept_as_own({"messages": "10/min"})}, ACME)
            )


def test_topics_value_is_measured_by_the_wider_one_it_would_hide() -> None:
    service = with_file({"namespaces": {"acme/shop": {"publish": {"messages": 5}}}})
    with closing(service.store):
        with pytest.raises(BeyondError, match=r"the operator gives messages 5 here \(file\)"):
            asyncio.run(service.change({own(Setting.TOPIC, ORDERS): kept_as_own({"messages": 6})}, ACME))
        assert attempt(service, own(Setting.TOPIC, ORDERS), kept_as_own({"messages": 4}))
        assert attempt(service, own(Setting.NAMESPACE, "acme/shop"), kept_as_own({"messages": 100})), "another level"


def test_explain_shows_whose_value_holds() -> None:
    service = with_file({"namespaces": {"acme/shop": {"publish": {"messages": 5, "bytes": "1kB"}}}})
    with closing(service.store):
        asyncio.run(service.change({own(Setting.TOPIC, ORDERS): kept_as_own({"messages": 4})}, ACME))
        (level,) = [
            level for level in explain(service, "publish", parse_topic(ORDERS)).levels if level.level == "topic"
        ]
        assert [(line.origin, line.state) for line in level.lines] == [("file", "holds"), ("tenant", "holds")]
        asyncio.run(service.change({own(Setting.TOPIC, ORDERS): kept_as_own({"messages": 4, "bytes": "100B"})}, ACME))
        (level,) = [
            level for level in explain(service, "publish", parse_topic(ORDERS)).levels if level.level == "topic"
        ]
        assert [(line.origin, line.state, line.by) for line in level.lines] == [
            ("file", "hidden", f"topic {ORDERS} (tenant)"),
            ("tenant", "holds", ""),
        ]
        asyncio.run(
            service.change({rate_key("publish", Setting.TOPIC, ORDERS): kept_as_own({"messages": 1, "bytes": 9})}, ANN)
        )
        (level,) = [
            level for level in explain(service, "publish", parse_topic(ORDERS)).levels if level.level == "topic"
        ]
        assert [(line.origin, line.state) for line in level.lines] == [
            ("rest", "holds"),
            ("file", "hidden"),
            ("tenant", "hidden"),
        ]


# ---- Room


def names(number: int) -> list[str]:
    return [f"persistent://acme/shop/{n:05d}{'x' * 900}" for n in range(number)]


def test_a_tenant_fills_its_part_and_operators_go_on() -> None:
    service = with_file({})
    with closing(service.store) as store:
        store.room.share = TenantShare(policies=10, size=10**6)
        done = [attempt(service, own(Setting.TOPIC, name), kept_as_own({"messages": 1})) for name in names(30)]
        assert (done.count(True), store.room.counts["acme"]) == (10, 10)
        with pytest.raises(BodyError, match=r"tenant acme has 10 policies .* policies\.tenant_policies"):
            asyncio.run(service.change({own(Setting.TENANT, "acme"): kept_as_own({"messages": 1})}, ACME))
        asyncio.run(service.change({rate_key("publish", Setting.TENANT, "acme"): kept_as_own({"messages": 1})}, ANN))
        assert attempt(service, own(Setting.TOPIC, names(1)[0]), None)
        assert attempt(service, own(Setting.TENANT, "acme"), kept_as_own({"messages": 1})), "there is room again"


def test_a_tenants_part_is_bounded_in_bytes() -> None:
    service = with_file({})
    with closing(service.store) as store:
        store.room.share = TenantShare(policies=1000, size=10_000)
        done = [attempt(service, own(Setting.TOPIC, name), kept_as_own({"messages": 1})) for name in names(30)]
        assert 5 < done.count(True) < 10
        assert store.room.sizes["acme"] <= 10_000


def test_all_tenants_together_leave_half_of_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.policies.room.MOST_CHANGES", 20)
    service = with_file({})
    with closing(service.store):
        tenants = [f"tenant-{number}" for number in range(30)]
        everybody = Principal("all", "", frozenset(tenants))
        refused = 0
        for tenant in tenants:
            try:
                asyncio.run(service.change({own(Setting.TENANT, tenant): kept_as_own({"messages": 1})}, everybody))
            except BodyError:
                refused += 1
        assert refused == 20
        for number in range(10):
            key = rate_key("publish", Setting.TENANT, f"operators-{number}")
            asyncio.run(service.change({key: kept_as_own({"messages": 1})}, ANN))
        with pytest.raises(BodyError, match="no room"):
            asyncio.run(service.change({rate_key("publish", Setting.PROXY, ""): kept_as_own({"messages": 1})}, ANN))


def test_what_an_earlier_run_kept_takes_its_room(tmp_path: Any) -> None:
    path = tmp_path / "policies.db"
    with closing(Store(path)) as store:
        service = PolicyService(*_parts(store))
        for name in names(3):
            assert attempt(service, own(Setting.TOPIC, name), kept_as_own({"messages": 1}))
        asyncio.run(service.change({rate_key("publish", Setting.PROXY, ""): kept_as_own({"messages": 1})}, ANN))
        counted = dict(store.room.counts), dict(store.room.sizes)
    with closing(Store(path)) as store:
        assert (dict(store.room.counts), dict(store.room.sizes)) == counted
        assert counted[0] == {"acme": 3, "": 1}
        assert store.author(own(Setting.TOPIC, names(1)[0])) == "acme-ops"


def _parts(store: Store) -> tuple[Any, ...]:
    return Policies(), FilePolicies({}, {}, {}), store, Around(lambda: (0, 0), lambda _changes, _now: None)


def test_a_tenant_does_not_push_others_out_of_the_audit_log() -> None:
    with closing(Store(None, audit_rows=300)) as store:
        service = PolicyService(*_parts(store))
        asyncio.run(service.change({rate_key("publish", Setting.PROXY, ""): kept_as_own({"messages": 1})}, ANN))
        for number in range(50):
            assert attempt(service, own(Setting.TENANT, "acme"), kept_as_own({"messages": number + 1}))
        authors = [each.who for each in store.audited(100)]
        assert authors == ["acme-ops"] * 3 + ["ann"]


def test_a_body_of_any_size_is_not_kept() -> None:
    service = with_file({})
    with closing(service.store), pytest.raises(BodyError, match="more than 16 KiB"):
        asyncio.run(service.change({own(Setting.TENANT, "acme"): kept_as_own({"messages": " " * 20_000 + "5"})}, ACME))
