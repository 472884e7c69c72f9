"""What is asked and answered here was seen at a 4.0.8 broker, but for what the names of tests say."""

from limiter.levels import Setting
from tests.proxy.admin.pulsar.serving import serving

_KEY = "/brokers/configuration/dispatchThrottlingRateInMsg"


async def test_a_key_is_set_shown_and_taken_back() -> None:
    async with serving() as pulsar:
        assert await pulsar.ask("POST", f"{_KEY}/5") == (200, "")
        assert await pulsar.ask("GET", "/brokers/configuration/values") == (200, {"dispatchThrottlingRateInMsg": "5"})
        assert pulsar.messages("dispatch", Setting.PROXY, "") == 5

        assert await pulsar.ask("DELETE", _KEY) == (200, "")
        assert await pulsar.ask("DELETE", _KEY) == (200, "")
        assert await pulsar.ask("GET", "/brokers/configuration/values") == (200, {})
        assert pulsar.messages("dispatch", Setting.PROXY, "") is None


async def test_keys_without_a_meaning_here_are_refused() -> None:
    async with serving() as pulsar:
        other = "/brokers/configuration/brokerServicePort"
        assert await pulsar.ask("POST", f"{other}/5") == (412, {"reason": "Can't update non-dynamic configuration"})
        assert await pulsar.ask("DELETE", other) == (412, {"reason": "Can't delete non-dynamic configuration"})


async def test_a_value_that_is_no_number_is_refused_where_a_broker_takes_it_silently() -> None:
    async with serving() as pulsar:
        status, answer = await pulsar.ask("POST", f"{_KEY}/x")

        assert status == 412
        assert answer["reason"].startswith("dispatchThrottlingRateInMsg: 'x' is not a whole number")
        assert await pulsar.ask("GET", "/brokers/configuration/values") == (200, {})


async def test_a_number_below_minus_1_is_refused() -> None:
    async with serving() as pulsar:
        status, answer = await pulsar.ask("POST", f"{_KEY}/-2")
        assert (status, "-2 is no rate: write 0 or -1" in answer["reason"]) == (412, True)
        assert await pulsar.ask("POST", f"{_KEY}/-1") == (200, "")


async def test_every_key_that_means_something_here_is_listed() -> None:
    async with serving() as pulsar:
        status, names = await pulsar.ask("GET", "/brokers/configuration")

        assert status == 200
        assert {"maxPublishRatePerTopicInMessages", "subscribeThrottlingRatePerConsumer"} <= set(names)
