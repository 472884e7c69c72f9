from tests.proxy.admin.pulsar.serving import serving


async def test_a_subscription_may_be_called_as_a_rate_is() -> None:
    async with serving() as pulsar:
        path = "/persistent/acme/shop/orders/publishRate/dispatchRate"
        assert (await pulsar.ask("POST", path, {"dispatchThrottlingRateInMsg": 5}))[0] == 204


async def test_what_is_not_served_is_not_found() -> None:
    async with serving() as pulsar:
        assert (await pulsar.ask("GET", "/namespaces/acme/shop/retention"))[0] == 404
        assert (await pulsar.ask("PUT", "/namespaces/acme/shop/publishRate", {}))[0] == 405
