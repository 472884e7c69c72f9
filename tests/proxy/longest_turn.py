"""The longest turn of a loop, in units of work: what was done in it of each kind, however long that took."""

from collections.abc import Callable, Iterable

from limiter.limiter import Limiter, Stream
from limiter.registry import Registry
from tests.proxy.conversation import World


class LongestTurn:
    """Counts what a world does in each turn from now on.

    Attributes:
        most: The most of each kind in one turn: streams that opened, ended, or followed a change; sessions that ended;
            limiters with another value; lines of the access log; brokers that are dialled for greetings.
        total: All of them.
    """

    def __init__(self, world: World) -> None:
        self._wired = self._tuned = 0
        registry, counters, access = world.engine.registry, world.counters, world.access
        self._count(registry)
        self._counts: dict[str, Callable[[], int]] = {
            "streams": lambda: len(registry.live()),
            "sessions": lambda: sum(counters.connections_ended.values()),
            "lines": lambda: access.lines,
            "wired": lambda: self._wired,
            "tuned": lambda: self._tuned,
            "greetings": lambda: len(world.dials),
        }
        self._before = self._now()
        self.most = dict.fromkeys(self._counts, 0)
        self.total = dict.fromkeys(self._counts, 0)
        world.loop.turned = self._turned

    def _count(self, registry: Registry) -> None:
        wire, serve = registry._wire, registry._serve

        def counted_wire(stream: Stream, now: int) -> tuple[Limiter, ...]:
            self._wired += 1
            return wire(stream, now)

        def counted_serve(limiters: Iterable[Limiter], now: int, most_served: int = 3) -> None:
            tuned = list(limiters)
            self._tuned += len(tuned)
            serve(tuned, now, most_served)

        registry._wire, registry._serve = counted_wire, counted_serve  # type: ignore[method-assign]

    def _now(self) -> dict[str, int]:
        return {kind: count() for kind, count in self._counts.items()}

    def _turned(self) -> None:
        now = self._now()
        for kind, count in now.items():
            done = abs(count - self._before[kind])
            self.most[kind] = max(self.most[kind], done)
            self.total[kind] += done
        self._before = now
