"""What a worker's consumer asks for reaches the quota server; what arrives there does not come back to it."""

import pytest

from limiter.limiter import Stream, StreamName
from limiter.workers.messages import Asked, Forgone, Overdrawn, Rewound, Wired, Withdrawn
from limiter.workers.quota_client import QuotaClient, WorkerPermits
from tests.limiter.workers.together import WHOSE, Bells


def consumer(*, tells_all: bool = False) -> tuple[QuotaClient, WorkerPermits]:
    quota_client = QuotaClient(Bells(), tells_all=tells_all)
    stream = Stream(StreamName("dispatch", "t", "n", "x", 1), (), lambda _stream, _entry: None)
    quota_client.open(stream, "x", WHOSE)
    permits = WorkerPermits(stream, quota_client)
    quota_client.meter(stream, lambda permits: None)
    quota_client.take()
    return quota_client, permits


def test_what_is_asked_for_is_told() -> None:
    quota_client, permits = consumer()
    assert not permits.ask(100, as_it_came=True)
    assert quota_client.take() == [Asked(1, 100, is_granted=False)]
    quota_client.obey(Wired(1, [], by_queue=False, is_metered=False), 0)
    assert permits.ask(7, as_it_came=True)
    assert quota_client.take() == [Asked(1, 7, is_granted=True)]
    assert not permits.ask(2**32 - 1), "its FLOW cannot go on as it is: the quota server grants it in parts"
    assert quota_client.take() == [Asked(1, 2**32 - 1, is_granted=False)]
    permits.overdraw(99_999)
    assert quota_client.take() == [Overdrawn(1, 99_999)]
    permits.forgo()
    assert quota_client.take() == [Forgone(1)]


@pytest.mark.parametrize("tells_all", [True, False])
def test_that_something_is_to_come_again_is_told_where_backlogs_are_told_apart(*, tells_all: bool) -> None:
    quota_client, permits = consumer(tells_all=tells_all)
    permits.rewound()
    assert quota_client.take() == ([Rewound(1)] if tells_all else [])


def test_permits_are_metered_until_the_quota_server_says_that_they_are_not() -> None:
    quota_client, permits = consumer()
    assert permits.is_metered
    assert not permits.may_pass(1)
    quota_client.obey(Wired(1, [], by_queue=False, is_metered=False), 0)
    assert not permits.is_metered
    assert permits.may_pass(1)


def test_of_what_is_dropped_the_quota_server_is_told_only_what_the_client_still_counts_on() -> None:
    quota_client, permits = consumer()
    permits.arrived(2, 20, 200)
    permits.crossed(1, 10, 100)
    permits.passed(10, 100)
    permits.dropped(1, 10, 100, ask_again=False)
    permits.dropped(0, 0, 0, ask_again=True)
    assert quota_client.take() == []
    permits.dropped(1, 10, 100, ask_again=True)
    assert quota_client.take() == [Withdrawn(1, 10)]
