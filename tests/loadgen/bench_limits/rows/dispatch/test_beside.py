"""The figures; the publisher with the official client and the stand-in broker."""

import math
from secrets import token_hex

import pytest

from loadgen.bench_limits.rows.beside import RATE, Times
from loadgen.bench_limits.rows.dispatch.beside import FIGURES, NotedSender, SteadyPublisher, row, samples
from loadgen.load.clients import Clients
from loadgen.load.offering import Settle

TIMES = Times(alone=1, held=2, beside=3, end=4)


def test_latencies_are_compared_by_when_the_message_was_sent():
    sent = [0.5, 1.5, 2.5, 3.5]
    arrived = {0: 0.9, 1: 1.502, 2: 2.9, 3: 3.503}
    found = samples(TIMES, sent, arrived)
    assert found["p50_alone"] == found["p99_alone"] == [pytest.approx(2)]
    assert found["p50_beside"] == found["p99_beside"] == [pytest.approx(3)]
    assert found["ratio"] == [pytest.approx(1.5)]
    assert found["rate"] == [pytest.approx(100 / RATE)]
    assert {*found, "held"} == {figure.key for figure in FIGURES}


def test_what_never_arrived_is_slower_than_all_that_did():
    found = samples(TIMES, [1.5, 3.1, 3.2, 3.3], {0: 1.502, 1: 3.101})
    assert found["p50_beside"] == found["ratio"] == [math.inf]


def test_when_a_message_was_sent_is_noted_before_the_client_has_it():
    seen: list[int] = []

    class Client:
        def send(self, payload: bytes, settle: Settle) -> None:
            seen.append(len(noted.sent))
            settle("")

    noted = NotedSender(Client())
    for _ in range(3):
        noted.send(b"", lambda _error: None)
    assert seen == [1, 2, 3]


def test_the_publisher_goes_on_where_it_stopped(service_url):
    with Clients(service_url) as clients:
        publisher = SteadyPublisher(clients, f"persistent://public/default/{token_hex(4)}", 60)
        publisher.go_on_until(0.1)
        before = len(publisher.sent)
        publisher.go_on_until(0.2)
    assert 0 < before < len(publisher.sent) <= (publisher.sent[-1] - publisher.began) * RATE + 1
    assert publisher.sent == sorted(publisher.sent)


def test_a_quick_run_has_the_same_figures():
    assert row(quick=True).figures is row(quick=False).figures is FIGURES
