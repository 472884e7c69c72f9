"""What stops the reading of a session's two legs, as it is configured."""

from proxy.budgets import Budget, Claim, Share
from proxy.observe.connection import Connection
from proxy.sessions.engine import Engine
from proxy.sessions.holdings import Holdings
from proxy.sessions.leg import Leg
from proxy.sessions.pending import PendingPublishes
from proxy.sessions.relay import Relay
from proxy.sessions.throttle import Cause


def holdings_of(engine: Engine, leg: Leg, memory: Claim) -> Holdings:
    """The budgets for what is read here and held.

    Of producers, in mode `pause`, one entry fills the connection's: PIP-322's way.
    """
    publish = engine.config.publish
    if leg.side == "client" and publish.mode == "pause":
        own = Budget(1, leg.throttled_for(Cause.PUBLISH_RATE))
    else:
        own = Budget(publish.hold_connection, leg.throttled_for(Cause.HOLD_CONNECTION))
    return Holdings(own, Share(engine.held, leg.throttled_for(Cause.HOLD_PROCESS)), memory)


def bound(engine: Engine, connection: Connection, client: Leg, relays: tuple[Relay, Relay]) -> None:
    """Bound the messages that a batch may say it holds, and the publishes without an answer.

    Args:
        engine: Has the bounds.
        connection: The client's.
        client: Its leg, which is not read while too many publishes have no answer.
        relays: To the broker, and to the client.
    """
    _bound_batches(engine, connection, *relays)
    most = engine.config.publish.max_pending
    if most > 0:
        _bound_pending(PendingPublishes(most, client.throttled_for(Cause.PENDING_PUBLISHES)), *relays)


def _bound_batches(engine: Engine, connection: Connection, to_broker: Relay, to_client: Relay) -> None:
    """A publish beyond the bound is an error; a delivery counts as the bound.

    Else one SEND of one message, whose metadata says two billion, would put limits of deliveries in debt for weeks. The
    broker takes as many permits as the metadata say.
    """
    streams = to_client.streams  # and not the relay, which has the scanner: it would be garbage to be searched for

    def met(consumer_id: int, messages: int) -> None:
        engine.disbelief.met(messages, connection.client_address)
        stream = streams.get(consumer_id)
        if stream is not None and stream.permits is not None:
            stream.permits.overdraw(messages - most)

    most = engine.config.publish.max_batch_messages
    to_broker.scanner.heads.max_messages = to_client.scanner.heads.max_messages = most
    to_client.scanner.heads.not_believed = met


def _bound_pending(pending: PendingPublishes, to_broker: Relay, to_client: Relay) -> None:
    to_broker.exact.sent = to_client.answers = pending
    to_client.scanner.counts_receipts = True
    to_client.exact.handle = pending.hearing(to_client.exact.handle)
