"""A sustained rate: 200 messages a second pass, whatever is offered, and nothing is lost.

A producer sends 400 messages a second for three seconds. Sluice holds the messages over the limit, and passes
them as soon as the limit allows: the messages arrive at 200 a second, in six seconds instead of three.

    .venv/bin/python docs/examples/sustained_rate.py
"""

import sys

from docs.examples.claims import Span, at_least, never_above, nothing_lost
from docs.examples.stage import Conclusion, Stage, play, table
from docs.examples.traffic import Publisher, publishing
from loadgen.load.results import RateLine

SLUICE_YAML = """
limits:
  topics:
    persistent://public/default/example-orders:
      publish: {messages: 200}    # a second; with a burst of 20, a tenth of it, unless burst_messages says otherwise
"""
TOPIC = "persistent://public/default/example-orders"
LIMIT = RateLine(rate=200, burst=20)
OFFERED_PER_S = 400
MESSAGES = 1200


def scene(stage: Stage) -> Conclusion:
    """Offer twice the limit; receive at the broker."""
    orders = stage.receive(TOPIC)
    producer = stage.client().create_producer(TOPIC, producer_name="shop", max_pending_messages=MESSAGES)
    shop = Publisher(producer, OFFERED_PER_S, MESSAGES, pending=MESSAGES)
    with publishing(shop):
        table(
            {"sent": lambda: shop.sent, "received": orders.count},
            limit=lambda _: "200/s",
            until=lambda: min(shop.receipts, orders.count()) == MESSAGES,
        )
    first, last = orders.first_and_last()
    worst_s = stage.standstill.worst_s
    sentence = (
        f"{shop.sent} messages, sent at {OFFERED_PER_S}/s, arrived at {MESSAGES / (last - first):.1f}/s "
        f"in {last - first:.2f} s: the limit of 200/s and its burst of 20, and not one message lost"
    )
    return sentence, [
        never_above("orders", orders.times, LIMIT, worst_s),
        at_least("orders", orders.times, Span(first, last), 200, worst_s),
        nothing_lost("orders", shop.sent, shop.receipts, orders.numbers_from("shop")),
    ]


if __name__ == "__main__":
    sys.exit(play(scene, SLUICE_YAML))
