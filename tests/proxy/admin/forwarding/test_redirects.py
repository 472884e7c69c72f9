"""Where a broker sends on; see test_broker.py for the same over HTTP."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from yarl import URL

from protocol.endpoint import Endpoint
from proxy.admin.forwarding.broker import ForwardError, onward
from proxy.brokers.targets import Targets

ASKED = URL("http://broker-1:8080/admin/v2/x%2Fy", encoded=True)
TARGETS = Targets([Endpoint("http", "broker-1", 8080), Endpoint("http", "broker-2", 8080)])


@dataclass
class Answer:
    """As much of one as is looked at."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    url: URL = ASKED


def asked(status: int, **headers: str) -> URL | None:
    answer: Any = Answer(status, headers)
    return onward(answer, TARGETS)


@pytest.mark.parametrize("status", [200, 204, 304, 404, 500])
def test_what_is_no_redirect_is_an_answer(status: int) -> None:
    assert asked(status, Location="http://evil.example/admin/x") is None


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("http://broker-2:8080/admin/v2/x%2Fy?a=%2f", "http://broker-2:8080/admin/v2/x%2Fy?a=%2f"),
        ("/lookup/v2/z", "http://broker-1:8080/lookup/v2/z"),
    ],
)
def test_the_next_address_is_kept_byte_for_byte(location: str, url: str) -> None:
    target = asked(307, Location=location)
    assert str(target) == url


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("http://broker-3:8080/admin/x", "to broker-3:8080, which is not allowed; if it is a broker of yours, name it"),
        ("http://broker-2:8081/admin/x", "to broker-2:8081, which is not allowed"),
        ("https://broker-2:8080/admin/x", "which is no http address of a broker's admin"),
        ("http://broker-2:8080/metrics", "which is no http address of a broker's admin"),
        ("http://broker-2:8080/admin/v2%2F..%2F..%2Fmetrics", "which is no http address of a broker's admin"),
        ("/admin/v2/x;y", "which is no http address of a broker's admin"),
        ("http://broker-2:999999/admin/", "which is no http address of a broker's admin"),
        ("", "with status 307, which cannot be followed"),
    ],
)
def test_where_the_token_may_not_go_nothing_goes(location: str, problem: str) -> None:
    with pytest.raises(ForwardError) as raised:
        asked(307, Location=location)
    assert problem in str(raised.value)
    assert raised.value.status == 502


@pytest.mark.parametrize("status", [301, 302, 303])
def test_what_sends_on_with_another_method_is_not_followed(status: int) -> None:
    with pytest.raises(ForwardError, match=f"with status {status}, which cannot be followed"):
        asked(status, Location="http://broker-2:8080/admin/x")
