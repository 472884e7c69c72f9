"""Many connections that are greeted by the broker and then do nothing: both ends of all of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from loadgen.bench import client
from loadgen.bench.errors import BenchError
from loadgen.bench.sink import CONNECTED
from loadgen.bench.stage import Beside, Stage

_TOPIC = "persistent://public/default/bench"


@dataclass(frozen=True, slots=True)
class Crowd:
    """Connections that stay.

    Attributes:
        seconds: From the first one's begin to the last one's greeting.
    """

    seconds: float


@contextmanager
def crowd(stage: Stage, port: int, count: int, at_once: int) -> Iterator[Crowd]:
    """Connect `count` times through the peer at `port`, `at_once` at a time; they stay while the block lasts.

    Raises:
        BenchError: If not all of them were greeted.
    """
    hello = client.hello(client.broker_of(_TOPIC, port))
    sockets: list[int] = []
    seconds, greeted = 0.0, 0
    try:
        with stage.sink.lent() as listener:
            for first in range(0, count, at_once):
                some = min(at_once, count - first)
                with Beside(partial(stage.native.welcome_many, listener, some, CONNECTED)) as welcoming:
                    made, done, took = stage.native.connect_many(port, some, hello)
                sockets += [*made, *welcoming.result]
                seconds += took
                greeted += done
        if greeted < count:
            raise BenchError(f"{greeted:,} of {count:,} connections were greeted")
        yield Crowd(seconds)
    finally:
        stage.native.reset_all(sockets)
