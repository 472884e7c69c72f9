"""FLOW, both ways: what a client asks for of its consumers' messages, and what of that is passed on to the broker."""

from limiter.stream import Stream
from protocol.commands import encode, read
from protocol.flow import FLOW, MOST_PERMITS, flow_frame, read_flow
from proxy.sessions.outlet import Outlet
from proxy.sessions.pending import CommandHandler


class Flows:
    """Takes a client's FLOWs, which come as long as messages do, from among its commands.

    Args:
        consumers: By the client's number.
        others: Takes all other commands.
    """

    def __init__(self, consumers: dict[int, Stream], others: CommandHandler) -> None:
        self._consumers = consumers
        self._others = others

    def handle(self, kind: int, command: bytes, frame: bytes) -> bytes | None:
        """The frame that goes on to the broker in place of `frame`, or None."""
        if kind != FLOW:
            return self._others(kind, command, frame)
        consumer_id, permits = read_flow(command)
        if consumer_id >= 0:
            return frame if self._passes(consumer_id, permits) else None
        flow = read(command)
        return encode(flow) if self._passes(flow.consumer_id, flow.message_permits) else None

    def _passes(self, consumer_id: int, permits: int) -> bool:
        """Count what is asked for. Whether the FLOW goes on as it came; else it stays here, and others may go for it.

        Brokers close the whole connection for a FLOW of 0, which stays here, and for one above MOST_PERMITS, which goes
        in parts. One of a consumer that the broker has not let in stays, too, as brokers ignore it; and one of a
        consumer that asked to be closed: what came for it would go nowhere.
        """
        stream = self._consumers.get(consumer_id)
        if permits == 0 or stream is None or stream.permits is None or not stream.is_accepted:
            return False
        return stream.permits.ask(permits, as_it_came=permits <= MOST_PERMITS)


class Grants:
    """Passes permits of one consumer on to its broker.

    Args:
        outlet: The broker's.
        consumer_id: The client's number for it.
    """

    def __init__(self, outlet: Outlet, consumer_id: int) -> None:
        self._outlet = outlet
        self._consumer_id = consumer_id

    def grant(self, permits: int) -> None:
        """So many more, above 0."""
        while permits > 0:
            portion = min(permits, MOST_PERMITS)
            self._outlet.insert(flow_frame(self._consumer_id, portion))
            permits -= portion
