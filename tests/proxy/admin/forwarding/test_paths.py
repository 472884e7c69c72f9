"""Which requests the broker may get; see test_forwarder.py for the same over HTTP."""

import pytest
from aiohttp.test_utils import make_mocked_request

from proxy.admin.forwarding.paths import changes_something, is_of_a_page, why_not


@pytest.mark.parametrize(
    "target",
    [
        "/admin/v2/tenants",
        "/admin/v2/persistent/a/b/x%2Fy/stats?a=b;c=/../",
        "/admin/v2/persistent/a/b/..x",
        "/admin/persistent/a/b/c/d/stats",
        "/lookup/v2/topic/persistent/a/b/c",
    ],
)
def test_plain_paths_pass(target: str) -> None:
    assert why_not(target) is None


@pytest.mark.parametrize(
    ("target", "mistake"),
    [
        ("/admin/", "without / or ; at its end"),
        ("/admin/v2/a/../b", ". and .."),
        ("/admin/v2/%2E%2e/b", ". and .."),
        ("/admin/v2//b", "without empty parts"),
        ("/admin/v2/b;c", "percent encoding"),
        ("/admin/v2/b#c", "percent encoding"),
        ("/admin/v2/b?x=#", "percent encoding"),
        ("/admin/v2/\xfc", "percent encoding"),
        ("/admin/v2%2f..%2f../metrics", ". and .."),
        ("/admin/namespaces/a/c/b%2FdispatchRate", "neither here nor through here"),
        ("/admin/namespaces/a/c/b/dispatchRate", "neither here nor through here"),
    ],
)
def test_what_a_broker_may_take_for_another_path_does_not(target: str, mistake: str) -> None:
    assert mistake in (why_not(target) or "")


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/admin/v2/tenants", False),
        ("HEAD", "/admin/v2/tenants", False),
        ("POST", "/admin/v2/tenants", True),
        ("GET", "/admin/brokers/backlog-quota-check", True),
        ("GET", "/admin/v2/persistent/a/b/c/partitions", False),
        ("GET", "/admin/v2/persistent/a/b/c/partitions?checkAllowAutoCreation=false", False),
        ("GET", "/admin/v2/persistent/a/b/c/partitions?checkAllowAutoCreation=true", True),
    ],
)
def test_two_gets_change_something(method: str, path: str, *, expected: bool) -> None:
    assert changes_something(make_mocked_request(method, path)) is expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, False),
        ({"Sec-Fetch-Site": "none"}, False),
        ({"Sec-Fetch-Site": "same-site"}, True),
        ({"Origin": "x"}, True),
    ],
)
def test_browsers_say_for_whom_they_ask(headers: dict[str, str], *, expected: bool) -> None:
    assert is_of_a_page(make_mocked_request("GET", "/", headers=headers)) is expected
