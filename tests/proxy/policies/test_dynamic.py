import pytest

from limiter.levels import Setting
from limiter.policies import Value
from limiter.rates import Limit, rate
from proxy.policies.dynamic import DYNAMIC_KEYS, dynamic_value, place_of, read_dynamic
from proxy.policies.layers import Place

_TOPICS: Place = ("publish", Setting.TOPIC_OF_BROKER, "")
_MESSAGES, _BYTES = "maxPublishRatePerTopicInMessages", "maxPublishRatePerTopicInBytes"


def test_a_key_replaces_its_part_of_the_file_s_limit() -> None:
    file = Value(Limit(rate(10, burst=50), rate(1000), peak_messages=rate(20), mode="observe"), "file")

    found = dynamic_value(_TOPICS, {_MESSAGES: "7"}, file)

    assert found == Value(Limit(rate(7), rate(1000), mode="observe"), "dynamic")


@pytest.mark.parametrize("off", ["0", "-1"])
def test_nothing_and_less_mean_no_limit(off: str) -> None:
    file = Value(Limit(rate(10), rate(1000)), "file")

    assert dynamic_value(_TOPICS, {_BYTES: off}, file) == Value(Limit(rate(10)), "dynamic")


def test_keys_of_other_places_say_nothing_here() -> None:
    assert dynamic_value(_TOPICS, {"dispatchThrottlingRateInMsg": "7"}, None) is None


def test_every_key_changes_the_place_that_it_belongs_to() -> None:
    for name in DYNAMIC_KEYS - {"subscribeRatePeriodPerConsumerInSecond"}:
        found = dynamic_value(place_of(name), {name: "5"}, None)
        assert found is not None
        assert [part.tokens for part in (found.limit.messages, found.limit.size) if part] == [5], name


@pytest.mark.parametrize("text", ["", "ten", "1.5", "--1", "5" * 30, "9223372036854775808"])
def test_what_is_no_number_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=_MESSAGES):
        read_dynamic(_MESSAGES, text)


def test_count_and_period_of_subscribes_are_keys_of_their_own() -> None:
    place: Place = ("subscribe", Setting.TOPIC_OF_BROKER, "")
    keys = {"subscribeThrottlingRatePerConsumer": "3"}

    found = dynamic_value(place, keys, None)
    assert found == Value(Limit(rate(3, 30 * 10**9, 3)), "dynamic")

    found = dynamic_value(place, keys | {"subscribeRatePeriodPerConsumerInSecond": "10"}, None)
    assert found == Value(Limit(rate(3, 10 * 10**9, 3)), "dynamic")
