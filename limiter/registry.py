"""All limiters at work, by what they limit; never by connection, so that a reconnect gains nothing."""

from limiter.gate import Gate
from limiter.limiter import Limiter, Scope
from limiter.permits import PermitMeter, horizon_of
from limiter.policies import InForce, Policies, Topic
from limiter.rates import Direction
from limiter.stream import Entry, Stream

_SWEEP_AT = 1024


class Registry:
    """Makes limiters when streams need them, changes them when policies do, forgets them when they are idle and full.

    Args:
        policies: The values in force; call `apply` after changing them.
        gate: Where the streams pass.
    """

    def __init__(self, policies: Policies, gate: Gate) -> None:
        self.policies = policies
        self.limiters: dict[Scope, Limiter] = {}
        self._gate = gate
        self._topics: dict[Stream, Topic] = {}
        self._sweep_at = _SWEEP_AT

    def open(self, stream: Stream, topic: Topic, now: int) -> None:
        """A stream of `topic` begins."""
        self._topics[stream] = topic
        stream.chain = self._chain(self._direction(stream), topic, now)
        self._gate.join(stream)
        self._sweep(now)

    def close(self, stream: Stream, now: int) -> list[Entry]:
        """A stream ends. Gives back what it held."""
        self._topics.pop(stream, None)
        stream.is_open = False
        dropped = self._gate.leave(stream, now)
        if stream.permits is not None:
            stream.permits.close()
        return dropped

    def apply(self, now: int) -> None:
        """The policies changed: put them in force on every live stream, and wake who may go."""
        for stream, topic in list(self._topics.items()):
            chain = self._chain(self._direction(stream), topic, now)
            if chain != stream.chain:
                self._gate.rewire(stream, chain, now)
            if stream.permits is not None:
                stream.permits.rewire(meters_of(chain))
        self._gate.woken([limiter for limiter in self.limiters.values() if limiter.waiters], now)
        self._sweep(now)

    def live(self) -> list[Stream]:
        """Every stream that is open."""
        return list(self._topics)

    @staticmethod
    def _direction(stream: Stream) -> Direction:
        return "publish" if stream.name.direction == "publish" else "dispatch"

    def _chain(self, direction: Direction, topic: Topic, now: int) -> tuple[Limiter, ...]:
        return tuple(self._limiter(entry, now) for entry in self.policies.in_force(direction, topic))

    def _limiter(self, entry: InForce, now: int) -> Limiter:
        limiter = self.limiters.get(entry.scope)
        if limiter is None:
            limiter = self.limiters[entry.scope] = Limiter(entry.scope, entry.limit, entry.source, now)
        elif limiter.limit != entry.limit or limiter.source != entry.source:
            limiter.retune(entry.limit, entry.source, now)
        if entry.scope.direction == "dispatch" and entry.limit.messages is not None:
            horizon = horizon_of(entry.limit.messages)
            limiter.meter = limiter.meter or PermitMeter(horizon)
            limiter.meter.horizon = horizon
        elif limiter.meter is not None:
            limiter.meter = None
        return limiter

    def _sweep(self, now: int) -> None:
        """Forget idle limiters once in a while; never before the streams that they were made for have joined them."""
        if len(self.limiters) < self._sweep_at:
            return
        for scope in [scope for scope, limiter in self.limiters.items() if limiter.is_idle(now)]:
            del self.limiters[scope]
        self._sweep_at = max(_SWEEP_AT, 2 * len(self.limiters))


def meters_of(chain: tuple[Limiter, ...]) -> tuple[PermitMeter, ...]:
    """The permit meters of a consumer's limiters."""
    return tuple(limiter.meter for limiter in chain if limiter.meter is not None)
