"""The size of the access log on the disk, of traffic as proxies have it."""

import random
from itertools import pairwise
from pathlib import Path

from proxy.observe.log_writer import LineRun, LogFile
from tests.proxy.conversation import World, publisher
from tests.proxy.wire import TOPIC, producer, send

MOST_BYTES = 25
"""A stream and second."""
SECONDS = 20
HELD, BUSY, CALM = 5, 5, 90
A_SECOND = {"namespaces": {"acme/shop": {"publish": {"messages": 100, "bytes": "1MB"}}}}


def test_log_of_a_hundred_streams_has_few_bytes_a_stream_second(tmp_path: Path) -> None:
    rng, world, numbers = random.Random(1), World(limits=A_SECOND, access_log={"steady_interval": 10}), {}
    clients = []
    for number in range(HELD + BUSY + CALM):
        topic, name = f"{TOPIC}-{rng.randbytes(3).hex()}", f"service-{rng.randbytes(4).hex()}"
        client, broker = publisher(world, producer(2, topic, producer_name=name), address=f"10.0.{number}.7")
        clients.append((client, broker))
        numbers[number] = 0
    ends = [len(world.files.data)]
    for _ in range(SECONDS * 10):
        for number, (client, broker) in enumerate(clients):
            most = 11 if number < HELD else 6 if number < HELD + BUSY else 1
            count = rng.randint(most - 1, most) if most > 1 else int(rng.random() < 0.15)
            client >> [
                send(numbers[number] + sent, producer_id=2, size=rng.randint(200, 2000)) for sent in range(count)
            ]
            numbers[number] += count
            broker.heard_bytes()
        world.advance(0.1)
        world.access.flush()
        ends.append(len(world.files.data))
    assert any(line.held_messages for line in world.lines() if hasattr(line, "held_messages"))
    file = LogFile(tmp_path / ".a", tmp_path / "a", "never", "zstd")
    for begin, end in pairwise(ends):
        lines = world.files.data[begin:end]
        if lines:
            assert file.append(lines, LineRun(lines.count(b"\n"), 0, 0, 0, 0), ())[1] is None
    size = (tmp_path / ".a").stat().st_size
    file.close()
    world.close()
    assert size <= MOST_BYTES * len(clients) * SECONDS
