import pytest

from limiter.levels import Setting
from limiter.policies import PolicyTarget, Value
from limiter.token_bucket import Limit, rate
from proxy.policies.layers import DYNAMIC_KEYS, dynamic_target, dynamic_value, read_dynamic
from proxy.policies.policy_set import PolicySet, decoded, encoded

_TOPICS: PolicyTarget = ("publish", Setting.TOPIC_OF_BROKER, "")
_MESSAGES, _BYTES = "maxPublishRatePerTopicInMessages", "maxPublishRatePerTopicInBytes"


def test_a_key_replaces_its_part_of_the_file_s_limit() -> None:
    file = Value(Limit(rate(10, burst=50), rate(1000), peak_messages=rate(20), mode="observe"), "file")

    value = dynamic_value(_TOPICS, {_MESSAGES: "7"}, file)

    assert value == Value(Limit(rate(7), rate(1000), mode="observe"), "dynamic")


@pytest.mark.parametrize("off", ["0", "-1"])
def test_nothing_and_less_mean_no_limit(off: str) -> None:
    file = Value(Limit(rate(10), rate(1000)), "file")

    assert dynamic_value(_TOPICS, {_BYTES: off}, file) == Value(Limit(rate(10)), "dynamic")


def test_keys_of_other_places_say_nothing_here() -> None:
    assert dynamic_value(_TOPICS, {"dispatchThrottlingRateInMsg": "7"}, None) is None


def test_every_key_changes_the_place_that_it_belongs_to() -> None:
    for name in DYNAMIC_KEYS - {"subscribeRatePeriodPerConsumerInSecond"}:
        value = dynamic_value(dynamic_target(name), {name: "5"}, None)
        assert value is not None
        assert [part.tokens for part in (value.limit.messages, value.limit.size) if part] == [5], name


@pytest.mark.parametrize("text", ["", "ten", "1.5", "--1", "5" * 30, "2147483648", "9223372036854775808"])
def test_what_is_no_number_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=_MESSAGES):
        read_dynamic(_MESSAGES, text)


def test_count_and_period_of_subscribes_are_keys_of_their_own() -> None:
    place: PolicyTarget = ("subscribe", Setting.TOPIC_OF_BROKER, "")
    keys = {"subscribeThrottlingRatePerConsumer": "3"}

    value = dynamic_value(place, keys, None)
    assert value == Value(Limit(rate(3, 30 * 10**9, 3)), "dynamic")

    value = dynamic_value(place, keys | {"subscribeRatePeriodPerConsumerInSecond": "10"}, None)
    assert value == Value(Limit(rate(3, 10 * 10**9, 3)), "dynamic")


@pytest.mark.parametrize("name", sorted(DYNAMIC_KEYS))
def test_the_most_of_each_key_is_what_pulsar_s_field_holds(name: str) -> None:
    bits = 64 if "Byte" in name else 32
    most = 2 ** (bits - 1) - 1

    assert read_dynamic(name, str(most)) == most
    assert read_dynamic(name, str(-most - 1)) == -most - 1
    for wrong in (most + 1, -most - 2):
        with pytest.raises(ValueError, match=f"{name}: '{wrong}' is not a whole number of {bits} bits;"):
            read_dynamic(name, str(wrong))


def test_the_most_of_all_keys_can_be_exported_and_read_back() -> None:
    keys = {name: str(2**63 - 1 if "Byte" in name else 2**31 - 1) for name in DYNAMIC_KEYS}
    places = {dynamic_target(name) for name in DYNAMIC_KEYS}
    values = {place: value for place in places if (value := dynamic_value(place, keys, None))}

    assert len(values) == len(places)
    assert decoded(b"".join(encoded(PolicySet(values)))).values == values


def test_a_count_of_subscribes_keeps_the_file_s_period() -> None:
    place: PolicyTarget = ("subscribe", Setting.TOPIC_OF_BROKER, "")
    file = Value(Limit(rate(5, 10 * 10**9, 5)), "file")

    value = dynamic_value(place, {"subscribeThrottlingRatePerConsumer": "3"}, file)

    assert value == Value(Limit(rate(3, 10 * 10**9, 3)), "dynamic")
