"""What is blocked, as it concerns a client as a whole."""

import pytest

from proxy.blocking.blocklist import Blocklist, Order
from proxy.blocking.rules import read_key
from proxy.observe.connection import Connection
from proxy.observe.counters import Counters
from proxy.sessions import client_blocks

CLIENT = Connection(7, client_address="192.0.2.7:40001", client_role="billing")


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture
def blocklist(counters: Counters) -> Blocklist:
    return Blocklist([], counters, ())


@pytest.mark.parametrize(
    ("kind", "name", "is_meant"),
    [
        ("address", "192.0.2.7", True),
        ("address", "192.0.2.8", False),
        ("role", "billing", True),
        ("role", "bill", False),
        ("producer", "billing", False),
    ],
)
def test_a_rule_of_its_address_or_role_means_a_client(
    blocklist: Blocklist, kind: str, name: str, *, is_meant: bool
) -> None:
    assert client_blocks.of(blocklist, CLIENT) is None
    blocklist.put(read_key(kind, name), Order("too loud", 0))
    rule = client_blocks.of(blocklist, CLIENT)
    assert (rule is not None) == is_meant
    assert rule is None or rule.key.name == name


def test_to_ask_counts_nothing_and_to_refuse_and_to_end_count_what_they_do(
    blocklist: Blocklist, counters: Counters
) -> None:
    key = read_key("role", "billing")
    blocklist.put(key, Order("too loud", 0))
    client_blocks.of(blocklist, CLIENT)
    assert blocklist.hits[key] == 0
    assert client_blocks.refuses(blocklist, CLIENT) is not None
    assert client_blocks.ends(blocklist, CLIENT) is not None
    assert blocklist.hits[key] == 2


def test_who_is_not_meant_is_not_counted(blocklist: Blocklist, counters: Counters) -> None:
    blocklist.put(read_key("role", "other"), Order("too loud", 0))
    assert client_blocks.refuses(blocklist, CLIENT) is None
    assert client_blocks.ends(blocklist, CLIENT) is None
    assert not blocklist.hits
    assert not counters.blocked
