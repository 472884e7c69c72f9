"""Make the namespace of a fleet's topics, where Sluice has access of its own to the broker's admin."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from multidict import CIMultiDict

from proxy.admin.forwarding.broker import BodyRefusedError, BrokerAdmin, BrokerQuestion, ForwardError
from proxy.config.model import Config

LOOK_S: Final = 1.0
"""Seconds until the first look whether the namespace is missing; each further one comes after twice as long."""
MOST_LOOK_S: Final = 60.0
"""Seconds between two looks, at most."""
AGAIN_S: Final = 300.0
"""Seconds until a namespace that could not be made is tried again."""


class FleetNamespace:
    """Makes the namespace of a fleet's topics when brokers say that it is missing.

    Args:
        name: The namespace: `tenant/namespace`.
        broker: The broker's admin.
        is_missing: Returns whether a broker has said that there is no such topic or namespace.
        sleep: Waits for the given seconds.
    """

    def __init__(
        self,
        name: str,
        broker: BrokerAdmin,
        is_missing: Callable[[], bool],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._name, self._broker, self._is_missing, self._sleep = name, broker, is_missing, sleep

    async def keep(self) -> None:
        """Look until cancelled, and make the namespace if it is missing."""
        pause_s = LOOK_S
        while True:
            await self._sleep(pause_s)
            pause_s = min(2 * pause_s, MOST_LOOK_S)
            if self._is_missing():
                await self.make()
                pause_s = AGAIN_S

    async def make(self) -> None:
        """Make the namespace, and log the result."""
        log = structlog.get_logger().bind(namespace=self._name)
        question = BrokerQuestion("PUT", f"/admin/v2/namespaces/{self._name}", CIMultiDict(Accept="application/json"))
        try:
            async with self._broker.ask(question) as answer:
                status = answer.status
        except (ForwardError, BodyRefusedError) as error:
            log.warning("fleet: the namespace of its topics cannot be made by admin_forward", error=str(error))
            return
        if status < 300:
            log.warning("fleet: the namespace of its topics was missing, and is made by admin_forward")
        elif status == 409:
            log.warning(
                "fleet: the namespace of its topics is there, and its topics are not: create them", status=status
            )
        else:
            log.warning("fleet: the broker's admin does not make the namespace of its topics", status=status)


def may_make_namespaces(config: Config) -> bool:
    """Return whether Sluice has access of its own to the broker's admin: its token, or an admin that needs none."""
    return config.admin_forward.url is not None and config.admin_forward.caller != "authorization"
