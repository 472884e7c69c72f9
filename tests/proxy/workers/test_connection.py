"""What the supervisor knows of one worker; the messages are the test's, and no process is there."""

import asyncio
from typing import cast

from limiter.activity import ActivityReader
from limiter.levels import Setting
from limiter.policies import Policies, Value
from limiter.token_bucket import Limit, rate
from limiter.workers.messages import Closed, Message, Opened, PassedByLease, QueuedEntry
from limiter.workers.quota_server import DeferredRejections
from proxy.admission_control import BoundName
from proxy.config.model import Config
from proxy.limiter_engine import LimiterEngine
from proxy.observe.access_log import AccessLog
from proxy.observe.counters import Counters
from proxy.workers.channel import Accepted, Admitted, Bounds, Counted, Enter, Left, NotAdmitted, Ready, Told
from proxy.workers.connection import WorkerConnection
from tests.proxy.wire import TOPIC

WHOSE = (7, "10.0.0.1:99", "Pulsar-Java", "billing", False)


class Office:
    """A connection, and what it told others."""

    def __init__(self) -> None:
        config = Config.model_validate({"workers": 2, "admission": {"max_producers_per_topic": 1}})
        policies = Policies()
        policies.put("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop", Value(Limit(rate(100)), "file"))
        self.engine = LimiterEngine(config, policies, Counters(), ActivityReader())
        self.told: list[str] = []
        self.connection = WorkerConnection(
            self.engine,
            cast("AccessLog", None),  # no connection ends
            DeferredRejections(self.engine.rate_limiter, lambda limiter: self.told.append("recall")),
            lambda: self.told.append("lost"),
            lambda: self.told.append("silent"),
        )

    def open(self, *streams: int) -> None:
        for stream in streams:
            self.connection._heard(Opened(stream, "publish", TOPIC, stream, "p", "", "", WHOSE))


async def test_streams_of_one_connection_share_what_stands_for_it_and_leave_nothing_behind() -> None:
    office = Office()
    office.open(1, 2)
    first, second = office.connection.quota_server.stream(1), office.connection.quota_server.stream(2)
    assert first is not None
    assert second is not None
    assert first.connection is second.connection
    assert office.connection.last_id == 7
    office.connection._heard(Closed(1))
    office.connection._heard(Closed(2))
    office.connection._heard(Closed(2))
    assert (office.connection._connections, office.connection._streams_of, office.connection._connection_of) == (
        {},
        {},
        {},
    )
    assert office.connection.quota_server.is_at_rest


async def test_what_stands_at_a_worker_goes_when_it_has_ended_and_not_before() -> None:
    office = Office()
    engine, connection = office.engine, office.connection
    engine.kept = lambda _address, _more: None
    connection._heard(Ready())
    office.open(1)
    numbers = {"connections_accepted": 3, "held_used": 5000, "lookups_used": 2, "lookups_refused": 1, "memory_used": 9}
    connection._heard(Counted(numbers, {"connections_open": {"data": 3}}, []))
    connection._heard(QueuedEntry(1, 1, 10, 0))
    assert engine.counters.workers_running == 1
    connection._lost()
    assert office.told == ["lost"]
    assert engine.counters.workers_running == 0
    assert (engine.held.used, engine.lookups.used, engine.memory.used) == (5000, 2, 9)
    (limiter,) = engine.registry.limiters.values()
    assert limiter._buckets[0] is not None
    assert limiter._buckets[0].lent > 0
    connection.write_off()
    assert limiter._buckets[0].lent == 0
    assert (engine.held.used, engine.lookups.used, engine.memory.used, engine.lookups.refused) == (0, 0, 0, 1)
    assert (engine.counters.connections_accepted, engine.counters.connections_open["data"]) == (3, 0)
    assert connection.quota_server.is_at_rest


