import asyncio
from typing import Any

import pytest

from limiter.levels import Setting
from proxy.policies.keys import rate_key
from proxy.policies.store import StoredChange
from tests.proxy.admin.pulsar.serving import serving

_PATH = "/namespaces/acme/shop/publishRate"


async def test_a_store_that_cannot_be_written_is_a_500_that_says_nothing_has_changed() -> None:
    async with serving() as pulsar:
        pulsar.store.close()

        status, answer = await pulsar.ask("POST", _PATH, {"publishThrottlingRateInMsg": 1})

        assert status == 500
        assert answer["reason"].startswith("nothing has changed: policies.store: ")
        assert pulsar.messages("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop") is None


@pytest.mark.parametrize("header", ["application/json", "application/json; charset=utf-8"])
async def test_json_may_say_in_which_characters_it_is(header: str) -> None:
    async with serving() as pulsar:
        text, headers = '{"publishThrottlingRateInMsg":1}', {"Content-Type": header}
        assert (await pulsar.ask("POST", _PATH, data=text, headers=headers))[0] == 204


async def test_a_body_that_is_nested_without_end_is_refused() -> None:
    async with serving() as pulsar:
        text, headers = '{"more":' * 5000, {"Content-Type": "application/json"}
        assert await pulsar.ask("POST", _PATH, data=text, headers=headers) == (
            400,
            {"reason": "the body is nested too deeply"},
        )


async def test_of_changes_at_the_same_time_the_audit_log_knows_each_with_what_was_before() -> None:
    async with serving() as pulsar:
        bodies: list[dict[str, Any]] = [{"publishThrottlingRateInMsg": number} for number in range(1, 6)]
        await asyncio.gather(*(pulsar.ask("POST", _PATH, body) for body in bodies))

        changes = [
            audited.change for audited in reversed(pulsar.store.audited(10)) if isinstance(audited.change, StoredChange)
        ]
        assert [change.before for change in changes] == [None, *(change.after for change in changes[:-1])]
        assert pulsar.store.read(rate_key("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop")) == changes[-1].after
