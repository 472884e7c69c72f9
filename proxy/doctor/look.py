"""Looks at a proxy and at its broker, and again where they differ: between two questions things go on."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from protocol.topic_name import parse_topic
from proxy.doctor.broker_streams import all_topics, on_topics
from proxy.doctor.differences import Seen, alike, differences
from proxy.importing.admin_client import BrokerAdmin

AGAIN_S = 2.0
"""From one look to the next: what was under way at the first is over."""
MOST_SHOWN = 10_000
"""Streams in one answer of a proxy."""


class Looked(NamedTuple):
    """What was seen.

    Args:
        streams: Producers and consumers of the proxy.
        topics: On which the broker was asked who is there.
        alike: Consumers that no name tells apart.
        found: The differences, a line each.
    """

    streams: int
    topics: int
    alike: int
    found: list[str]


class TooManyError(Exception):
    """A proxy has more streams than it shows in one answer."""


async def look(
    admin: BrokerAdmin, streams: Callable[[], dict[str, Any]], seen_from: str = "", *, everywhere: bool = False
) -> Looked:
    """What was looked at, and what of it differs at two looks.

    Args:
        admin: The broker's.
        streams: Gives the answer of the proxy's `/sluice/streams`.
        seen_from: The address that the broker sees the proxy's connections come from; only these count. Empty: all do.
        everywhere: Look also at topics of which the proxy knows nothing, in the namespaces of those that it knows.

    Raises:
        ImportFailed: If the broker cannot be asked.
        TooManyError: If the proxy does not show all of its streams.
    """
    first = await _look(admin, streams, seen_from, everywhere=everywhere)
    if not first.found:
        return first
    await asyncio.sleep(AGAIN_S)
    again = await _look(admin, streams, seen_from, everywhere=everywhere)
    return first._replace(found=[one for one in first.found if one in set(again.found)])


async def _look(
    admin: BrokerAdmin, streams: Callable[[], dict[str, Any]], seen_from: str, *, everywhere: bool
) -> Looked:
    here = seen_here(await asyncio.to_thread(streams))
    topics = {one.topic for one in here}
    if everywhere:
        topics |= await all_topics(admin, sorted({parse_topic(topic).namespace_name for topic in topics}))
    at_broker = await on_topics(admin, topics)
    if seen_from:
        at_broker = [one for one in at_broker if _host(one.connection) == seen_from]
    return Looked(len(here), len(topics), alike(here), differences(at_broker, here))


def seen_here(answer: dict[str, Any]) -> list[Seen]:
    """The producers and consumers in the answer of a proxy's `/sluice/streams`.

    Raises:
        TooManyError: If it does not show all.
    """
    if answer["left_out"]:
        raise TooManyError(f"{answer['left_out']} streams are not shown, {MOST_SHOWN} are; --tenant TENANT shows fewer")
    return [
        Seen(
            one["direction"],
            one["topic"],
            one["subscription"],
            one["producer_name"] or one["consumer_name"],
            str(one["connection_id"]),
            one["stream_id"] if one["direction"] == "publish" else None,
        )
        for one in answer["streams"]
    ]


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")