async def test_a_refusal_for_memory_makes_room_among_the_limiters() -> None:
    office = Office()
    office.open(1)
    office.connection._heard(Closed(1))
    assert len(office.engine.registry.limiters) == 1
    office.connection._heard(Counted({"memory_used": 0}, {}, []))
    assert len(office.engine.registry.limiters) == 1, "nobody is refused"
    office.connection._heard(Counted({"memory_refused": 1}, {}, []))
    assert office.engine.registry.limiters == {}
    assert office.engine.memory.refused == 1


async def test_a_worker_keeps_the_places_of_its_clients_until_it_has_ended() -> None:
    office = Office()
    admission, connection, said = office.engine.admission, office.connection, list[Message]()
    connection.channel.send = said.extend  # type: ignore[method-assign,assignment]  # to nobody
    assert connection.bounds() == Bounds(["max_connections", "max_producers_per_topic"])
    for number in (1, 2):
        connection._heard(Enter(number, [(BoundName.PRODUCERS, TOPIC)], "192.0.2.7:1", "192.0.2.7", ""))
    await asyncio.sleep(0)
    refusal = "producers of one topic: at most 1 (admission.max_producers_per_topic)"
    assert said == [Admitted(1, has_places=True), NotAdmitted(2, BoundName.PRODUCERS, refusal)]
    connection._lost()
    assert admission.taken == 1
    connection.write_off()
    assert admission.taken == 0


async def test_who_leaves_has_no_place_any_more() -> None:
    office = Office()
    office.connection._heard(Enter(1, [(BoundName.PRODUCERS, TOPIC)], "192.0.2.7:1", "192.0.2.7", ""))
    assert office.engine.admission.provisional == 1
    office.connection._heard(Accepted(1))
    assert (office.engine.admission.taken, office.engine.admission.provisional) == (1, 0)
    office.connection._heard(Left(1))
    assert office.engine.admission.taken == 0


async def test_who_asks_what_was_counted_is_answered_in_order_and_at_once_when_nobody_will() -> None:
    connection = Office().connection
    first, second = connection.ask(), connection.ask()
    connection._heard(Told())
    assert (first.is_set(), second.is_set()) == (True, False)
    connection._lost()
    assert second.is_set()
    assert connection.ask().is_set()
    assert connection.ready.is_set()
    assert not connection.is_listening


async def test_it_is_asked_for_a_sign_of_life_only_while_somebody_depends_on_it() -> None:
    office = Office()
    connection = office.connection
    connection.expect()
    assert connection._is_owing(), "it is to come up"
    connection._heard(Ready())
    assert not connection._is_owing()
    connection._heard(Counted({}, {"connections_open": {"lookup": 1}}, []))
    assert connection._is_owing()
    connection._heard(Counted({}, {"connections_open": {"lookup": -1}}, []))
    assert not connection._is_owing()
    office.open(1)
    assert connection._is_owing()
    connection._heard(PassedByLease(1, 1, 1, 1, 1, 1, []))
    connection._heard(Closed(1))
    assert not connection._is_owing()
    assert not connection._liveness.is_at_rest
    connection._lost()
    assert connection._liveness.is_at_rest
    await asyncio.sleep(0)


async def test_a_worker_without_clients_that_does_not_answer_is_watched_and_one_that_does_is_not() -> None:
    connection = Office().connection
    connection._heard(Ready())
    connection._liveness.stop()
    assert not connection._is_owing()
    connection.ask()
    assert connection._is_owing()
    assert not connection._liveness.is_at_rest
    connection._heard(Told())
    assert not connection._is_owing()
    connection._liveness.stop()


async def test_what_is_released_when_a_worker_is_lost_has_nobody_watched() -> None:
    """Or its successor would be taken for silent, and killed."""
    office = Office()
    office.connection._heard(Ready())
    office.open(1)
    office.connection._heard(QueuedEntry(1, 1, 10, 0))
    office.connection._lost()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert office.connection._liveness.is_at_rest
    office.connection.write_off()
    await asyncio.sleep(0)
    assert office.connection._liveness.is_at_rest
