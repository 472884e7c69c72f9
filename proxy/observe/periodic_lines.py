"""The lines that are written each second: of streams and of limiters.

A thousand streams at work are a thousand lines at once, in which little is new. So what is not counted (who it is,
which limit it has) is encoded once and kept for as long as it stays the same and its owner stays active.
"""

from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

from accesslog.record import IntervalLine, LimitLine
from limiter.limiter import Limiter, Scope
from limiter.stream import Stream
from protocol.topic_name import parse_topic
from proxy.observe.addresses import Shown, as_they_are
from proxy.observe.connection import Connection
from proxy.observe.log_lines import LogLines, Span, in_log
from proxy.observe.reasons import burst, narrowest, per_second, published_per_second, reason, resource_group

Fields = dict[str, Any]
T = TypeVar("T", bound=Hashable)


class Known(Generic[T]):
    """The last encoding of each owner; owners of which nothing was asked between two calls of `turn` are forgotten."""

    def __init__(self) -> None:
        self._now: dict[T, tuple[Any, bytes]] = {}
        self._before: dict[T, tuple[Any, bytes]] = {}

    def get(self, owner: T, state: Any, encode: Callable[[], bytes]) -> bytes:
        """What `encode` gives, or gave for the same state of this owner."""
        known = self._now.get(owner) or self._before.get(owner)
        if known is None or known[0] != state:
            known = state, encode()
        self._now[owner] = known
        return known[1]

    def turn(self) -> None:
        """An interval is over."""
        self._before, self._now = self._now, {}

    def __len__(self) -> int:
        return len(self._now | self._before)


class Levels(Protocol):
    """Who knows of which levels the limits of streams are: a `Registry`."""

    revision: int
    """Another one whenever that may be something else."""

    def levels_of(self, stream: Stream) -> list[str]:
        """Of one stream, outermost first."""


class ByChain:
    """What streams are within, as long as nobody says what they should be within."""

    revision = 0

    def levels_of(self, stream: Stream) -> list[str]:
        """Of one stream."""
        return [limiter.scope.level for limiter in stream.chain]


class PeriodicLines:
    """Makes them.

    Args:
        lines: Where they go.
        shown: What stands for a client's address.

    Attributes:
        levels: Asked for `limit_levels`: what passed a stream's limiters is not to say itself which these are.
    """

    def __init__(self, lines: LogLines, shown: Shown) -> None:
        self._lines = lines
        self._shown = shown
        self.levels: Levels = ByChain()
        self._streams = Known[Stream]()
        self._limiters = Known[Limiter]()

    def interval(self, span: Span, stream: Stream, counted: Fields) -> None:
        """What a stream did in `span`; `counted` becomes the line's and has all the other fields afterwards."""
        if not self._lines.is_kept:
            self._lines.skip()
            return
        connection = stream.connection
        assert isinstance(connection, Connection), "streams of the proxy belong to its connections"
        narrow = narrowest(stream.chain)
        limiter = narrow[0]
        chains = stream.chain, stream.observed and stream.observed.chain
        value = limiter and (limiter.limit, limiter.source)
        state = (stream.name, connection.client_role, chains, limiter, value, narrow[2], self.levels.revision)
        if stream.is_open:
            known = self._streams.get(stream, state, lambda: self._who(stream, connection, narrow))
        else:
            known = self._who(stream, connection, narrow)
        if stream.permits and stream.permits.asked:
            counted["permits_withheld"] = stream.permits.asked
        if stream.held or counted["throttled_ms"] or counted["rejected_messages"]:
            counted |= self._why(stream)
        else:
            counted["reason"] = ""
        self._lines.add_known(IntervalLine, span, known, _without_rejected(counted))

    def limit(self, span: Span, limiter: Limiter, counted: Fields) -> None:
        """What a limiter passed in `span`, likewise."""
        if not self._lines.is_kept:
            self._lines.skip()
            return
        known = self._limiters.get(limiter, (limiter.limit, limiter.source), lambda: self._of(limiter))
        self._lines.add_known(LimitLine, span, known, _without_rejected(counted))

    def turn(self) -> None:
        """An interval is over."""
        self._streams.turn()
        self._limiters.turn()

    def address(self, connection: Connection) -> str:
        """A client's address and port, or what stands for the address."""
        is_plain = self._shown is as_they_are
        return connection.client_address if is_plain else self._shown(connection.client_host)

    def _network(self, connection: Connection) -> str:
        """What limits of addresses call the client, or stands for it; empty if that is its address."""
        network = connection.client_network
        return "" if network == connection.client_host else self._shown(network)

    def _who(
        self, stream: Stream, connection: Connection, narrow: tuple[Limiter | None, float | None, float | None]
    ) -> bytes:
        name, (limiter, messages, size) = stream.name, narrow
        fields = {
            "direction": name.direction,
            "tenant": name.tenant,
            "namespace": name.namespace,
            "topic": in_log(name.topic),
            "connection_id": connection.connection_id,
            "client_address": self.address(connection),
            "client_network": self._network(connection),
            "client_version": in_log(connection.client_version),
            "client_role": in_log(connection.client_role),
            "resource_group": resource_group(stream),
            "exempt": parse_topic(name.topic).is_system,
            "limit_levels": " ".join(self.levels.levels_of(stream)),
            "stream_id": name.stream_id,
            "producer_name": in_log(name.producer_name),
            "subscription": in_log(name.subscription),
            "limit_level": "" if limiter is None else limiter.scope.level,
            "limit_messages": messages,
            "limit_bytes": size,
        }
        if limiter is not None:
            fields |= {"limit_source": limiter.source, "limit_mode": limiter.limit.mode}
        return self._lines.known(IntervalLine, fields)

    def _of(self, limiter: Limiter) -> bytes:
        scope, limit = limiter.scope, limiter.limit
        published_messages, published_bytes = published_per_second(limit)
        fields = {
            "direction": scope.direction,
            "level": scope.level,
            "name": self._name(scope),
            "tenant": scope.tenant,
            "namespace": scope.namespace,
            "source": limiter.source,
            "mode": limit.mode,
            "limit_messages": per_second(limit.messages),
            "limit_bytes": per_second(limit.size),
            "burst_messages": burst(limit.messages),
            "burst_bytes": burst(limit.size),
            "peak_messages": per_second(limit.peak_messages),
            "peak_bytes": per_second(limit.peak_size),
            "peak_burst_messages": burst(limit.peak_messages),
            "peak_burst_bytes": burst(limit.peak_size),
            "published_messages": published_messages,
            "published_bytes": published_bytes,
        }
        return self._lines.known(LimitLine, fields)

    def _name(self, scope: Scope) -> str:
        """What a limiter limits."""
        return self._shown(scope.name) if scope.level == "address" else in_log(scope.name)

    def _why(self, stream: Stream) -> Fields:
        """The limit that held or rejected something of a stream."""
        limiter = reason(stream)
        if limiter is None:
            return {"reason": stream.last_reason}
        said = {
            "reason_name": self._name(limiter.scope),
            "reason_messages": per_second(limiter.limit.messages),
            "reason_bytes": per_second(limiter.limit.size),
        }
        return {"reason": limiter.scope.level} | {name: value for name, value in said.items() if value}


def _without_rejected(counted: Fields) -> Fields:
    """Nearly nothing is ever rejected: left out, as all that has its default."""
    if not counted["rejected_messages"]:
        del counted["rejected_messages"], counted["rejected_bytes"]
    return counted
