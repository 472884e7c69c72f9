"""Requests that no schema describes: bodies, paths and headers as bytes.

Whatever is asked: no answer is a 5xx, what is refused has changed nothing, and what is in force is what is kept.
"""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from limiter.levels import Setting
from proxy.policies.bodies import DispatchRate, PublishRate, ResourceGroup, SubscribeRate
from tests.proxy.live_admin import UNHURRIED, Answer, LiveAdmin, live_admin

FUZZ = settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
_JSON = {"Content-Type": "application/json"}
_TAKERS = (
    ("PUT", "/sluice/limits?direction=publish&setting=role&name=r"),
    ("PUT", "/sluice/limits?direction=dispatch&setting=topic&name=a/b/c"),
    ("PUT", "/sluice/limits?direction=subscribe&setting=topic_of_broker"),
    ("PUT", "/sluice/limits?direction=publish&setting=resource_group&name=g"),
    ("PUT", "/sluice/policies"),
    ("PUT", "/sluice/policies?dry_run=1"),
    ("POST", "/sluice/blocks"),
    ("POST", "/admin/v2/namespaces/a/b/publishRate"),
    ("POST", "/admin/v2/namespaces/a/b/subscribeRate"),
    ("POST", "/admin/v2/persistent/a/b/c/dispatchRate"),
    ("POST", "/admin/v2/persistent/a/b/c/s/dispatchRate?isGlobal=true"),
    ("PUT", "/admin/v2/resourcegroups/g"),
)
"""What has a body."""
_FIELDS = (
    *("messages", "bytes", "burst_messages", "burst_bytes", "peak_messages", "peak_bytes", "mode"),
    *("relativeToPublishRate", "kind", "name", "topic", "namespace", "reason", "limits", "admission"),
    *("publishThrottlingRateInMsg", "publishThrottlingRateInByte", "dispatchThrottlingRateInMsg"),
    *("dispatchThrottlingRateInByte", "ratePeriodInSecond", "subscribeThrottlingRatePerConsumer"),
    *("publishRateInMsgs", "publishRateInBytes", "dispatchRateInMsgs", "dispatchRateInBytes"),
    *("subscribe_rate_per_consumer", "namespaces", "topics", "proxy", "publish", "dispatch", "subscribe"),
)
_NUMBERS = st.one_of(
    st.integers(),
    st.sampled_from([0, -1, 1, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, 2**64, 10**400]),
    st.floats(),
)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    _NUMBERS,
    st.text(),
    st.sampled_from(["500/s", "30/min", "1/0s", "0.5/2s", "10MB/s", "1e3", "9" * 30, "observe", "role", "a/b", "*"]),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_FIELDS) | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)
_OBJECTS = st.dictionaries(st.sampled_from(_FIELDS), _VALUES, max_size=5)


def _doubled(fields: list[tuple[str, Any]]) -> bytes:
    """With keys that may stand there twice."""
    return ("{" + ",".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in fields) + "}").encode()


_BODIES = st.one_of(
    st.binary(max_size=60),
    _OBJECTS.map(lambda value: json.dumps(value).encode()),  # with NaN and Infinity, which are not JSON
    _VALUES.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    _OBJECTS.map(lambda value: json.dumps(value).encode("utf-16")),
    st.lists(st.tuples(st.sampled_from(_FIELDS), _SCALARS), max_size=5).map(_doubled),
    st.tuples(st.sampled_from([b"[", b'{"limits":', b'{"a":']), st.integers(1, 9000)).map(
        lambda deep: deep[0] * deep[1]
    ),
    st.integers(1, 9000).map(lambda depth: b"[" * depth + b"]" * depth),
)
_TYPES = st.one_of(
    st.just("application/json"),
    st.sampled_from(
        ["", "text/plain", "application/json; charset=utf-16", "application/x-www-form-urlencoded", "x", "/"]
    ),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30),
)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAdmin]:
    limits = {"roles": {"r": {"publish": {"messages": 9}}}, "resource_groups": {"g": {"dispatch": {"bytes": 9}}}}
    with live_admin(tmp_path_factory.mktemp("fuzz") / "policies.db", admin_access=UNHURRIED, limits=limits) as live:
        yield live


