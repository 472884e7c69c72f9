"""What stops the reading of a session's two legs, as it is configured."""

from proxy.budget import Budget
from proxy.engine import Engine
from proxy.sessions.holdings import Holdings
from proxy.sessions.leg import Leg
from proxy.sessions.pending import PendingPublishes
from proxy.sessions.relay import Relay
from proxy.sessions.throttle import Cause
from proxy.shared_budget import Share


def holdings_of(engine: Engine, leg: Leg) -> Holdings:
    """The budgets for what is read here and held.

    Of producers, in mode `pause`, one entry fills the connection's: PIP-322's way.
    """
    publish = engine.config.publish
    if leg.side == "client" and publish.mode == "pause":
        own = Budget(1, leg.throttled_for(Cause.PUBLISH_RATE))
    else:
        own = Budget(publish.hold_connection, leg.throttled_for(Cause.HOLD_CONNECTION))
    return Holdings(own, Share(engine.held, leg.throttled_for(Cause.HOLD_PROCESS)))


def bound_publishes(engine: Engine, client: Leg, to_broker: Relay, to_client: Relay) -> None:
    """Bound the messages that a publish may claim; and let both relays count those without an answer, if told to."""
    to_broker.scanner.max_messages = engine.config.publish.max_batch_messages
    most = engine.config.publish.max_pending
    if most == 0:
        return
    pending = PendingPublishes(most, client.throttled_for(Cause.PENDING_PUBLISHES))
    to_broker.sent = to_client.answers = pending
    to_client.scanner.counts_receipts = True
    to_client.overhear(pending.hearing)
