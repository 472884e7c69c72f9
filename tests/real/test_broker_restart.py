"""What a killed broker may cost: time, never a message that has its receipt, never the order."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from loadgen.real.standalone import BrokerSettings, StandaloneBroker
from tests.real.conftest import sluice_or_broker
from tests.real.demand import publishing, wait_for_more
from tests.real.sluice_process import SluiceProcess
from tests.real.traffic import Sender, digests, open_sender, quiet_client, read_all

pytestmark = pytest.mark.real

TOPICS = [f"persistent://public/default/restart-{number}" for number in range(3)]
CONFIG = {"limits": {"topics": {TOPICS[0]: {"publish": {"messages": 100}}}}}


@pytest.fixture
def durable_broker(tmp_path: Path) -> Iterator[StandaloneBroker]:
    """One of its own, since it is to be killed; it syncs to disk before each receipt."""
    with StandaloneBroker(tmp_path / "broker", BrokerSettings(durable=True)) as broker:
        yield broker


@pytest.fixture
def sluice(durable_broker: StandaloneBroker, tmp_path: Path) -> Iterator[SluiceProcess]:
    sluice = sluice_or_broker(tmp_path / "sluice", durable_broker, CONFIG)
    try:
        yield sluice
    finally:
        sluice.stop()


def publish_across_a_kill(senders: list[Sender], broker: StandaloneBroker) -> list[int]:
    """Returns how many receipts each sender had when the broker was back."""
    with publishing(*senders, pending=50):
        wait_for_more(senders)
        broker.kill()
        broker.start()
        receipts = [len(sender.sent) for sender in senders]
        wait_for_more(senders)
    for sender in senders:
        sender.producer.flush()
    return receipts


def test_each_receipt_s_message_survives_a_killed_broker_in_order(
    durable_broker: StandaloneBroker, sluice: SluiceProcess
) -> None:
    with ExitStack() as closing:
        client = quiet_client(sluice.service_url)
        closing.callback(client.close)
        # Without a send timeout: a message either gets its receipt in the end or was never answered for.
        senders = [
            open_sender(client, topic, f"{topic[-9:]}-{number}", send_timeout_millis=0)
            for topic in TOPICS
            for number in range(2)
        ]
        before_kill = publish_across_a_kill(senders, durable_broker)
        reading = quiet_client(durable_broker.service_url)
        closing.callback(reading.close)
        in_broker = {name: marks for topic in TOPICS for name, marks in digests(read_all(reading, topic)).items()}
    assert all(count > 0 for count in before_kill)
    for sender in senders:
        assert not sender.failed
        # What the broker stored but could not answer for is sent again: a second copy is allowed, a gap is not.
        assert list(dict.fromkeys(in_broker[sender.name])) == sender.sent