def check(live: LiveAdmin, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
    """Ask, and see what must be true whatever is asked."""
    before = live.state()
    answer = live.ask(method, path, body, **headers)
    after = live.state()
    assert answer.status < 500, answer
    assert b"Traceback" not in answer.body
    if answer.status >= 400:
        assert after == before, f"refused, and yet something changed: {answer}"
        if answer.content_type == "application/json" and method != "HEAD":
            assert isinstance(json.loads(answer.body)["reason"], str)
    assert live.state_after_restart() == after.in_force
    return answer


@FUZZ
@given(taker=st.sampled_from(_TAKERS), body=_BODIES, media_type=_TYPES)
@example(taker=_TAKERS[0], body=b'{"messages": NaN}', media_type="application/json")
@example(taker=_TAKERS[0], body=b'{"messages": 5, "messages": 7}', media_type="application/json")
@example(taker=_TAKERS[0], body=b'{"a":' * 9_000, media_type="application/json")
@example(taker=_TAKERS[0], body=b"[" * 60_000, media_type="application/json")
@example(taker=_TAKERS[4], body=b'{"limits":' * 6_000, media_type="application/json")
@example(taker=_TAKERS[6], body=b'{"kind":' * 6_000, media_type="application/json")
@example(taker=_TAKERS[9], body=b'{"x":' * 9_000, media_type="application/json")
@example(taker=_TAKERS[9], body=b'{"x":' + b"[" * 9_000 + b"]" * 9_000 + b"}", media_type="application/json")
@example(taker=_TAKERS[4], body=b'{"limits": {"roles": {"\\ud800": {}}}}', media_type="application/json")
@example(taker=_TAKERS[6], body=b'{"kind": "role", "name": "\xff"}', media_type="application/json")
@example(taker=_TAKERS[7], body=b'{"publishThrottlingRateInMsg": 1e400}', media_type="application/json")
@example(taker=_TAKERS[11], body=b"null", media_type="application/json")
def test_no_body_breaks_anything(live: LiveAdmin, taker: tuple[str, str], body: bytes, media_type: str) -> None:
    check(live, *taker, body, **{"Content-Type": media_type})


_ODD = st.sampled_from(
    [
        *("%", "%2", "%zz", "%00", "%0A", "%2F", "%2f%2e%2e", "%FF", "%C3%28", "%ED%A0%80", "%E2%80%A8", "%25", "+"),
        *(
            "..",
            ".",
            "a;b=c",
            "a?b",
            "a#b",
            "\xe4",
            "*",
            "@",
            "a@b",
            "a" * 1100,
            "%61",
            "-partition-0",
            "t-partition-7",
        ),
    ]
)
_SEGMENTS = st.one_of(_ODD, st.tuples(st.sampled_from("ab"), _ODD).map("".join), st.text(max_size=8).map(quote))
_PATHS = st.one_of(
    st.builds(
        "/admin/v2/namespaces/{}/{}/{}".format, _SEGMENTS, _SEGMENTS, st.sampled_from(["publishRate", "resourcegroup"])
    ),
    st.builds("/admin/v2/persistent/{}/b/{}/subscribeRate".format, _SEGMENTS, _SEGMENTS),
    st.builds("/admin/v2/non-persistent/a/b/{}/{}/dispatchRate".format, _SEGMENTS, _SEGMENTS),
    st.builds("/admin/v2/namespaces/a/b/resourcegroup/{}".format, _SEGMENTS),
    st.builds("/admin/v2/resourcegroups/{}".format, _SEGMENTS),
    st.builds("/admin/v2/brokers/configuration/{}/{}".format, _SEGMENTS, _SEGMENTS),
    st.builds("/sluice/explain?topic={}&role={}&address={}".format, _SEGMENTS, _SEGMENTS, _SEGMENTS),
    st.builds("/sluice/streams?topic={}&tenant={}".format, _SEGMENTS, _SEGMENTS),
    st.builds("/sluice/blocks?kind=producer&name={}&topic={}".format, _SEGMENTS, _SEGMENTS),
    st.builds("/{}/{}".format, _SEGMENTS, _SEGMENTS),
)
_METHODS = st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])


@FUZZ
@given(method=_METHODS, path=_PATHS, body=st.sampled_from([b"", b"null", b"{}", b'{"publishThrottlingRateInMsg": 5}']))
def test_no_path_breaks_anything(live: LiveAdmin, method: str, path: str, body: bytes) -> None:
    check(live, method, path.encode().decode("latin-1"), body, **_JSON)


_NAMES: dict[Setting, st.SearchStrategy[str]] = {
    **dict.fromkeys(Setting, st.just("")),
    **dict.fromkeys((Setting.TENANT, Setting.ROLE, Setting.PRODUCER, Setting.RESOURCE_GROUP), st.text(max_size=12)),
    **dict.fromkeys(
        (Setting.TOPIC, Setting.PARTITIONED_TOPIC, Setting.SUBSCRIPTION_OF_TOPIC), st.just("a/b/") | st.just("a/b/c")
    ),
    **dict.fromkeys((Setting.NAMESPACE, Setting.TOPIC_OF_NAMESPACE, Setting.SUBSCRIPTION_OF_NAMESPACE), st.just("a/b")),
    Setting.SUBSCRIPTION: st.text(max_size=8).map("{}@persistent://a/b/c@d".format),
    Setting.ADDRESS: st.ip_addresses().map(str)
    | st.sampled_from(["10.0.0.0/8", "::ffff:10.0.0.0/104", "fe80::1%eth0"]),
}
_PLACES = st.sampled_from(Setting).flatmap(
    lambda setting: st.tuples(
        st.sampled_from(["publish", "dispatch", "subscribe"]),
        st.just(setting.value),
        _NAMES[setting] | st.text(max_size=9),
    )
)
_RATES = st.one_of(
    st.integers(1, 2**63 - 1),
    st.sampled_from(["500/s", "30/min", "5/30s", "1/d", "7/0.5s", "3/1.5h", f"{2**63 - 1}/ms"]),
)
_LIMITS = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {"messages": _RATES},
        optional={
            "burst_messages": st.integers(1, 2**64),
            "bytes": _RATES | st.just("10MiB/min"),
            "mode": st.sampled_from(["enforce", "observe"]),
            "relativeToPublishRate": st.just(True),
        },
    ),
)


