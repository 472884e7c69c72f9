"""What waits until it can be judged, because tokens are lent in its way."""

from limiter.levels import Setting
from limiter.limiter import Entry, Stream
from limiter.token_bucket import Limit, rate
from tests.limiter.workers.together import Worker, Workers


class Case:
    """One worker has been lent what another one's producer would need to pass the namespace's limit.

    That producer is within its topic's limit besides, which refuses what is over 5.
    """

    def __init__(self) -> None:
        self.told: list[str] = []
        self.order: list[Stream] = []
        self.world = Workers(2, self._refused)
        self.world.limit(Setting.NAMESPACE, "t/n", Limit(rate(100, burst=40)))
        self.world.limit(Setting.TOPIC, "persistent://t/n/x", Limit(rate(1, burst=5), mode="reject"))
        self.world.apply()
        self.first, self.second = self.world.workers
        self.idle = self.first.open("y", self.released)
        self.busy = self.second.open("y", self.released)
        self.refused = self.second.open("x", self.released)
        self.world.deliver_all()
        self.lend()
        self.offer(self.second, self.refused, 12)
        while self.second.hear_one():
            pass

    def lend(self) -> None:
        """One has been lent something, the rest is used up."""
        self.offer(self.first, self.idle)
        self.world.deliver_all()
        (self.namespace,) = self.first.quota_server.lending.loans
        while self.namespace.is_open(self.world.clock.now):
            self.offer(self.second, self.busy)
            self.world.deliver_all()
        assert not self.busy.held
        assert self.namespace.borrowers == 1
        self.told.clear()

    def released(self, stream: Stream, entry: Entry) -> None:
        self.told.append("passed")
        self.order.append(stream)

    def _refused(self, stream: Stream, entry: Entry, reason: str) -> None:
        self.told.append(reason)
        self.order.append(stream)

    def offer(self, worker: Worker, stream: Stream, times: int = 1) -> None:
        for _ in range(times):
            self.world.offer(worker, stream, 1, 10)

    @property
    def rejected(self) -> int:
        return sum(one.usage.rejected_messages for one in self.world.registry.limiters.values())


def test_it_waits_until_what_was_lent_is_back_and_is_judged_as_if_it_came_then() -> None:
    case = Case()
    assert (case.told, case.rejected) == ([], 0)
    case.world.deliver_all()
    assert [told == "passed" for told in case.told] == [True] * 5 + [False] * 7
    assert case.rejected == 7
    assert not case.namespace.waiters


def test_what_waited_of_several_producers_is_judged_in_the_order_in_which_it_came() -> None:
    case = Case()
    other = case.second.open("x", case.released)
    for stream in (other, case.refused):
        case.world.clock.now += 1000
        case.offer(case.second, stream)
    while case.second.hear_one():
        pass
    case.order.clear()
    case.world.deliver_all()
    assert [stream is other for stream in case.order] == [False] * 12 + [True, False]


def test_it_is_judged_when_the_worker_dies_that_has_been_lent_it() -> None:
    case = Case()
    case.world.kill(0)
    case.world.deliver_all()
    assert case.told == [], "what was lent is lost, and the namespace's limit holds what it has no tokens for"
    assert len(case.refused.held) == 12
    case.world.run_until(50_000_000)
    case.world.deliver_all()
    assert case.told == ["passed"] * 5
    case.world.run_until(1_200_000_000)
    case.world.deliver_all()
    assert case.told == ["passed"] * 6, "what another limit held already waits for this one, too"


def test_where_tokens_come_first_it_passes() -> None:
    case = Case()
    case.world.run_until(30_000_000)
    while case.second.obey_one():
        pass
    assert case.told
    assert set(case.told) == {"passed"}


def test_who_leaves_meanwhile_is_forgotten() -> None:
    case = Case()
    case.second.quota_client.close(case.refused, 0)
    case.world.deliver_all()
    assert (case.told, case.rejected) == ([], 0)
    assert not case.world.deferred._cases


def test_a_limit_that_ends_to_refuse_meanwhile_holds_it() -> None:
    case = Case()
    case.world.limit(Setting.TOPIC, "persistent://t/n/x", Limit(rate(1, burst=5)))
    case.world.apply()
    case.world.deliver_all()
    assert (case.told, case.rejected) == (["passed"] * 5, 0)
    assert len(case.refused.held) == 7


def test_what_is_over_a_limit_of_which_nothing_is_lent_is_refused_whatever_else_is() -> None:
    case = Case()
    case.world.deliver_all()
    case.world.run_until(300_000_000)
    case.lend()
    case.offer(case.second, case.refused)
    while case.second.hear_one() or case.second.obey_one():
        pass
    assert len(case.told) == 1
    assert case.told[0].startswith("over the publish limit of topic")
