"""What all sessions of a process share."""

from limiter.activity import ActivityReader
from limiter.policies import Policies
from proxy.config.model import Config
from proxy.counters import Counters
from proxy.session.engine import Engine


def test_the_configured_broker_is_the_one_that_clients_may_reach() -> None:
    engine = Engine(Config(), Policies(), Counters(), ActivityReader())
    assert engine.targets.is_reachable(Config().broker[0])
    assert engine.lookups.limit == Config().max_lookups_in_flight
