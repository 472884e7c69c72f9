"""What a worker is told, when it is replaced, and from where its connections are numbered."""

import asyncio

from proxy.config.model import Config
from proxy.workers.supervisor import (
    FIRST_PAUSE_S,
    IDS_APART,
    LONGEST_PAUSE_S,
    OF_SUPERVISOR,
    WorkerProcess,
    next_pause,
    told,
)
from tests.proxy.workers.apart import apart

OTHERS = {
    "listen": ["127.0.0.1:7650", "pulsar+ssl://127.0.0.1:7651"],
    "tls": {"certificate": "a.pem", "key": "a.key", "client_ca": "ca.pem"},
    "workers": 3,
    "broker": ["pulsar+ssl://broker:1", "pulsar+ssl://broker:2"],
    "broker_tls": {"server_name": "broker.example"},
    "allowed_brokers": ["broker-*:6650"],
    "allowed_broker_networks": ["10.0.0.0/8"],
    "handshake_timeout": 7,
    "connect_timeout": 8,
    "linger": 9,
    "max_lookups_in_flight": 11,
    "max_lookups_in_flight_per_connection": 10,
    "client_memory": {"connection": 16, "total": 17},
    "write_timeout": 6,
    "keep_alive": 5,
    "max_connections": 20,
    "proxy_protocol": {"mode": "required", "from": ["10.0.0.5"]},
    "broker_proxy_protocol": True,
    "authentication": {"mode": "terminate", "token": {"secret_key": "key"}, "broker": {"token_file": "own"}},
    "publish": {"mode": "pause", "hold_connection": 12, "hold_total": 13, "max_batch_messages": 14, "max_pending": 15},
    "dispatch": {"dispatchThrottlingOnNonBacklogConsumerEnabled": False},
}
"""All that is a worker's, and none as it would be by itself."""


def test_a_worker_is_told_all_but_what_its_supervisor_does() -> None:
    assert OTHERS.keys() == Config.model_fields.keys() - OF_SUPERVISOR
    assert Config.model_fields.keys() > OF_SUPERVISOR
    ours = Config.model_validate(OTHERS | {"access_log": {"interval": 5, "dir": "log"}, "proxy_id": "one"})
    theirs = Config.model_validate_json(told(ours))
    for name in OTHERS:
        assert getattr(theirs, name) == getattr(ours, name) != getattr(Config(), name), name
    assert theirs.access_log.interval == 5
    assert theirs.access_log.dir is None
    assert theirs.proxy_id == Config().proxy_id


def test_the_pause_before_the_next_worker_doubles_until_one_has_lived_long_enough() -> None:
    pauses = [next_pause(0, 1)]
    while pauses[-1] < LONGEST_PAUSE_S:
        pauses.append(next_pause(pauses[-1], LONGEST_PAUSE_S))
    assert pauses[:4] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S, 8 * FIRST_PAUSE_S]
    assert next_pause(pauses[-1], 1) == LONGEST_PAUSE_S
    assert next_pause(pauses[-1], LONGEST_PAUSE_S + 1) == FIRST_PAUSE_S


async def test_connections_of_the_next_worker_are_numbered_apart_from_those_of_the_last() -> None:
    """Of some of those nobody has heard."""
    async with apart({}) as one:
        await one.producers(8)
        worker: WorkerProcess = next(
            worker for worker in one.supervisor._workers if worker.connection is not None and worker.connection.last_id
        )
        assert worker.connection is not None
        last, first = worker.connection.last_id, worker._next_id
        worker._kill()
        async with asyncio.timeout(20):
            while worker._next_id == first:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
        assert worker._next_id >= last + 2 * IDS_APART
        assert worker._next_id % 2 == first % 2, "the other worker's are between"
