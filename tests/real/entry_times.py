"""When a broker took each entry, by its own clock: neither a slow consumer nor a slow test can blur it."""

import http.client
from datetime import datetime
from itertools import groupby
from urllib.parse import urlsplit

import pulsar

from tests.real.arrivals import Arrival

STAMPED = {
    "brokerEntryMetadataInterceptors": "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor"
}
"""What the broker's configuration needs for it."""

_HEADER = "X-Pulsar-Broker-Entry-METADATA-timestamp"


def taken(messages: list[pulsar.Message], admin_url: str) -> list[Arrival]:
    """When, in seconds since 1970 by the millisecond, and how many messages at once.

    Args:
        messages: All of one topic, in its order.
        admin_url: Of the broker that owns it.
    """
    entries = groupby(messages, lambda message: (message.message_id().ledger_id(), message.message_id().entry_id()))
    topic = messages[0].topic_name().replace("://", "/", 1)
    connection = http.client.HTTPConnection(urlsplit(admin_url).netloc, timeout=60)
    try:
        return [
            (_when(connection, f"/admin/v2/{topic}/ledger/{ledger}/entry/{entry}"), len(list(batch)))
            for (ledger, entry), batch in entries
        ]
    finally:
        connection.close()


def _when(connection: http.client.HTTPConnection, path: str) -> float:
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    stamp = answer.getheader(_HEADER)
    assert stamp is not None, f"{path}: {answer.status}, no time of the entry"
    return datetime.fromisoformat(stamp).timestamp()
