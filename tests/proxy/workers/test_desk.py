"""What the supervisor knows of one worker; the letters are the test's, and no process is there."""

import asyncio
from typing import cast

from limiter.activity import ActivityReader
from limiter.levels import Setting
from limiter.policies import Policies, Value
from limiter.rates import Limit, rate
from limiter.workers.messages import Closed, Message, Opened, PassedByLease, QueuedEntry
from limiter.workers.quota_server import DeferredRejections
from proxy.admission_control import What
from proxy.config.model import Config
from proxy.limiter_engine import LimiterEngine
from proxy.observe.access_log import AccessLog
from proxy.observe.counters import Counters
from proxy.workers.channel import Accepted, Admitted, Bounds, Counted, Enter, Left, NotAdmitted, Ready, Told
from proxy.workers.connection import WorkerConnection
from tests.proxy.wire import TOPIC

WHOSE = (7, "10.0.0.1:99", "Pulsar-Java", "billing", False)


class Office:
    """A desk, and what it told others."""

    def __init__(self) -> None:
        config = Config.model_validate({"workers": 2, "admission": {"max_producers_per_topic": 1}})
        policies = Policies()
        policies.put("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop", Value(Limit(rate(100)), "file"))
        self.engine = LimiterEngine(config, policies, Counters(), ActivityReader())
        self.told: list[str] = []
        self.desk = WorkerConnection(
            self.engine,
            cast("AccessLog", None),  # no connection ends
            DeferredRejections(self.engine.rate_limiter, lambda limiter: self.told.append("recall")),
            lambda: self.told.append("lost"),
            lambda: self.told.append("silent"),
        )

    def open(self, *streams: int) -> None:
        for stream in streams:
            self.desk._heard(Opened(stream, "publish", TOPIC, stream, "p", "", "", WHOSE))


async def test_streams_of_one_connection_share_what_stands_for_it_and_leave_nothing_behind() -> None:
    office = Office()
    office.open(1, 2)
    first, second = office.desk.judge.stream(1), office.desk.judge.stream(2)
    assert first is not None
    assert second is not None
    assert first.connection is second.connection
    assert office.desk.last_id == 7
    office.desk._heard(Closed(1))
    office.desk._heard(Closed(2))
    office.desk._heard(Closed(2))
    assert (office.desk._connections, office.desk._streams_of, office.desk._connection_of) == ({}, {}, {})
    assert office.desk.judge.is_at_rest


async def test_what_stands_at_a_worker_goes_when_it_has_ended_and_not_before() -> None:
    office = Office()
    engine, desk = office.engine, office.desk
    engine.kept = lambda _address, _more: None
    desk._heard(Ready())
    office.open(1)
    numbers = {"connections_accepted": 3, "held_used": 5000, "lookups_used": 2, "lookups_refused": 1, "memory_used": 9}
    desk._heard(Counted(numbers, {"connections_open": {"data": 3}}, []))
    desk._heard(QueuedEntry(1, 1, 10, 0))
    assert engine.counters.workers_running == 1
    desk._lost()
    assert office.told == ["lost"]
    assert engine.counters.workers_running == 0
    assert (engine.held.used, engine.lookups.used, engine.memory.used) == (5000, 2, 9)
    (limiter,) = engine.registry.limiters.values()
    assert limiter._buckets[0] is not None
    assert limiter._buckets[0].lent > 0
    desk.write_off()
    assert limiter._buckets[0].lent == 0
    assert (engine.held.used, engine.lookups.used, engine.memory.used, engine.lookups.refused) == (0, 0, 0, 1)
    assert (engine.counters.connections_accepted, engine.counters.connections_open["data"]) == (3, 0)
    assert desk.judge.is_at_rest


