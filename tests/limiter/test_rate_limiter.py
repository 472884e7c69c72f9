"""What sessions ask: both who decide it here and who asks elsewhere answer all of it."""

from limiter.limiter import RateLimiter
from limiter.scheduler import Scheduler
from limiter.workers.quota_client import QuotaClient

ASKED = {name for name in vars(RateLimiter) if not name.startswith("_")}


def left_open(answering: type[RateLimiter]) -> set[str]:
    return {name for name in ASKED if getattr(answering, name) is getattr(RateLimiter, name)}


def test_the_gate_answers_all_that_is_asked() -> None:
    assert len(ASKED) == 9
    assert left_open(Scheduler) == set()


def test_a_worker_refuses_nothing_itself() -> None:
    assert left_open(QuotaClient) == {"count_rejected"}
