"""The bounds of a process: what they say, what they count."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from limiter.levels import Setting
from limiter.policies import Value
from limiter.token_bucket import NANOS_PER_SECOND, Limit, Rate
from protocol.topic_name import parse_topic
from proxy.admission_control import Admission, AskedBound, BoundName, NotAdmittedError, kept_as
from proxy.config.model import Config
from proxy.counters import Counters
from tests.manual_clock import ManualClock
from tests.proxy.file_limits import policies_of

ORDERS = parse_topic("acme/shop/orders")
TRIES = ((BoundName.SUBSCRIBE_RATE, "a"),)


class Door:
    """Bounds, and the hands of their clock."""

    def __init__(self, **bounds: Any) -> None:
        self.clock, self.counters = ManualClock(), Counters()
        config = Config.model_validate({"admission": bounds})
        self.policies = policies_of(config.limits, config.admission.subscribe_rate_per_consumer)
        self.admission = Admission(config, self.counters, self.clock, self.policies)

    def refuses(self, *asked: AskedBound) -> str:
        """What the client is told, or nothing."""
        try:
            self.admission.admit(asked, "192.0.2.7:1", "192.0.2.7", ORDERS)
        except NotAdmittedError as error:
            return str(error)
        return ""

    def let_in(self) -> int:
        """Of 100 subscribes at once."""
        return sum(not self.refuses(*TRIES) for _ in range(100))

    def set(self, setting: Setting, name: str, per_30_s: int | None) -> None:
        """A subscribe rate, by REST."""
        rate = Rate(per_30_s, 30 * NANOS_PER_SECOND, per_30_s) if per_30_s else None
        self.policies.put("subscribe", setting, name, Value(Limit(rate), "rest") if rate else None)
        self.admission.subscribe_rates_changed()


def test_what_is_not_configured_refuses_nobody_and_remembers_nothing() -> None:
    door = Door()
    assert not any(
        door.refuses(*((bound, "a") for bound in BoundName if bound is not BoundName.CONNECTIONS)) for _ in range(1000)
    )
    assert door.admission.taken == 0


@pytest.mark.parametrize(
    ("bounds", "refusal"),
    [
        ({BoundName.CONNECTION_RATE: "1/s"}, "new connections of this proxy: at most 1 per 1 s"),
        ({BoundName.CONNECTION_RATE_PER_ADDRESS: "1/500ms"}, "new connections of one address: at most 1 per 0.5 s"),
        ({BoundName.CONNECTIONS_PER_ADDRESS: 1}, "connections of one address: at most 1"),
        ({BoundName.LOOKUP_RATE: "1/min"}, "lookups of one address: at most 1 per 60 s"),
        ({BoundName.PRODUCERS: 1}, "producers of one topic: at most 1"),
        ({BoundName.CONSUMERS: 1}, "consumers of one topic: at most 1"),
        ({BoundName.CONSUMERS_OF_SUBSCRIPTION: 1}, "consumers of one subscription: at most 1"),
    ],
)
def test_a_bound_refuses_by_name_and_value_and_is_counted_by_its_key(
    bounds: dict[BoundName, Any], refusal: str
) -> None:
    ((bound, _),) = bounds.items()
    door = Door(**{str(key): value for key, value in bounds.items()})
    assert door.refuses((bound, "a")) == ""
    with capture_logs() as logs:
        assert door.refuses((bound, "a")) == f"{refusal} (admission.{bound})"
    assert door.refuses((bound, "b")) == "", "each key is counted apart"
    assert door.counters.not_admitted == {bound: 1}
    assert [(line["bound"], line["client"]) for line in logs] == [(bound, "192.0.2.7:1")]


def test_a_whole_period_may_come_at_once_and_then_no_more_than_the_rate() -> None:
    """As Pulsar's subscribe rate: a bucket that holds a period's worth."""
    door = Door(subscribe_rate_per_consumer="5/30s")
    assert door.let_in() == 5
    door.clock.advance(6)
    assert door.let_in() == 1


def test_who_is_refused_counts_nowhere_else() -> None:
    door = Door(max_connections_per_address=1, connection_rate="2/min")
    asked = ((BoundName.CONNECTIONS_PER_ADDRESS, "a"), (BoundName.CONNECTION_RATE, ""))
    (place,) = door.admission.admit(asked, "", "")
    for _ in range(10):
        assert "connections of one address" in door.refuses(*asked)
    place.give_back()
    assert door.refuses(*asked) == "", "the rate was not touched"
    assert door.counters.not_admitted == {BoundName.CONNECTIONS_PER_ADDRESS: 10}


def test_places_are_given_back_rates_are_not() -> None:
    door = Door(max_producers_per_topic=1, connection_rate="1/min")
    places = door.admission.admit([(BoundName.PRODUCERS, "t"), (BoundName.CONNECTION_RATE, "")], "", "")
    assert door.admission.taken == len(places) == 1
    places[0].give_back()
    assert door.admission.taken == 0
    assert door.refuses((BoundName.PRODUCERS, "t")) == ""
    assert door.refuses((BoundName.CONNECTION_RATE, "")) != ""


def test_the_narrowest_subscribe_rate_holds_and_says_where_it_was_set() -> None:
    door = Door(subscribe_rate_per_consumer="5/30s")
    settings = [(Setting.TOPIC_OF_NAMESPACE, "acme/shop", 7), (Setting.TOPIC, ORDERS.full, 1)]
    refusals = [refused_once(door)]
    for setting, name, per_30_s in settings:
        door.set(setting, name, per_30_s)
        refusals.append(refused_once(door))
    key = "admission.subscribe_rate_per_consumer"
    assert refusals == [
        f"subscribes of one consumer: at most 5 per 30 s ({key}, broker file)",
        f"subscribes of one consumer: at most 7 per 30 s ({key}, namespace rest)",
        f"subscribes of one consumer: at most 1 per 30 s ({key}, topic rest)",
    ]
    assert door.counters.not_admitted[BoundName.SUBSCRIBE_RATE] >= 3


def refused_once(door: Door) -> str:
    door.let_in()
    return door.refuses(*TRIES)


def test_a_subscribe_rate_that_is_raised_lets_in_what_it_was_raised_by() -> None:
    door = Door(subscribe_rate_per_consumer="2/30s")
    assert door.let_in() == 2
    door.set(Setting.TOPIC, ORDERS.full, 3)
    assert door.let_in() == 1


def test_a_subscribe_rate_that_is_lowered_gives_nothing() -> None:
    door = Door(subscribe_rate_per_consumer="5/30s")
    assert door.let_in() == 5
    door.set(Setting.TOPIC, ORDERS.full, 3)
    assert door.let_in() == 0
    door.clock.advance(10)
    assert door.let_in() == 1


def test_removed_subscribe_rate_refuses_none_and_keeps_counts() -> None:
    door = Door()
    door.set(Setting.TOPIC_OF_NAMESPACE, "acme/shop", 2)
    assert door.let_in() == 2
    door.set(Setting.TOPIC_OF_NAMESPACE, "acme/shop", None)
    assert door.let_in() == 100
    door.set(Setting.TOPIC_OF_NAMESPACE, "acme/shop", 2)
    assert door.let_in() == 0


def test_a_subscribe_rate_of_one_topic_is_no_other_topics() -> None:
    door = Door()
    door.set(Setting.TOPIC, "persistent://acme/shop/other", 1)
    assert door.let_in() == 100


def test_a_long_key_is_kept_as_a_short_one_and_no_two_as_the_same() -> None:
    names = ["n" * 4096, "n" * 4095 + "o", "n" * 5000]
    kept = {kept_as((name, "192.0.2.1", other, 1)) for name in names for other in ("", "c" * 1024)}
    assert len(kept) == 6
    assert {len(key) for key in kept} == {16}
    assert kept_as(("t", "s")) == ("t", "s")
    assert kept_as(("a" * 100, "b")) != kept_as(("a" * 99, "ab"))