@FUZZ
@given(place=_PLACES, limit=_LIMITS)
def test_a_limit_that_is_taken_is_read_back_and_what_is_shown_can_be_set(
    live: LiveAdmin, place: tuple[str, str, str], limit: dict[str, Any] | None
) -> None:
    direction, setting, name = place
    path = f"/sluice/limits?direction={direction}&setting={setting}&name={quote(name, safe='')}"
    before = live.state().in_force
    put = check(live, "PUT", path, json.dumps(limit).encode(), **_JSON)
    event(f"{put.status}")
    if put.status != 200:
        return
    assert check(live, "GET", path) == put
    shown = json.loads(put.body)["limit"]
    assert shown.keys() <= (limit or {}).keys()
    again = check(live, "PUT", path, json.dumps(shown or None).encode(), **_JSON)
    assert json.loads(again.body)["limit"] == shown
    exported = json.loads(check(live, "GET", "/sluice/policies?format=json").body)
    assert len(exported["limits"]) == len(live.state().in_force.limits.values)
    wanted = yaml.safe_load(check(live, "GET", "/sluice/policies").body)
    answer = json.loads(check(live, "PUT", "/sluice/policies?dry_run=1", json.dumps(wanted).encode(), **_JSON).body)
    assert answer["changes"] == [], "what is exported is what holds"
    assert json.loads(check(live, "DELETE", path).body)["taken_back"] is True
    assert live.state().in_force == before


_PULSAR_S = {"publish": PublishRate, "dispatch": DispatchRate, "subscribe": SubscribeRate}


@pytest.mark.slow
@FUZZ
@given(direction=st.sampled_from([*_PULSAR_S]), limit=_LIMITS.filter(bool))
def test_pulsar_s_tools_can_read_what_they_did_not_write(
    live: LiveAdmin, direction: str, limit: dict[str, Any]
) -> None:
    """Within the bounds of Pulsar's fields, whatever the limit is."""
    body = json.dumps(limit).encode()
    put = check(live, "PUT", f"/sluice/limits?direction={direction}&setting=topic&name=x/y/z", body, **_JSON)
    if put.status == 200:
        for query in ("", "?applied=true"):
            shown = check(live, "GET", f"/admin/v2/persistent/x/y/z/{direction}Rate{query}").body
            msgspec.json.decode(shown, type=_PULSAR_S[direction])
    if direction != "subscribe":
        check(live, "PUT", f"/sluice/limits?direction={direction}&setting=resource_group&name=h", body, **_JSON)
        answer = check(live, "GET", "/admin/v2/resourcegroups/h")
        if answer.status == 200:
            msgspec.json.decode(answer.body, type=ResourceGroup)


_GROUPS = st.text(min_size=1, max_size=8)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("PUT"), _GROUPS),
        st.tuples(st.just("DELETE"), _GROUPS),
        st.tuples(st.just("ATTACH"), _GROUPS),
        st.tuples(st.just("DETACH"), st.just("")),
    ),
    max_size=6,
)


@pytest.mark.slow
@settings(FUZZ, max_examples=40)
@given(steps=_STEPS)
def test_groups_are_what_was_made_of_them(live: LiveAdmin, steps: list[tuple[str, str]]) -> None:
    there = set(json.loads(check(live, "GET", "/admin/v2/resourcegroups").body))
    known, attached = there, ""
    for action, group in steps:
        path = f"/admin/v2/resourcegroups/{quote(group, safe='')}"
        if action in {"PUT", "DELETE"}:
            done = check(live, action, path).status == 204
            known = known | {group} if done and action == "PUT" else known - ({group} if done else set())
        else:
            at = "/admin/v2/namespaces/f/g/resourcegroup" + (f"/{quote(group, safe='')}" if action == "ATTACH" else "")
            done = check(live, "POST" if action == "ATTACH" else "DELETE", at).status == 204
            attached = group if done else attached
        assert check(live, "GET", "/admin/v2/namespaces/f/g/resourcegroup").body.decode() == attached
        assert set(json.loads(check(live, "GET", "/admin/v2/resourcegroups").body)) == known
    check(live, "DELETE", "/admin/v2/namespaces/f/g/resourcegroup")
    for group in known - there:
        assert check(live, "DELETE", f"/admin/v2/resourcegroups/{quote(group, safe='')}").status == 204
