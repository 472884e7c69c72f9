import pytest

from proxy.policies.keys import SETTINGS, read_target
from tests.proxy.policies.layered import ORDERS, RATED


@pytest.mark.parametrize("place", RATED)
def test_every_place_that_the_configuration_knows_can_be_named(place) -> None:
    assert read_target(*place) == place


@pytest.mark.parametrize(
    ("setting", "name", "one_form"),
    [
        ("topic", "acme/shop/orders", ORDERS),
        ("subscription", f"a@b@{ORDERS}", f"a@b@{ORDERS}"),
        ("address", "10.1.2.3", "10.1.2.3/32"),
        ("address", "2001:DB8::/32", "2001:db8::/32"),
    ],
)
def test_names_have_one_form(setting: str, name: str, one_form: str) -> None:
    assert read_target("dispatch", setting, name)[2] == one_form


@pytest.mark.parametrize(
    ("direction", "setting", "name", "problem"),
    [
        ("up", "topic", "x", "direction: 'up' is not publish, dispatch or subscribe"),
        ("publish", "tpic", "x", "setting: 'tpic' is not known; one of proxy, "),
        ("publish", "subscription", "x", "setting: 'subscription' has no publish limit; one of address, "),
        ("dispatch", "producer", "x", "has no dispatch limit"),
        ("subscribe", "proxy", "", "has no subscribe limit"),
        ("publish", "proxy", "x", "name: 'x': leave the name out: this setting has no name"),
        ("publish", "tenant", "a/b", "write a tenant as tenant"),
        ("publish", "namespace", "acme", "write a namespace as tenant/namespace"),
        ("publish", "topic", f"{ORDERS}-partition-1", "not one partition"),
        ("publish", "topic", "a://b", "is not a topic name"),
        ("dispatch", "subscription", "audit", "write subscription@"),
        ("publish", "role", "a\nb", "write it in one line of at most 4200"),
        ("publish", "role", "a" * 257, "write the role in one line of 1 to 256"),
        ("publish", "address", "10.1.2.3/8", "has host bits set"),
        ("publish", "address", "2001:db8::1", "write 2001:db8::/64"),
    ],
)
def test_a_wrong_word_is_named_with_what_would_be_right(direction: str, setting: str, name: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem.replace("'", ".").replace("(", ".")):
        read_target(direction, setting, name)


def test_there_is_something_to_limit_in_every_setting() -> None:
    assert set().union(*SETTINGS.values()) == {place[1] for place in RATED}
