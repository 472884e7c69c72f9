"""File descriptors are shared out so that clients leave enough for brokers, the admin address and log files."""

import resource
from itertools import starmap

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from limiter.policies import Policies
from proxy import descriptors
from proxy.admission_control import Admission, BoundName, NotAdmittedError
from proxy.config.model import Config
from proxy.counters import Counters
from proxy.descriptors import DescriptorShares, raise_limit


def config(**values: object) -> Config:
    return Config.model_validate(values)


@given(
    limit=st.integers(200, 200_000),
    most=st.integers(1, 50_000),
    admin=st.integers(1, 2_000),
    has_metrics=st.booleans(),
)
def test_the_shares_never_exceed_the_limit(limit: int, most: int, admin: int, *, has_metrics: bool) -> None:
    metrics = {"metrics": "127.0.0.1:9"} if has_metrics else {}
    shares = DescriptorShares.of(
        config(max_connections=most, admin_access={"max_connections": admin}, **metrics), limit
    )
    kept = 96 + 8 + 16
    assert kept + (1 + has_metrics) * shares.admin + 2 * shares.clients <= limit
    assert 1 <= shares.admitted <= min(shares.clients, most)
    assert (shares.shortage() is None) == (limit >= shares.needed)
    if limit >= shares.needed:
        assert (shares.admitted, shares.admin) == (most, admin)


@pytest.mark.parametrize(("limit", "admitted"), [(256, 46), (1024, 340), (20_384, 10_000), (2**31, 10_000)])
def test_a_low_limit_admits_fewer_clients(limit: int, admitted: int) -> None:
    assert DescriptorShares.of(config(), limit).admitted == admitted


def test_a_shortage_names_the_number_and_the_remedies() -> None:
    shortage = DescriptorShares.of(config(), 1024).shortage()
    assert shortage is not None
    for part in ("1024", "needs 20376", "ulimit -n 20376", "LimitNOFILE=20376", "--ulimit nofile=20376"):
        assert part in str(shortage)


def test_low_limit_bounds_the_connections_admitted() -> None:
    assert DescriptorShares.of(config(), 1024).within(config()).max_connections == 340


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (1024, "at most 340, 34 of them for addresses with fewer than 10 (file descriptors: ulimit -n is 1024, "),
        (30_000, "at most 10000, 1000 of them for addresses with fewer than 10 (max_connections)"),
    ],
)
def test_a_refused_client_gets_the_shortage_as_the_cause(limit: int, text: str) -> None:
    shares = DescriptorShares.of(config(), limit)
    bound = shares.bound_of_clients(config())
    admission = Admission(shares.within(config()), Counters(), lambda: 0, Policies(), bound)
    with capture_logs() as lines, pytest.raises(NotAdmittedError) as refused:
        list(starmap(admission.admit, [([(BoundName.CONNECTIONS, "a")], "a", "a")] * (shares.admitted + 1)))
    assert text in str(refused.value)
    assert [text in line["detail"] for line in lines] == [True]


@pytest.mark.parametrize(("limits", "wanted"), [((256, 4096), [(4096, 4096)]), ((4096, 4096), [])])
def test_the_soft_limit_is_raised_to_the_hard_one(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], wanted: list[tuple[int, int]]
) -> None:
    now, made = [limits], list[tuple[int, int]]()

    def take(_resource: int, values: tuple[int, int]) -> None:
        made.append(values)
        now.append(values)

    monkeypatch.setattr(resource, "getrlimit", lambda _resource: now[-1])
    monkeypatch.setattr(resource, "setrlimit", take)
    assert raise_limit() == 4096
    assert made == wanted


def test_a_limit_that_may_not_be_raised_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_resource: int, _values: tuple[int, int]) -> None:
        raise ValueError

    monkeypatch.setattr(resource, "getrlimit", lambda _resource: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_limit() == 256
    assert descriptors.highest_limit() == 2**31
