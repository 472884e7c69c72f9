import pytest

from loadgen.standin.broker import Broker, parse_name
from loadgen.standin.options import BrokerOptions
from loadgen.standin.refusal import Refused
from protocol.pulsar_pb2 import ServerError
from tests.loadgen.standin.doubles import payload


def test_all_forms_of_a_name_are_one_topic():
    broker = Broker(BrokerOptions())
    assert broker.topic("t") is broker.topic("persistent://public/default/t") is broker.topic("public/default/t")


def test_each_topic_has_a_ledger_of_its_own():
    broker = Broker(BrokerOptions(first_ledger=10))
    assert [broker.topic(name).log.ledger_id for name in ("a", "b", "a")] == [10, 11, 10]


def test_what_is_no_topic_name_is_refused():
    with pytest.raises(Refused) as refused:
        parse_name("persistent://only/two")
    assert refused.value.error == ServerError.InvalidTopicName


def test_only_configured_topics_are_partitioned():
    broker = Broker(BrokerOptions(partitions={"persistent://public/default/four": 4}))
    assert (broker.partitions("four"), broker.partitions("other"), broker.partitions("four-partition-1")) == (4, 0, 0)


def test_a_namespaces_topics_are_those_configured_and_those_in_use():
    broker = Broker(BrokerOptions(partitions={"persistent://public/default/two": 2}))
    broker.topic("used")
    broker.topic("two-partition-0")
    broker.topic("persistent://public/elsewhere/t")
    assert sorted(name.local for name in broker.topics_of("public/default")) == [
        "two-partition-0",
        "two-partition-1",
        "used",
    ]


def test_generated_producer_names_differ_within_a_run_and_between_runs():
    names = [
        broker.producer_name() for broker in map(Broker, (BrokerOptions(), BrokerOptions(first_ledger=2))) for _ in "12"
    ]
    assert len(set(names)) == 4


def test_counts_are_told_by_topic():
    broker = Broker(BrokerOptions())
    broker.topic("t").publish(3, payload())
    counts = broker.counts()
    assert counts["topics"]["persistent://public/default/t"]["received_messages"] == 3
    assert counts["ignored_commands"] == {}
