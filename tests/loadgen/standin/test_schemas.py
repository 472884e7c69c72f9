import pytest

from loadgen.standin.refusal import Refused
from loadgen.standin.schemas import MOST_VERSIONS, SchemaRegistry
from protocol.pulsar_pb2 import Schema, ServerError
from protocol.topic_name import parse_topic

ONE, OTHER = parse_topic("one"), parse_topic("other")


def schema(text="a"):
    return Schema(name=text, schema_data=text.encode(), type=Schema.Json)


def test_a_schema_keeps_its_version_and_each_topic_counts_its_own():
    registry = SchemaRegistry()
    versions = [
        registry.register(topic, schema(text)) for topic, text in [(ONE, "a"), (ONE, "b"), (ONE, "a"), (OTHER, "b")]
    ]
    assert [int.from_bytes(version, "big") for version in versions] == [0, 1, 0, 0]
    assert all(len(version) == 8 for version in versions)


def test_a_schema_is_found_by_version_and_the_newest_without():
    registry = SchemaRegistry()
    first = registry.register(ONE, schema("a"))
    second = registry.register(ONE, schema("b"))
    assert registry.find(ONE, first) == (schema("a"), first)
    assert registry.find(ONE, b"") == (schema("b"), second)


def test_partitions_share_their_topics_schema():
    registry = SchemaRegistry()
    version = registry.register(parse_topic("one-partition-0"), schema())
    assert registry.find(parse_topic("one-partition-3"), version)[0] == schema()


@pytest.mark.parametrize("version", [b"", b"\0" * 7 + b"\5", b"\xff" * 8, b"short"])
def test_what_is_not_there_is_refused(version):
    registry = SchemaRegistry()
    if version:
        registry.register(ONE, schema())
    with pytest.raises(Refused) as refused:
        registry.find(ONE, version)
    assert refused.value.error == ServerError.TopicNotFound


def test_a_topic_has_no_more_than_so_many_versions():
    registry = SchemaRegistry()
    for number in range(MOST_VERSIONS):
        registry.register(ONE, schema(str(number)))
    with pytest.raises(Refused) as refused:
        registry.register(ONE, schema("one too many"))
    assert refused.value.error == ServerError.IncompatibleSchema
