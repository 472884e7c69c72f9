import pytest

from limiter.token_bucket import Limit, rate
from limiter.workers.messages import Answer, Asked, Closed, Discarded, Forgone, Named, Opened, PassedByLease, Question
from limiter.workers.quota_server import hear
from tests.limiter.workers.test_quota_server import opened


def test_every_message_reaches_the_quota_server() -> None:
    quota_server = opened(Limit(rate(100))).workers[0].quota_server
    for message in (
        PassedByLease(5, 2, 2, 20, 1, 10, []),
        Discarded(5, 1, 1, 1),
        Named(5, "p"),
        Asked(5, 1, is_granted=True),
    ):
        hear(quota_server, message, 0)
    stream = quota_server.stream(5)
    assert stream is not None
    assert (stream.usage.passed_entries, stream.usage.dropped_messages) == (2, 1)
    assert stream.name.producer_name == "p"
    hear(quota_server, Question(1), 0)
    assert Answer(1) in quota_server.take()
    hear(quota_server, Forgone(5), 0)
    hear(quota_server, Closed(5), 0)
    assert quota_server.stream(5) is None


def test_who_opens_a_stream_is_the_callers_business() -> None:
    quota_server = opened(None).workers[0].quota_server
    with pytest.raises(ValueError):
        hear(quota_server, Opened(1, "publish", "x", 1, "", "", "", (1, "", "", "", False)), 0)
