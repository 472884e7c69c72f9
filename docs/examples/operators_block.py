"""An operator's block: one misbehaving producer is stopped at once, its neighbours on the connection are not.

Two producers of one application publish to the same topic over the same connection. One runs wild. The
operator blocks it by name with `sluice block`: Sluice closes it, and refuses it with the operator's reason until
`sluice unblock`.

    .venv/bin/python docs/examples/operators_block.py
"""

import shlex
import subprocess
import sys
import time

import _pulsar
import pulsar

from demo.processes import DemoError, sluice
from demo.verdict import Check
from docs.examples.claims import Span, at_least, none_after, nothing_lost
from docs.examples.stage import Conclusion, Stage, after, play, say, table
from docs.examples.traffic import Publisher, Receiver, publishing

SLUICE_YAML = ""  # neither limits nor blocks: the block comes at run time
TOPIC = "persistent://public/default/example-payments"
REASON = "loops since the last release"


def scene(stage: Stage) -> Conclusion:
    """Look on, block, look on, unblock, look on."""
    client, payments = stage.client(), stage.receive(TOPIC)
    cash_desk = Publisher(client.create_producer(TOPIC, "cash-desk"), 50)
    runaway = Publisher(client.create_producer(TOPIC, "runaway"), 500)
    with publishing(cash_desk, runaway):
        show(payments, runaway, "none")
        connections = stage.connections(TOPIC)
        operator(stage, "block", "producer", "runaway", "--topic", TOPIC, "--reason", REASON)
        blocked_at = time.monotonic()
        show(payments, runaway, "blocked")
        say("it tries to come again; its client's own log tells it why it may not:")
        refusal, before = refusal_of(client), payments.times_from("runaway")
        operator(stage, "unblock", "producer", "runaway", "--topic", TOPIC)
        back = Publisher(client.create_producer(TOPIC, "runaway"), 100)
        with publishing(back):
            show(payments, back, "none")
        payments.wait_for("runaway", len(before) + back.receipts)
    payments.wait_for("cash-desk", cash_desk.receipts)
    worst_s, at_desk = stage.standstill.worst_s, payments.times_from("cash-desk")
    checks = [
        Check("both on one connection", len(connections) == 1, "as Sluice sees it"),
        none_after("the runaway, blocked", before, blocked_at, worst_s),
        Check("its sending fails", runaway.errors.total() > 0, f"{dict(runaway.errors)}"),
        Check("it cannot come again", bool(refusal), refusal or "it was let in"),
        nothing_lost("unblocked", back.sent, back.receipts, payments.numbers_from("runaway")[len(before) :]),
        at_least("the cash desk", at_desk, Span.of(at_desk), 50, worst_s),
        nothing_lost("the cash desk", cash_desk.sent, cash_desk.receipts, payments.numbers_from("cash-desk")),
    ]
    return "the runaway was stopped at once and kept out until unblocked; the cash desk beside it never noticed", checks


def show(payments: Receiver, runaway: Publisher, limit: str) -> None:
    """Two seconds of what both do."""
    columns = {
        "runaway sends": lambda: runaway.sent,
        "received": lambda: len(payments.times_from("runaway")),
        "cash desk": lambda: len(payments.times_from("cash-desk")),
    }
    table(columns, lambda _: limit, until=after(2))


def operator(stage: Stage, *arguments: str) -> None:
    """Run `sluice` as an operator would, beside the running proxy."""
    say(f"$ sluice {shlex.join(arguments)} --admin {stage.admin}")
    command = [*sluice(*arguments), "--admin", stage.admin]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    if answer.returncode:
        raise DemoError(f"sluice {arguments[0]}: {answer.stderr.strip()}")
    say(answer.stdout.strip())


def refusal_of(client: pulsar.Client) -> str:
    """The error with which the blocked producer is refused; empty if it is let in."""
    try:
        client.create_producer(TOPIC, "runaway")
    except _pulsar.PulsarException as error:
        return type(error).__name__
    return ""


if __name__ == "__main__":
    sys.exit(play(scene, SLUICE_YAML))
