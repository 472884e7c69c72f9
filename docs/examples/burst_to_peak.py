"""A burst up to the peak, for a bounded time: 100 messages a second, and 300 while a burst of 500 lasts.

A thousand messages come at once. A burst of 500 alone would reach the broker at once; with a peak it passes at 300
a second. As the bucket earns 100 a second, the burst lasts 2.5 seconds; then the sustained 100 a second pass.

    .venv/bin/python docs/examples/burst_to_peak.py
"""

import sys

from docs.examples.claims import Span, at_least, never_above, nothing_lost
from docs.examples.stage import Conclusion, Stage, play, table
from docs.examples.traffic import Publisher, publishing
from loadgen.load.results import RateLine

SLUICE_YAML = """
limits:
  topics:
    persistent://public/default/example-invoices:
      publish: {messages: 100, burst_messages: 500, peak_messages: 300}
"""
TOPIC = "persistent://public/default/example-invoices"
SUSTAINED = RateLine(rate=100, burst=500)
PEAK = RateLine(rate=300, burst=30)  # the peak's own burst is a tenth of the peak
PEAK_LASTS_S = (SUSTAINED.burst - PEAK.burst) / (PEAK.rate - SUSTAINED.rate)
MESSAGES = 1000


def scene(stage: Stage) -> Conclusion:
    """Send all at once; receive at the broker."""
    invoices = stage.receive(TOPIC)
    producer = stage.client().create_producer(TOPIC, producer_name="month-end", max_pending_messages=2 * MESSAGES)
    month_end = Publisher(producer, per_s=1_000_000, messages=MESSAGES, pending=MESSAGES)
    with publishing(month_end):
        table(
            {"sent": lambda: month_end.sent, "received": invoices.count},
            limit=lambda at: "300/s" if at < PEAK_LASTS_S else "100/s",
            until=lambda: min(month_end.receipts, invoices.count()) == MESSAGES,
        )
    first, last = invoices.first_and_last()
    over = first + PEAK_LASTS_S
    at_peak = sum(at < over for at in invoices.times)
    sentence = (
        f"of {MESSAGES} messages sent at once, {at_peak} arrived at the peak's 300/s within {PEAK_LASTS_S:.2f} s, "
        f"the others at the sustained rate: {(MESSAGES - at_peak) / (last - over):.0f}/s"
    )
    worst_s = stage.standstill.worst_s
    return sentence, [
        never_above("invoices", invoices.times, PEAK, worst_s),
        never_above("invoices", invoices.times, SUSTAINED, worst_s),
        at_least("while the burst lasts, invoices", invoices.times, Span(first, over), 300, worst_s),
        at_least("afterwards, invoices", invoices.times, Span(over, last), 100, worst_s),
        nothing_lost("invoices", month_end.sent, month_end.receipts, invoices.numbers_from("month-end")),
    ]


if __name__ == "__main__":
    sys.exit(play(scene, SLUICE_YAML))
