"""Topic names, as clients write them and as they should not."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.frames import MOST_NAME_BYTES
from protocol.topic_name import TopicName, is_entity, parse_topic

parts = st.text(string.ascii_letters + string.digits + "-=:._", min_size=1, max_size=9)
locals_ = st.text(st.characters(blacklist_characters="/", blacklist_categories=["Cs"]), min_size=1, max_size=9)
suffixes = st.lists(
    st.one_of(
        st.integers(-2, 2**31 + 1).map(str),
        st.text(st.one_of(st.sampled_from("0123456789-+x "), st.characters(categories=["Nd", "No"])), max_size=3),
    ).map("-partition-{}".format),
    max_size=3,
).map("".join)


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


@given(st.sampled_from(["persistent", "non-persistent"]), parts, parts, locals_)
def test_a_full_name_is_read_back(domain: str, tenant: str, namespace: str, local: str) -> None:
    topic = TopicName(domain, tenant, namespace, local)
    assert parse_topic(topic.full) == topic
    assert topic.namespace_name == f"{tenant}/{namespace}"


@pytest.mark.parametrize(
    "name",
    ["", "/", "a/b", "a/b/", "//t", "a//t", "://a/b/t", "http://a/b/t", "Persistent://a/b/t", "persistent://", "persistent://t",
     "persistent://a/b", "persistent://a/b/", "persistent:///b/t", "persistent://a//t", "-partition-3", "a b/c/t",
     "a/b\0/t", "ä/b/t", "a/b!/t"],
)  # fmt: skip
def test_a_text_that_is_no_topic_name_is_refused_by_name(name: str) -> None:
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
        ("t-partition-٣", 3),
        ("t-partition-1٣", 13),
        ("t-partition-٠٣", -1),
        ("t-partition-²", -1),
        ("t-partition-\U0001d7cf", -1),
        ("t-partition-3-partition-4", 4),
        ("t-partition-x-partition-", -1),
        ("t-partition-" + "9" * 4000, -1),
    ],
)
def test_a_partition_is_what_the_broker_takes_for_one(local: str, partition: int) -> None:
    """Source: org.apache.pulsar.common.naming.TopicName.getPartitionIndex"""
    topic = parse_topic(f"a/b/{local}")
    assert topic.partition == partition
    shown = topic.full if partition < 0 else topic.full[: topic.full.rindex("-partition-")]
    assert topic.partitioned == shown


SYSTEM = (
    "persistent://public/default/__change_events",
    "persistent://public/default/__change_events-partition-0",
    "persistent://public/default/__change_events-partition-2147483647",
    "persistent://public/default/__change_events-partition-٣",
    "persistent://public/default/__change_events-partition-0-partition-1",
    "persistent://public/default/__transaction_buffer_snapshot",
    "persistent://public/default/__transaction_buffer_snapshot_indexes",
    "persistent://public/default/__transaction_buffer_snapshot_segments-partition-7",
    "persistent://public/default/__transaction_pending_ack",
    "persistent://public/default/orders-billing__transaction_pending_ack",
    "persistent://public/default/orders-billing__transaction_pending_ack-partition-3",
    "persistent://pulsar/system/transaction_coordinator_assign-partition-3",
    "persistent://pulsar/system/__transaction_log_3",
    "persistent://pulsar/system/anything",
    "persistent://pulsar/localhost:8080/healthcheck",
    "persistent://pulsar/localhost:8080/anything",
    "__change_events",
    "acme/shop/__change_events",
)
ORDINARY = (
    "persistent://public/default/__change_events-partition-x",
    "persistent://public/default/__change_events-partition-01",
    "persistent://public/default/__change_events-partition--1",
    "persistent://public/default/__change_events-partition-",
    "persistent://public/default/__change_events-partition-2147483648",
    "persistent://public/default/__change_events-partition-x-partition-0",
    "persistent://public/default/__change_events-partition-0-partition-1-partition-2",
    "persistent://public/default/__CHANGE_EVENTS",
    "persistent://public/default/__change_events ",
    "persistent://public/default/x__change_events",
    "persistent://public/default/__transaction_buffer_snapshot_x",
    "persistent://public/default/__transaction_pending_ack-partition-3-partition-4",
    "persistent://public/default/__transaction_log_3",
    "persistent://public/default/transaction_coordinator_assign",
    "persistent://public/default/healthcheck",
    "persistent://pulsar/localhost/healthcheck",
    "persistent://pulsar/systems/anything",
    "persistent://pulsar/:8080/healthcheck",
    "persistent://pulsar/a:b:8080/healthcheck",
    "persistent://pulsar/a:8080x/healthcheck",
    "persistent://Pulsar/system/anything",
    "persistent://acme/localhost:8080/healthcheck",
    "persistent://sla-monitor/localhost:8080/x",
)
"""What the broker limits, too."""
LIMITED_IN_PART = (
    "non-persistent://public/default/__change_events",
    "non-persistent://public/default/orders-billing__transaction_pending_ack",
    "non-persistent://pulsar/system/anything",
    "persistent://acme/cluster/shop/__change_events",
    "persistent://pulsar/cluster/localhost:8080/healthcheck",
    "persistent://sla-monitor/cluster/localhost:8080/x",
)
"""What 4.0.8 calls system topics, but not every version does, or not for every limit."""


@pytest.mark.parametrize("name", SYSTEM)
def test_topics_that_the_broker_exempts_are_systems(name: str) -> None:
    assert parse_topic(name).is_system


@pytest.mark.parametrize("name", [*ORDINARY, *LIMITED_IN_PART])
def test_names_that_only_look_like_pulsars_own_are_ordinary(name: str) -> None:
    assert not parse_topic(name).is_system


@given(suffixes)
def test_only_partition_suffixes_leave_a_topic_pulsars_own(suffix: str) -> None:
    """At most two, each what Java reads as an int that it would write in as many characters."""
    names = re.fullmatch(r"(?:-partition-(\d+))?(?:-partition-(\d+))?", suffix)
    read = [int(digits) for digits in names.groups() if digits] if names else []
    same = names is not None and all(
        len(str(index)) == len(digits) and index < 2**31 and max(digits) <= "\uffff"
        for index, digits in zip(read, filter(None, names.groups()), strict=True)
    )
    assert parse_topic(f"a/b/__change_events{suffix}").is_system == same
    assert parse_topic(f"a/b/s__transaction_pending_ack{suffix}").is_system == (same and len(read) < 2)


@given(st.sampled_from([*SYSTEM, *ORDINARY, *LIMITED_IN_PART]), locals_)
def test_no_prefix_makes_a_topic_pulsars_own(name: str, prefix: str) -> None:
    domain, _, rest = parse_topic(name).full.partition("://")
    tenant, namespace, local = rest.split("/", 2)
    made = parse_topic(f"{domain}://{tenant}/{namespace}/{prefix}{local}").is_system
    own_namespace = tenant == "pulsar" and namespace in ("system", "localhost:8080")
    ends_so = "__transaction_pending_ack" in local and parse_topic(name).is_system
    assert made == (domain == "persistent" and "/" not in local and (own_namespace or ends_so))


@pytest.mark.parametrize("fill", ["x", "ü", "\U0001f600"])
def test_a_name_has_at_most_its_bytes(fill: str) -> None:
    most = (MOST_NAME_BYTES - len("persistent://a/b/")) // len(fill.encode())
    assert parse_topic(f"a/b/{fill * most}").local == fill * most
    for more in (1, 10_000):
        with pytest.raises(ValueError, match="has more than 4096 bytes") as refused:
            parse_topic(f"a/b/{fill * (most + more)}")
        assert len(str(refused.value)) < 500


def test_a_name_that_cannot_be_encoded_is_refused() -> None:
    with pytest.raises(ValueError, match="not UTF-8"):
        parse_topic("a/b/\ud800")


@pytest.mark.parametrize("local", ["a\0b", "a\nb", "a\x1b[2J", "a b", " x", "ü"])
def test_the_last_part_may_hold_what_the_broker_serves(local: str) -> None:
    assert parse_topic(f"a/b/{local}").local == local


def test_tenants_and_namespaces_are_what_pulsar_takes() -> None:
    assert all(map(is_entity, ("acme", "a=b:c.d-e_F9")))
    assert not any(map(is_entity, ("", "*", "a/b", "a\n", "ä", "a b")))


_PARTS = st.lists(st.sampled_from(["a", "@", "@persistent://", "@non-persistent://", "t/n/", "/", ":"]), max_size=6)


@given(st.lists(st.tuples(_PARTS.map("".join), st.sampled_from(["", "non-"]), _PARTS.map("".join)), max_size=20))
def test_a_name_and_its_topic_s_are_joined_as_no_other_two(named: list[tuple[str, str, str]]) -> None:
    """Limits of subscriptions and producers are found by `name@topic`: clients choose both."""
    joined: dict[str, tuple[str, str]] = {}
    for name, domain, local in named:
        try:
            topic = parse_topic(f"{domain}persistent://t/n/a{local}").full
        except ValueError:
            continue
        assert joined.setdefault(f"{name}@{topic}", (name, topic)) == (name, topic)


@pytest.mark.parametrize("local", ["x@persistent://t/n/A", "n/x@non-persistent://t/n/A"])
def test_a_local_name_with_at_and_a_topic_name_is_refused(local: str) -> None:
    with pytest.raises(ValueError, match="no local name has @persistent"):
        parse_topic(f"persistent://t/n/{local}")
    assert parse_topic("persistent://t/n/x@y").local == "x@y"
