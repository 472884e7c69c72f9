"""Topic names, as clients write them and as they should not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.topic_name import TopicName, parse_topic

parts = st.text(st.characters(blacklist_characters="/", blacklist_categories=["Cs"]), min_size=1, max_size=9)


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("t", "persistent://public/default/t"),
        ("a/b/t", "persistent://a/b/t"),
        ("persistent://a/b/t", "persistent://a/b/t"),
        ("non-persistent://a/b/t", "non-persistent://a/b/t"),
        ("persistent://a/cluster/b/t", "persistent://a/cluster/b/t"),
        ("a/b/t/with/slashes", "persistent://a/b/t/with/slashes"),
    ],
)
def test_every_form_has_one_full_name(name: str, full: str) -> None:
    assert parse_topic(name).full == full


@given(st.sampled_from(["persistent", "non-persistent"]), parts, parts, parts)
def test_a_full_name_is_read_back(domain: str, tenant: str, namespace: str, local: str) -> None:
    topic = TopicName(domain, tenant, namespace, local)
    assert parse_topic(topic.full) == topic
    assert topic.namespace_name == f"{tenant}/{namespace}"


@pytest.mark.parametrize(
    "name",
    ["", "/", "a/b", "a/b/", "//t", "a//t", "://a/b/t", "http://a/b/t", "Persistent://a/b/t", "persistent://", "persistent://t",
     "persistent://a/b", "persistent://a/b/", "persistent:///b/t", "persistent://a//t"],
)  # fmt: skip
def test_what_is_no_topic_name_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match="is not a topic name") as refused:
        parse_topic(name)
    assert repr(name) in str(refused.value)


def test_a_name_that_is_not_utf_8_is_refused() -> None:
    """Protobuf hands it out as bytes."""
    with pytest.raises(ValueError, match="not UTF-8"):
        parse_topic(b"persistent://a/b/t\xff")  # type: ignore[arg-type]  # what the stub of protobuf hides


@given(st.text(max_size=40))
def test_any_text_is_a_name_or_a_value_error(text: str) -> None:
    try:
        topic = parse_topic(text)
    except ValueError:
        return
    assert parse_topic(topic.full) == topic
    assert topic.partition >= -1


@pytest.mark.parametrize(
    ("local", "partition"),
    [
        ("t", -1),
        ("t-partition-0", 0),
        ("t-partition-12", 12),
        ("t-partition-2147483647", 2**31 - 1),
        ("t-partition-2147483648", -1),
        ("t-partition-", -1),
        ("t-partition-01", -1),
        ("t-partition--1", -1),
        ("t-partition-+1", -1),
        ("t-partition- 1", -1),
        ("t-partition-1_0", -1),
        ("t-partition-٣", -1),
        ("t-partition-3-partition-4", 4),
        ("t-partition-x-partition-", -1),
        ("t-partition-" + "9" * 5000, -1),
    ],
)
def test_a_partition_is_what_the_broker_takes_for_one(local: str, partition: int) -> None:
    """Source: org.apache.pulsar.common.naming.TopicName.getPartitionIndex"""
    topic = parse_topic(f"a/b/{local}")
    assert topic.partition == partition
    shown = topic.full if partition < 0 else topic.full[: topic.full.rindex("-partition-")]
    assert topic.partitioned == shown
