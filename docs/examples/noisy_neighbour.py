"""Noisy neighbours: on a shared connection, and in a tenant that wants everything.

First, one client publishes to two topics over one connection: `logs` as fast as it can, under a limit of 200
messages a second, and `heartbeats` 50 times a second. Sluice holds the logs and reads on: the heartbeats keep their
pace and their latency. (A broker that stops reading the connection also stops the heartbeats.)

Then a tenant's crawler floods three topics from three connections. The tenant's total of 300 messages a second holds
for the three together, in equal shares, and another tenant's payments go on undisturbed.

    .venv/bin/python docs/examples/noisy_neighbour.py
"""

import sys

from demo.verdict import Check
from docs.examples.claims import Span, at_least, even, never_above, nothing_lost, soon
from docs.examples.stage import Conclusion, Stage, after, play, say, table
from docs.examples.traffic import Publisher, publishing
from loadgen.load.results import RateLine

SLUICE_YAML = """
limits:
  topics:
    persistent://public/default/example-logs:
      publish: {messages: 200}
  tenants:
    example-crawler:
      publish: {messages: 300}    # all its topics together
"""
LOGS = "persistent://public/default/example-logs"
HEARTBEATS = "persistent://public/default/example-heartbeats"
PAGES = [f"persistent://example-crawler/web/pages-{number}" for number in range(3)]
PAYMENTS = "persistent://example-ledger/bank/payments"
AS_FAST_AS_IT_CAN = 2_000


def scene(stage: Stage) -> Conclusion:
    """Two neighbours, one after the other."""
    checks = on_a_shared_connection(stage) + in_another_tenant(stage)
    return "throttled neighbours waited for their limit, and nobody waited for them", checks


def on_a_shared_connection(stage: Stage) -> list[Check]:
    """Hold one of two producers that share a connection, and see the other go on."""
    say("one connection, two producers; the limit is that of the logs")
    client = stage.client()
    logs, heartbeats = stage.receive(LOGS), stage.receive(HEARTBEATS)
    noisy = Publisher(client.create_producer(LOGS, producer_name="noisy"), AS_FAST_AS_IT_CAN)
    quiet = Publisher(client.create_producer(HEARTBEATS, producer_name="quiet"), 50, messages=200)
    with publishing(noisy, quiet):
        columns = {"logs sent": lambda: noisy.sent, "received": logs.count, "heartbeats": heartbeats.count}
        table(columns, lambda _: "200/s", until=lambda: min(quiet.receipts, heartbeats.count()) == 200)
    worst_s = stage.standstill.worst_s
    return [
        Check("one connection", len(stage.connections(LOGS, HEARTBEATS)) == 1, "as Sluice sees it"),
        never_above("logs", logs.times, RateLine(rate=200, burst=20), worst_s),
        at_least("logs", logs.times, Span.of(logs.times), 200, worst_s),
        at_least("heartbeats", heartbeats.times, Span.of(heartbeats.times), 50, worst_s),
        nothing_lost("heartbeats", quiet.sent, quiet.receipts, heartbeats.numbers_from("quiet")),
        soon("heartbeats", quiet.latencies, most_s=0.05),
    ]


def in_another_tenant(stage: Stage) -> list[Check]:
    """Three connections of one tenant, one of another."""
    say("two tenants; the limit is the crawler's total")
    pages, payments = stage.receive(*PAGES), stage.receive(PAYMENTS)
    names = [f"crawler-{number}" for number in range(3)]
    producers = [stage.client().create_producer(*pair) for pair in zip(PAGES, names, strict=True)]
    noisy = [Publisher(producer, AS_FAST_AS_IT_CAN) for producer in producers]
    quiet = Publisher(stage.client().create_producer(PAYMENTS, "bank"), 50)
    with publishing(*noisy, quiet):
        columns = {"pages sent": lambda: sum(publisher.sent for publisher in noisy), "received": pages.count}
        table({**columns, "payments": payments.count}, lambda _: "300/s", until=after(4))
    worst_s = stage.standstill.worst_s
    return [
        never_above("the crawler's pages", pages.times, RateLine(rate=300, burst=30), worst_s),
        at_least("the crawler's pages", pages.times, Span.of(pages.times), 300, worst_s),
        even("the crawler's topics", [len(pages.numbers_from(name)) for name in names]),
        at_least("payments", payments.times, Span.of(payments.times), 50, worst_s),
        soon("payments", quiet.latencies, most_s=0.05),
    ]


if __name__ == "__main__":
    sys.exit(play(scene, SLUICE_YAML))
