from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiter.names import Networks, counted_as

NETWORKS = st.builds(
    lambda address, length: str(ip_network((int(address), length), strict=False)),
    st.ip_addresses(v=4, network="10.0.0.0/16"),
    st.integers(8, 32),
) | st.builds(
    lambda address, length: str(ip_network((address.packed, length), strict=False)),
    st.ip_addresses(v=6, network="2001:db8::/96"),
    st.integers(32, 128),
)
ADDRESSES = st.ip_addresses(v=4, network="10.0.0.0/16") | st.ip_addresses(v=6, network="2001:db8::/96")


@given(networks=st.lists(NETWORKS, max_size=20), gone=st.lists(NETWORKS, max_size=5), address=ADDRESSES)
def test_the_narrowest_network_around_an_address_decides(networks: list[str], gone: list[str], address) -> None:
    table: Networks[str] = Networks()
    for network in networks:
        table.put(network, network)
    for network in gone:
        table.put(network, None)
    around = [ip_network(network) for network in set(networks) - set(gone) if address in ip_network(network)]
    expected = max(around, key=lambda network: network.prefixlen, default=None)
    assert table.find(str(address)) == (str(expected) if expected else None)
    assert bool(table) == bool(set(networks) - set(gone))


def test_an_ipv4_address_in_ipv6_clothes_is_that_ipv4_address() -> None:
    table: Networks[int] = Networks()
    table.put("10.0.0.0/8", 1)
    assert table.find("::ffff:10.1.2.3") == 1
    assert counted_as("::ffff:10.1.2.3") == "10.1.2.3"


def test_what_is_no_address_is_in_no_network() -> None:
    table: Networks[int] = Networks()
    table.put("0.0.0.0/0", 1)
    table.put("::/0", 1)
    assert table.find("") is None
    assert table.find("somewhere") is None


@pytest.mark.parametrize("network", ["", "somewhere", "10.0.0.0/33", "10.0.0.1/8"])
def test_what_is_no_network_cannot_be_put(network: str) -> None:
    with pytest.raises(ValueError, match=r"network|host bits"):
        Networks[int]().put(network, 1)


@pytest.mark.parametrize(
    ("address", "name"),
    [("10.1.2.3", "10.1.2.3"), ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"), ("somewhere", "somewhere"), ("", "")],
)
def test_clients_are_counted_by_ipv4_address_or_ipv6_64(address: str, name: str) -> None:
    assert counted_as(address) == name


def test_two_addresses_of_one_ipv6_network_are_one_client() -> None:
    assert counted_as(str(ip_address("2001:db8::1"))) == counted_as(str(ip_address("2001:db8::ffff")))


def test_a_copy_is_changed_without_the_first() -> None:
    table: Networks[int] = Networks()
    table.put("10.0.0.0/8", 1)
    other = table.copy()
    other.put("10.0.0.0/8", 2)
    other.put("10.1.0.0/16", 3)
    assert (table.find("10.1.2.3"), other.find("10.1.2.3"), other.find("10.2.2.3")) == (1, 3, 2)
