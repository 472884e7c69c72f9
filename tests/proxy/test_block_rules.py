"""Rules, and what they mean."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.topic_name import parse_topic
from proxy import block_rules as rules_module
from proxy.block_rules import Key, Kind, Rule, Rules, TooManyRulesError, read_key, read_reason

ORDERS = parse_topic("persistent://acme/shop/orders-partition-3")
SYSTEM = parse_topic("persistent://acme/shop/__change_events")


def rules_of(*keys: Key) -> Rules:
    rules = Rules()
    for key in keys:
        rules.put(Rule(key))
    return rules


def networks(addresses: st.SearchStrategy, bits: int) -> st.SearchStrategy:
    return st.builds(lambda a, n: ip_network((int(a), n), strict=False), addresses, st.integers(0, bits))


# Close together, so that networks do hold addresses.
V4 = st.integers(0, 2**12).map(lambda low: ip_address(0xC0000200 + low))
V6 = st.integers(0, 2**12).map(lambda low: ip_address((0x20010DB8 << 96) + low))
NETWORKS = st.one_of(networks(V4, 32), networks(V6, 128))


@given(st.lists(NETWORKS, max_size=20), st.lists(NETWORKS, max_size=5), st.lists(st.one_of(V4, V6), min_size=1))
def test_addresses_are_found_as_ipaddress_finds_them(put, taken_back, addresses) -> None:
    rules = rules_of(*(read_key("address", str(network)) for network in put))
    for network in taken_back:
        rules.remove(read_key("address", str(network)))
    left = set(put) - set(taken_back)
    for address in addresses:
        around = [n for n in left if n.version == address.version and address in n]
        rule = rules.of_client(str(address), "")
        narrowest = max((n.prefixlen for n in around), default=None)
        assert (rule and ip_network(rule.key.name).prefixlen) == narrowest


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.7/32", "192.0.2.7"),
        ("192.0.2.0/24", "192.0.2.0/24"),
        ("2001:DB8::0:7", "2001:db8::7"),
        ("2001:db8::/32", "2001:db8::/32"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
        ("0.0.0.0/0", "0.0.0.0/0"),
    ],
)
def test_an_address_has_one_form(written: str, kept: str) -> None:
    assert read_key("address", written).name == kept


@pytest.mark.parametrize("seen", ["192.0.2.7", "::ffff:192.0.2.7"])
def test_an_ipv4_client_is_known_on_an_ipv6_socket_too(seen: str) -> None:
    assert rules_of(read_key("address", "192.0.2.0/24")).of_client(seen, "")


@pytest.mark.parametrize("seen", ["", "somewhere", "fe80::1%eth0"])
def test_what_is_no_address_in_a_rule_is_not_blocked(seen: str) -> None:
    assert rules_of(read_key("address", "192.0.2.0/24")).of_client(seen, "") is None


@pytest.mark.parametrize("name", ["", "localhost", "192.0.2.0/33", "192.0.2.7/24", "1.2.3", "1.2.3.4:80"])
def test_what_is_no_address_is_refused_with_how_to_write_one(name: str) -> None:
    with pytest.raises(ValueError, match=r"write (an address as 192\.0\.2\.7|the address in one line)"):
        read_key("address", name)


@pytest.mark.parametrize("name", ["::1%lo", "fe80::1%eth0", "fe80::%eth0/64"])
def test_an_address_with_a_zone_is_refused_with_the_remedy(name: str) -> None:
    with pytest.raises(ValueError, match=f"^'{name}' has a zone, which is ignored; leave out"):
        read_key("address", name)


@pytest.mark.parametrize(
    ("name", "is_meant"),
    [
        ("acme/shop/orders", True),
        ("persistent://acme/shop/orders-partition-3", True),
        ("persistent://acme/shop/orders-partition-4", False),
        ("persistent://acme/shop/order", False),
        ("non-persistent://acme/shop/orders", False),
    ],
)
def test_a_topic_means_all_its_partitions_and_a_partition_itself(name: str, is_meant: bool) -> None:  # noqa: FBT001
    rules = rules_of(read_key("topic", name))
    assert bool(rules.of_producer(ORDERS, "p")) is is_meant
    assert bool(rules.of_consumer(ORDERS, "s", "c")) is is_meant


@pytest.mark.parametrize(
    ("where", "is_meant"),
    [
        ({}, True),
        ({"topic": "acme/shop/orders"}, True),
        ({"topic": "acme/shop/orders-partition-3"}, True),
        ({"topic": "acme/shop/orders-partition-4"}, False),
        ({"namespace": "acme/shop"}, True),
        ({"namespace": "acme/other"}, False),
    ],
)
def test_a_name_is_blocked_everywhere_or_only_there(where: dict[str, str], is_meant: bool) -> None:  # noqa: FBT001
    assert bool(rules_of(read_key("producer", "p", **where)).of_producer(ORDERS, "p")) is is_meant
    assert bool(rules_of(read_key("consumer", "c", **where)).of_consumer(ORDERS, "s", "c")) is is_meant
    assert bool(rules_of(read_key("subscription", "s", **where)).of_consumer(ORDERS, "s", "c")) is is_meant


def test_each_kind_of_name_is_its_own() -> None:
    rules = rules_of(*(read_key(kind, kind) for kind in ("role", "producer", "consumer", "subscription")))
    assert rules.of_producer(ORDERS, "consumer") is None
    assert rules.of_consumer(ORDERS, "producer", "subscription") is None
    assert rules.of_client("192.0.2.7", "producer") is None
    assert rules.of_client("192.0.2.7", "role")


def test_who_has_no_name_yet_is_not_blocked() -> None:
    rules = rules_of(read_key("producer", "p"), read_key("role", "r"))
    assert rules.of_producer(ORDERS, "") is None
    assert rules.of_client("192.0.2.7", "") is None


def test_pulsars_own_topics_are_never_blocked() -> None:
    rules = rules_of(read_key("producer", "p"), read_key("subscription", "s"))
    assert rules.of_producer(SYSTEM, "p") is None
    assert rules.of_consumer(SYSTEM, "s", "c") is None
    for place in ({"name": SYSTEM.full, "kind": "topic"}, {"name": "p", "kind": "producer", "topic": SYSTEM.full}):
        with pytest.raises(ValueError, match=r"is Pulsar's own topic, which cannot be blocked"):
            read_key(**place)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ("user", "u"),
            "'user' cannot be blocked; write one of address, role, producer, consumer, subscription, topic",
        ),
        (("role", ""), "write the role in one line of 1 to 256 characters"),
        (("role", "r" * 257), "write the role in one line of 1 to 256 characters"),
        (("role", "two\nlines"), "write the role in one line of 1 to 256 characters"),
        (("producer", ""), "write the producer in one line of at most 1000 characters"),
        (("producer", "r" * 1001), "write the producer in one line of at most 1000 characters"),
        (("topic", "persistent://x"), "is not a topic name"),
        (("producer", "p", "a/b/c", "a/b"), "narrowed by a topic or by a namespace, not by both"),
        (("producer", "p", "", "a"), "'a' is not a namespace; write tenant/namespace"),
        (("producer", "p", "", "a/b\0"), "is not a namespace; write tenant/namespace"),
        (("producer", "p", "a/b/c\0d"), "has invisible characters; block a producer"),
        (("producer", "p", "", "a/b/c"), "is not a namespace"),
        (("topic", "a/b/c", "", "a/b"), "a block of topic has no topic or namespace; leave it out"),
    ],
)
def test_mistakes_are_told_with_the_remedy(arguments: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_key(*arguments)


@pytest.mark.parametrize("text", ["x" * 201, "two\nlines", "a\x00b"])
def test_a_reason_is_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="write the reason in one line of at most 200 characters"):
        read_reason(text)


def test_the_number_of_rules_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules_module, "MOST_RULES", 2)
    rules = rules_of(read_key("role", "a"), read_key("role", "b"))
    with pytest.raises(TooManyRulesError, match="2 rules are set"):
        rules.put(Rule(read_key("role", "c")))
    rules.put(Rule(read_key("role", "b"), "a new reason"))
    rules.remove(read_key("role", "a"))
    rules.put(Rule(read_key("role", "c")))
    assert [rule.key.name for rule in rules.all()] == ["b", "c"]


def test_rules_are_counted_by_kind() -> None:
    counted = rules_of(read_key("role", "a"), read_key("role", "b"), read_key("topic", "t")).by_kind()
    assert counted == {kind.value: 0 for kind in Kind} | {"role": 2, "topic": 1}


def test_a_rule_says_what_it_is() -> None:
    assert str(Rule(read_key("role", "r"))) == "role 'r' is blocked by Sluice"
    narrowed = Rule(read_key("producer", "p", namespace="a/b"), "too loud")
    assert str(narrowed) == "producer 'p' in a/b is blocked by Sluice: too loud"
