import pytest

from limiter.rates import Limit, rate
from limiter.workers.messages import Answer, Asked, Closed, Discarded, Forgone, Named, Opened, PassedByLease, Question
from limiter.workers.quota_server import hear
from tests.limiter.workers.test_judge import opened


def test_every_letter_reaches_the_judge() -> None:
    judge = opened(Limit(rate(100))).workers[0].judge
    for letter in (
        PassedByLease(5, 2, 2, 20, 1, 10, []),
        Discarded(5, 1, 1, 1),
        Named(5, "p"),
        Asked(5, 1, is_granted=True),
    ):
        hear(judge, letter, 0)
    stream = judge.stream(5)
    assert stream is not None
    assert (stream.usage.passed_entries, stream.usage.dropped_messages) == (2, 1)
    assert stream.name.producer_name == "p"
    hear(judge, Question(1), 0)
    assert Answer(1) in judge.take()
    hear(judge, Forgone(5), 0)
    hear(judge, Closed(5), 0)
    assert judge.stream(5) is None


def test_who_opens_a_stream_is_the_callers_business() -> None:
    judge = opened(None).workers[0].judge
    with pytest.raises(ValueError):
        hear(judge, Opened(1, "publish", "x", 1, "", "", "", (1, "", "", "", False)), 0)