async def test_a_refusal_for_memory_makes_room_among_the_limiters() -> None:
    office = Office()
    office.open(1)
    office.desk._heard(Closed(1))
    assert len(office.engine.registry.limiters) == 1
    office.desk._heard(Counted({"memory_used": 0}, {}, []))
    assert len(office.engine.registry.limiters) == 1, "nobody is refused"
    office.desk._heard(Counted({"memory_refused": 1}, {}, []))
    assert office.engine.registry.limiters == {}
    assert office.engine.memory.refused == 1


async def test_a_worker_keeps_the_places_of_its_clients_until_it_has_ended() -> None:
    office = Office()
    admission, desk, said = office.engine.admission, office.desk, list[Message]()
    desk.channel.send = said.extend  # type: ignore[method-assign,assignment]  # to nobody
    assert desk.bounds() == Bounds(["max_connections", "max_producers_per_topic"])
    for number in (1, 2):
        desk._heard(Enter(number, [(What.PRODUCERS, TOPIC)], "192.0.2.7:1", "192.0.2.7", ""))
    await asyncio.sleep(0)
    refusal = "producers of one topic: at most 1 (admission.max_producers_per_topic)"
    assert said == [Admitted(1, has_places=True), NotAdmitted(2, What.PRODUCERS, refusal)]
    desk._lost()
    assert admission.taken == 1
    desk.write_off()
    assert admission.taken == 0


async def test_who_leaves_has_no_place_any_more() -> None:
    office = Office()
    office.desk._heard(Enter(1, [(What.PRODUCERS, TOPIC)], "192.0.2.7:1", "192.0.2.7", ""))
    assert office.engine.admission.provisional == 1
    office.desk._heard(Accepted(1))
    assert (office.engine.admission.taken, office.engine.admission.provisional) == (1, 0)
    office.desk._heard(Left(1))
    assert office.engine.admission.taken == 0


async def test_who_asks_what_was_counted_is_answered_in_order_and_at_once_when_nobody_will() -> None:
    desk = Office().desk
    first, second = desk.ask(), desk.ask()
    desk._heard(Told())
    assert (first.is_set(), second.is_set()) == (True, False)
    desk._lost()
    assert second.is_set()
    assert desk.ask().is_set()
    assert desk.ready.is_set()
    assert not desk.is_listening


async def test_it_is_asked_for_a_sign_of_life_only_while_somebody_depends_on_it() -> None:
    office = Office()
    desk = office.desk
    desk.expect()
    assert desk._is_owing(), "it is to come up"
    desk._heard(Ready())
    assert not desk._is_owing()
    desk._heard(Counted({}, {"connections_open": {"lookup": 1}}, []))
    assert desk._is_owing()
    desk._heard(Counted({}, {"connections_open": {"lookup": -1}}, []))
    assert not desk._is_owing()
    office.open(1)
    assert desk._is_owing()
    desk._heard(PassedByLease(1, 1, 1, 1, 1, 1, []))
    desk._heard(Closed(1))
    assert not desk._is_owing()
    assert not desk._pulse.is_at_rest
    desk._lost()
    assert desk._pulse.is_at_rest
    await asyncio.sleep(0)


async def test_a_worker_without_clients_that_does_not_answer_is_watched_and_one_that_does_is_not() -> None:
    desk = Office().desk
    desk._heard(Ready())
    desk._pulse.stop()
    assert not desk._is_owing()
    desk.ask()
    assert desk._is_owing()
    assert not desk._pulse.is_at_rest
    desk._heard(Told())
    assert not desk._is_owing()
    desk._pulse.stop()


async def test_what_is_released_when_a_worker_is_lost_has_nobody_watched() -> None:
    """Or its successor would be taken for silent, and killed."""
    office = Office()
    office.desk._heard(Ready())
    office.open(1)
    office.desk._heard(QueuedEntry(1, 1, 10, 0))
    office.desk._lost()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert office.desk._pulse.is_at_rest
    office.desk.write_off()
    await asyncio.sleep(0)
    assert office.desk._pulse.is_at_rest
