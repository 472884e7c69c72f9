"""The bounds of a process: what they say, what they count."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from limiter.testing import ManualClock
from proxy.admission import Admission, Asked, NotAdmittedError, What
from proxy.config import Config
from proxy.observe.counters import Counters


class Door:
    """Bounds, and the hands of their clock."""

    def __init__(self, **bounds: Any) -> None:
        self.clock, self.counters = ManualClock(), Counters()
        self.admission = Admission(Config.model_validate({"admission": bounds}), self.counters, self.clock)

    def refuses(self, *asked: Asked) -> str:
        """What the client is told, or nothing."""
        try:
            self.admission.admit(asked, "192.0.2.7:1")
        except NotAdmittedError as error:
            return str(error)
        return ""


def test_what_is_not_configured_refuses_nobody_and_remembers_nothing() -> None:
    door = Door()
    assert not any(door.refuses(*((what, "a") for what in What if what is not What.CONNECTIONS)) for _ in range(1000))
    assert door.admission.taken == 0


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ({What.CONNECTION_RATE: "1/s"}, "new connections of this proxy: at most 1 per 1 s"),
        ({What.CONNECTION_RATE_PER_ADDRESS: "1/500ms"}, "new connections of one address: at most 1 per 0.5 s"),
        ({What.CONNECTIONS_PER_ADDRESS: 1}, "connections of one address: at most 1"),
        ({What.LOOKUP_RATE: "1/min"}, "lookups of one address: at most 1 per 60 s"),
        ({What.SUBSCRIBE_RATE: "1/30s"}, "subscribes of one consumer: at most 1 per 30 s"),
        ({What.PRODUCERS: 1}, "producers of one topic: at most 1"),
        ({What.CONSUMERS: 1}, "consumers of one topic: at most 1"),
        ({What.CONSUMERS_OF_SUBSCRIPTION: 1}, "consumers of one subscription: at most 1"),
    ],
)
def test_a_bound_refuses_by_name_and_value_and_is_counted_by_its_key(bounds: dict[What, Any], said: str) -> None:
    ((what, _),) = bounds.items()
    door = Door(**{str(key): value for key, value in bounds.items()})
    assert door.refuses((what, "a")) == ""
    with capture_logs() as logs:
        assert door.refuses((what, "a")) == f"{said} (admission.{what})"
    assert door.refuses((what, "b")) == "", "each key is counted apart"
    assert door.counters.not_admitted == {what: 1}
    assert [(line["bound"], line["client"]) for line in logs] == [(what, "192.0.2.7:1")]


def test_a_whole_period_may_come_at_once_and_then_no_more_than_the_rate() -> None:
    """As Pulsar's subscribe rate: a bucket that holds a period's worth."""
    door = Door(subscribe_rate_per_consumer="5/30s")
    tries = [(What.SUBSCRIBE_RATE, "a")]
    assert sum(not door.refuses(*tries) for _ in range(100)) == 5
    door.clock.advance(6)
    assert sum(not door.refuses(*tries) for _ in range(100)) == 1


def test_who_is_refused_counts_nowhere_else() -> None:
    door = Door(max_connections_per_address=1, connection_rate="2/min")
    asked = ((What.CONNECTIONS_PER_ADDRESS, "a"), (What.CONNECTION_RATE, ""))
    (leave,) = door.admission.admit(asked, "")
    for _ in range(10):
        assert "connections of one address" in door.refuses(*asked)
    leave()
    assert door.refuses(*asked) == "", "the rate was not touched"
    assert door.counters.not_admitted == {What.CONNECTIONS_PER_ADDRESS: 10}


def test_places_are_given_back_rates_are_not() -> None:
    door = Door(max_producers_per_topic=1, connection_rate="1/min")
    gives_back = door.admission.admit([(What.PRODUCERS, "t"), (What.CONNECTION_RATE, "")], "")
    assert door.admission.taken == len(gives_back) == 1
    gives_back[0]()
    assert door.admission.taken == 0
    assert door.refuses((What.PRODUCERS, "t")) == ""
    assert door.refuses((What.CONNECTION_RATE, "")) != ""
